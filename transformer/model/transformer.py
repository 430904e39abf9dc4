"""The encoder-decoder Transformer [3.1], whole sequences at once or a token at a time."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model.attention import MultiHeadAttention, look_ahead_mask, padding_mask
from transformer.model.config import ModelConfig
from transformer.model.layers import (
    Dropout,
    DropoutRates,
    Embedding,
    FeedForward,
    Residual,
    layer_norm,
)
from transformer.model.positions import REGISTRY, NoPositions, check_length


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, a residual connection around each [3.1]."""

    config: ModelConfig
    positions: NoPositions

    def setup(self):
        self.self_attention = MultiHeadAttention(self.config, self.positions)
        self.self_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def __call__(
        self,
        x: Float[Array, "B M D"],
        mask: Bool[Array, "B 1 1 M"],
        positions: Int[Array, "M"],
        rates: DropoutRates | None,
    ) -> Float[Array, "B M D"]:
        def attend(x):
            return self.self_attention(x, x, mask, positions, positions, rates)

        x = self.self_attention_residual(x, attend, rates)
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x, rates), rates)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the source, feed-forward [3.1]."""

    config: ModelConfig
    positions: NoPositions

    def setup(self):
        self.self_attention = MultiHeadAttention(self.config, self.positions)
        self.self_attention_residual = Residual(self.config)
        # A position of the target says nothing about the distance to one of the source, so
        # relative encodings do not act between the two.
        self.cross_attention = MultiHeadAttention(self.config, NoPositions(self.config))
        self.cross_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"],
        mask: Bool[Array, "B 1 L L"],
        memory_mask: Bool[Array, "B 1 1 M"],
        positions: Int[Array, "L"],
        rates: DropoutRates | None,
    ) -> Float[Array, "B L D"]:
        memory_positions = jnp.arange(memory.shape[1])

        def attend(x):
            return self.self_attention(x, x, mask, positions, positions, rates)

        def attend_source(x):
            return self.cross_attention(x, memory, memory_mask, positions, memory_positions, rates)

        x = self.self_attention_residual(x, attend, rates)
        x = self.cross_attention_residual(x, attend_source, rates)
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x, rates), rates)

    def step(self, x: Float[Array, "B P D"], cache: "LayerCache", shared: "StepView"):
        """Returns the next hidden states of P hypotheses a sentence, and the cache with them."""
        batch, steps = cache.keys.shape[:2]

        def attend(x):
            nonlocal cache
            now = jnp.full(x.shape[1], shared.index)
            keys, values = self.self_attention.keys_values(x, now)
            cache = cache.replace(
                keys=jax.lax.dynamic_update_slice_in_dim(
                    cache.keys, keys[:, None], shared.index, 1
                ),
                values=jax.lax.dynamic_update_slice_in_dim(
                    cache.values, values[:, None], shared.index, 1
                ),
            )
            # Every hypothesis' past is one axis of keys; the mask says which of it is one's own.
            flat = (batch, steps * x.shape[1], *cache.keys.shape[3:])
            then = jnp.repeat(jnp.arange(steps), x.shape[1])
            return self.self_attention.attend(
                x,
                cache.keys.reshape(flat),
                cache.values.reshape(flat),
                shared.mask,
                now,
                then,
                None,
            )

        def attend_source(x):
            now = jnp.full(x.shape[1], shared.index)
            there = jnp.arange(cache.memory_keys.shape[1])
            return self.cross_attention.attend(
                x, cache.memory_keys, cache.memory_values, shared.memory_mask, now, there, None
            )

        x = self.self_attention_residual(x, attend, None)
        x = self.cross_attention_residual(x, attend_source, None)
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x, None), None), cache


class Transformer(nn.Module):
    """Predicts each next token of a target from the target so far and a source.

    Source: Vaswani et al. 2017, figure 1.
    """

    config: ModelConfig

    def setup(self):
        config = self.config
        tied = config.tied_embeddings
        self.target_embedding = Embedding(config.target_vocab_size, config)
        if tied != "all":
            self.source_embedding = Embedding(config.source_vocab_size, config)
        if tied == "none":
            self.output_embedding = Embedding(config.target_vocab_size, config)
        self.encoder_positions = REGISTRY[config.positions](config)
        self.decoder_positions = REGISTRY[config.positions](config)
        self.embedding_dropout = Dropout()
        self.encoder_layers = [
            EncoderLayer(config, self.encoder_positions) for _ in range(config.num_encoder_layers)
        ]
        self.decoder_layers = [
            DecoderLayer(config, self.decoder_positions) for _ in range(config.num_decoder_layers)
        ]
        if config.norm_position == "pre":
            # The stream of a pre-norm stack is never normalised on its way; once, then, at its end.
            self.encoder_norm = layer_norm(config)
            self.decoder_norm = layer_norm(config)

    def __call__(
        self,
        source: Int[Array, "B M"],
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"],
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates | None = None,
    ) -> Float[Array, "B L V"]:
        """Returns float32 logits; those at target position i score the token after i.

        Args:
          source_mask, target_mask: True at tokens, False at padding.
          rates: dropout while training (needs the rng "dropout"); None in evaluation.
        """
        return self.logits(self.features(source, target, source_mask, target_mask, rates))

    def features(
        self,
        source: Int[Array, "B M"],
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"],
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's last hidden states: `__call__` before its logits."""
        memory = self.encode(source, source_mask, rates)
        return self.decode(target, memory, source_mask, target_mask, rates)

    def encode(
        self,
        source: Int[Array, "B M"],
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates | None = None,
    ) -> Float[Array, "B M D"]:
        """Returns the encoder's output, one vector a source token."""
        table = (
            self.target_embedding if self.config.tied_embeddings == "all" else self.source_embedding
        )
        positions = jnp.arange(source.shape[1])
        x = self._embed(table(source), self.encoder_positions, positions, rates)
        mask = padding_mask(source_mask)
        for layer in self.encoder_layers:
            x = layer(x, mask, positions, rates)
        return self.encoder_norm(x) if self.config.norm_position == "pre" else x

    def decode(
        self,
        target: Int[Array, "B L"],
        memory: Float[Array, "B M D"],
        source_mask: Bool[Array, "B M"],
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's output for a whole target, which sees no future token."""
        positions = jnp.arange(target.shape[1])
        x = self._embed(self.target_embedding(target), self.decoder_positions, positions, rates)
        mask = look_ahead_mask(target.shape[1]) & padding_mask(target_mask)
        for layer in self.decoder_layers:
            x = layer(x, memory, mask, padding_mask(source_mask), positions, rates)
        return self.decoder_norm(x) if self.config.norm_position == "pre" else x

    def output_table(self) -> Float[Array, "V D"]:
        """Returns the matrix whose product with a hidden state gives the logits [3.4]."""
        untied = self.config.tied_embeddings == "none"
        return self.output_embedding.table if untied else self.target_embedding.table

    def logits(self, features: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        """Returns float32 scores over the target vocabulary."""
        table = self.output_table().astype(features.dtype)
        return jnp.einsum("BLD,VD->BLV", features, table, preferred_element_type=jnp.float32)

    def start(
        self, source: Int[Array, "B M"], source_mask: Bool[Array, "B M"], beam: int, steps: int
    ) -> "Cache":
        """Returns the cache with which `step` decodes up to `steps` tokens of `beam` hypotheses.

        Raises:
          UserError: a learned table of positions has fewer than `steps` rows.
        """
        check_length(steps, self.config)
        memory = self.encode(source, source_mask)
        positions = jnp.arange(source.shape[1])
        shape = (len(source), steps, beam, self.config.num_heads, self.config.head_size)
        layers = []
        for layer in self.decoder_layers:
            keys, values = layer.cross_attention.keys_values(memory, positions)
            empty = jnp.zeros(shape, keys.dtype)
            layers.append(LayerCache(empty, empty, keys, values))
        ancestors = jnp.zeros((len(source), beam, steps), jnp.int32)
        return Cache(jnp.int32(0), ancestors, source_mask, tuple(layers))

    def step(
        self, tokens: Int[Array, "B P"], cache: "Cache"
    ) -> tuple[Float[Array, "B P V"], "Cache"]:
        """Returns the logits after one more token of each hypothesis, and the cache with it.

        The hypotheses of a sentence stand where the positions of a target stand in `decode`:
        queries side by side, each with its own mask over one set of keys.
        """
        beam, steps = cache.ancestors.shape[1:]
        here = jnp.broadcast_to(jnp.arange(beam, dtype=jnp.int32), tokens.shape)
        ancestors = jax.lax.dynamic_update_slice_in_dim(
            cache.ancestors, here[:, :, None], cache.index, 2
        )
        own = ancestors[..., None] == jnp.arange(beam)
        own &= (jnp.arange(steps) <= cache.index)[:, None]
        mask = own.reshape(len(tokens), 1, beam, steps * beam)
        shared = StepView(cache.index, mask, padding_mask(cache.memory_mask))
        now = jnp.full(beam, cache.index)
        x = self._embed(self.target_embedding(tokens), self.decoder_positions, now, None)
        layers = []
        for layer, layer_cache in zip(self.decoder_layers, cache.layers, strict=True):
            x, layer_cache = layer.step(x, layer_cache, shared)
            layers.append(layer_cache)
        x = self.decoder_norm(x) if self.config.norm_position == "pre" else x
        return self.logits(x), Cache(cache.index + 1, ancestors, cache.memory_mask, tuple(layers))

    def _embed(self, vectors, encoding, positions, rates):
        check_length(len(positions), self.config)
        return self.embedding_dropout(encoding.add(vectors, positions), rates and rates.embedding)


@flax.struct.dataclass
class LayerCache:
    """Keys and values of one decoder layer: of the steps so far, and of the source."""

    keys: Float[Array, "B steps P H K"]
    values: Float[Array, "B steps P H K"]
    memory_keys: Float[Array, "B M H K"]
    memory_values: Float[Array, "B M H K"]


@flax.struct.dataclass
class Cache:
    """All that stepwise decoding remembers.

    Keys and values are never moved when a beam is pruned: `ancestors[b, p, t]` says in which
    slot hypothesis p of sentence b stood at step t. `index` counts the steps done.
    """

    index: Int[Array, ""]
    ancestors: Int[Array, "B P steps"]
    memory_mask: Bool[Array, "B M"]
    layers: tuple[LayerCache, ...]

    def reorder(self, parents: Int[Array, "B P"]) -> "Cache":
        """Returns the cache in which hypothesis p goes on from what was hypothesis parents[p]."""
        return self.replace(
            ancestors=jnp.take_along_axis(self.ancestors, parents[:, :, None], axis=1)
        )


@flax.struct.dataclass
class StepView:
    """What every layer of one step shares."""

    index: Int[Array, ""]
    mask: Bool[Array, "B 1 P keys"]
    memory_mask: Bool[Array, "B 1 1 M"]
