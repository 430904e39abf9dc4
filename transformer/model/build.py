"""The model registry, and the construction of a model from its config."""

from typing import Any

from transformer.model import layers
from transformer.model.architecture import Architecture
from transformer.model.config import ModelConfig, check_choice
from transformer.model.positions.registry import REGISTRY as POSITIONS
from transformer.model.recurrent import attention, cells
from transformer.model.recurrent.model import RecurrentModel
from transformer.model.transformer import SOURCE_EMBEDDINGS, Transformer
from transformer.model.vision import patches
from transformer.variants import Registry

REGISTRY: dict[str, type[Architecture]] = Registry(
    transformer=Transformer,
    recurrent=RecurrentModel,
)
SOURCE_EMBEDDINGS.update(patches=patches.PatchEmbedding)
POSITIONS.update(
    grid_sinusoidal=patches.GridSinusoids,
    grid_rotary=patches.GridRotary,
    grid_bias=patches.GridBias,
)


def check_names(config: ModelConfig) -> None:
    """Raises UserError if a name is unknown, or if values are not valid for the architecture."""
    check_choice("model.architecture", config.architecture, REGISTRY)
    check_choice("model.cell", config.cell, cells.REGISTRY)
    check_choice("model.recurrent_attention", config.recurrent_attention, attention.REGISTRY)
    check_choice("model.activation", config.activation, layers.ACTIVATIONS)
    REGISTRY[config.architecture].check(config)


def build_model(config: ModelConfig) -> Architecture:
    """Validates a config and returns its model."""
    check_names(config)
    return REGISTRY[config.architecture](config)


def has_heads(config: Any) -> bool:
    """Returns whether a model has attention heads, and places of interventions.

    Args: config: a model's config, or the `model` part of an experiment's config.
    """
    return config.architecture in REGISTRY and REGISTRY[config.architecture].has_heads


def has_cross_attention(config: Any) -> bool:
    """Returns whether a model's decoder attends to the source; see `has_heads` for `config`."""
    architecture = REGISTRY.get(config.architecture)
    return architecture is not None and architecture.has_cross_attention(config)
