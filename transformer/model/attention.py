"""Attention [3.2]: the scaled dot product, its masks, and many heads of it."""

import math

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model.config import ModelConfig
from transformer.model.layers import Dropout, DropoutRates, Linear
from transformer.model.positions import LAYER_HOOKS, SumOfPositions


def dot_products(
    queries: Float[Array, "B L H K"], keys: Float[Array, "B M H K"]
) -> Float[Array, "B H L M"]:
    """Returns Q K^T of each head, in float32."""
    return jnp.einsum("BLHK,BMHK->BHLM", queries, keys, preferred_element_type=jnp.float32)


def masked_softmax(
    scores: Float[Array, "B H L M"], mask: Bool[Array, "#B #H #L M"]
) -> Float[Array, "B H L M"]:
    """Returns the attention weights: the softmax over the keys that the mask allows.

    A query that may attend to nothing gets a row of zeros, where a plain softmax would spread
    its weight over what the mask forbids.

    Args:
      mask: True where a query may attend to a key.

    Source: Vaswani et al. 2017, equation 1 and section 3.2.3.
    """
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


def segment_mask(segments: Int[Array, "B L"]) -> Bool[Array, "B 1 L L"]:
    """Returns the mask under which tokens attend within their own segment of a row alone.

    Several short documents then share a row as if each had one of its own.

    Args:
      segments: a number for each token, equal for those of one document.
    """
    return (segments[:, :, None] == segments[:, None, :])[:, None]


@flax.struct.dataclass
class View:
    """What queries see of keys, alike in all layers of a stack.

    Attributes:
      mask: True where a query may attend to a key.
      query_positions, key_positions: from zero.
      bias: what positional encodings add to the scores.
    """

    mask: Bool[Array, "#B #H #L M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Float[Array, "H L M"] | None = None


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, where head_i attends with its own projections.

    Queries come from one sequence; keys and values from the same one (self-attention) or from
    another (cross-attention). A caller who makes the collection `intermediates` mutable receives
    what is sown there; for others it does not exist. `weights` are those of the softmax, before
    talking heads mix them; `value_norms` [B, H, M] are the norms of what each head adds to the
    output where all its weight is on one key: of the key's value times the head's rows of W^O, or
    the sum of those that talking heads mix the head into, without what positions add to it and
    without the bias of W^O.

    A variable `gates/heads`, [H] or of each row of a batch its own [B, H], multiplies what the
    heads read, before W^O: with a gate of 0 the module computes what it would without the head.
    Without the variable nothing is multiplied.

    With `num_kv_heads`, several heads of queries share one of keys and values. With
    `query_key_norm` "l2" the score is a learned multiple of the cosine of query and key; with
    "layer" both are normalised over a head before their scaled product. With `talking_heads`,
    scores before the softmax and weights after it are mixed over the heads; both mixtures start
    as the identity, and what an encoding adds with `bias` is added to the mixed scores.

    Args:
      encodings: names of positional encodings, joined by `+`; those that act in layers act here.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (one head of keys) and Ainslie et al.
    2023, section 2.2 (groups); Henry et al. 2020, equation 4 (l2); Dehghani et al. 2023, "ViT-22B",
    section 2 (layer); Shazeer et al. 2020, "Talking-Heads Attention", section 3; Michel et al.
    2019, "Are Sixteen Heads Really Better than One?", section 2.3 (gates); Kobayashi et al. 2020,
    "Attention is Not Only a Weight", equation 4 (norms).
    """

    config: ModelConfig
    encodings: str

    def setup(self):
        config = self.config
        heads, shared, size = config.num_heads, config.key_value_heads, config.head_width
        self.query = Linear(heads * size, config.dtype, config.attention_bias)
        self.key = Linear(shared * size, config.dtype, config.attention_bias)
        self.value = Linear(shared * size, config.dtype, config.attention_bias)
        self.output = Linear(config.d_model, config.dtype, config.attention_bias)
        self.positions = SumOfPositions(config, names=self.encodings, hooks=LAYER_HOOKS)
        self.dropout = Dropout()
        if config.query_key_norm == "layer":
            self.query_norm = _head_norm(config)
            self.key_norm = _head_norm(config)
        elif config.query_key_norm == "l2":
            # The multiple that lets one of `max_length` keys take nearly all of the weight.
            length = max(2, config.max_length)
            start = nn.initializers.constant(math.log2(length**2 - length))
            self.query_key_scale = self.param("query_key_scale", start, ())
        if config.talking_heads:
            self.talk_scores = self.param("talk_scores", _identity, (heads, heads))
            self.talk_weights = self.param("talk_weights", _identity, (heads, heads))

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"],
        view: View,
        rates: DropoutRates | None,
    ) -> Float[Array, "B L D"]:
        """Returns what the queries made of `x` read from `memory`, both as hidden states."""
        keys, values = self.keys_values(memory, view.key_positions)
        return self.attend(x, keys, values, view, rates)

    def keys_values(
        self, memory: Float[Array, "B M D"], positions: Int[Array, "M"]
    ) -> tuple[Float[Array, "B M G K"], Float[Array, "B M G K"]]:
        """Returns the projections that queries attend to; what a cache keeps.

        G is the number of heads of keys and values.
        """
        keys = self._normalize(self._split_heads(self.key(memory)), "key_norm")
        return self.positions.rotate(keys, positions), self._split_heads(self.value(memory))

    def attend(
        self,
        x: Float[Array, "B L D"],
        keys: Float[Array, "B M G K"],
        values: Float[Array, "B M G K"],
        view: View,
        rates: DropoutRates | None,
    ) -> Float[Array, "B L D"]:
        """Returns what the queries made of `x` read from given keys and values."""
        queries = self._normalize(self._split_heads(self.query(x)), "query_norm")
        queries = self.positions.rotate(queries, view.query_positions)
        share = self.config.num_heads // self.config.key_value_heads
        if share > 1:
            keys, values = (jnp.repeat(each, share, axis=2) for each in (keys, values))
        weights = masked_softmax(self._scores(queries, keys, view), view.mask)
        self.sow("intermediates", "weights", weights)
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "value_norms", self._value_norms(values))
        if self.config.talking_heads:
            weights = jnp.einsum("BHLM,HG->BGLM", weights, self.talk_weights)
        weights = self.dropout(weights, rates and rates.attention).astype(values.dtype)
        heads = jnp.einsum("BHLM,BMHK->BLHK", weights, values)
        mixed = self.positions.mix(weights, view.query_positions, view.key_positions)
        heads = heads if mixed is None else heads + mixed
        if self.has_variable("gates", "heads"):
            gates = self.get_variable("gates", "heads")[..., None, :, None]
            heads = heads * gates.astype(heads.dtype)
        return self.output(heads.reshape(*x.shape[:2], -1))

    def _value_norms(self, values: Float[Array, "B M H K"]) -> Float[Array, "B H M"]:
        """The norm of what each key's values add to the output through a head, in float32."""
        rows = self.output.get_variable("params", "kernel")
        rows = rows.reshape(*values.shape[2:], -1).astype(jnp.float32)
        added = jnp.einsum("BMHK,HKD->BHMD", values.astype(jnp.float32), rows)
        if self.config.talking_heads:
            added = jnp.einsum("HG,BGMD->BHMD", self.talk_weights, added)
        return jnp.linalg.norm(added, axis=-1)

    def _scores(self, queries, keys, view: View) -> Float[Array, "B H L M"]:
        """Q K^T / sqrt(K) of equation 1, with what positions add and heads exchange."""
        if self.config.query_key_norm == "l2":
            queries = queries * self.query_key_scale.astype(queries.dtype)
        else:
            queries = queries / jnp.sqrt(self.config.head_width).astype(queries.dtype)
        scores = dot_products(queries, keys)
        added = self.positions.score(queries, view.query_positions, view.key_positions)
        scores = scores if added is None else scores + added
        if self.config.talking_heads:
            scores = jnp.einsum("BHLM,HG->BGLM", scores, self.talk_scores)
        return scores if view.bias is None else scores + view.bias

    def _normalize(self, heads: Float[Array, "B L H K"], norm: str) -> Float[Array, "B L H K"]:
        """Queries or keys as `query_key_norm` says."""
        if self.config.query_key_norm == "layer":
            return getattr(self, norm)(heads)
        if self.config.query_key_norm == "l2":
            squares = jnp.sum(jnp.square(heads.astype(jnp.float32)), axis=-1, keepdims=True)
            return (heads * jax.lax.rsqrt(squares + 1e-12)).astype(heads.dtype)
        return heads

    def _split_heads(self, x: Float[Array, "B L D"]) -> Float[Array, "B L H K"]:
        return x.reshape(*x.shape[:-1], -1, self.config.head_width)


def _head_norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(epsilon=config.norm_epsilon, dtype=config.dtype, use_bias=False)


def _identity(key: Array, shape: tuple[int, int]) -> Float[Array, "H H"]:
    return jnp.eye(*shape)
