"""Scaled dot-product attention (equation 1) and multi-head attention [3.2]."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model import attention_variants as variants
from transformer.model import matmul
from transformer.model.config import ModelConfig
from transformer.model.interventions import intervene
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Linear, is_off
from transformer.model.masks import AttentionInputs, AttentionPattern
from transformer.model.positions.base import LAYER_HOOKS
from transformer.model.positions.registry import SumOfPositions

# Maximum number of float32 scores that chunked attention holds at a time, keyed by platform, and
# the minimum number of queries in a chunk. On a CPU, 1 MiB of scores stays in the cache: with 4,096
# tokens, a training step took 0.4 times as long as with 16 MiB of scores.
CHUNK_SCORES = {"cpu": 2**18, "gpu": 2**27, "tpu": 2**27}
MIN_QUERIES = 32


def scaled_dot_product_attention(
    queries: Float[Array, "B L H K"],
    keys: Float[Array, "B M H K"],
    values: Float[Array, "B M H K"],
    mask: Bool[Array, "#B #H #L M"],
    bias: Float[Array, "H L M"] | None = None,
    *,
    sink: Float[Array, "H"] | None = None,
    scale: Float[Array, ""] | None = None,
    score_mod: Callable | None = None,
    weight_mod: Callable | None = None,
) -> tuple[Float[Array, "B L H K"], Float[Array, "B H L M"]]:
    """Returns softmax(Q K^T / sqrt(K)) V for each head, and the attention weights.

    Scores and softmax are computed in float32; the weights are cast to the dtype of the values.

    Args:
      mask: True where a query may attend to a key.
      bias: added to the scores before the softmax.
      sink: see `attention_variants.softmax_with_sink`.
      scale: replaces 1 / sqrt(K).
      score_mod: a function (scores, scaled queries) -> scores, called before the bias is added.
      weight_mod: a function weights -> weights, called after the softmax, such as dropout.

    Source: Vaswani et al. 2017, equation 1.
    """
    if scale is None:
        # The square root stays float32: in bfloat16, sqrt(48) would be 0.13% too large.
        queries = (queries / jnp.sqrt(jnp.float32(queries.shape[-1]))).astype(queries.dtype)
    else:
        queries = queries * scale
    # Shapes for each head and sequence: Q [L, K], K^T [K, M], V [M, K].
    q, k_t = jnp.transpose(queries, (0, 2, 1, 3)), jnp.transpose(keys, (0, 2, 3, 1))
    scores = matmul.scores(q, k_t)
    scores = scores if score_mod is None else score_mod(scores, queries)
    weights = masked_softmax(scores if bias is None else scores + bias, mask, sink)
    weights = weights if weight_mod is None else weight_mod(weights)
    weights = weights.astype(values.dtype)
    heads = matmul.weighted_sums(weights, jnp.transpose(values, (0, 2, 1, 3)))
    return jnp.swapaxes(heads, 1, 2), weights


def masked_softmax(
    scores: Float[Array, "B H L M"],
    mask: Bool[Array, "#B #H #L M"],
    sink: Float[Array, "H"] | None = None,
) -> Float[Array, "B H L M"]:
    """Returns the attention weights: the softmax of the scores over unmasked keys.

    If all keys of a query are masked, the weights of the query are zeros; a plain softmax would
    spread the weight over masked keys.

    Args:
      mask: True where a query may attend to a key.
      sink: see `attention_variants.softmax_with_sink`.

    Source: Vaswani et al. 2017, equation 1 and section 3.2.3.
    """
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    if sink is None:
        return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0.0)
    return jnp.where(mask, variants.softmax_with_sink(scores, sink), 0.0)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, where each head has separate projections.

    Queries come from one sequence; keys and values come from the same sequence (self-attention) or
    from another one (cross-attention).

    Features beyond section 3.2.2 are in `attention_variants` and in the positional encodings:
    shared key-value heads (`num_kv_heads`), `query_key_norm`, unscaled scores (`scale_scores`),
    `talking_heads`, `attention_sink`, and gates that the input determines (`head_gate`).

    Two values are places of interventions (see `interventions.intervene`): `weights` [B, H, L, M]
    are the softmax weights before talking heads and dropout, and `heads` [B, L, H, K] the outputs
    of the heads. If the collection `intermediates` is mutable, these are sown, and so are the norms
    of transformed values, `value_norms` [B, H, M] (see `attention_variants.value_norms`).

    Args:
      encodings: names of positional encodings, joined by `+`; only their layer hooks are used.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    config: ModelConfig
    encodings: str

    def setup(self):
        config = self.config
        width, shared = (
            heads * config.head_width for heads in (config.num_heads, config.key_value_heads)
        )
        self.query = Linear(width, config.dtypes, config.attention_bias)
        self.key = Linear(shared, config.dtypes, config.attention_bias)
        self.value = Linear(shared, config.dtypes, config.attention_bias)
        self.output = Linear(config.d_model, config.dtypes, config.attention_bias)
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
        zeros = nn.initializers.zeros_init()
        self.sink = jnp.zeros(config.num_heads) if config.attention_sink == "one" else None
        if config.attention_sink == "learned":
            self.sink = self.param("sink", zeros, (config.num_heads,))
        if config.head_gate:
            # All gates are 1/2 at first, about as in Qiu et al. 2025, where kernels start small.
            gates = config.num_heads, config.dtypes, config.attention_bias
            self.head_gate = Linear(*gates, initializer=zeros)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"],
        inputs: AttentionInputs | AttentionPattern,
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        """Returns the attention output, with queries from `x` and keys and values from `memory`."""
        keys, values = self.keys_values(memory, inputs.key_positions)
        return self.attend(x, keys, values, inputs, rates)

    def keys_values(
        self, memory: Float[Array, "B M D"], positions: Int[Array, "M"]
    ) -> tuple[Float[Array, "B M G K"], Float[Array, "B M G K"]]:
        """Returns the projected keys and values, as they are stored in a cache.

        G is the number of key-value heads.
        """
        keys = self._normalize(self._split_heads(self.key(memory)), "key_norm")
        return self.positions.rotate(keys, positions), self._split_heads(self.value(memory))

    def attend(
        self,
        x: Float[Array, "B L D"],
        keys: Float[Array, "B M G K"],
        values: Float[Array, "B M G K"],
        inputs: AttentionInputs | AttentionPattern,
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        """Returns the attention output, given projected keys and values; queries come from `x`.

        Args:
          inputs: an `AttentionPattern` if no array of shape [L, M] should be created.
        """
        queries = self._normalize(self._split_heads(self.query(x)), "query_norm")
        queries = self.positions.rotate(queries, inputs.query_positions)
        if isinstance(inputs, AttentionInputs):
            heads = self._attend(queries, keys, values, inputs, rates)
        elif self.config.attention_implementation == "flash":
            variants.check_flash_call(dropout=not is_off(rates.attention))
            scale = self._scale(queries.dtype)
            heads = variants.flash_attention(queries, keys, values, inputs, scale=scale)
        else:
            heads = self._attend_by_chunks(queries, keys, values, inputs, rates)
        if self.config.head_gate:
            heads = heads * nn.sigmoid(self.head_gate(x))[..., None]
        heads = intervene(self, "heads", heads, {1: inputs.query_positions})
        return self.output(heads.reshape(*x.shape[:2], -1))

    def _attend(
        self, queries, keys, values, inputs: AttentionInputs, rates: DropoutRates
    ) -> Float[Array, "B L H K"]:
        """Computes equation 1 with the variants that the config enables."""
        keys, values = (variants.repeat_heads(y, self.config.num_heads) for y in (keys, values))
        heads, weights = scaled_dot_product_attention(
            queries,
            keys,
            values,
            inputs.mask,
            inputs.bias,
            sink=self.sink,
            scale=self._scale(queries.dtype),
            score_mod=functools.partial(self._modify_scores, inputs),
            weight_mod=functools.partial(self._modify_weights, inputs, values, rates),
        )
        return self._add_relative_values(heads, weights, inputs)

    def _attend_by_chunks(
        self, queries, keys, values, pattern: AttentionPattern, rates: DropoutRates
    ) -> Float[Array, "B L H K"]:
        """Computes `_attend` for one chunk of queries at a time, over all keys.

        The attention weights are recomputed in the backward pass, so only one chunk of weights is
        held at a time. With dropout, each chunk uses a separate key, split from the layer's key:
        dropout masks are reproducible, but differ from the masks of the "plain" implementation.
        """
        batch, length, heads, width = queries.shape
        held = CHUNK_SCORES.get(jax.default_backend(), CHUNK_SCORES["gpu"])
        longest = max(MIN_QUERIES, held // (batch * heads * keys.shape[1]))
        count = -(-length // longest)
        if count == 1:
            inputs = pattern.inputs(pattern.query_positions)
            return self._attend(queries, keys, values, inputs, rates)
        size = -(-length // count)  # equal sizes minimise padding
        padding = (0, count * size - length)
        positions = jnp.pad(pattern.query_positions, padding, mode="edge").reshape(count, size)
        queries = jnp.pad(queries, [(0, 0), padding, (0, 0), (0, 0)])
        queries = jnp.moveaxis(queries.reshape(batch, count, size, heads, width), 1, 0)

        def attend(attention, _, chunk):
            queries, positions = chunk
            inputs = pattern.inputs(positions)
            return None, attention._attend(queries, keys, values, inputs, rates)

        scan = nn.scan(
            nn.remat(attend, prevent_cse=False),
            variable_broadcast=["params", "interventions"],
            split_rngs={"params": False, "dropout": True},
        )
        _, chunks = scan(self, None, (queries, positions))
        chunks = jnp.moveaxis(chunks, 0, 1).reshape(batch, count * size, heads, width)
        return chunks[:, :length]

    def _split_heads(self, x: Float[Array, "B L D"]) -> Float[Array, "B L H K"]:
        return x.reshape(*x.shape[:-1], -1, self.config.head_width)

    # -- variants that the config enables

    def _normalize(self, heads: Float[Array, "B L H K"], norm: str) -> Float[Array, "B L H K"]:
        """Normalises queries or keys according to `query_key_norm`."""
        if self.config.query_key_norm == "layer":
            return getattr(self, norm)(heads)
        return variants.l2_normalize(heads) if self.config.query_key_norm == "l2" else heads

    def _scale(self, dtype) -> Float[Array, ""] | None:
        """Returns the learned scale for "l2", 1 for unscaled scores, or None for 1 / sqrt(K)."""
        if self.config.query_key_norm == "l2":
            return jnp.asarray(self.query_key_scale, dtype)
        return None if self.config.scale_scores else jnp.ones((), dtype)

    def _modify_scores(self, inputs: AttentionInputs, scores, queries) -> Float[Array, "B H L M"]:
        added = self.positions.score(queries, inputs.query_positions, inputs.key_positions)
        scores = scores if added is None else scores + added
        return variants.talk(scores, self.talk_scores) if self.config.talking_heads else scores

    def _modify_weights(self, inputs, values, rates, weights) -> Float[Array, "B H L M"]:
        talk = self.talk_weights if self.config.talking_heads else None
        positions = {2: inputs.query_positions, 3: inputs.key_positions}
        attend = functools.partial(masked_softmax, mask=inputs.mask)
        weights = intervene(self, "weights", weights, positions, attend)
        if self.is_mutable_collection("intermediates"):
            kernel = self.output.get_variable("params", "kernel")
            self.sow("intermediates", "value_norms", variants.value_norms(values, kernel, talk))
        weights = weights if talk is None else variants.talk(weights, talk)
        return self.dropout(weights, rates.attention)

    def _add_relative_values(self, heads, weights, inputs) -> Float[Array, "B L H K"]:
        added = self.positions.value_bias(weights, inputs.query_positions, inputs.key_positions)
        return heads if added is None else heads + added
