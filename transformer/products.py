"""Products of matrices, with factors of float32 or bfloat16 and sums of float32.

Some CPUs multiply bfloat16 several times as fast as float32: those with AMX, such as Intel Xeons
since Sapphire Rapids. XLA's CPU backend uses that for x y if both factors lie row by row in memory.
Other products of bfloat16, such as those of a gradient, which have a transposed factor, it converts
to float32 first, and is slower than without bfloat16. Here, a factor is therefore transposed in
memory, in such a way that XLA does not undo it.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def linear(
    x: Float[Array, "N K"], kernel: Float[ArrayLike, "K M"], factors: str, result: str
) -> Float[Array, "N M"]:
    """Returns x kernel in the dtype `result`, with factors that are rounded to `factors`.

    The factors of its gradients are rounded, too.
    """
    if factors == result and not _is_by_rows(jnp.dtype(factors)):
        return x.astype(factors) @ jnp.asarray(kernel, factors)
    return jnp.asarray(_linear(x, jnp.asarray(kernel), factors), result)


def product(x: Float[Array, "N K"], y: Float[Array, "K M"]) -> Float[Array, "N M"]:
    """Returns x y, float32, for two factors of one dtype."""
    if not _is_by_rows(x.dtype):
        return jnp.matmul(x, y, preferred_element_type=jnp.float32)
    # Without barriers, XLA might move a transposition of a factor or of the result into the product
    # after it chose the instructions, and then does not know how to compute it.
    x, y = jax.lax.optimization_barrier((x, y))
    return jax.lax.optimization_barrier(jnp.matmul(x, y, preferred_element_type=jnp.float32))


def product_nt(x: Float[Array, "N K"], y: Float[Array, "M K"]) -> Float[Array, "N M"]:
    """Returns x y^T, float32, for two factors of one dtype."""
    return product(x, _transpose(y) if _is_by_rows(x.dtype) else y.T)


def product_tn(x: Float[Array, "K N"], y: Float[Array, "K M"]) -> Float[Array, "N M"]:
    """Returns x^T y, float32, for two factors of one dtype.

    On a CPU this is faster than what XLA makes of it, in float32, too, if x is small.
    """
    return product(_transpose(x) if jax.default_backend() == "cpu" else x.T, y)


def _is_by_rows(dtype: jnp.dtype) -> bool:
    return jax.default_backend() == "cpu" and dtype == jnp.bfloat16


def _transpose(x: Float[Array, "N K"]) -> Float[Array, "K N"]:
    """Returns x^T row by row: XLA gives an array with a new axis the usual order in memory."""
    return jax.lax.optimization_barrier(x.T[:, None])[:, 0]


# JAX's own gradient would multiply the float32 gradient of the result by a factor of bfloat16.
@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _linear(x, kernel, dtype):
    return product(x.astype(dtype), kernel.astype(dtype))


def _forward(x, kernel, dtype):
    factors = x.astype(dtype), kernel.astype(dtype)
    return product(*factors), (*factors, x[:0], kernel[:0])


def _backward(dtype, residuals, d_y):
    x, kernel, like_x, like_kernel = residuals
    d_y = d_y.astype(dtype)
    d_x = product_nt(d_y, kernel).astype(like_x.dtype)
    return d_x, product_tn(x, d_y).astype(like_kernel.dtype)


_linear.defvjp(_forward, _backward)
