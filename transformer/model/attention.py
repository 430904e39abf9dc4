"""Attention [3.2]: the scaled dot product, its masks, and many heads of it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model.config import ModelConfig
from transformer.model.layers import Dropout, DropoutRates, Linear
from transformer.model.positions import NoPositions


def dot_product_attention(
    queries: Float[Array, "B L H K"],
    keys: Float[Array, "B M H K"],
    mask: Bool[Array, "#B #H #L M"],
    bias: Float[Array, "H L M"] | None = None,
) -> Float[Array, "B H L M"]:
    """Returns the attention weights softmax(Q K^T / sqrt(K)), in float32.

    A query that may attend to nothing gets a row of zeros, where a plain softmax would spread
    its weight over what the mask forbids.

    Args:
      mask: True where a query may attend to a key.
      bias: added to the scaled scores.

    Source: Vaswani et al. 2017, equation 1.
    """
    queries = queries / jnp.sqrt(queries.shape[-1]).astype(queries.dtype)
    scores = jnp.einsum("BLHK,BMHK->BHLM", queries, keys, preferred_element_type=jnp.float32)
    if bias is not None:
        scores = scores + bias
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0.0)


def padding_mask(is_token: Bool[Array, "B M"]) -> Bool[Array, "B 1 1 M"]:
    """Returns the mask under which nobody attends to padding."""
    return is_token[:, None, None, :]


def look_ahead_mask(length: int) -> Bool[Array, "1 1 L L"]:
    """Returns the mask under which position i attends to positions up to and including i.

    Source: Vaswani et al. 2017, section 3.2.3, third bullet.
    """
    return jnp.tril(jnp.ones((1, 1, length, length), dtype=bool))


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, where head_i attends with its own projections.

    Queries come from one sequence; keys and values from the same one (self-attention) or from
    another (cross-attention). The weights are sown as `intermediates/weights`: a caller who makes
    that collection mutable receives them, for others they do not exist.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    config: ModelConfig
    positions: NoPositions

    def setup(self):
        width, bias = self.config.d_model, self.config.attention_bias
        self.query = Linear(width, self.config.dtype, bias)
        self.key = Linear(width, self.config.dtype, bias)
        self.value = Linear(width, self.config.dtype, bias)
        self.output = Linear(width, self.config.dtype, bias)
        self.dropout = Dropout()

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"],
        mask: Bool[Array, "#B #H #L M"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
        rates: DropoutRates | None,
    ) -> Float[Array, "B L D"]:
        """Returns what the queries made of `x` read from `memory`, both as hidden states."""
        keys, values = self.keys_values(memory, key_positions)
        return self.attend(x, keys, values, mask, query_positions, key_positions, rates)

    def keys_values(
        self, memory: Float[Array, "B M D"], positions: Int[Array, "M"]
    ) -> tuple[Float[Array, "B M H K"], Float[Array, "B M H K"]]:
        """Returns the projections that queries attend to; what a cache keeps."""
        keys = self.positions.rotate(self._split_heads(self.key(memory)), positions)
        return keys, self._split_heads(self.value(memory))

    def attend(
        self,
        x: Float[Array, "B L D"],
        keys: Float[Array, "B M H K"],
        values: Float[Array, "B M H K"],
        mask: Bool[Array, "#B #H #L M"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
        rates: DropoutRates | None,
    ) -> Float[Array, "B L D"]:
        """Returns what the queries made of `x` read from given keys and values."""
        queries = self.positions.rotate(self._split_heads(self.query(x)), query_positions)
        bias = self.positions.bias(query_positions, key_positions)
        weights = dot_product_attention(queries, keys, mask, bias)
        self.sow("intermediates", "weights", weights)
        weights = self.dropout(weights, rates and rates.attention).astype(values.dtype)
        heads = jnp.einsum("BHLM,BMHK->BLHK", weights, values)
        return self.output(heads.reshape(*x.shape[:2], -1))

    def _split_heads(self, x: Float[Array, "B L D"]) -> Float[Array, "B L H K"]:
        return x.reshape(*x.shape[:-1], self.config.num_heads, self.config.head_size)
