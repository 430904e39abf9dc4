"""Encoder and decoder layers [3.1], and stacks of layers."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from transformer.model.attention import MultiHeadAttention
from transformer.model.config import ModelConfig, Size
from transformer.model.layers import DropoutRates, FeedForward, LayerDrop, Residual
from transformer.model.masks import AttentionInputs, AttentionPattern


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, with a residual connection around each [3.1]."""

    config: ModelConfig

    def setup(self):
        self.self_attention = MultiHeadAttention(self.config, self.config.encoder_names)
        self.self_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)
        self.layer_drop = LayerDrop()

    def __call__(
        self,
        x: Float[Array, "B M D"],
        inputs: AttentionInputs | AttentionPattern,
        rates: DropoutRates,
    ) -> Float[Array, "B M D"]:
        def attend(x):
            return self.self_attention(x, x, inputs, rates)

        positions = inputs.query_positions
        y = self.self_attention_residual(x, attend, positions, rates)
        y = self.feed_forward_residual(y, lambda y: self.feed_forward(y, rates), positions, rates)
        return self.layer_drop(x, y, rates.layer)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the source, and a feed-forward layer [3.1].

    Without an encoder, there is no cross-attention (Radford et al. 2018, "GPT").
    """

    config: ModelConfig

    def setup(self):
        self.self_attention = MultiHeadAttention(self.config, self.config.decoder_names)
        self.self_attention_residual = Residual(self.config)
        if self.config.has_encoder:
            self.cross_attention = MultiHeadAttention(self.config, self.config.cross_positions)
            self.cross_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)
        self.layer_drop = LayerDrop()

    def __call__(
        self,
        x: Float[Array, "B L D"],
        memory: Float[Array, "B M D"] | None,
        inputs: AttentionInputs | AttentionPattern,
        memory_inputs: AttentionInputs | AttentionPattern | None,
        rates: DropoutRates,
    ) -> Float[Array, "B L D"]:
        def attend(x):
            return self.self_attention(x, x, inputs, rates)

        def attend_source(x):
            assert memory is not None
            assert memory_inputs is not None
            return self.cross_attention(x, memory, memory_inputs, rates)

        positions = inputs.query_positions
        y = self.self_attention_residual(x, attend, positions, rates)
        if self.config.has_encoder:
            y = self.cross_attention_residual(y, attend_source, positions, rates)
        y = self.feed_forward_residual(y, lambda y: self.feed_forward(y, rates), positions, rates)
        return self.layer_drop(x, y, rates.layer)

    def init_cache(
        self, memory: Float[Array, "B M D"], beam_size: int, steps: Size
    ) -> "LayerKVCache":
        """Returns the initial cache for `decode_step`."""
        heads, width = self.config.key_value_heads, self.config.head_width
        empty = jnp.zeros((memory.shape[0], heads, width, steps * beam_size), self.config.dtype)
        past = empty, jnp.swapaxes(empty, 2, 3)
        if not self.config.has_encoder:
            return LayerKVCache(*past, None, None)
        there = jnp.arange(memory.shape[1])
        keys, values = self.cross_attention.keys_values(memory, there)
        return LayerKVCache(*past, jnp.moveaxis(keys, 1, 3), jnp.moveaxis(values, 1, 2))

    def decode_step(
        self,
        x: Float[Array, "B P D"],
        cache: "LayerKVCache",
        index: Int[Array, ""],
        inputs: AttentionInputs,
        memory_inputs: AttentionInputs | None,
    ) -> tuple[Float[Array, "B P D"], "LayerKVCache"]:
        """Returns the next hidden states of P hypotheses per sentence, and the updated cache."""

        def attend(x):
            nonlocal cache
            cache = cache.write(
                *self.self_attention.keys_values(x, inputs.query_positions), index * x.shape[1]
            )
            # The past keys of all hypotheses share one axis; the mask separates the hypotheses.
            past = jnp.moveaxis(cache.keys, 3, 1), jnp.moveaxis(cache.values, 2, 1)
            return self.self_attention.attend(x, *past, inputs)

        def attend_source(x):
            keys, values = cache.memory_keys, cache.memory_values
            assert keys is not None
            assert values is not None
            assert memory_inputs is not None
            there = jnp.moveaxis(keys, 3, 1), jnp.moveaxis(values, 2, 1)
            return self.cross_attention.attend(x, *there, memory_inputs)

        positions = inputs.query_positions
        x = self.self_attention_residual(x, attend, positions)
        if self.config.has_encoder:
            x = self.cross_attention_residual(x, attend_source, positions)
        return self.feed_forward_residual(x, self.feed_forward, positions), cache


@flax.struct.dataclass
class LayerKVCache:
    """The keys and values of a decoder layer for past steps and, with an encoder, for the source.

    The P hypotheses of a step use P slots, after the slots of the previous step. Heads come before
    positions, and positions are the last axis of keys, because attention products read this layout
    fastest. With another layout, XLA would copy the whole cache in each step to transpose it. With
    `scan_layers`, all layers are stacked on a leading axis.
    """

    keys: Float[Array, "*layers B G K slots"]
    values: Float[Array, "*layers B G slots K"]
    memory_keys: Float[Array, "*layers B G K M"] | None
    memory_values: Float[Array, "*layers B G M K"] | None

    def write(
        self, keys: Float[Array, "B P G K"], values: Float[Array, "B P G K"], slot: Int[Array, ""]
    ) -> "LayerKVCache":
        """Returns the cache after writing a step's keys and values to the slots from `slot` on."""
        update = jax.lax.dynamic_update_slice_in_dim
        return dataclasses.replace(
            self,
            keys=update(self.keys, jnp.moveaxis(keys, 1, 3), slot, 3),
            values=update(self.values, jnp.moveaxis(values, 1, 2), slot, 2),
        )

    def grow(self, slots: int) -> "LayerKVCache":
        """Returns the cache with `slots` additional slots."""
        return dataclasses.replace(
            self,
            keys=pad_axis(self.keys, -1, slots),
            values=pad_axis(self.values, -2, slots),
        )

    def take(self, rows: Int[Array, "n"]) -> "LayerKVCache":
        """Returns the cache for the selected sentences."""
        return jax.tree.map(lambda x: jnp.take(x, rows, axis=-4), self)


def pad_axis(x: Float[Array, "..."] | Int[Array, "..."], axis: int, count: int) -> Array:
    """Returns an array with `count` zeros appended along an axis."""
    room = [(0, 0)] * x.ndim
    room[axis] = 0, count
    return jnp.pad(x, room)


def make_layers(layer: type[nn.Module], depth: int, config: ModelConfig) -> Any:
    """Returns the layers of a stack: one module per layer, or a single module for `scan_layers`.

    With `share_layers`, all layers are the same module (Dehghani et al. 2019, "Universal
    Transformers", without its time encoding and halting; Lan et al. 2020, "ALBERT", section 3.1).
    """
    if config.scan_layers:
        return layer(config)
    return [layer(config)] * depth if config.share_layers else [layer(config) for _ in range(depth)]


def stacked_modules(config: Any) -> tuple[str, ...]:
    """Returns the names of the modules that hold stacked parameters of all layers.

    Stacked parameters have a leading layer axis.

    Args:
      config: a model's config, or the `model` part of an experiment's config.
    """
    stacked = config.scan_layers and not config.share_layers
    return ("encoder_layers", "decoder_layers") if stacked else ()


def run_layers(
    layers: Any,
    config: ModelConfig,
    depth: int,
    run: Callable,
    x: Float[Array, "B L D"],
    each: Any = None,
) -> tuple[Float[Array, "B L D"], Any]:
    """Returns the output of the last layer, and the additional outputs of all layers.

    With `scan_layers`, one compiled layer runs `depth` times; its parameters and `each` are stacked
    on a leading axis. With `remat`, activations are recomputed in the backward pass instead of
    being stored (Chen et al. 2016).

    Args:
      run: (layer, x, item of `each`) -> (x, additional output).
      each: a tree with an item for each layer, or None.
    """
    if config.remat:
        run = nn.remat(run, prevent_cse=not config.scan_layers)
    if not config.scan_layers:
        run = nn.jit(run)  # traced once for all layers
        # Outside a trace, each call would compile a program. `nn.jit` still derives random keys.
        in_program = isinstance(x, Tracer)
        results = []
        with contextlib.nullcontext() if in_program else jax.disable_jit():
            for layer, part in zip(layers, each or [None] * depth, strict=True):
                x, result = run(layer, x, part)
                results.append(result)
        return x, tuple(results)
    of_layer = ["params", "interventions"]
    shared: dict[str, Any] = {"variable_broadcast": of_layer} if config.share_layers else {}
    stacked = ["intermediates"] if config.share_layers else [*of_layer, "intermediates"]
    axes: dict[Any, Any] = dict.fromkeys(stacked, 0)
    rngs: dict[Any, bool] = {"params": not config.share_layers, "dropout": True}
    scan = nn.scan(run, variable_axes=axes, split_rngs=rngs, length=depth, **shared)
    return scan(layers, x, each)
