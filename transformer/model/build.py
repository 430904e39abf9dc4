"""A model of encoder and decoder, of the architecture that `config.model.kind` names."""

from transformer.model import layers, positions
from transformer.model.config import ModelConfig, check_choice
from transformer.model.recurrent import attention, cells
from transformer.model.recurrent.model import RecurrentModel
from transformer.model.transformer import Transformer

REGISTRY = {"transformer": Transformer, "recurrent": RecurrentModel}


def check_names(config: ModelConfig) -> None:
    """Raises UserError where a name is in no registry, or what it names does not fit."""
    check_choice("model.kind", config.kind, REGISTRY)
    check_choice("model.cell", config.cell, cells.REGISTRY)
    check_choice("model.recurrent_attention", config.recurrent_attention, attention.REGISTRY)
    check_choice("model.activation", config.activation, layers.ACTIVATIONS)
    if config.kind != "recurrent":
        positions.check_encodings(config)


def build_model(config: ModelConfig) -> Transformer | RecurrentModel:
    """Returns the model of a configuration, whose names are checked."""
    check_names(config)
    return REGISTRY[config.kind](config)
