"""The Transformer [3.1], whole sequences at once or a token at a time."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.model.attention import (
    View,
    look_ahead_mask,
    padding_mask,
    segment_mask,
)
from transformer.model.config import ModelConfig
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Embedding, make_norm
from transformer.model.positions import STACK_HOOKS, SumOfPositions, check_length
from transformer.model.stack import (
    DecoderLayer,
    EncoderLayer,
    LayerCache,
    make_layers,
    run_layers,
    sown_by_kind,
)


class Transformer(nn.Module):
    """Predicts each next token of a target from the target so far and a source.

    With no encoder layers, the decoder alone predicts the next token of any text (Radford et al.
    2018, "GPT"); with no decoder layers, the encoder alone reads one (Devlin et al. 2019, "BERT").

    Variables `gates` beside the parameters switch heads off, see `gates.gate_variables`.

    Source: Vaswani et al. 2017, figure 1.
    """

    config: ModelConfig

    def setup(self):
        config = self.config
        self.embedding_dropout = Dropout()
        if config.has_encoder:
            if not config.one_table:
                self.source_embedding = Embedding(config.source_vocab_size, config)
            self.encoder_positions = _encodings(config, config.encoder_names)
            self.encoder_layers = make_layers(EncoderLayer, config.num_encoder_layers, config)
        if config.has_decoder:
            self.target_embedding = Embedding(config.target_vocab_size, config)
            if config.tied_embeddings == "none":
                self.output_embedding = Embedding(config.target_vocab_size, config)
            self.decoder_positions = _encodings(config, config.decoder_names, bidirectional=False)
            self.cross_positions = _encodings(config, config.cross_positions)
            self.decoder_layers = make_layers(DecoderLayer, config.num_decoder_layers, config)
        if config.normalizes_input:
            # Such a stream is never normalised on its way; once, then, at its end.
            self.encoder_norm = make_norm(config)
            self.decoder_norm = make_norm(config)

    def __call__(
        self,
        source: Int[Array, "B M"],
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"],
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L V"]:
        """Returns float32 logits; those at target position i score the token after i.

        Args:
          source_mask, target_mask: True at tokens, False at padding.
          rates: of dropout while training, which needs the rng "dropout".
        """
        return self.logits(self.features(source, target, source_mask, target_mask, rates))

    def features(
        self,
        source: Int[Array, "B M"],
        target: Int[Array, "B L"],
        source_mask: Bool[Array, "B M"],
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's last hidden states: `__call__` before its logits."""
        memory = self.encode(source, source_mask, rates)
        return self.decode(target, memory, source_mask, target_mask, rates)

    def encode(
        self,
        source: Int[Array, "B M"],
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B M D"]:
        """Returns the encoder's output, one vector a source token."""
        table = self.target_embedding if self.config.one_table else self.source_embedding
        positions = jnp.arange(source.shape[1])
        x = self._embed(table(source), self.encoder_positions, positions, rates)
        view = self._view(self.encoder_positions, padding_mask(source_mask), positions, positions)

        def run(layer, x, _):
            return layer(x, view, rates), None

        x, _ = run_layers(self.encoder_layers, self.config, self.config.num_encoder_layers, run, x)
        return self.encoder_norm(x) if self.config.normalizes_input else x

    def decode(
        self,
        target: Int[Array, "B L"],
        memory: Float[Array, "B M D"] | None,
        source_mask: Bool[Array, "B M"] | None,
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
        segments: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns the decoder's output for a whole target, which sees no future token.

        Args:
          memory, source_mask: None where there is no encoder.
          segments: which document of its row each token belongs to. A token sees its own alone,
            and positions are counted from its start; None where a row is one document.
        """
        positions = jnp.arange(target.shape[1])
        own = positions if segments is None else positions - segment_starts(segments)
        x = self._embed(self.target_embedding(target), self.decoder_positions, own, rates)
        mask = look_ahead_mask(target.shape[1]) & padding_mask(target_mask)
        if segments is not None:
            mask &= segment_mask(segments)
        view = self._view(self.decoder_positions, mask, positions, positions)
        memory_view = None
        if memory is not None:
            there, readable = jnp.arange(memory.shape[1]), padding_mask(source_mask)
            memory_view = self._view(self.cross_positions, readable, positions, there)

        def run(layer, x, _):
            return layer(x, memory, view, memory_view, rates), None

        x, _ = run_layers(self.decoder_layers, self.config, self.config.num_decoder_layers, run, x)
        return self.decoder_norm(x) if self.config.normalizes_input else x

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

        Without an encoder nothing counts of the source but its number of rows.

        Raises:
          UserError: a learned table of positions has fewer than `steps` rows.
        """
        check_length(steps, self.config)
        memory = jnp.zeros((len(source), 0, self.config.d_model), self.config.dtype)
        if self.config.has_encoder:
            memory = self.encode(source, source_mask)

        def run(layer, x, _):
            return x, layer.start(memory, beam, steps)

        depth = self.config.num_decoder_layers
        _, layers = run_layers(self.decoder_layers, self.config, depth, run, memory)
        ancestors = jnp.zeros((len(source), beam, steps), jnp.int32)
        return Cache(jnp.int32(0), ancestors, source_mask, layers)

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
        now, then = jnp.full(beam, cache.index), jnp.repeat(jnp.arange(steps), beam)
        view = self._view(self.decoder_positions, mask, now, then)
        memory_view = None
        if self.config.has_encoder:
            there = jnp.arange(cache.memory_mask.shape[1])
            memory_mask = padding_mask(cache.memory_mask)
            memory_view = self._view(self.cross_positions, memory_mask, now, there)
        x = self._embed(self.target_embedding(tokens), self.decoder_positions, now)

        def run(layer, x, layer_cache):
            return layer.step(x, layer_cache, cache.index, view, memory_view)

        depth = self.config.num_decoder_layers
        x, layers = run_layers(self.decoder_layers, self.config, depth, run, x, cache.layers)
        x = self.decoder_norm(x) if self.config.normalizes_input else x
        return self.logits(x), Cache(cache.index + 1, ancestors, cache.memory_mask, layers)

    @staticmethod
    def attention_weights(intermediates: Mapping[str, Any]) -> dict[str, list[Array]]:
        """Returns each layer's attention weights [B, H, L, M], as a forward pass sowed them.

        Kinds are "encoder_self", "decoder_self" and "cross", of which a part alone has its own.
        """
        return sown_by_kind(intermediates, "weights")

    @staticmethod
    def value_norms(intermediates: Mapping[str, Any]) -> dict[str, list[Array]]:
        """Returns each layer's norms of transformed values [B, H, M], as a forward pass sowed them.

        Times the weights, they are the norms of what each head fetches from each token. See
        `MultiHeadAttention`; kinds are those of `attention_weights`.
        """
        return sown_by_kind(intermediates, "value_norms")

    def _embed(self, vectors, encoding, positions, rates=NO_DROPOUT):
        check_length(positions.shape[-1], self.config)
        return self.embedding_dropout(encoding.add(vectors, positions), rates.embedding)

    def _view(self, encoding: SumOfPositions, mask, query_positions, key_positions) -> View:
        bias = encoding.bias(query_positions, key_positions)
        return View(mask, query_positions, key_positions, bias)


def segment_starts(segments: Int[Array, "B L"]) -> Int[Array, "B L"]:
    """Returns where in its row the segment of each token starts, from zero.

    Args:
      segments: tokens of one segment stand side by side.
    """
    places = jnp.arange(segments.shape[1])
    first = jnp.diff(segments, axis=1, prepend=segments[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(first, places, 0), axis=1)


def _encodings(config: ModelConfig, names: str, bidirectional: bool = True) -> SumOfPositions:
    return SumOfPositions(config, bidirectional, names=names, hooks=STACK_HOOKS)


@flax.struct.dataclass
class Cache:
    """All that stepwise decoding remembers.

    Keys and values are never moved when a beam is pruned: `ancestors[b, p, t]` says in which
    slot hypothesis p of sentence b stood at step t. `index` counts the steps done.
    """

    index: Int[Array, ""]
    ancestors: Int[Array, "B P steps"]
    memory_mask: Bool[Array, "B M"]
    layers: tuple[LayerCache, ...] | LayerCache

    def reorder(self, parents: Int[Array, "B P"]) -> "Cache":
        """Returns the cache in which hypothesis p goes on from what was hypothesis parents[p]."""
        return self.replace(
            ancestors=jnp.take_along_axis(self.ancestors, parents[:, :, None], axis=1)
        )
