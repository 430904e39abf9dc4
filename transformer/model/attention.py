"""Attention [3.2]: equation 1, masks and multi-head attention."""

import functools
from collections.abc import Callable

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model import attention_variants as variants
from transformer.model.config import ModelConfig
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Linear
from transformer.model.positions.base import LAYER_HOOKS
from transformer.model.positions.registry import SumOfPositions


def scaled_dot_product_attention(
    queries: Float[Array, "B L H K"],
    keys: Float[Array, "B M H K"],
    values: Float[Array, "B M H K"],
    mask: Bool[Array, "#B #H #L M"],
    bias: Float[Array, "H L M"] | None = None,
    *,
    scale: Float[Array, ""] | None = None,
    score_mod: Callable | None = None,
    weight_mod: Callable | None = None,
) -> tuple[Float[Array, "B L H K"], Float[Array, "B H L M"]]:
    """Returns softmax(Q K^T / sqrt(K)) V of each head, and the attention weights.

    Scores and softmax are float32; the weights are cast to the dtype of the values for the product.

    Args:
      mask: True where a query may attend to a key.
      bias: added to the scores before the softmax.
      scale: in place of 1 / sqrt(K).
      score_mod: (scores, scaled queries) -> scores, before the bias is added.
      weight_mod: weights -> weights, between softmax and product; for instance dropout.

    Source: Vaswani et al. 2017, equation 1.
    """
    root = jnp.sqrt(queries.shape[-1])
    queries = queries / root.astype(queries.dtype) if scale is None else queries * scale
    scores = jnp.einsum("BLHK,BMHK->BHLM", queries, keys, preferred_element_type=jnp.float32)
    scores = scores if score_mod is None else score_mod(scores, queries)
    weights = masked_softmax(scores if bias is None else scores + bias, mask)
    weights = weights if weight_mod is None else weight_mod(weights)
    weights = weights.astype(values.dtype)
    heads = jnp.einsum("BHLM,BMHK->BHLK", weights, values)
    return jnp.swapaxes(heads, 1, 2), weights


def masked_softmax(
    scores: Float[Array, "B H L M"], mask: Bool[Array, "#B #H #L M"]
) -> Float[Array, "B H L M"]:
    """Returns the attention weights: the softmax over the keys that the mask allows.

    A query that may attend to nothing gets a row of zeros, while a plain softmax would spread its
    weight over masked keys.

    Args:
      mask: True where a query may attend to a key.

    Source: Vaswani et al. 2017, equation 1 and section 3.2.3.
    """
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0.0)


def padding_mask(is_token: Bool[Array, "B M"]) -> Bool[Array, "B 1 1 M"]:
    """Returns the mask that hides padding from all queries."""
    return is_token[:, None, None, :]


def look_ahead_mask(length: int) -> Bool[Array, "1 1 L L"]:
    """Returns the mask with which position i attends to positions up to and including i.

    Source: Vaswani et al. 2017, section 3.2.3, third bullet.
    """
    return jnp.tril(jnp.ones((1, 1, length, length), dtype=bool))


def segment_mask(segments: Int[Array, "B L"]) -> Bool[Array, "B 1 L L"]:
    """Returns the mask with which tokens attend only within their own segment of a row.

    So several short documents can share a row as if each had its own row.

    Args:
      segments: a number for each token, equal for those of one document.
    """
    return (segments[:, :, None] == segments[:, None, :])[:, None]


@flax.struct.dataclass
class AttentionInputs:
    """The inputs of attention other than hidden states; the same in all layers of a stack.

    Attributes:
      mask: True where a query may attend to a key.
      query_positions, key_positions: from zero.
      bias: the sum that positional encodings add to the scores.
    """

    mask: Bool[Array, "#B #H #L M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Float[Array, "H L M"] | None = None


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, where head_i attends with its own projections.

    Queries come from one sequence; keys and values from the same one (self-attention) or from
    another (cross-attention).

    Everything that departs from this section is in `attention_variants` and in the encodings: heads
    that share keys and values (`num_kv_heads`), `query_key_norm`, `talking_heads`, and gates on
    heads, the variable `gates/heads`, either [H] or, one gate per sequence, [B, H].

    If a caller makes the collection `intermediates` mutable, it receives the sown values. `weights`
    [B, H, L, M] are the softmax weights, before talking heads mix them and before dropout; for
    `value_norms` [B, H, M] see `attention_variants.value_norms`.

    Args:
      encodings: names of positional encodings, joined by `+`; those that act in layers act here.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    config: ModelConfig
    encodings: str

    def setup(self):
        config = self.config
        width, shared = (
            heads * config.head_width for heads in (config.num_heads, config.key_value_heads)
        )
        self.query = Linear(width, config.dtype, config.attention_bias)
        self.key = Linear(shared, config.dtype, config.attention_bias)
        self.value = Linear(shared, config.dtype, config.attention_bias)
        self.output = Linear(config.d_model, config.dtype, config.attention_bias)
        self.positions = SumOfPositions(config, names=self.encodings, hooks=LAYER_HOOKS)
        self.dropout = Dropout()
        if config.query_key_norm == "layer":
            self.query_norm, self.key_norm = variants.head_norm(config), variants.head_norm(config)
        elif config.query_key_norm == "l2":
            start = variants.initial_scale(config.max_length)
            self.query_key_scale = self.param("query_key_scale", start, ())
        if config.talking_heads:
            shape = config.num_heads, config.num_heads
            self.talk_scores = self.param("talk_scores", variants.identity, shape)
            self.talk_weights = self.param("talk_weights", variants.identity, shape)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"],
        inputs: AttentionInputs,
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        """Returns the attention output for queries from `x` over `memory`, both hidden states."""
        keys, values = self.keys_values(memory, inputs.key_positions)
        return self.attend(x, keys, values, inputs, rates)

    def keys_values(
        self, memory: Float[Array, "B M D"], positions: Int[Array, "M"]
    ) -> tuple[Float[Array, "B M G K"], Float[Array, "B M G K"]]:
        """Returns the projected keys and values, which a cache stores.

        G is the number of key-value heads.
        """
        keys = self._normalize(self._split_heads(self.key(memory)), "key_norm")
        return self.positions.rotate(keys, positions), self._split_heads(self.value(memory))

    def attend(
        self,
        x: Float[Array, "B L D"],
        keys: Float[Array, "B M G K"],
        values: Float[Array, "B M G K"],
        inputs: AttentionInputs,
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        """Returns the attention output for queries from `x` over keys and values."""
        queries = self._normalize(self._split_heads(self.query(x)), "query_norm")
        queries = self.positions.rotate(queries, inputs.query_positions)
        keys, values = (variants.repeat_heads(y, self.config.num_heads) for y in (keys, values))
        heads, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            inputs.mask,
            inputs.bias,
            scale=self._scale(queries.dtype),
            score_mod=functools.partial(self._modify_scores, inputs),
            weight_mod=functools.partial(self._modify_weights, values, rates),
        )
        heads = self._modify_heads(heads, weights, inputs)
        return self.output(heads.reshape(*x.shape[:2], -1))

    def _split_heads(self, x: Float[Array, "B L D"]) -> Float[Array, "B L H K"]:
        return x.reshape(*x.shape[:-1], -1, self.config.head_width)

    # -- around it, what the config turns on

    def _normalize(self, heads: Float[Array, "B L H K"], norm: str) -> Float[Array, "B L H K"]:
        """Normalises queries or keys according to `query_key_norm`."""
        if self.config.query_key_norm == "layer":
            return getattr(self, norm)(heads)
        return variants.l2_normalize(heads) if self.config.query_key_norm == "l2" else heads

    def _scale(self, dtype) -> Float[Array, ""] | None:
        """The learned scale of `query_key_norm` "l2"; None for that of equation 1."""
        return (
            jnp.asarray(self.query_key_scale, dtype) if self.config.query_key_norm == "l2" else None
        )

    def _modify_scores(self, inputs: AttentionInputs, scores, queries) -> Float[Array, "B H L M"]:
        added = self.positions.score(queries, inputs.query_positions, inputs.key_positions)
        scores = scores if added is None else scores + added
        return variants.talk(scores, self.talk_scores) if self.config.talking_heads else scores

    def _modify_weights(self, values, rates, weights) -> Float[Array, "B H L M"]:
        talk = self.talk_weights if self.config.talking_heads else None
        self.sow("intermediates", "weights", weights)
        if self.is_mutable_collection("intermediates"):
            kernel = self.output.get_variable("params", "kernel")
            self.sow("intermediates", "value_norms", variants.value_norms(values, kernel, talk))
        weights = weights if talk is None else variants.talk(weights, talk)
        return self.dropout(weights, rates.attention)

    def _modify_heads(self, heads, weights, inputs: AttentionInputs) -> Float[Array, "B L H K"]:
        added = self.positions.value_bias(weights, inputs.query_positions, inputs.key_positions)
        heads = heads if added is None else heads + added
        if self.has_variable("gates", "heads"):
            heads = variants.gate(heads, self.get_variable("gates", "heads"))
        return heads
