"""Norms have the gradients of their formulas, and keep little for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.norms import normalize


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("centered", [True, False])
def test_the_gradient_of_norms_is_that_of_their_formula(centered):
    def formula(x, scale):
        mean = x.mean(-1, keepdims=True) if centered else 0.0
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 0.3) * scale

    x, scale = 1.0 + random(3, 7, 22), random(22, seed=1)
    ours, back = jax.vjp(lambda x, scale: normalize(x, scale, centered, 0.3), x, scale)
    expected, back_expected = jax.vjp(formula, x, scale)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    g = random(3, 7, 22, seed=2)
    for found, other in zip(back(g), back_expected(g), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-5)
    kept, others = (sum(a.size for a in jax.tree.leaves(b)) for b in (back, back_expected))
    assert kept == x.size + scale.size + 2 * 3 * 7 < others


def test_norms_of_runs_have_the_gradients_of_each():
    x, scales = random(3, 7, 22), random(2, 22, seed=1)

    def gradient(scale):
        return jax.grad(lambda *p: jnp.sum(normalize(*p, True, 0.3) ** 3), (0, 1))(x, scale)

    together = jax.vmap(gradient)(scales)
    for run, scale in enumerate(scales):
        for found, expected in zip(together, gradient(scale), strict=True):
            np.testing.assert_allclose(found[run], expected, rtol=1e-4, atol=1e-4)


def test_an_input_of_half_the_width_is_kept_as_it_is():
    x, scale = random(3, 7, 22).astype(jnp.bfloat16), random(22, seed=1)
    y, back = jax.vjp(lambda x, scale: normalize(x, scale, True, 0.3), x, scale)
    assert y.dtype == jnp.float32
    assert [a.dtype for a in jax.tree.leaves(back) if a.shape == x.shape] == [jnp.bfloat16]
    expected, back_wide = jax.vjp(
        lambda x, scale: normalize(x, scale, True, 0.3), x.astype(jnp.float32), scale
    )
    np.testing.assert_array_equal(y, expected)
    g = random(3, 7, 22, seed=2)
    by_x, by_scale = back(g)
    np.testing.assert_array_equal(by_x, back_wide(g)[0].astype(jnp.bfloat16))
    np.testing.assert_array_equal(by_scale, back_wide(g)[1])
