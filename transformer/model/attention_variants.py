"""Variants of the attention of section 3.2.2: one function each, all off by default."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from transformer.model.config import ModelConfig
from transformer.model.norms import Norm


def repeat_heads(heads: Float[Array, "B M G K"], num_heads: int) -> Float[Array, "B M H K"]:
    """Returns keys or values with a head for each query head: neighbouring heads share one.

    Source: Shazeer 2019, "Fast Transformer Decoding" (one head of keys); Ainslie et al. 2023,
    "GQA", section 2.2 (groups).
    """
    group = num_heads // heads.shape[2]
    return jnp.repeat(heads, group, axis=2) if group > 1 else heads


def head_norm(config: ModelConfig) -> Norm:
    """Returns the normalisation of each query or key over its head.

    Source: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2.
    """
    return Norm(centered=True, use_bias=False, epsilon=config.norm_epsilon, dtype=config.dtype)


def l2_normalize(heads: Float[Array, "B L H K"]) -> Float[Array, "B L H K"]:
    """Returns queries or keys of length one, so that their product is a cosine.

    A learned scale replaces 1 / sqrt(K), see `initial_scale`.

    Source: Henry et al. 2020, "Query-Key Normalization for Transformers", equation 4.
    """
    squares = jnp.sum(jnp.square(heads.astype(jnp.float32)), axis=-1, keepdims=True)
    return (heads * jax.lax.rsqrt(squares + 1e-12)).astype(heads.dtype)


def initial_scale(max_length: int) -> nn.initializers.Initializer:
    """Returns the initializer of the scale of cosines: log2(n^2 - n).

    With it, one of n = `max_length` keys can get nearly all of the weight.

    Source: Henry et al. 2020, equation 5.
    """
    length = max(2, max_length)
    return nn.initializers.constant(math.log2(length**2 - length))


def talk(x: Float[Array, "B H L M"], mixture: Float[ArrayLike, "H H"]) -> Float[Array, "B H L M"]:
    """Returns scores or weights mixed over the heads; [h, g] is the weight of head h in head g.

    Source: Shazeer et al. 2020, "Talking-Heads Attention", section 3.
    """
    return jnp.einsum("BHLM,HG->BGLM", x, mixture)


def identity(key: Array, shape: tuple[int, int]) -> Float[Array, "H H"]:
    """Returns the initial mixture of talking heads, the identity matrix."""
    return jnp.eye(*shape)


def gate(heads: Float[Array, "B L H K"], gates: Float[Array, "*B H"]) -> Float[Array, "B L H K"]:
    """Returns the heads' outputs times their gates; a gate of 0 removes its head.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 2.3.
    """
    return heads * gates[..., None, :, None].astype(heads.dtype)


def value_norms(
    values: Float[Array, "B M H K"],
    kernel: Float[ArrayLike, "HK D"],
    mixture: Float[ArrayLike, "H H"] | None,
) -> Float[Array, "B H M"]:
    """Returns the norm of a key's contribution to the output if all weight of a head is on it.

    The contribution is the key's value times the head's rows of W^O, or the sum of those that
    talking heads mix the head into, in float32, without W^O's bias and encodings of values.

    Args:
      kernel: W^O.
      mixture: mixture of the weights, with talking heads.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4.
    """
    rows = jnp.asarray(kernel, jnp.float32).reshape(*values.shape[2:], -1)
    added = jnp.einsum("BMHK,HKD->BHMD", values.astype(jnp.float32), rows)
    if mixture is not None:
        added = jnp.einsum("HG,BGMD->BHMD", mixture, added)
    return jnp.linalg.norm(added, axis=-1)
