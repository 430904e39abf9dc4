"""Variants of the attention of section 3.2.2, all off by default, and attention by cuDNN."""

import math
import re
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.layers import Norm
from transformer.model.masks import AttentionPattern
from transformer.model.positions.registry import acts_in, split_names, used_encodings

MAX_HEAD_WIDTH = 128  # supported by all GPUs with flash attention
SCORE_HOOKS = ("bias", "score", "value_bias")  # hooks of encodings that need scores or weights
USE_OTHERS = "set model.attention_implementation to 'chunked' or 'plain'"


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


# -- attention by cuDNN, which needs no array with an axis of queries and one of keys


def flash_attention(
    queries: Float[Array, "B L H K"],
    keys: Float[Array, "B M G K"],
    values: Float[Array, "B M G K"],
    pattern: AttentionPattern,
    *,
    scale: Float[Array, ""] | None = None,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> Float[Array, "B L H K"]:
    """Returns the heads of equation 1; neighbouring query heads share one of G key-value heads.

    Args:
      pattern: its padding comes after all tokens, and it has neither a bias nor segments.
      scale: replaces 1 / sqrt(K).
      implementation: argument of `jax.nn.dot_product_attention`.

    Raises:
      UserError: a row of the batch holds several segments.

    Source: Dao et al. 2022, "FlashAttention".
    """
    if pattern.segments is not None:
        raise UserError(
            "model.attention_implementation='flash' cannot separate the documents of a row: "
            f"{USE_OTHERS}"
        )
    if scale is not None:
        queries = queries * scale
    lengths = pattern.is_key.sum(axis=1, dtype=jnp.int32)
    number = queries.shape[1]
    # JAX refuses gradients of cuDNN's attention over odd lengths. Padding never counts as a key.
    queries, keys, values = (
        jnp.pad(x, [(0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0)]) for x in (queries, keys, values)
    )
    heads = jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        scale=None if scale is None else 1.0,
        is_causal=pattern.look_ahead,
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        implementation=implementation,
    )
    return jnp.where((lengths > 0)[:, None, None, None], heads[:, :number], 0)


def check_flash_config(config: ModelConfig) -> None:
    """Raises UserError if a model needs features that cuDNN's attention lacks."""
    limits = {
        f"model.dtype='{config.dtype}'": config.dtype != "bfloat16",
        f"heads of width {config.head_width}": config.head_width % 8
        or config.head_width > MAX_HEAD_WIDTH,
        "model.talking_heads=True": config.talking_heads,
    } | {
        f"{key}='{names}'": any(acts_in(name, SCORE_HOOKS) for name in split_names(names))
        for key, names in used_encodings(config).items()
    }
    if refused := [setting for setting, is_refused in limits.items() if is_refused]:
        raise UserError(
            "model.attention_implementation='flash' computes bfloat16, heads of a multiple of 8 "
            f"up to {MAX_HEAD_WIDTH}, and no change of scores or weights, but here is "
            f"{refused[0]}: change it, or {USE_OTHERS}"
        )


def check_flash_call(dropout: bool) -> None:
    """Raises UserError if attention has dropout, or this process's device lacks cuDNN.

    cuDNN's flash attention needs compute capability 8, that of an A100, or more.
    """
    if dropout:
        raise UserError(
            "model.attention_implementation='flash' has no dropout of weights: set "
            f"model.dropout_attention=0.0, or {USE_OTHERS}"
        )
    device = jax.local_devices()[0]
    capability = re.fullmatch(r"(\d+)\.\d+", str(getattr(device, "compute_capability", "")))
    if capability is None or int(capability[1]) < 8:
        raise UserError(
            "model.attention_implementation='flash' needs an NVIDIA GPU of compute capability 8.0 "
            f"or more, not {device.platform} ({device.device_kind}): {USE_OTHERS}"
        )
