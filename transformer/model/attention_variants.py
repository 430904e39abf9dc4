"""Variants of multi-head attention [3.2.2], all disabled by default, and cuDNN attention."""

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
SCORE_HOOKS = ("bias", "score", "value_bias")  # encoding hooks that need scores or weights
USE_OTHERS = "set model.attention_implementation to 'chunked' or 'plain'"


def repeat_heads(heads: Float[Array, "B M G K"], num_heads: int) -> Float[Array, "B M H K"]:
    """Repeats key or value heads, so that each group of adjacent query heads shares a head.

    Source: Shazeer 2019, "Fast Transformer Decoding" (one key-value head); Ainslie et al. 2023,
    "GQA", section 2.2 (groups).
    """
    group = num_heads // heads.shape[2]
    return jnp.repeat(heads, group, axis=2) if group > 1 else heads


def head_norm(config: ModelConfig) -> Norm:
    """Returns the LayerNorm for queries or keys, which normalises over the head dimension.

    Source: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2.
    """
    return Norm(centered=True, use_bias=False, epsilon=config.norm_epsilon, dtype=config.dtype)


def l2_normalize(heads: Float[Array, "B L H K"]) -> Float[Array, "B L H K"]:
    """Normalises queries or keys to unit L2 norm; their dot product is then a cosine similarity.

    A learned scale replaces 1 / sqrt(K); see `initial_scale`.

    Source: Henry et al. 2020, "Query-Key Normalization for Transformers", equation 4.
    """
    squares = jnp.sum(jnp.square(heads.astype(jnp.float32)), axis=-1, keepdims=True)
    return (heads * jax.lax.rsqrt(squares + 1e-12)).astype(heads.dtype)


def initial_scale(max_length: int) -> nn.initializers.Initializer:
    """Returns the initializer for the scale of the cosine similarities, log2(n^2 - n).

    With this scale, one of n = `max_length` keys can receive nearly all of the weight.

    Source: Henry et al. 2020, equation 5.
    """
    length = max(2, max_length)
    return nn.initializers.constant(math.log2(length**2 - length))


def talk(x: Float[Array, "B H L M"], mixture: Float[ArrayLike, "H H"]) -> Float[Array, "B H L M"]:
    """Mixes scores or weights across heads: mixture[h, g] is the weight of head h in output g.

    Source: Shazeer et al. 2020, "Talking-Heads Attention", section 3.
    """
    return jnp.einsum("BHLM,HG->BGLM", x, mixture)


def identity(key: Array, shape: tuple[int, int]) -> Float[Array, "H H"]:
    """Returns the identity matrix, the initial mixture of talking heads."""
    return jnp.eye(*shape)


def softmax_with_sink(
    scores: Float[Array, "B H L M"], sink: Float[Array, "H"]
) -> Float[Array, "B H L M"]:
    """Returns exp(scores) / (exp(sink) + sum of exp(scores)), so each row sums to less than 1.

    The sink is the logit of a key without a value. A head that finds no relevant key can attend to
    nothing, whereas a softmax would make it attend to some key, often end-of-sentence.

    Source: Miller 2023, "Attention Is Off By One" (a sink of 0); OpenAI 2025, "gpt-oss-120b &
    gpt-oss-20b Model Card" (a learned sink per head); Xiao et al. 2024, "Efficient Streaming
    Language Models with Attention Sinks" (why heads need one).
    """
    total = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
    return jnp.exp(scores - jnp.logaddexp(total, sink[:, None, None]))


def value_norms(
    values: Float[Array, "B M H K"],
    kernel: Float[ArrayLike, "HK D"],
    mixture: Float[ArrayLike, "H H"] | None,
) -> Float[Array, "B H M"]:
    """Returns the norm of each position's transformed value vector, for each head.

    The transformed vector is the value vector times the head's rows of W^O: the contribution to the
    output before weighting by attention. Norms are float32, and exclude biases, relative values and
    gates.

    Args:
      kernel: W^O.
      mixture: the talking-heads mixture of weights, which is applied to the vectors, or None.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4.
    """
    rows = jnp.asarray(kernel, jnp.float32).reshape(*values.shape[2:], -1)
    added = jnp.einsum("BMHK,HKD->BHMD", values.astype(jnp.float32), rows)
    if mixture is not None:
        added = jnp.einsum("HG,BGMD->BHMD", mixture, added)
    return jnp.linalg.norm(added, axis=-1)


# -- cuDNN attention, which needs no array of shape [L, M]


def flash_attention(
    queries: Float[Array, "B L H K"],
    keys: Float[Array, "B M G K"],
    values: Float[Array, "B M G K"],
    pattern: AttentionPattern,
    *,
    scale: Float[Array, ""] | None = None,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> Float[Array, "B L H K"]:
    """Returns the head outputs of equation 1; adjacent query heads share a key-value head.

    Args:
      pattern: must have padding only after all tokens, and neither a bias nor segments.
      scale: replaces 1 / sqrt(K).
      implementation: passed to `jax.nn.dot_product_attention`.

    Raises:
      UserError: the pattern has segments.

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
    # JAX rejects gradients of cuDNN attention for odd lengths. Padding is never attended to.
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
    """Raises UserError if a model needs features that cuDNN attention lacks."""
    limits = {
        f"model.dtype='{config.dtype}'": config.dtype != "bfloat16",
        f"heads of width {config.head_width}": config.head_width % 8
        or config.head_width > MAX_HEAD_WIDTH,
        "model.talking_heads=True": config.talking_heads,
        f"model.attention_sink='{config.attention_sink}'": config.attention_sink != "none",
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
    """Raises UserError if attention has dropout, or if the local device lacks cuDNN attention.

    cuDNN attention needs compute capability 8.0 (NVIDIA A100) or higher.
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
