"""The whole model equals a second one in NumPy, and hides the future and padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from reference_positions import WRITTEN
from tiny_models import holey_inputs, tiny_config, tiny_inputs, tiny_model
from transformer.model import masks
from transformer.model.config import NORM_POSITIONS, TIED_EMBEDDINGS
from transformer.model.layers import ACTIVATIONS
from transformer.model.transformer import Transformer
from variants import full_but

pytestmark = pytest.mark.device

B, M, L, V = 3, 5, 7, 23


CHOICES = {
    "positions": WRITTEN,
    "activation": (*ACTIVATIONS,),
    "tied_embeddings": TIED_EMBEDDINGS,
    "attention_bias": (True, False),
    "norm_position": NORM_POSITIONS,
}
CASES = [
    {name: values[n % len(values)] for name, values in CHOICES.items()}
    for n in range(max(map(len, CHOICES.values())))
]


def by_loops(params, inputs, config, change=reference.unchanged):
    p = reference.float64(params)
    rows = [[np.asarray(a[b]) for a in inputs] for b in range(B)]
    return np.array([reference.transformer(p, *row, config, change)[0] for row in rows])


def name_of(case):
    return "-".join(map(str, case.values()))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_model_equals_the_papers_equations_in_float64(case):
    model, variables = tiny_model(**case)
    inputs = tiny_inputs()
    logits = model.apply(variables, *inputs)
    expected = by_loops(variables["params"], inputs, model.config)
    assert logits.shape == (B, L, V)
    assert np.abs(expected).max() > 1.0  # so that an error of 1e-5 is a small one
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"positions": "none"}, {"activation": "gelu"}, {"norm_epsilon": 1e-3}],
    ids=name_of,
)
def test_the_comparison_sees_a_reference_of_another_model(changes):
    model, variables = tiny_model()
    inputs = tiny_inputs()
    expected = by_loops(variables["params"], inputs, tiny_config(**changes))
    assert np.abs(expected - model.apply(variables, *inputs)).max() > 1e-3


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_parameter_tree_is_the_one_written_by_hand(case):
    config = tiny_config(**case)
    tree = jax.eval_shape(Transformer(config).init, jax.random.key(0), *tiny_inputs())["params"]
    assert jax.tree.map(lambda x: x.shape, tree) == reference.parameter_shapes(config)
    assert {x.dtype for x in jax.tree.leaves(tree)} == {jnp.dtype("float32")}


# --- the future and padding, by gradients


def gradients_by_token(model, variables, inputs):
    """Sizes of the gradients of every feature vector by every input embedding.

    No token comes twice, so a row of an embedding table is one position of one sentence. Returns
    two arrays: [sentence, i, sentence, j] of target positions i by target j, and by source j.
    """

    @jax.jit
    def gradients(params):
        def features(params):
            return model.apply({**variables, "params": params}, *inputs, method="features")

        out, pull = jax.vjp(features, params)
        directions = np.random.default_rng(0).normal(size=out.shape[2])
        one_hot = jnp.eye(B * L)[:, :, None] * directions
        (g,) = jax.vmap(pull)(one_hot.reshape(B * L, *out.shape).astype(jnp.float32))
        tables = (g["target_embedding"]["table"], g["source_embedding"]["table"])
        return [jnp.abs(table).sum(-1) for table in tables]

    target, source = gradients(variables["params"])
    target = np.asarray(target)[:, np.asarray(inputs.target).ravel()]
    source = np.asarray(source)[:, np.asarray(inputs.source).ravel()]
    return target.reshape(B, L, B, L), source.reshape(B, L, B, M)


SENTENCES, LATER = np.arange(B), np.triu(np.ones((L, L), bool), 1)


def leaks(model, variables, inputs):
    """Which of three ways information flows that must not: future, padding, other sentences."""
    target, source = gradients_by_token(model, variables, inputs)
    own_target = target[SENTENCES, :, SENTENCES]  # [B, L, L]
    own_source = source[SENTENCES, :, SENTENCES]
    assert np.isfinite(target).all()
    assert np.isfinite(source).all()
    # What must flow: to each token, from itself and every token before, and the whole source.
    is_target, is_source = np.asarray(inputs.target_mask), np.asarray(inputs.source_mask)
    # A position always depends on itself, through the residual connection, padding or not.
    padding = ~is_target[:, None, :] & ~np.eye(L, dtype=bool)
    past = ~padding & ~LATER
    assert (own_target[past] > 0).all()
    assert (own_source[np.broadcast_to(is_source[:, None], own_source.shape)] > 0).all()
    other = SENTENCES[:, None] != SENTENCES
    found = set()
    if own_target[:, LATER].any():
        found.add("future")
    if own_target[padding & ~LATER].any():
        found.add("target padding")
    if own_source[np.broadcast_to(~is_source[:, None], own_source.shape)].any():
        found.add("source padding")
    if target.swapaxes(1, 2)[other].any() or source.swapaxes(1, 2)[other].any():
        found.add("sentences")
    return found


def one_layer(**changes):
    return tiny_model(num_encoder_layers=1, num_decoder_layers=1, **changes)


SINKS = {"attention_sink": "learned", "head_gate": True}
MASKED = [{"norm_position": name} for name in NORM_POSITIONS] + [SINKS]


@pytest.mark.parametrize("changes", full_but([MASKED[0], SINKS], MASKED), ids=name_of)
def test_future_padding_and_other_sentences_have_gradients_of_exactly_zero(changes):
    model, variables = tiny_model(**changes)
    assert leaks(model, variables, holey_inputs()) == set()


def test_the_gradient_check_sees_a_model_without_the_look_ahead_mask(monkeypatch):
    monkeypatch.setattr(
        masks, "look_ahead_mask", lambda q, k: jnp.ones((1, 1, len(q), len(k)), bool)
    )
    assert leaks(*one_layer(), holey_inputs()) == {"future"}


def test_the_gradient_check_sees_a_model_without_the_padding_mask(monkeypatch):
    monkeypatch.setattr(masks, "padding_mask", lambda mask: jnp.ones_like(mask)[:, None, None, :])
    assert leaks(*one_layer(), holey_inputs()) == {"source padding", "target padding"}


# --- compute types


@pytest.mark.parametrize("changes", [{}, SINKS], ids=["plain", "sinks"])
def test_bfloat16_keeps_parameters_and_logits_in_float32(changes):
    model, variables = tiny_model(dtype="bfloat16", **changes)
    exact, _ = tiny_model(**changes)
    inputs = tiny_inputs()
    tree = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    assert {x.dtype for x in jax.tree.leaves(tree)} == {jnp.dtype("float32")}
    features = jax.eval_shape(lambda v: model.apply(v, *inputs, method="features"), variables)
    assert features.dtype == jnp.bfloat16
    logits, expected = jax.jit(model.apply)(variables, *inputs), exact.apply(variables, *inputs)
    assert logits.dtype == jnp.float32
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    assert 1e-4 < error < 0.05  # bfloat16 has 8 bits: it is used, and near
