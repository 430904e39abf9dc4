"""Reading the probes of a run: what its attention heads looked at, evaluation by evaluation.

Each evaluation during training leaves `probes/<step, 8 digits>.npz` in the run's folder, which
`np.load` reads without pickle. It holds

- `step`: the training step;
- `statistics/<kind>/<name>`: float32 [layers, H], the statistics of all heads of a kind, over
  `evaluate.probe_statistics` sentences of the validation set; NaN where no row counts;
- `sentences/<n>/weights/<kind>`: float32 [layers, H, L, M], the attention weights of the n-th of
  `evaluate.probe_sentences` sentences, n from zero, the same at each evaluation;
- `sentences/<n>/value_norms/<kind>`: float32 [layers, H, M];
- `sentences/<n>/source_tokens` and `sentences/<n>/target_tokens`: strings; one of them is empty
  where the model reads one text alone.

Kinds are `encoder_self`, `decoder_self` and `cross`, those that the model has. The statistics are
those of `transformer.head_statistics`: `entropy` (nats), `relative_entropy` (0 to 1), `distance`
(tokens, of self-attention), `end_share` (0 to 1, where the keys have an end-of-sentence) and
`diagonality` (0 to 1); and `aer`, `precision` and `recall` (0 to 1) of `cross`, where gold word
links are known.
"""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.tasks.base import Attention

KINDS = ("encoder_self", "decoder_self", "cross")


class Probe(NamedTuple):
    """What one evaluation left.

    `statistics[kind][name]` is float32 [layers, H].
    """

    step: int
    sentences: list[Attention]
    statistics: dict[str, dict[str, np.ndarray]]


def read_probes(folder: Path) -> list[Probe]:
    """Returns the probes of a run's folder in the order of their steps; none where it has none.

    Files that are damaged or cut short are passed over.
    """
    found = []
    for path in sorted((Path(folder) / "probes").glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found.append(_read(arrays))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            continue
    return sorted(found, key=lambda probe: probe.step)


def of_same_sentence(probes: Sequence[Probe], n: int) -> list[Probe]:
    """Returns the probes whose n-th sentence, n from zero, is that of the last of them.

    Its tokens are the same, and its weights have the same shapes.
    """
    last = _identity(probes[-1].sentences[n])
    having = (probe for probe in probes if len(probe.sentences) > n)
    return [probe for probe in having if _identity(probe.sentences[n]) == last]


def _identity(sentence: Attention) -> tuple[Any, ...]:
    shapes = {kind: weights.shape for kind, weights in sentence.weights.items()}
    return shapes, sentence.source_tokens, sentence.target_tokens


def _read(arrays: Mapping[str, np.ndarray]) -> Probe:
    names = {name.split("/")[1] for name in arrays if name.startswith("sentences/")}
    sentences = []
    for name in sorted(names, key=int):
        place = f"sentences/{name}"
        sentences.append(
            Attention(
                _by_name(arrays, f"{place}/weights"),
                _by_name(arrays, f"{place}/value_norms"),
                arrays[f"{place}/source_tokens"].tolist(),
                arrays[f"{place}/target_tokens"].tolist(),
            )
        )
    kinds = {kind: _by_name(arrays, f"statistics/{kind}") for kind in KINDS}
    statistics = {kind: own for kind, own in kinds.items() if own}
    return Probe(int(arrays["step"]), sentences, statistics)


def _by_name(arrays: Mapping[str, np.ndarray], place: str) -> dict[str, np.ndarray]:
    """The arrays right below a place, by the last part of their name."""
    start = f"{place}/"
    return {name[len(start) :]: arrays[name] for name in arrays if name.startswith(start)}
