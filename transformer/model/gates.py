"""Gates on the heads of a Transformer: numbers that what a head reads is multiplied by.

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", section 2.3.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer.model.config import ModelConfig
from transformer.model.stack import ATTENTIONS


def unit_gates(config: ModelConfig) -> dict[str, Float[Array, "layers H"]]:
    """Returns a gate of 1 for each head, by kind of attention: they change nothing.

    Kinds are "encoder_self", "decoder_self" and "cross", of those that the model has. Layers that
    share their parameters share their gates, and count as one.
    """
    depths = {
        "encoder_self": config.num_encoder_layers,
        "decoder_self": config.num_decoder_layers,
        "cross": config.num_decoder_layers if config.has_encoder else 0,
    }
    return {
        kind: jnp.ones((1 if config.share_layers else depth, config.num_heads))
        for kind, depth in depths.items()
        if depth
    }


def gate_variables(
    gates: Mapping[str, Float[Array, "layers *B H"]], config: ModelConfig, part: str = ""
) -> dict[str, Any]:
    """Returns the collection `gates`, which stands beside the parameters of a model.

    Args:
      gates: by kind of attention, see `unit_gates`; heads of kinds that it lacks have none. An
        axis before the heads, where there is one, is of the rows of a batch, each with its own.
      part: name of the Transformer within the model; '' where it is the whole.
    """
    collection: dict[str, Any] = {}
    for kind, of_layers in gates.items():
        stack, attention = ATTENTIONS[kind]
        if config.scan_layers:
            own = of_layers[0] if config.share_layers else of_layers
            collection.setdefault(stack, {})[attention] = {"heads": own}
            continue
        for layer, own in enumerate(of_layers):
            collection.setdefault(f"{stack}_{layer}", {})[attention] = {"heads": own}
    return {part: collection} if part else collection
