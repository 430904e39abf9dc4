"""The decoder without an encoder: a language model, whose rows may hold several documents."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from reference_positions import WRITTEN
from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.model.layers import NO_DROPOUT
from transformer.model.positions.registry import fitting_names
from variants import full_but

B, L, P, V = 3, 7, 2, 23
ALONE = {"num_encoder_layers": 0}
# Documents of 3, 2 and 2 tokens; of 1 and 6; of 5, and two places of padding.
SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 3, 3], [1, 2, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
KINDS = [
    *({"positions": name} for name in fitting_names(tiny_config())),
    {"tied_embeddings": "all", "norm_position": "pre"},
    {"scan_layers": True, "num_kv_heads": 1},
]
FEW = [KINDS[0], {"positions": "rotary"}, {"positions": "relative_shaw"}, KINDS[-1]]
WITH_EQUATIONS = [kind for kind in KINDS if kind.get("positions", "none") in WRITTEN]


def logits(model, variables, tokens, mask, segments=None):
    @jax.jit
    def compute(variables, tokens, mask, segments):
        arguments = tokens, None, None, mask, NO_DROPOUT, segments
        features = model.apply(variables, *arguments, method="decode")
        return model.apply(variables, features, method="logits")

    return compute(variables, tokens, mask, segments)


@pytest.mark.parametrize("kind", WITH_EQUATIONS, ids=str)
def test_a_decoder_alone_equals_the_papers_equations_in_float64(kind):
    model, variables = tiny_model(**ALONE, **kind)
    _, target, _, mask = tiny_inputs()
    ours = logits(model, variables, target, mask)
    p = reference.float64(variables["params"])
    for row in range(B):
        arguments = [], np.asarray(target[row]), [], np.asarray(mask[row]), model.config
        expected, _ = reference.transformer(p, *arguments)
        np.testing.assert_allclose(ours[row], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", full_but(FEW, KINDS), ids=str)
def test_packed_documents_are_read_as_if_each_stood_alone(kind):
    model, variables = tiny_model(**ALONE, **kind)
    target, places = tiny_inputs().target, np.asarray(SEGMENTS)
    documents = [(row, places[row] == n) for row in range(B) for n in set(places[row]) - {0}]
    # Each in a row of its own, which padding fills up.
    rows, masks = np.zeros((2, len(documents), L), int)
    for n, (row, own) in enumerate(documents):
        rows[n, : own.sum()] = target[row, own]
        masks[n, : own.sum()] = 1
    packed = logits(model, variables, target, SEGMENTS > 0, SEGMENTS)
    alone = logits(model, variables, jnp.asarray(rows), jnp.asarray(masks > 0))
    for n, (row, own) in enumerate(documents):
        np.testing.assert_allclose(packed[row, own], alone[n, masks[n] > 0], rtol=1e-4, atol=1e-5)


def influence(segments):
    """Which token [L] of the first row has a gradient on which logits [L] of it."""
    model, variables = tiny_model(**ALONE)
    table = variables["params"]["target_embedding"]["table"]
    target = tiny_inputs().target[:1]  # no token comes twice

    def features(table):
        params = {**variables["params"], "target_embedding": {"table": table}}
        mask = jnp.ones_like(target, bool)
        arguments = target, None, None, mask, NO_DROPOUT, segments
        return model.apply({"params": params}, *arguments, method="decode")[0].sum(-1)

    jacobian = jax.jit(jax.jacobian(features))(table)
    return np.asarray(jnp.abs(jacobian[:, target[0]]).sum(-1) > 0)


def test_nothing_leaks_between_packed_documents_or_from_the_future():
    segments = np.asarray(SEGMENTS[0])
    same = segments[:, None] == segments
    past = np.tril(np.ones((L, L), bool))
    np.testing.assert_array_equal(influence(SEGMENTS[:1]), same & past)
    # The control: without segments all of the past is read.
    np.testing.assert_array_equal(influence(None), past)


@pytest.mark.parametrize("kind", full_but(FEW, KINDS), ids=str)
def test_stepwise_logits_are_those_of_the_full_pass(kind):
    model, variables = tiny_model(**ALONE, **kind)
    tokens = jnp.asarray(np.random.default_rng(0).integers(V, size=(B, P, L)))
    nothing = jnp.zeros((B, 0), jnp.int32)
    cache = model.apply(variables, nothing, nothing > 0, P, L + 2, method="init_cache")
    step = jax.jit(functools.partial(model.apply, method="decode_step"))
    found = []
    for place in range(L):
        out, cache = step(variables, tokens[:, :, place], cache)
        found.append(out)
    rows = tokens.reshape(B * P, L)
    expected = logits(model, variables, rows, jnp.ones_like(rows, bool))
    np.testing.assert_allclose(
        np.stack(found, axis=2).reshape(B * P, L, V), expected, rtol=1e-4, atol=1e-5
    )
