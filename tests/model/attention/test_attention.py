"""Attention is equation 1 and section 3.2.2, and shows its weights to whoever asks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import random, tiny_config, tiny_inputs, tiny_model
from transformer.model.attention import (
    MultiHeadAttention,
    masked_softmax,
    scaled_dot_product_attention,
)
from transformer.model.masks import AttentionInputs
from transformer.model.positions.registry import SumOfPositions

pytestmark = pytest.mark.device

B, L, M, D, H, K = 3, 7, 5, 22, 2, 11


def test_the_scaled_dot_product_is_equation_1():
    q, k, v = (np.float64(random(B, n, H, K, seed=n)) for n in (L, M, M + 1))
    v = v[:, :M]
    mask, bias = np.array(random(B, 1, L, M, seed=1) > 0), np.float64(random(H, L, M, seed=2))
    mask[..., 0] = True

    def equation(root, double=1.0):
        scores = np.einsum("BLHK,BMHK->BHLM", q, k) / root * double + bias
        exponentials = np.where(mask, np.exp(scores), 0.0)
        weights = exponentials / exponentials.sum(-1, keepdims=True)
        return np.einsum("BHLM,BMHK->BLHK", weights, v), weights

    arguments = *(jnp.asarray(x, jnp.float32) for x in (q, k, v)), jnp.asarray(mask)
    arguments = *arguments, jnp.asarray(bias, jnp.float32)
    ours = scaled_dot_product_attention(*arguments)
    for got, expected in zip(ours, equation(np.sqrt(K)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(ours[0] - equation(1.0)[0]).max() > 0.1  # control
    # Modified scores are scaled and lack the bias; modified weights are those of the values.
    changed = {"score_mod": lambda scores, _: 2 * scores, "weight_mod": lambda weights: 3 * weights}
    heads, weights = scaled_dot_product_attention(*arguments, **changed)
    expected = equation(np.sqrt(K), double=2.0)
    np.testing.assert_allclose(heads, 3 * expected[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weights, 3 * expected[1], rtol=1e-4, atol=1e-5)
    # A scale takes the place of the root.
    heads, _ = scaled_dot_product_attention(*arguments, scale=jnp.float32(0.5))
    np.testing.assert_allclose(heads, equation(2.0)[0], rtol=1e-5, atol=1e-5)


def test_a_sink_shares_the_weight_by_hand():
    scores = jnp.log(jnp.array([2.0, 3.0, 7.0])) + jnp.zeros((1, 2, 1, 1))
    mask, sinks = jnp.array([[[[True, True, False]]]]), jnp.log(jnp.array([1.0, 5.0]))
    by_hand = np.array([[2 / 6, 3 / 6, 0], [2 / 10, 3 / 10, 0]])
    for large in (0.0, 1000.0, -1000.0):
        weights = masked_softmax(scores + large, mask, sinks + large)[0, :, 0]
        np.testing.assert_allclose(weights, by_hand, rtol=2e-4)
    far = masked_softmax(scores, mask, jnp.array([-1e4, 1e4]))[0, :, 0]
    np.testing.assert_allclose(far, [[0.4, 0.6, 0], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("sink", [None, jnp.array([0.3, -2.0])], ids=["no sink", "sinks"])
def test_a_query_with_nothing_to_read_gets_zeros_and_finite_gradients(sink):
    mask = jnp.zeros((1, 1, 3, 5), bool).at[0, 0, 0].set(True)  # rows 1 and 2 read nothing

    def total(queries, keys, sink):
        _, weights = scaled_dot_product_attention(queries, keys, keys, mask, sink=sink)
        return jnp.sum(weights * random(1, 2, 3, 5, seed=2)), weights

    arguments = random(1, 3, 2, 7), random(1, 5, 2, 7, seed=1), sink
    differentiated = (0, 1) if sink is None else (0, 1, 2)
    (_, weights), gradients = jax.value_and_grad(total, differentiated, has_aux=True)(*arguments)
    np.testing.assert_array_equal(weights[:, :, 1:], 0.0)
    np.testing.assert_array_equal(gradients[0][:, 1:], 0.0)
    assert all(np.isfinite(g).all() and g.any() for g in gradients)
    # Control: what a plain softmax over -inf makes of such a row.
    assert np.isnan(jax.nn.softmax(jnp.where(mask, 0.0, -jnp.inf))[0, 0, 1]).all()


def attend(p, x, memory, mask, bias, heads=H, names="none", dtype="float32", **kwargs):
    config = tiny_config(attention_bias=bias, num_heads=heads, dtype=dtype)
    positions = jnp.arange(x.shape[1]), jnp.arange(M)
    stack_bias = SumOfPositions(config, names=names).apply({}, *positions, method="bias")
    module = MultiHeadAttention(config, names)
    inputs = AttentionInputs(mask, *positions, stack_bias)
    return module.apply({"params": p}, x, memory, inputs, **kwargs)


def test_softmax_is_in_float32_whatever_the_compute_type():
    p = reference.parameters(tiny_config())["decoder_layers_0"]["cross_attention"]
    x, memory, mask = random(B, L, D), random(B, M, D, seed=1), jnp.ones((1, 1, 1, M), bool)
    out, sown = attend(p, x, memory, mask, True, dtype="bfloat16", mutable=["intermediates"])
    (weights,) = sown["intermediates"]["weights"]
    assert out.dtype == jnp.bfloat16
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    # Control: weights rounded to bfloat16 do not sum to one so exactly.
    rounded = weights.astype(jnp.bfloat16).astype(jnp.float32)
    assert np.abs(rounded.sum(-1) - 1.0).max() > 1e-4


def test_bfloat16_scores_are_divided_by_the_root_in_float32():
    width, found = 48, []
    queries, keys = (random(B, n, H, width, seed=n).astype(jnp.bfloat16) for n in (L, M))
    scaled_dot_product_attention(
        queries,
        keys,
        keys,
        jnp.ones((1, 1, 1, M), bool),
        score_mod=lambda scores, _: found.append(scores) or scores,
    )
    wide = (np.asarray(x, np.float64) for x in (queries, keys))
    products = np.einsum("BLHK,BMHK->BHLM", *wide)
    [scores] = found
    assert scores.dtype == jnp.float32
    root = (products**2).sum() / (products * scores).sum()
    assert abs(root / width**0.5 - 1.0) < 5e-4  # queries are rounded, up and down
    # Control: the root that bfloat16 has.
    assert abs(float(jnp.bfloat16(width**0.5)) / width**0.5 - 1.0) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize(("heads", "shared"), [(2, 2), (4, 2)], ids=["each its own", "in groups"])
def test_value_norms_are_of_each_value_times_its_heads_rows_of_the_output(heads, shared):
    config = tiny_config(num_heads=heads, num_kv_heads=shared, head_size=K)
    p = reference.parameters(config)["decoder_layers_0"]["cross_attention"]
    x, memory = random(B, L, D), random(B, M, D, seed=1)
    module = MultiHeadAttention(config, "relative_shaw")
    inputs = AttentionInputs(jnp.ones((1, 1, 1, M), bool), jnp.arange(L), jnp.arange(M))
    p["positions"] = {"relative_shaw": {name: jnp.ones((7, K)) for name in ("keys", "values")}}
    _, sown = module.apply({"params": p}, x, memory, inputs, mutable=["intermediates"])
    (norms,) = sown["intermediates"]["value_norms"]
    assert norms.dtype == jnp.float32
    p, memory = reference.float64(p), np.float64(memory)
    values = (memory @ p["value"]["kernel"] + p["value"]["bias"]).reshape(B, M, shared, K)
    rows = p["output"]["kernel"].reshape(heads, K, D)
    for head in range(heads):
        added = values[:, :, head * shared // heads] @ rows[head]
        np.testing.assert_allclose(norms[:, head], np.linalg.norm(added, axis=-1), rtol=1e-5)
    # Control: other rows would give other norms.
    assert np.abs(np.linalg.norm(values[:, :, 0] @ rows[1], axis=-1) - norms[:, 0]).min() > 1e-3


# --- the weights of a whole model


KINDS = {
    "encoder_self": "encoder_layers_{}/self_attention",
    "decoder_self": "decoder_layers_{}/self_attention",
    "cross": "decoder_layers_{}/cross_attention",
}


@pytest.mark.full
def test_one_pass_shows_the_weights_of_every_layer_kind_and_head():
    model, variables = tiny_model()
    inputs = tiny_inputs()
    logits, sown = model.apply(variables, *inputs, mutable=["intermediates"])
    np.testing.assert_array_equal(logits, model.apply(variables, *inputs))
    shown = model.sown_attention(sown["intermediates"], "weights")
    assert {kind: len(layers) for kind, layers in shown.items()} == dict.fromkeys(KINDS, 2)
    p = reference.float64(variables["params"])
    for b in range(B):
        _, expected = reference.transformer(p, *(np.asarray(a[b]) for a in inputs), model.config)
        for kind, layers in shown.items():
            for n, weights in enumerate(layers):
                by_loops = expected[KINDS[kind].format(n)]
                np.testing.assert_allclose(weights[b], by_loops, rtol=1e-4, atol=1e-5)
