"""The Transformer [3.1], for whole sequences and for incremental decoding."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.errors import UserError
from transformer.model import attention_variants
from transformer.model.architecture import Architecture, Source, count_kernels
from transformer.model.config import ModelConfig, Size
from transformer.model.interventions import ATTENTIONS, intervene
from transformer.model.interventions import sown as sown_by_layer
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Embedding, make_norm
from transformer.model.masks import AttentionInputs, AttentionPattern, padding_mask
from transformer.model.positions.base import STACK_HOOKS
from transformer.model.positions.registry import (
    SumOfPositions,
    check_encodings,
    check_length,
    max_positions,
)
from transformer.model.stack import (
    DecoderLayer,
    EncoderLayer,
    LayerKVCache,
    make_layers,
    pad_axis,
    run_layers,
)
from transformer.variants import Registry

# Kind of source -> embedding module, called with (vocabulary size, config). See `build`.
SOURCE_EMBEDDINGS: dict[str, Any] = Registry(tokens=Embedding)


class Transformer(Architecture):
    """Predicts the next target token from the source and the previous target tokens.

    With no encoder layers, it is a decoder-only language model (Radford et al. 2018, "GPT"); with
    no decoder layers, it is encoder-only (Devlin et al. 2019, "BERT").

    The variables `interventions` change values that it computes; see `model/interventions.py`.

    Source: Vaswani et al. 2017, figure 1.
    """

    has_heads = True

    def setup(self):
        config = self.config
        self.embedding_dropout, self.word_dropout = Dropout(), Dropout(whole=True)
        if config.has_encoder:
            if not config.one_table:
                embedding = SOURCE_EMBEDDINGS["patches" if config.patch_size else "tokens"]
                self.source_embedding = embedding(config.source_vocab_size, config)
            self.encoder_positions = _encodings(config, config.encoder_names)
            self.encoder_layers = make_layers(EncoderLayer, config.num_encoder_layers, config)
        if config.has_decoder:
            self.target_embedding = Embedding(config.target_vocab_size, config)
            if config.tied_embeddings == "none":
                self.output_embedding = Embedding(config.target_vocab_size, config)
            if config.output_bias:
                shape = (config.target_vocab_size,)
                self.output_bias = self.param("output_bias", nn.initializers.zeros_init(), shape)
            self.decoder_positions = _encodings(config, config.decoder_names, bidirectional=False)
            self.cross_positions = _encodings(config, config.cross_positions)
            self.decoder_layers = make_layers(DecoderLayer, config.num_decoder_layers, config)
        if config.normalizes_input:
            # A pre-norm residual stream is not normalised by the layers, so it is normalised at the
            # end.
            self.encoder_norm = make_norm(config)
            self.decoder_norm = make_norm(config)

    def encode(
        self,
        source: Source,
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B M D"]:
        check_length(source_mask.shape[1], self.config)
        table: Any = self.target_embedding if self.config.one_table else self.source_embedding
        positions = jnp.arange(source_mask.shape[1])
        x = self._embed(table(source), self.encoder_positions, positions, rates)
        x = intervene(self, "encoder_embedding", x, {1: positions})
        inputs = self._inputs(self.encoder_positions, source_mask, positions, positions)

        def run(layer, x, _):
            return layer(x, inputs, rates), None

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
        """See `Architecture`; positions are counted from the start of each segment."""
        check_length(target.shape[1], self.config)
        positions = jnp.arange(target.shape[1])
        starts = 0 if segments is None else segment_starts(segments)
        vectors = self.target_embedding(target)
        x = self._embed(vectors, self.decoder_positions, positions - starts, rates)
        x = intervene(self, "decoder_embedding", x, {1: positions})
        inputs = self._inputs(
            self.decoder_positions, target_mask, positions, positions, segments, look_ahead=True
        )
        memory_inputs = None
        if memory is not None and source_mask is not None:
            places = jnp.arange(memory.shape[1])
            memory_inputs = self._inputs(self.cross_positions, source_mask, positions, places)

        def run(layer, x, _):
            return layer(x, memory, inputs, memory_inputs, rates), None

        x, _ = run_layers(self.decoder_layers, self.config, self.config.num_decoder_layers, run, x)
        return self.decoder_norm(x) if self.config.normalizes_input else x

    def init_cache(
        self, source: Source, source_mask: Bool[Array, "B M"], beam_size: int, steps: Size
    ) -> "KVCache":
        check_length(steps, self.config)
        memory = jnp.zeros((source_mask.shape[0], 0, self.config.d_model), self.config.dtype)
        if self.config.has_encoder:
            memory = self.encode(source, source_mask)

        def run(layer, x, _):
            return x, layer.init_cache(memory, beam_size, steps)

        depth = self.config.num_decoder_layers
        _, layers = run_layers(self.decoder_layers, self.config, depth, run, memory)
        back_pointers = jnp.zeros((source_mask.shape[0], beam_size, steps), jnp.int32)
        return KVCache(jnp.int32(0), back_pointers, source_mask, layers)

    def decode_step(
        self, tokens: Int[Array, "B P"], cache: "KVCache"
    ) -> tuple[Float[Array, "B P V"], "KVCache"]:
        """See `Architecture`.

        The hypotheses of a sentence take the place of the target positions in `decode`: the queries
        of all hypotheses share one set of keys, with a separate mask for each hypothesis.
        """
        beam_size, steps = cache.back_pointers.shape[1:]
        slots = jnp.broadcast_to(jnp.arange(beam_size, dtype=jnp.int32), tokens.shape)
        back_pointers = jax.lax.dynamic_update_slice_in_dim(
            cache.back_pointers, slots[:, :, None], cache.index, 2
        )
        is_visible = back_pointers[..., None] == jnp.arange(beam_size)
        is_visible &= (jnp.arange(steps) <= cache.index)[:, None]
        mask = is_visible.reshape(tokens.shape[0], 1, beam_size, steps * beam_size)
        query_positions = jnp.full(beam_size, cache.index)
        key_positions = jnp.repeat(jnp.arange(steps), beam_size)
        bias = self.decoder_positions.bias(query_positions, key_positions)
        inputs = AttentionInputs(mask, query_positions, key_positions, bias)
        memory_inputs = None
        if self.config.has_encoder:
            memory_positions = jnp.arange(cache.memory_mask.shape[1])
            bias = self.cross_positions.bias(query_positions, memory_positions)
            memory_mask = padding_mask(cache.memory_mask)
            memory_inputs = AttentionInputs(memory_mask, query_positions, memory_positions, bias)
        x = self._embed(self.target_embedding(tokens), self.decoder_positions, query_positions)
        x = intervene(self, "decoder_embedding", x, {1: query_positions})

        def run(layer, x, layer_cache):
            return layer.decode_step(x, layer_cache, cache.index, inputs, memory_inputs)

        depth = self.config.num_decoder_layers
        x, layers = run_layers(self.decoder_layers, self.config, depth, run, x, cache.layers)
        x = self.decoder_norm(x) if self.config.normalizes_input else x
        return self.logits(x), KVCache(cache.index + 1, back_pointers, cache.memory_mask, layers)

    def output_factors(
        self, features: Float[Array, "B L D"]
    ) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """See `Architecture`; for an output bias, ones and a matrix column are appended."""
        features, table = super().output_factors(features)
        if not self.config.output_bias:
            return features, table
        ones = jnp.ones((*features.shape[:-1], 1), features.dtype)
        columns = table, self.output_bias[:, None]
        return jnp.concatenate([features, ones], axis=-1), jnp.concatenate(columns, axis=-1)

    # -- the interface of `Network`

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        _check_heads(config)
        check_encodings(config)
        if config.attention_implementation == "flash":
            attention_variants.check_flash_config(config)

    @classmethod
    def has_cross_attention(cls, config: Any) -> bool:
        return config.num_encoder_layers > 0 and config.num_decoder_layers > 0

    @property
    def max_positions(self) -> int | None:
        return max_positions(self.config)

    @nn.nowrap
    def sown_attention(self, sown: Mapping[str, Any], name: str) -> dict[str, list[Array]]:
        by_kind = {kind: sown_by_layer(sown, *names, name) for kind, names in ATTENTIONS.items()}
        return {kind: values for kind, values in by_kind.items() if values}

    @nn.nowrap
    def kernels_per_token(self, params: Any) -> int:
        config = self.config
        depths = {
            "encoder_layers": config.num_encoder_layers,
            "decoder_layers": config.num_decoder_layers,
        }
        kernels = 0
        for stack, depth in depths.items():
            layers = {name: layer for name, layer in params.items() if name.startswith(stack)}
            kernels += count_kernels(layers) * (depth if config.share_layers else 1)
        return kernels

    # -- internals

    def _embed(self, vectors, encoding, positions, rates=NO_DROPOUT):
        vectors = self.word_dropout(vectors, rates.word)
        return self.embedding_dropout(encoding.add(vectors, positions), rates.embedding)

    def _inputs(
        self,
        encoding: SumOfPositions,
        is_key,
        query_positions,
        key_positions,
        segments=None,
        look_ahead=False,
    ) -> AttentionInputs | AttentionPattern:
        """Returns an `AttentionPattern` for chunked or flash attention, or else `AttentionInputs`.

        `AttentionInputs` are also used to initialise parameters and to return attention weights.
        """
        pattern = AttentionPattern(
            is_key, query_positions, key_positions, encoding.bias, segments, look_ahead
        )
        # Flash attention computes no weights that an intervention could change.
        is_changed = "interventions" in self.variables
        names = ("plain", "flash") if is_changed else ("plain",)
        plain = self.config.attention_implementation in names
        if plain or self.is_initializing() or self.is_mutable_collection("intermediates"):
            return pattern.inputs(query_positions)
        # A scanned layer can call functions of the stack's variables, but not the stack's modules.
        module, variables = encoding.unbind()
        bias = functools.partial(module.apply, method="bias")
        return dataclasses.replace(pattern, bias=jax.tree_util.Partial(bias, variables))


def segment_starts(segments: Int[Array, "B L"]) -> Int[Array, "B L"]:
    """Returns, for each token, the zero-based position at which the token's segment starts.

    Args:
      segments: segment numbers; the tokens of a segment are adjacent.
    """
    places = jnp.arange(segments.shape[1])
    first = jnp.diff(segments, axis=1, prepend=segments[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(first, places, 0), axis=1)


def _check_heads(config: ModelConfig) -> None:
    if not config.head_size and config.d_model % config.num_heads:
        raise UserError(
            f"model.num_heads={config.num_heads} does not divide model.d_model={config.d_model}: "
            "choose a divisor of it, or set model.head_size"
        )
    if config.num_heads % config.key_value_heads:
        raise UserError(
            f"model.num_kv_heads={config.num_kv_heads} does not divide "
            f"model.num_heads={config.num_heads}: choose a divisor of it"
        )


def _encodings(config: ModelConfig, names: str, bidirectional: bool = True) -> SumOfPositions:
    return SumOfPositions(config, bidirectional, names=names, hooks=STACK_HOOKS)


@flax.struct.dataclass
class KVCache:
    """The state of incremental decoding.

    Keys and values are never moved when a beam is pruned: `back_pointers[b, p, t]` is the slot of
    hypothesis p of sentence b at step t. `index` is the number of completed steps.
    """

    index: Int[Array, ""]
    back_pointers: Int[Array, "B P steps"]
    memory_mask: Bool[Array, "B M"]
    layers: tuple[LayerKVCache, ...] | LayerKVCache

    def reorder(self, parents: Int[Array, "B P"]) -> "KVCache":
        """Returns the cache in which hypothesis p continues hypothesis parents[p]."""
        return dataclasses.replace(
            self, back_pointers=jnp.take_along_axis(self.back_pointers, parents[:, :, None], axis=1)
        )

    def grow(self, steps: int) -> "KVCache":
        """Returns the cache with room for `steps` tokens."""
        beam_size, before = self.back_pointers.shape[-2:]
        return dataclasses.replace(
            self,
            back_pointers=pad_axis(self.back_pointers, -1, steps - before),
            layers=self._each_layer(lambda layer: layer.grow((steps - before) * beam_size)),
        )

    def take(self, rows: Int[Array, "n"]) -> "KVCache":
        """Returns the cache for the selected sentences."""
        return dataclasses.replace(
            self,
            back_pointers=self.back_pointers[rows],
            memory_mask=self.memory_mask[rows],
            layers=self._each_layer(lambda layer: layer.take(rows)),
        )

    def _each_layer(self, change: Callable[[LayerKVCache], LayerKVCache]) -> Any:
        return jax.tree.map(change, self.layers, is_leaf=lambda x: isinstance(x, LayerKVCache))
