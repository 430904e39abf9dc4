"""Attention by cuDNN, which needs no array with an axis of queries and one of keys."""

import re
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.masks import AttentionPattern
from transformer.model.positions.registry import acts_in, split_names, used_encodings

MAX_HEAD_WIDTH = 128  # supported by all GPUs with flash attention
SCORE_HOOKS = ("bias", "score", "value_bias")  # hooks of encodings that need scores or weights
USE_OTHERS = "set model.attention_implementation to 'chunked' or 'plain'"
NO_DOCUMENTS = (
    f"model.attention_implementation='flash' cannot separate the documents of a row: {USE_OTHERS}"
)
NO_WEIGHT_DROPOUT = (
    "model.attention_implementation='flash' has no dropout of weights: set "
    f"model.dropout_attention=0.0, or {USE_OTHERS}"
)


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
        raise UserError(NO_DOCUMENTS)
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


def check_config(config: ModelConfig) -> None:
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


def check_training(packed: bool, dropout: float) -> None:
    """Raises UserError if training needs features that it lacks, before reading the text.

    Args:
      packed: whether a row of a batch may hold several documents.
      dropout: dropout rate of attention weights.
    """
    if packed:
        raise UserError(NO_DOCUMENTS)
    if dropout:
        raise UserError(NO_WEIGHT_DROPOUT)


def check_call(dropout: bool) -> None:
    """Raises UserError if attention has dropout, or this process's device lacks cuDNN.

    Compute capability 8 is that of the first GPUs with cuDNN's flash attention (A100).
    """
    if dropout:
        raise UserError(NO_WEIGHT_DROPOUT)
    device = jax.local_devices()[0]
    capability = re.fullmatch(r"(\d+)\.\d+", str(getattr(device, "compute_capability", "")))
    if capability is None or int(capability[1]) < 8:
        raise UserError(
            "model.attention_implementation='flash' needs an NVIDIA GPU of compute capability 8.0 "
            f"or more, not {device.platform} ({device.device_kind}): {USE_OTHERS}"
        )
