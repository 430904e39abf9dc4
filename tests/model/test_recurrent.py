"""The recurrent model equals a second one in NumPy, and trains wherever the Transformer does."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_stepwise import full_pass, search
from test_transformer import gradients_by_token, name_of

import reference_recurrent as reference
from reference import float64
from tiny_models import holey_inputs, tiny_config, tiny_inputs
from tiny_run import CONFIG, command, shared_folder
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.recurrent import attention as recurrent_attention
from transformer.model.recurrent.model import RecurrentModel

B, M, L, V = 3, 5, 7, 23
ATTENTIONS = tuple(recurrent_attention.REGISTRY)
SENTENCES = np.arange(B)
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def tiny_recurrent(seed=0, **changes):
    """A tiny recurrent model and random variables for it."""
    config = tiny_config(architecture="recurrent", **changes)
    params = reference.parameters(reference.parameter_shapes(config), seed)
    return RecurrentModel(config), {"params": jax.tree.map(jnp.asarray, params)}


# --- padding and documents


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_past_and_the_source_are_read_and_never_the_future_or_padding(attention):
    model, variables = tiny_recurrent(**ONE_LAYER, cell="rnn", recurrent_attention=attention)
    inputs = holey_inputs()
    by_target, by_source = gradients_by_token(model, variables, inputs)
    is_target, is_source = np.asarray(inputs.target_mask), np.asarray(inputs.source_mask)
    for b, i in np.ndindex(B, L):
        if not is_target[b, i]:
            continue
        past = is_target[b] & (np.arange(L) <= i)
        assert (by_target[b, i, b] > 0).tolist() == past.tolist()
        assert (by_source[b, i, b] > 0).tolist() == is_source[b].tolist()
        assert not by_target[b, i, b != SENTENCES].any()
        assert not by_source[b, i, b != SENTENCES].any()
    assert np.isfinite(by_target).all()
    assert np.isfinite(by_source).all()


def documents(segments):
    """Which tokens each position of a language model depends on: [L, L]."""
    model, variables = tiny_recurrent(num_encoder_layers=0)
    target, mask = jnp.arange(1, 1 + L)[None], jnp.ones((1, L), bool)

    def features(table):
        params = {**variables["params"], "target_embedding": {"table": table}}
        arguments = None, target, None, mask, NO_DROPOUT, segments
        return model.apply({"params": params}, *arguments, method="features")[0].sum(-1)

    table = variables["params"]["target_embedding"]["table"]
    return np.abs(jax.jit(jax.jacrev(features))(table)[:, 1 : 1 + L]).sum(-1) > 0


def test_nothing_leaks_between_packed_documents():
    segments = np.array([4, 4, 4, 2, 2, 7, 7])
    past = np.tril(np.ones((L, L), bool))
    same = segments[:, None] == segments
    np.testing.assert_array_equal(documents(jnp.asarray(segments)[None]), past & same)
    # The control: in one document everything before is read.
    np.testing.assert_array_equal(documents(None), past)


# --- the model


# Every cell, every attention, every way to tie embeddings and every depth from none to three.
CASES = [
    {},
    {"cell": "lstm_peephole", "recurrent_attention": "multiplicative", "tied_embeddings": "all"},
    {"cell": "gru", "num_decoder_layers": 1, "tied_embeddings": "decoder"},
    {"cell": "rnn", "recurrent_attention": "none", "num_encoder_layers": 1},
    {"cell": "gru", "num_encoder_layers": 0, "num_decoder_layers": 3},
]


def by_loops(params, inputs, config):
    """The logits [B, L, V], zero at padding, and the weights of each sentence's real tokens."""
    logits, weights = np.zeros((B, L, V)), []
    for b in range(B):
        source, target, is_source, is_target = (np.asarray(array[b]) for array in inputs)
        real = source[is_source], target[is_target]
        logits[b, is_target], rows = reference.model(float64(params), config, *real)
        weights.append(rows)
    return logits, weights


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_model_equals_the_papers_equations_in_float64(case):
    model, variables = tiny_recurrent(**case)
    inputs = tiny_inputs()
    logits, sown = jax.jit(lambda v: model.apply(v, *inputs, mutable=["intermediates"]))(variables)
    expected, rows = by_loops(variables["params"], inputs, model.config)
    assert np.abs(expected).max() > 1.0  # so that an error of 1e-5 is a small one
    is_target = np.asarray(inputs.target_mask)
    np.testing.assert_allclose(logits[is_target], expected[is_target], rtol=1e-5, atol=1e-5)

    weights = model.sown_attention(sown.get("intermediates", {}), "weights")
    if rows[0][0] is None:
        assert weights == {}
        return
    [cross] = weights["cross"]
    assert cross.shape == (B, 1, L, M)
    assert cross.dtype == jnp.float32
    for b, (real, source) in enumerate(zip(is_target, inputs.source_mask, strict=True)):
        own = np.asarray(cross[b, 0, real])
        np.testing.assert_allclose(own[:, source], rows[b], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(own.sum(-1), 1.0, rtol=1e-6)
        assert not own[:, ~np.asarray(source)].any()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_parameter_tree_is_the_one_written_by_hand(case):
    config = tiny_config(architecture="recurrent", **case)
    init = RecurrentModel(config).init
    tree = jax.eval_shape(init, jax.random.key(0), *tiny_inputs())["params"]
    assert jax.tree.map(lambda x: x.shape, tree) == reference.parameter_shapes(config)
    assert {x.dtype for x in jax.tree.leaves(tree)} == {jnp.dtype("float32")}


@pytest.mark.full
def test_dropout_acts_on_embeddings_and_between_layers_and_only_while_training():
    model, variables = tiny_recurrent(**ONE_LAYER, recurrent_attention="multiplicative")
    inputs = tiny_inputs()

    @jax.jit
    def run(embedding, residual, word=0.0):
        rates = DropoutRates(embedding, residual, word=word)
        return model.apply(variables, *inputs, rates, rngs={"dropout": jax.random.key(0)})

    expected = jax.jit(model.apply)(variables, *inputs)
    np.testing.assert_allclose(run(0.0, 0.0), expected, rtol=1e-5, atol=1e-5)
    for rates in ((0.5, 0.0), (0.0, 0.5), (0.0, 0.0, 0.5)):
        assert np.abs(run(*rates) - expected).max() > 1e-3


@pytest.mark.full
def test_bfloat16_keeps_parameters_states_and_logits_in_float32():
    model, variables = tiny_recurrent(**ONE_LAYER, dtype="bfloat16")
    exact, _ = tiny_recurrent(**ONE_LAYER)
    inputs = tiny_inputs()
    features = jax.eval_shape(lambda v: model.apply(v, *inputs, method="features"), variables)
    assert features.dtype == jnp.bfloat16
    source, _, mask, _ = inputs
    start = (source, mask, 2, 9)
    states = jax.eval_shape(lambda v: model.apply(v, *start, method="init_cache").states, variables)
    assert {x.dtype for x in jax.tree.leaves(states)} == {jnp.dtype("float32")}
    logits, expected = (jax.jit(each.apply)(variables, *inputs) for each in (model, exact))
    assert logits.dtype == jnp.float32
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    assert 1e-4 < error < 0.05  # bfloat16 has 8 bits: it is used, and near


# --- a token at a time


@pytest.mark.parametrize(
    ("attention", "cell"),
    [("additive", "lstm"), ("multiplicative", "gru"), ("none", "lstm_peephole")],
)
def test_stepwise_logits_are_the_full_passs_on_each_hypothesis_own_history(attention, cell):
    fields = {"num_encoder_layers": 1, "recurrent_attention": attention, "cell": cell}
    model, variables = tiny_recurrent(**fields)
    logits, histories = search(model, variables, lambda cache, parents: cache.reorder(parents))
    expected = full_pass(model, variables, histories)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    # The control: a cache that is never reordered goes on from another's history.
    wrong, _ = search(model, variables, lambda cache, parents: cache)
    assert (np.abs(wrong - expected)[1:].max(axis=(1, 2, 3)) > 0.01).all()


# --- what it costs, and a whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of a few steps."""
    small = (
        "model.architecture=recurrent",
        "model.cell=gru",
        "train.steps=4",
        "train.log_every=4",
        "train.evaluate_every=4",
        "evaluate.snapshot_sentences=0",
        "evaluate.snapshot_statistics=0",
    )

    def train(root):
        (root / "config.py").write_text(CONFIG.replace("CACHE", str(root / "cache")))
        paths = f"--config={root / 'config.py'}", f"--workdir={root / 'run'}"
        ended = command(*paths, *(f"--config.{part}" for part in small))
        assert ended.code == 0, ended

    return shared_folder(tmp_path_factory, "recurrent", train) / "run"


@pytest.mark.full
def test_a_recurrent_model_trains_from_the_command_line(run):
    results = json.loads((run / "results.json").read_text())
    assert results["step"] == 4
    assert "Heat map of attention" in (run / "report.html").read_text()
    # Only what the decoder reads of the source is there to be drawn.
    assert sorted(path.name for path in (run / "figures/attention").iterdir()) == [
        "attention.npz",
        "cross_layer_1.png",
        "explorer.html",
    ]


@pytest.mark.full
def test_a_recurrent_run_translates_scores_and_draws(run):
    ended = command("--mode=translate", f"--workdir={run}", stdin=b"a b c\n\nd\n")
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 3)
    ended = command("--mode=attention", f"--workdir={run}", "--sentence=a b c")
    assert ended.code == 0
    with np.load(Path(ended.out.splitlines()[-1]).parent / "attention.npz") as saved:
        assert saved["cross"].shape[:2] == (1, 1)
        np.testing.assert_allclose(saved["cross"].sum(-1), 1.0, rtol=1e-6)
