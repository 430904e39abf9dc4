"""What is exported as ONNX translates as we do, in a process without this project."""

import functools

import numpy as np
import pytest
from apart import LENGTHS, STEPS, batch_of, card_prints, our_logits, refusal, run_apart, site

import transformer
from tiny_models import tiny_config, tiny_model
from transformer.bridges.layers import check_expressible
from transformer.bridges.onnx import EXPRESSIBLE, POSITIONS, make_graphs
from transformer.data.tokenizer import BOS_ID
from variants import VARIANTS

ALL = {
    "plain": {},
    "split": {"positions": "split"},
    "learned": {"positions": "learned"},
    "sum": {"positions": "split+learned"},
    "none": {"positions": "none"},
    "pre": {"norm_position": "pre"},
    "tied": {"tied_embeddings": "all"},
    "half tied": {"tied_embeddings": "decoder"},
    "without biases": {"attention_bias": False},
    "recurrent": {"architecture": "recurrent"},
} | {name: {"activation": name} for name in ("gelu", "silu", "reglu", "geglu", "swiglu")}
ALL |= {name: changes for name, (changes, *_) in VARIANTS.items()}
CHECK = functools.partial(check_expressible, "the format onnx")
REFUSALS = {
    name: refusal(CHECK, tiny_config(**changes), EXPRESSIBLE, POSITIONS)
    for name, changes in ALL.items()
}
# Greedily token by token, then the whole target at once.
GREEDY = """
import pathlib
import sys
import numpy as np
sys.path.append(sys.argv[2])
import onnxruntime

for folder in pathlib.Path(sys.argv[1]).iterdir():
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder")
    )
    batch = dict(np.load(folder / "batch.npz"))
    [memory] = encoder.run(None, {"source": batch["source"]})
    fixed = {"memory": memory, "source": batch["source"]}
    shape = [n if isinstance(n, int) else 0 for n in decoder.get_inputs()[1].shape]
    shape[2] = len(batch["source"])
    tokens, empty = batch["begin"][:, None], np.zeros(shape, np.float32)
    past, every = empty, []
    for _ in range(batch["steps"]):
        logits, past = decoder.run(None, fixed | {"tokens": tokens[:, -1:], "past": past})
        every.append(logits[:, 0])
        tokens = np.concatenate([tokens, logits.argmax(-1).astype(np.int32)], axis=1)
    whole, _ = decoder.run(None, fixed | {"tokens": tokens[:, :-1], "past": empty})
    logits = np.stack(every, axis=1)
    np.savez(folder / "found.npz", tokens=tokens, logits=logits, whole=whole)
assert not any(name.split(".")[0] in ("transformer", "jax") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def sites():
    """Where ONNX and its runtime are installed."""
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name)
    return [site("onnxruntime")]


@pytest.fixture(scope="module")
def found(tmp_path_factory, sites):
    """A folder with the greedy translation of every model, by ONNX Runtime."""
    root = tmp_path_factory.mktemp("onnx")
    for name, changes in ALL.items():
        if REFUSALS[name]:
            continue
        model, variables = tiny_model(**changes)
        folder = root / name
        folder.mkdir()
        for half, graph in make_graphs(model.config, variables["params"]).items():
            (folder / f"{half}.onnx").write_bytes(graph.SerializeToString())
        begin = np.full(len(LENGTHS), BOS_ID, np.int32)
        source = batch_of(model.config.source_vocab_size)
        np.savez(folder / "batch.npz", source=source, begin=begin, steps=STEPS)
    run_apart(GREEDY, root, *sites, cwd=root)
    return root


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in ALL if not REFUSALS[name]])
def test_every_model_translates_elsewhere_as_here(name, found):
    model, variables = tiny_model(**ALL[name])
    with np.load(found / name / "found.npz") as theirs:
        tokens, logits, whole = theirs["tokens"], theirs["logits"], theirs["whole"]
    source = batch_of(model.config.source_vocab_size)
    ours = our_logits(model, variables, source, tokens[:, :-1])
    np.testing.assert_array_equal(tokens[:, 1:], ours.argmax(-1))
    np.testing.assert_allclose(logits, ours, rtol=0, atol=1e-4)
    np.testing.assert_allclose(whole, ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in ALL if REFUSALS[name]])
def test_what_cannot_be_computed_is_named(name):
    assert REFUSALS[name].startswith("the format onnx cannot compute model.")


@pytest.mark.full
def test_the_lines_of_the_model_card_translate_as_the_run_does(tiny, tmp_path, sites):
    texts = ["a b c", "d e", "f"]
    run = transformer.load(tiny.workdir, {"decode.beam_size": 1})
    folder = run.export("onnx", tmp_path / "given")
    assert card_prints(folder, texts, *sites) == run.translate(texts)
