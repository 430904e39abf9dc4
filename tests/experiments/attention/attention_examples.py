"""Attention maps of synthetic texts, with every row a distribution and nothing from the future."""

from pathlib import Path

import numpy as np

from experiments.attention.snapshots import SavedSnapshot
from transformer.analysis.attention import Attention
from transformer.files import write_arrays

SOURCE = ("▁He", "▁admir", "ed", "▁her", ".", "</s>")
TARGET = ("<s>", "▁Он", "▁восхищ", "ался", "▁ею", ".", "▁Да")


def make_maps(source=SOURCE, target=TARGET, layers=(2, 3), heads=5, seed=7) -> Attention:
    """Returns the attention of an encoder and a decoder; an empty side has none."""
    rng = np.random.default_rng(seed)

    def rows(layers, queries, keys, causal=False):
        scores = rng.random((layers, heads, queries, keys)) ** 3
        scores *= np.tril(np.ones((queries, keys))) if causal else 1
        return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)

    m, n = len(source), len(target)
    encoder, decoder = layers
    weights = {
        "encoder_self": rows(encoder, m, m),
        "decoder_self": rows(decoder, n, n, causal=True),
        "cross": rows(decoder, n, m),
    }
    absent = {"encoder_self": not m, "decoder_self": not n, "cross": not (m and n)}
    weights = {kind: array for kind, array in weights.items() if not absent[kind]}
    norms = {
        kind: 3 * rng.random((*w.shape[:2], w.shape[3]), np.float32) for kind, w in weights.items()
    }
    return Attention(weights, norms, list(source), list(target))


def write_snapshot(folder: Path, given: SavedSnapshot) -> Path:
    """Writes a snapshot into a run's folder, as training does."""
    arrays = {"step": np.array(given.step)}
    for kind, statistics in given.statistics.items():
        arrays |= {f"statistics/{kind}/{name}": values for name, values in statistics.items()}
    for n, sentence in enumerate(given.sentences):
        place = f"sentences/{n}"
        arrays |= {f"{place}/weights/{kind}": x for kind, x in sentence.weights.items()}
        arrays |= {f"{place}/value_norms/{kind}": x for kind, x in sentence.value_norms.items()}
        for side in ("source_tokens", "target_tokens"):
            arrays[f"{place}/{side}"] = np.array(getattr(sentence, side), np.str_)
    path = folder / "attention_snapshots" / f"{given.step:08d}.npz"
    path.parent.mkdir(exist_ok=True)
    write_arrays(path, arrays)
    return path


MAPS = make_maps()
FRAMES = tuple(make_maps(seed=seed) for seed in (1, 2, 3))
LABELS = ("step 10", "step 20", "step 30")
ONE = "view=matrix&kind=cross&layer=2&head=3"  # the address of a head


def rows(page, **choice) -> np.ndarray:
    """The rows that an open page shows."""
    return np.array(page.evaluate("choice => explorer.matrix(choice).rows", choice))
