"""The recurrent encoder-decoder with attention, a baseline for the Transformer."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.errors import UserError
from transformer.model.architecture import Architecture, count_kernels
from transformer.model.config import ModelConfig, Size
from transformer.model.layers import NO_DROPOUT, Dropout, DropoutRates, Embedding, Linear
from transformer.model.recurrent import attention as recurrent_attention
from transformer.model.recurrent import cells
from transformer.model.recurrent.attention import EncoderMemory, attend
from transformer.model.recurrent.cells import BidirectionalLayer, State, recur, run_cell


class RecurrentModel(Architecture):
    """A recurrent model that predicts the next target token from the source and previous tokens.

    The encoder is bidirectional; the decoder is unidirectional. Each vector of a decoder layer's
    initial state is the tanh of a separate projection of the encoder's two final states; Bahdanau
    et al. 2015, appendix A.2.2, project only the right-to-left state. Dropout is applied to
    embeddings and layer outputs, but never between steps (Zaremba et al. 2014).

    Without encoder layers, this is a language model with an initial state of zeros.

    Source: Cho et al. 2014; Sutskever et al. 2014, "Sequence to Sequence Learning with Neural
    Networks"; the attention classes name their own sources.
    """

    has_heads = False

    def setup(self):
        config = self.config
        encodes, decodes = config.num_encoder_layers, config.num_decoder_layers
        width, tied = config.d_model, config.tied_embeddings
        self.target_embedding = Embedding(config.target_vocab_size, config)
        if not config.one_table:
            self.source_embedding = Embedding(config.source_vocab_size, config)
        if tied == "none":
            self.output_embedding = Embedding(config.target_vocab_size, config)
        self.embedding_dropout, self.word_dropout = Dropout(), Dropout(whole=True)
        self.layer_dropout = Dropout()
        self.encoder_layers = [BidirectionalLayer(config) for _ in range(encodes)]
        attention = recurrent_attention.REGISTRY[config.recurrent_attention]
        self.attention = attention(config) if attention and encodes else None
        cell = cells.REGISTRY[config.cell]
        attends = self.attention is not None and self.attention.context_in_cell
        contexts = [width if attends and layer == 0 else 0 for layer in range(decodes)]
        self.decoder_layers = [cell(width, width, config.dtypes, size) for size in contexts]
        self.first_states = Linear(decodes * cell.states * width, config.dtypes, use_bias=True)

    def encode(
        self,
        source: Int[Array, "B M"],
        source_mask: Bool[Array, "B M"],
        rates: DropoutRates = NO_DROPOUT,
    ) -> Float[Array, "B M D"]:
        table = self.target_embedding if self.config.one_table else self.source_embedding
        x = self._embed(table, source, rates)
        for layer in self.encoder_layers:
            x = self.layer_dropout(layer(x, source_mask), rates.residual)
        return x

    def decode(
        self,
        target: Int[Array, "B L"],
        memory: Float[Array, "B M D"] | None,
        source_mask: Bool[Array, "B M"] | None,
        target_mask: Bool[Array, "B L"],
        rates: DropoutRates = NO_DROPOUT,
        segments: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """See `Architecture`; the state is reset to zero at the start of each segment.

        Attention weights over the source are sown as `intermediates/weights`.
        """
        starts = None if segments is None else jnp.diff(segments, prepend=segments[:, :1]) != 0
        encoder_memory = self._encoder_memory(memory, source_mask)
        x = self._embed(self.target_embedding, target, rates)
        embedded, context = x, None
        states = self._first_states(memory, target.shape[0])
        for cell, state in zip(self.decoder_layers, states, strict=True):
            if cell.context:
                x, context = self._run_attending_cell(x, encoder_memory, target_mask, state)
            else:
                x = run_cell(cell, x, target_mask, state, starts)
            x = self.layer_dropout(x, rates.residual)
        return self._features(embedded, x, context, encoder_memory)

    def init_cache(
        self,
        source: Int[Array, "B M"],
        source_mask: Bool[Array, "B M"] | None,
        beam_size: int,
        steps: Size,
    ) -> "DecoderState":
        """See `Architecture`; the size of the cache does not depend on `steps`."""
        memory = None
        if self.config.num_encoder_layers:
            assert source_mask is not None, "the encoder reads a source"
            memory = self.encode(source, source_mask)
        states = jax.tree.map(
            lambda state: jnp.repeat(state[:, None], beam_size, axis=1),
            self._first_states(memory, source.shape[0]),
        )
        return DecoderState(states, self._encoder_memory(memory, source_mask))

    def decode_step(
        self, tokens: Int[Array, "B P"], cache: "DecoderState"
    ) -> tuple[Float[Array, "B P V"], "DecoderState"]:
        x = embedded = self.target_embedding(tokens)
        context, states = None, []
        for cell, state in zip(self.decoder_layers, cache.states, strict=True):
            projected = cell.project(x)
            if cell.context:
                state, (context, _) = self._attending_step(projected, state, cache.memory)
            else:
                state = cell(projected, state)
            states.append(state)
            x = state[0].astype(x.dtype)
        features = self._features(embedded, x, context, cache.memory)
        return self.logits(features), dataclasses.replace(cache, states=tuple(states))

    # -- the interface of `Network`

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if config.has_encoder and config.d_model % 2:
            raise UserError(
                f"model.d_model={config.d_model} must be even: each direction of a bidirectional "
                "encoder has half"
            )

    @classmethod
    def has_cross_attention(cls, config: Any) -> bool:
        attends = config.recurrent_attention != "none"
        return attends and config.num_encoder_layers > 0 and config.num_decoder_layers > 0

    @nn.nowrap
    def sown_attention(self, sown: Mapping[str, Any], name: str) -> dict[str, list[Array]]:
        return {"cross": list(sown[name])} if name in sown else {}

    @nn.nowrap
    def kernels_per_token(self, params: Any) -> int:
        # The kernel of the initial states is applied once per sentence, and the kernel of additive
        # scores is applied once per pair of tokens, like attention products.
        score = params.get("attention", {}).get("score", {})
        others = params.get("first_states", {}), score
        return count_kernels(params) - sum(map(count_kernels, others))

    # -- internals

    def _embed(self, table: Embedding, tokens, rates: DropoutRates) -> Float[Array, "B L D"]:
        return self.embedding_dropout(self.word_dropout(table(tokens), rates.word), rates.embedding)

    def _encoder_memory(self, memory, mask) -> EncoderMemory | None:
        if self.attention is None:
            return None
        return EncoderMemory(self.attention.key(memory), memory, mask)

    def _first_states(self, memory: Float[Array, "B M D"] | None, batch: Size) -> tuple[State, ...]:
        """Returns the initial state of each decoder layer."""
        if memory is None:
            return tuple(cell.zeros(batch) for cell in self.decoder_layers)
        half = self.config.d_model // 2
        final = jnp.concatenate([memory[:, -1, :half], memory[:, 0, half:]], axis=-1)
        vectors = jnp.tanh(self.first_states(final).astype(jnp.float32))
        layers = jnp.split(vectors, len(self.decoder_layers), axis=-1)
        return tuple(
            tuple(jnp.split(of_layer, cell.states, axis=-1))
            for cell, of_layer in zip(self.decoder_layers, layers, strict=True)
        )

    def _attending_step(self, projected: Float[Array, "B P columns"], state: State, memory):
        """Returns the first layer's next state, and the attention context and weights."""
        cell = self.decoder_layers[0]
        context, weights = attend(self.attention, state[0], memory)
        return cell(projected + cell.project_context(context), state), (context, weights)

    def _run_attending_cell(self, x, memory: EncoderMemory | None, mask, state: State):
        """Returns the first layer's outputs and attention contexts [B, L, D] for whole targets."""

        def step(model, projected, state):
            return model._attending_step(projected, state, memory)

        # Moves time to the first axis, and adds an axis of one hypothesis, as in `decode_step`.
        projected = self.decoder_layers[0].project(x.swapaxes(0, 1))[:, :, None]
        state = tuple(vector[:, None] for vector in state)
        outputs, (context, weights) = recur(self, step, state, projected, mask.T[:, :, None])
        self.sow("intermediates", "weights", jnp.moveaxis(weights[:, :, :, 0], 0, 2))
        outputs, context = (y[:, :, 0].swapaxes(0, 1).astype(x.dtype) for y in (outputs, context))
        return outputs, context

    def _features(self, embedded, x, context, memory) -> Float[Array, "B L D"]:
        """Returns the decoder output, given the outputs `x` of the top layer."""
        if self.attention is None:
            return x
        if context is None:
            context, weights = attend(self.attention, x, memory)
            self.sow("intermediates", "weights", weights)
        return self.attention.features(embedded, x, context)


@flax.struct.dataclass
class DecoderState:
    """The state of incremental decoding: each layer's states [B, P, D] and the encoder memory."""

    states: tuple[State, ...]
    memory: EncoderMemory | None

    def reorder(self, parents: Int[Array, "B P"]) -> "DecoderState":
        """Returns the cache in which hypothesis p continues hypothesis parents[p]."""
        states = jax.tree.map(
            lambda state: jnp.take_along_axis(state, parents[:, :, None], axis=1), self.states
        )
        return dataclasses.replace(self, states=states)

    def grow(self, steps: int) -> "DecoderState":
        """Returns the cache unchanged, since it has room for any number of tokens."""
        return self

    def take(self, rows: Int[Array, "n"]) -> "DecoderState":
        """Returns the cache for the selected sentences."""
        return jax.tree.map(lambda x: x[rows], self)
