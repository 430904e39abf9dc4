"""Parameters start as the docstrings say, and the gradient of norms keeps little."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import random, tiny_config, tiny_inputs
from transformer.model.layers import (
    normalize,
)
from transformer.model.transformer import Transformer

pytestmark = pytest.mark.device

B, L, D = 3, 7, 22


@pytest.mark.full
def test_parameters_start_as_the_docstrings_say():
    config = tiny_config(target_vocab_size=101, tied_embeddings="all", source_vocab_size=101)
    arguments = tiny_inputs()
    params = jax.jit(Transformer(config).init)(jax.random.key(0), *arguments)["params"]
    table = params["target_embedding"]["table"]
    np.testing.assert_allclose(table.std(), D**-0.5, rtol=0.05)  # 2222 numbers
    kernel = params["encoder_layers_0"]["feed_forward"]["inner"]["kernel"]
    assert 0.9 * (6 / (D + 13)) ** 0.5 < np.abs(kernel).max() <= (6 / (D + 13)) ** 0.5  # xavier
    for layer in (params["encoder_layers_1"], params["decoder_layers_1"]):
        norm = layer["feed_forward_residual"]["norm"]
        np.testing.assert_array_equal(norm["scale"], 1.0)
        np.testing.assert_array_equal(norm["bias"], 0.0)
        np.testing.assert_array_equal(layer["self_attention"]["query"]["bias"], 0.0)
        np.testing.assert_array_equal(layer["feed_forward"]["outer"]["bias"], 0.0)
    kernels = [layer["self_attention"]["query"]["kernel"] for name, layer in params.items()
               if "layers" in name]  # fmt: skip
    assert len({float(kernel[0, 0]) for kernel in kernels}) == len(kernels)  # all different


# -- norms


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
