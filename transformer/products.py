"""Products of matrices, with factors of float32 or bfloat16 and sums of float32.

Some CPUs multiply bfloat16 several times as fast as float32: those with AMX, such as Intel Xeons
since Sapphire Rapids. XLA's CPU backend uses that for x y if both factors lie row by row in memory.
Other products of bfloat16, such as those of a gradient, which have a transposed factor, it converts
to float32 first, and is slower than without bfloat16. Here, a factor is therefore transposed in
memory, in such a way that XLA does not undo it.

The products of attention are those of many small matrices. There XLA's CPU backend wants all
factors row by row, of float32, too, and copies the others.
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


def scores(
    queries: Float[Array, "B L H K"], keys: Float[Array, "B M H K"]
) -> Float[Array, "B H L M"]:
    """Returns Q K^T of each head, float32."""
    if jax.default_backend() == "cpu":
        return _scores(queries, keys)
    return jnp.einsum("BLHK,BMHK->BHLM", queries, keys, preferred_element_type=jnp.float32)


def weighted_sums(
    weights: Float[Array, "B H L M"], values: Float[Array, "B M H K"]
) -> Float[Array, "B L H K"]:
    """Returns W V of each head."""
    if jax.default_backend() == "cpu":
        return _weighted_sums(weights, values)
    return jnp.swapaxes(jnp.einsum("BHLM,BMHK->BHLK", weights, values), 1, 2)


# Of the six products of attention and its gradient, each has the form x y with arrays that are
# there in one order only: Q, K^T and V, and of the gradients those of the scores and of the heads
# transposed. The form that JAX derives needs K, V and the gradient of the heads in both orders.
@jax.custom_vjp
def _scores(queries, keys):
    return _scores_forward(queries, keys)[0]


def _scores_forward(queries, keys):
    q, k_t = jnp.transpose(queries, (0, 2, 1, 3)), jnp.transpose(keys, (0, 2, 3, 1))
    return jnp.matmul(q, k_t, preferred_element_type=jnp.float32), (q, k_t)


def _scores_backward(kept, d_scores):
    q, k_t = kept
    d_t = jax.lax.optimization_barrier(jnp.swapaxes(d_scores, 2, 3))
    d_q_t, d_k = jax.lax.optimization_barrier((jnp.matmul(k_t, d_t), jnp.matmul(d_t, q)))
    by_queries, by_keys = jnp.transpose(d_q_t, (0, 3, 1, 2)), jnp.transpose(d_k, (0, 2, 1, 3))
    return by_queries.astype(q.dtype), by_keys.astype(k_t.dtype)


@jax.custom_vjp
def _weighted_sums(weights, values):
    return _weighted_sums_forward(weights, values)[0]


def _weighted_sums_forward(weights, values):
    v = jnp.transpose(values, (0, 2, 1, 3))
    return jnp.swapaxes(jnp.matmul(weights, v), 1, 2), (weights, v)


def _weighted_sums_backward(kept, d_heads):
    weights, v = kept
    d_t = jax.lax.optimization_barrier(jnp.transpose(d_heads, (0, 2, 3, 1)))
    d_w_t, d_v_t = jax.lax.optimization_barrier((jnp.matmul(v, d_t), jnp.matmul(d_t, weights)))
    return jnp.swapaxes(d_w_t, 2, 3), jnp.transpose(d_v_t, (0, 3, 1, 2))


_scores.defvjp(_scores_forward, _scores_backward)
_weighted_sums.defvjp(_weighted_sums_forward, _weighted_sums_backward)


def row_means(x: Float[Array, "*batch D"]) -> Float[Array, "*batch 1"]:
    """Returns the means over the last axis.

    On a CPU they are a product: XLA would store the mean of each row once per element.
    """
    if jax.default_backend() != "cpu":
        return x.mean(-1, keepdims=True)
    return jnp.matmul(x, jnp.full(x.shape[-1], 1.0 / x.shape[-1], x.dtype))[..., None]
