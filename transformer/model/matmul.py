"""Matrix products with float32 or bfloat16 operands and float32 accumulation.

Some CPUs multiply bfloat16 several times as fast as float32: those with AMX, such as Intel Xeons
since Sapphire Rapids. XLA's CPU backend uses AMX for x y if both operands are row-major. It
converts the operands of other bfloat16 products, such as those with a transposed operand in a
gradient, to float32 first, which is slower than using float32. Here, an operand is therefore
transposed in memory, in a way that XLA does not undo.

For many small matrices, as in attention, XLA's CPU backend is fast only if the matrices are
row-major, even in float32. Gradients are therefore computed from row-major matrices.

The implementation is chosen at trace time, for the default backend of this process.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def _is_for_cpu() -> bool:
    return jax.default_backend() == "cpu"


def linear(
    x: Float[Array, "N K"], kernel: Float[ArrayLike, "K M"], factors: str, result: str
) -> Float[Array, "N M"]:
    """Returns x @ kernel in dtype `result`, with both operands cast to dtype `factors`.

    The backward pass casts the operands of its products in the same way.
    """
    if factors == result and not _is_by_rows(jnp.dtype(factors)):
        return x.astype(factors) @ jnp.asarray(kernel, factors)
    return jnp.asarray(_linear(x, jnp.asarray(kernel), factors), result)


def product(x: Float[Array, "N K"], y: Float[Array, "K M"]) -> Float[Array, "N M"]:
    """Returns x y in float32, for operands of the same dtype."""
    if not _is_by_rows(x.dtype):
        return jnp.matmul(x, y, preferred_element_type=jnp.float32)
    # Without barriers, XLA might fuse a transposition of an operand or of the result into the
    # product after it has chosen instructions that cannot compute the fused product.
    x, y = jax.lax.optimization_barrier((x, y))
    return jax.lax.optimization_barrier(jnp.matmul(x, y, preferred_element_type=jnp.float32))


def product_nt(x: Float[Array, "N K"], y: Float[Array, "M K"]) -> Float[Array, "N M"]:
    """Returns x y^T in float32, for operands of the same dtype."""
    return product(x, _transpose(y) if _is_by_rows(x.dtype) else y.T)


def product_tn(x: Float[Array, "K N"], y: Float[Array, "K M"]) -> Float[Array, "N M"]:
    """Returns x^T y in float32, for operands of the same dtype.

    On a CPU, this is faster than XLA's own implementation if x is small, even in float32.
    """
    return product(_transpose(x) if _is_for_cpu() else x.T, y)


def _is_by_rows(dtype: jnp.dtype) -> bool:
    return _is_for_cpu() and dtype == jnp.bfloat16


def _transpose(x: Float[Array, "N K"]) -> Float[Array, "K N"]:
    """Returns x^T in row-major order: XLA stores an array with a new axis in the default layout."""
    return jax.lax.optimization_barrier(x.T[:, None])[:, 0]


# JAX's own gradient would multiply the float32 gradient of the result by a bfloat16 operand.
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


def scores(q: Float[Array, "B H L K"], k_t: Float[Array, "B H K M"]) -> Float[Array, "B H L M"]:
    """Returns Q K^T for each head in float32, given K^T."""
    product = _scores if _is_for_cpu() else _scores_forward
    return product(q, k_t)


def weighted_sums(
    weights: Float[Array, "B H L M"], v: Float[Array, "B H M K"]
) -> Float[Array, "B H L K"]:
    """Returns W V for each head, where W are the attention weights."""
    product = _weighted_sums if _is_for_cpu() else jnp.matmul
    return product(weights, v)


def _scores_forward(q, k_t):
    return jnp.matmul(q, k_t, preferred_element_type=jnp.float32)


def _scores_backward(factors, d_scores):
    q, k_t = factors
    if _is_short(q, k_t):
        d_t = _swap(d_scores)
        d_q, d_k_t = _t(jnp.matmul(k_t, d_t)), _t(jnp.matmul(d_t, q))
    else:
        d_q, d_k_t = jnp.matmul(d_scores, _swap(k_t)), jnp.matmul(_swap(q), d_scores)
    return d_q.astype(q.dtype), d_k_t.astype(k_t.dtype)


def _weighted_sums_backward(factors, d_heads):
    weights, v = factors
    d_t = _swap(d_heads)
    if _is_short(d_heads, _t(v)):
        d_weights = _swap(jnp.matmul(v, d_t))
    else:
        d_weights = jnp.matmul(d_heads, _swap(v))
    return d_weights, _t(jnp.matmul(d_t, weights))


def _is_short(x: Float[Array, "B H L K"], y: Float[Array, "B H K M"]) -> bool:
    """Returns whether x y has fewer elements than x and y, and is thus cheaper to transpose."""
    return x.shape[-2] * y.shape[-1] < (x.shape[-2] + y.shape[-1]) * x.shape[-1]


def _t(x: Float[Array, "B H N M"]) -> Float[Array, "B H M N"]:
    return jnp.swapaxes(x, -1, -2)


def _swap(x: Float[Array, "B H N M"]) -> Float[Array, "B H M N"]:
    """Transposes matrices in memory: XLA does not fuse this transposition into its consumers."""
    return jax.lax.optimization_barrier(_t(x))


_scores = jax.custom_vjp(_scores_forward)
_scores.defvjp(lambda q, k_t: (_scores_forward(q, k_t), (q, k_t)), _scores_backward)
_weighted_sums = jax.custom_vjp(jnp.matmul)
_weighted_sums.defvjp(lambda w, v: (jnp.matmul(w, v), (w, v)), _weighted_sums_backward)


def row_means(x: Float[Array, "*batch D"]) -> Float[Array, "*batch 1"]:
    """Returns the means over the last axis.

    On a CPU, they are computed as a matrix product: otherwise XLA would store each mean once per
    element. The product has full precision on the other platforms of an exported program, too.
    """
    if not _is_for_cpu():
        return x.mean(-1, keepdims=True)
    weights = jnp.full(x.shape[-1], 1.0 / x.shape[-1], x.dtype)
    return jnp.matmul(x, weights, precision="highest")[..., None]
