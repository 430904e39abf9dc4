"""What is exported as StableHLO translates as we do, in a process without this project."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from apart import LENGTHS, STEPS, batch_of, card_prints, our_logits, run_apart, site

import transformer
from tiny_models import tiny_config, tiny_model
from transformer.bridges import stablehlo
from transformer.bridges.stablehlo import export_programs
from transformer.data.tokenizer import BOS_ID
from transformer.model.build import build_model
from transformer.optim.parameters import named_leaves
from variants import VARIANTS

pytest.importorskip("flatbuffers")
RECURRENT = {"architecture": "recurrent"}
ALL = {
    "plain": {},
    "learned": {"positions": "learned"},
    "bfloat16": {"dtype": "bfloat16"},
    "tied": {"tied_embeddings": "all", "activation": "swiglu"},
    "lstm": RECURRENT,
    "gru": {**RECURRENT, "cell": "gru", "recurrent_attention": "multiplicative"},
    "no attention": {**RECURRENT, "recurrent_attention": "none"},
} | {name: changes for name, (changes, *_) in VARIANTS.items()}
FEW = ("plain", "bfloat16", "lstm", "relative_shaw")
# Kept since jax 0.10.2: programs and weights of a model, a batch, and the tokens and logits of its
# greedy translation then.
KEPT = Path(__file__).parent / "data/stablehlo.npz"
GREEDY = """
import pathlib
import sys
sys.path.append(sys.argv[2])
import jax
import numpy as np

for folder in pathlib.Path(sys.argv[1]).iterdir():
    weights, batch = (dict(np.load(folder / f"{name}.npz")) for name in ("weights", "batch"))
    start, step = (
        jax.jit(jax.export.deserialize(bytearray((folder / name).read_bytes())).call)
        for name in ("start", "step")
    )
    cache = start(weights, batch["source"], np.zeros(batch["steps"], np.int8))
    tokens, every = [batch["begin"]], []
    for _ in range(batch["steps"]):
        logits, cache = step(weights, tokens[-1], cache)
        every.append(logits)
        tokens.append(logits.argmax(-1).astype(np.int32))
    tokens, every = (np.stack(x, axis=1) for x in (tokens, every))
    np.savez(folder / "found.npz", tokens=tokens, logits=every)
assert not any(name.split(".")[0] in ("transformer", "flax") for name in sys.modules)
"""


def model_of(changes):
    """A model with random weights."""
    if changes.get("architecture") != "recurrent":
        return tiny_model(**changes)
    model, one = build_model(tiny_config(**changes)), jnp.ones((1, 2), int)
    return model, model.init(jax.random.key(0), one, one, one > 0, one > 0)


@pytest.mark.parametrize(
    "names", [pytest.param(FEW, marks=pytest.mark.full), pytest.param(ALL, marks=pytest.mark.slow)]
)
def test_models_translate_elsewhere_as_here(names, tmp_path):
    for name in names:
        model, variables = model_of(ALL[name])
        folder = tmp_path / name
        folder.mkdir()
        weights = {key: np.asarray(x) for key, x in named_leaves(variables["params"]).items()}
        np.savez(folder / "weights.npz", **weights)
        for program, data in export_programs(model, weights).items():
            (folder / program).write_bytes(data)
        begin = np.full(len(LENGTHS), BOS_ID, np.int32)
        source = batch_of(model.config.source_vocab_size)
        np.savez(folder / "batch.npz", source=source, begin=begin, steps=STEPS)
    run_apart(GREEDY, tmp_path, site("flatbuffers"), cwd=tmp_path)
    for name in names:
        model, variables = model_of({**ALL[name], "dtype": "float32"})
        with np.load(tmp_path / name / "found.npz") as theirs:
            tokens, logits = theirs["tokens"], theirs["logits"]
        source = batch_of(model.config.source_vocab_size)
        ours = our_logits(model, variables, source, tokens[:, :-1])
        np.testing.assert_array_equal(tokens[:, 1:], ours.argmax(-1), name)
        np.testing.assert_allclose(logits, ours, rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.full
def test_the_lines_of_the_model_card_translate_as_the_run_does(tiny, tmp_path):
    texts = ["a b c", "d e", "f"]
    run = transformer.load(tiny.workdir, {"decode.beam_size": 1})
    folder = run.export("stablehlo", tmp_path / "given")
    assert card_prints(folder, texts, site("flatbuffers")) == run.translate(texts)


@pytest.mark.full
def test_what_an_earlier_jax_exported_still_translates(tmp_path):
    with np.load(KEPT) as kept:
        arrays = dict(kept)
    for name in ("start", "step"):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes(arrays.pop(name).tobytes())
    tokens, logits = arrays.pop("found_tokens"), arrays.pop("found_logits")
    batch = {name: arrays.pop(name) for name in ("source", "begin", "steps")}
    np.savez(tmp_path / "model/weights.npz", **arrays)
    np.savez(tmp_path / "model/batch.npz", **batch)
    run_apart(GREEDY, tmp_path, site("flatbuffers"), cwd=tmp_path)
    with np.load(tmp_path / "model/found.npz") as found:
        np.testing.assert_array_equal(found["tokens"], tokens)
        np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=1e-4)


def test_programs_name_no_file():
    model, variables = tiny_model()
    weights = {key: np.asarray(x) for key, x in named_leaves(variables["params"]).items()}
    folder = str(Path(stablehlo.__file__).parents[2]).encode()
    assert not any(folder in data for data in export_programs(model, weights).values())
