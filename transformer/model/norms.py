"""Layer and root-mean-square normalisation, with a gradient that stores little."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.model.matmul import row_means


class Norm(nn.Module):
    """Normalises the last axis, and then applies a learned scale and an optional bias.

    Statistics are float32.

    Args:
      centered: subtract the mean, as layer normalisation does (Ba et al. 2016, equation 4) and
        root-mean-square normalisation does not (Zhang and Sennrich 2019, equation 4).
      dtype: dtype of the output.
    """

    centered: bool
    use_bias: bool
    epsilon: float
    dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape[-1:])
        y = normalize(x, scale, self.centered, self.epsilon)
        if self.use_bias:
            y = y + self.param("bias", nn.initializers.zeros_init(), x.shape[-1:])
        return y.astype(self.dtype)


def _normalize(
    x: Float[Array, "*batch D"], scale: Float[Array, "D"], centered: bool, epsilon: float
) -> Float[Array, "*batch D"]:
    """Returns u * scale in float32, where u = (x - mean) / sqrt(variance + epsilon).

    Let g be the gradient of the loss with respect to the output, and h = g * scale. Then that of x
    is (h - mean(h) - u mean(h u)) / sqrt(variance + epsilon), and that of the scale is the sum of
    g u over the batch. JAX derives the same, but stores three arrays of x's size for it, such as
    the scale of each element; this stores x and two numbers for each vector.
    """
    return _forward(x, scale, centered, epsilon)[0]


def _forward(x, scale, centered, epsilon):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True) if centered else jnp.zeros_like(wide[..., :1])
    inverse = jax.lax.rsqrt(row_means(jnp.square(wide - mean)) + epsilon)
    return (wide - mean) * inverse * scale, (x, scale, mean, inverse)


def _backward(centered, epsilon, kept, g):
    x, scale, mean, inverse = kept
    u = (x.astype(jnp.float32) - mean) * inverse
    gu = g * u
    # Means of h and h u as products with a vector: for sums, XLA would write h to memory first.
    weights = scale / scale.size
    product = functools.partial(jnp.matmul, precision="highest")  # float32 on accelerators, too
    by_x = g * scale - u * product(gu, weights)[..., None]
    if centered:
        by_x -= product(g, weights)[..., None]
    return (by_x * inverse).astype(x.dtype), gu.sum(range(gu.ndim - 1))


normalize = jax.custom_vjp(_normalize, nondiff_argnums=(2, 3))
normalize.defvjp(_forward, _backward)
