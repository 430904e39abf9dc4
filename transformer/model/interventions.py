"""Interventions: changes of the values that a model computes, passed to `apply` as data.

A place is a value with a name in a module, such as the weights of one layer's self-attention. The
collection `interventions` has a `Change` for each place to change; without it, a model compiles to
the same program as if there were no places.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from transformer.model.config import ModelConfig

# Kind of attention -> (name of the stack, name of the attention module in a layer).
ATTENTIONS = {
    "encoder_self": ("encoder_layers", "self_attention"),
    "decoder_self": ("decoder_layers", "self_attention"),
    "cross": ("decoder_layers", "cross_attention"),
}


class Change(NamedTuple):
    """The value x of a place becomes scale * x + amount * value.

    Each array broadcasts to x: an axis of positions has the size 1, for all positions, or has an
    entry for each position from zero on, and later positions are not changed.

    For attention weights, `value` holds logits: their softmax over the keys that are not masked is
    added, so that weights on masked keys stay zero.
    """

    scale: Float[ArrayLike, "..."] = 1.0
    amount: Float[ArrayLike, "..."] = 0.0
    value: Float[ArrayLike, "..."] = 0.0


NO_CHANGE = Change()


def intervene(
    module: nn.Module,
    place: str,
    x: Float[Array, "..."],
    positions: Mapping[int, Int[Array, "n"]],
    normalize: Callable[[Array], Array] = lambda value: value,
) -> Float[Array, "..."]:
    """Returns the value `x` of a place, after its change if there is one.

    If the collection `intermediates` is mutable, the result is sown there under the place's name.

    Args:
      positions: for each axis of positions, the position of each of its elements, from zero.
      normalize: is applied to the change's `value`.
    """
    if module.has_variable("interventions", place):
        arrays = module.get_variable("interventions", place)
        scale, amount, value = (
            _at(jnp.asarray(array), fill, x.ndim, positions)
            for array, fill in zip(arrays, NO_CHANGE, strict=True)
        )
        x = (scale * x + amount * normalize(jnp.broadcast_to(value, x.shape))).astype(x.dtype)
    module.sow("intermediates", place, x)
    return x


def _at(array: Array, fill: Any, ndim: int, positions: Mapping[int, Array]) -> Array:
    """Returns the entries of an array of a change at these positions."""
    array = array.reshape((1,) * (ndim - array.ndim) + array.shape)
    for axis, places in positions.items():
        if array.shape[axis] > 1:
            array = jnp.take(array, places, axis, mode="fill", fill_value=fill)
    return array


def variables(
    changes: Mapping[tuple[str, ...], Change | Mapping[int, Change]],
    config: ModelConfig,
    part: str = "",
) -> dict[str, Any]:
    """Returns the variable collection `interventions`.

    Args:
      changes: (stack, module, place) -> changes by layer, from zero, such as ("decoder_layers",
        "cross_attention", "heads"); or (place,) -> change for an embedding.
      part: name of the Transformer module within the model; '' if it is the whole model.
    """
    collection: dict[str, Any] = {}
    for (stack, *path), by_layer in changes.items():
        if isinstance(by_layer, Change):
            collection[stack] = by_layer
            continue
        module, place = path
        layers = {f"{stack}_{layer}": change for layer, change in by_layer.items()}
        if config.scan_layers:
            layers = {
                stack: by_layer[0] if config.share_layers else _stack(by_layer, stack, config)
            }
        for name, change in layers.items():
            collection.setdefault(name, {}).setdefault(module, {})[place] = change
    return {part: collection} if part else collection


def _stack(by_layer: Mapping[int, Change], stack: str, config: ModelConfig) -> Change:
    """Returns the changes of all layers of a scanned stack, on a leading axis."""
    depth = depth_of(stack, config)
    changes = [by_layer.get(layer, NO_CHANGE) for layer in range(depth)]
    ndim = max(jnp.ndim(array) for change in changes for array in change)

    def stacked(*arrays):
        arrays = [jnp.reshape(a, (1,) * (ndim - jnp.ndim(a)) + jnp.shape(a)) for a in arrays]
        return jnp.stack(jnp.broadcast_arrays(*arrays))

    return jax.tree.map(stacked, *changes)


def depth_of(stack: str, config: ModelConfig) -> int:
    """Returns the number of layers of a stack whose places can be changed: 1 if they are shared."""
    depths = {
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
    }
    return min(depths[stack], 1) if config.share_layers else depths[stack]


def sown(intermediates: Mapping[str, Any], stack: str, module: str, place: str) -> list[Array]:
    """Returns the value that each layer has sown for a place.

    Args:
      intermediates: the Flax collection `intermediates` after a forward pass.
    """
    if place in intermediates.get(stack, {}).get(module, {}):
        return list(intermediates[stack][module][place][0])
    values: list[Array] = []
    while place in intermediates.get(f"{stack}_{len(values)}", {}).get(module, {}):
        values.extend(intermediates[f"{stack}_{len(values)}"][module][place])
    return values
