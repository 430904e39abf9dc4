"""The kinds of models by the name that `config.model.kind` gives."""

from transformer.model.recurrent.model import RecurrentModel
from transformer.model.transformer import Transformer

REGISTRY = {"transformer": Transformer, "recurrent": RecurrentModel}
