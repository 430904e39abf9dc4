"""Products are those of numpy with rounded factors, forwards and backwards, in any shape."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.extend.core import jaxprs_in_params

from tiny_models import tiny_inputs, tiny_model
from transformer.model.matmul import (
    linear,
    product,
    product_nt,
    product_tn,
    row_means,
    scores,
    weighted_sums,
)

CPU = Path("/proc/cpuinfo")
HAS_AMX = CPU.exists() and "amx_bf16" in CPU.read_text("utf-8") and jax.default_backend() == "cpu"
SIZES = ((1, 3, 17), (17, 1, 3), (3, 17, 1))  # N, K and M
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
FORMS = {
    "nn": (product, lambda x, y: x @ y, lambda n, k, m: ((n, k), (k, m))),
    "nt": (product_nt, lambda x, y: x @ y.T, lambda n, k, m: ((n, k), (m, k))),
    "tn": (product_tn, lambda x, y: x.T @ y, lambda n, k, m: ((k, n), (k, m))),
}


def draw(*shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def rounded(x, dtype="bfloat16"):
    """The numbers that a factor of this dtype has, float64."""
    return np.float64(jnp.asarray(x, dtype))


def close(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_that_of_its_factors_summed_in_float32(form):
    ours, expected, shapes = FORMS[form]
    for sizes in SIZES:
        x, y = (draw(*shape, dtype="bfloat16", seed=i) for i, shape in enumerate(shapes(*sizes)))
        found = jax.jit(ours)(x, y)
        assert found.dtype == jnp.float32
        close(found, expected(np.float64(x), np.float64(y)))


def loss(x, kernel, wanted):
    return (linear(x, kernel, "bfloat16", "float32") * wanted).sum()


def expected_gradients(x, kernel, wanted):
    x, kernel, wanted = rounded(x), rounded(kernel), rounded(wanted)
    return wanted @ kernel.T, x.T @ wanted


def test_gradients_of_a_linear_map_have_rounded_factors_and_are_float32():
    differentiate = jax.jit(jax.grad(loss, (0, 1)))
    for n, k, m in SIZES:
        arguments = draw(n, k), draw(k, m, seed=1), draw(n, m, seed=2)
        gradients = differentiate(*arguments)
        for ours, expected in zip(gradients, expected_gradients(*arguments), strict=True):
            assert ours.dtype == jnp.float32
            close(ours, expected)
    _, kernel, wanted = arguments
    exact = np.float64(wanted) @ np.float64(kernel).T
    assert np.abs(gradients[0] - exact).max() > 1e-3  # control: without rounding


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_no_factor_of_a_gradient_is_float32_on_any_platform(monkeypatch, platform):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    arguments = draw(7, 5), draw(5, 3, seed=1), draw(7, 3, seed=2)

    def factors(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                yield from (str(x.aval.dtype) for x in equation.invars)
            for inner in jaxprs_in_params(equation.params):
                yield from factors(inner)

    found = list(factors(jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(*arguments).jaxpr))
    assert found == ["bfloat16"] * 6


@pytest.mark.skipif(not HAS_AMX, reason="needs a CPU with AMX")
def test_on_a_cpu_with_amx_no_product_is_converted_to_float32():
    arguments = draw(64, 48), draw(48, 32, seed=1), draw(64, 32, seed=2)

    def dtypes(function):
        """Of the factors of each product in the compiled gradient."""
        text = jax.jit(jax.grad(function, (0, 1))).lower(*arguments).compile().as_text()
        for computation in text.split("\n\n"):
            kinds = dict(re.findall(r"(%[\w.]+) = (\w+)\[", computation))
            for x, y in re.findall(r" dot\((%[\w.]+), (%[\w.]+)\)", computation):
                yield kinds[x], kinds[y]

    assert set(dtypes(loss)) == {("bf16", "bf16")}

    def plain(x, kernel, wanted):
        factors = x.astype("bfloat16"), kernel.astype("bfloat16")
        return (jnp.matmul(*factors, preferred_element_type="float32") * wanted).sum()

    assert set(dtypes(plain)) == {("f32", "f32")}  # control: what XLA does alone


@pytest.mark.full
def test_a_model_with_rounded_factors_is_near_the_exact_one():
    def outputs(**changes):
        model, variables = tiny_model(**ONE_LAYER, **changes)

        def nll(variables):
            logits = model.apply(variables, *tiny_inputs())
            return jax.nn.logsumexp(logits, axis=-1).sum(), logits

        (_, logits), gradient = jax.value_and_grad(nll, has_aux=True)(variables)
        return logits, flatten_dict(gradient)

    logits, gradient = outputs()
    near, other = outputs(matmul_dtype="bfloat16")
    model, variables = tiny_model(**ONE_LAYER, matmul_dtype="bfloat16")
    factors = model.apply(variables, jnp.ones((1, 1, 22)), method="output_factors")
    assert [x.dtype for x in factors] == [jnp.bfloat16, jnp.float32]
    assert near.dtype == jnp.float32
    assert {x.dtype for x in other.values()} == {jnp.dtype("float32")}
    assert 1e-4 < np.abs(near - logits).max() < 0.05
    for name, expected in gradient.items():
        assert np.abs(other[name] - expected).max() < 0.1 * np.abs(expected).max() + 1e-3, name


ATTENTION = {  # our function, the shapes of its factors [B, H, L, M] and so on, short and long
    "scores": (scores, [((2, 3, 7, 5), (2, 3, 5, 11)), ((2, 3, 13, 5), (2, 3, 5, 11))]),
    "sums": (weighted_sums, [((2, 3, 7, 11), (2, 3, 11, 5)), ((2, 3, 13, 11), (2, 3, 11, 5))]),
}


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [0, 1], ids=["short", "long"])
@pytest.mark.parametrize("name", ATTENTION)
def test_the_products_of_attention_and_their_gradients_are_those_of_numpy(
    monkeypatch, name, length, dtype, platform
):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    ours, shapes = ATTENTION[name]
    x, y = (draw(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes[length]))
    found, back = jax.vjp(ours, x, y)
    assert found.dtype == (jnp.float32 if name == "scores" else x.dtype)
    digits = 1e-5 if dtype == "float32" else 0.02
    close = functools.partial(np.testing.assert_allclose, rtol=digits, atol=2 * digits)
    g = draw(*found.shape, dtype=found.dtype, seed=2)
    x64, y64, g64 = map(np.float64, (x, y, g))
    close(np.float64(found), x64 @ y64)
    by_x, by_y = back(g)
    assert (by_x.dtype, by_y.dtype) == (x.dtype, y.dtype)
    close(np.float64(by_x), g64 @ np.swapaxes(y64, 2, 3))
    close(np.float64(by_y), np.swapaxes(x64, 2, 3) @ g64)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_means_of_rows_are_those_of_numpy(monkeypatch, platform):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    x = draw(2, 3, 128)
    np.testing.assert_allclose(row_means(x), x.mean(-1, keepdims=True), rtol=1e-4, atol=1e-6)
