"""The parts that all comparisons with other implementations share: interface and weights."""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from transformer.errors import UserError
from transformer.inference.base import Params
from transformer.model.config import ModelConfig
from transformer.model.positions.registry import SumOfPositions

# The values with which these libraries compute the same; no other is exported.
NEEDED = {
    "architecture": ("transformer",),
    "positions": ("sinusoidal", "split"),
    "activation": ("relu",),
    "norm": ("layer",),
    "norm_position": ("pre", "post"),
    "num_kv_heads": (0,),
    "head_size": (0,),
    "query_key_norm": ("none",),
    "talking_heads": (False,),
    "scan_layers": (False,),
    "share_layers": (False,),
    "encoder_positions": ("",),
    "decoder_positions": ("",),
    "cross_positions": ("none",),
}
Ids = list[int]


@runtime_checkable
class Peer(Protocol):
    """Another implementation of a translator."""

    name: str

    def translate(
        self, sources: Sequence[Ids], beam: int, batch: int, alpha: float, limit: int
    ) -> list[Ids]:
        """Returns the best translation of each sentence.

        Args:
          sources: token ids without `</s>`.
          batch: sentences at once; those of similar length together.
          alpha: the exponent of the length by which log-probabilities are divided.
          limit: maximum tokens of a translation.
        """
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[float]:
        """Returns the log-probability of each target, its end included, given its source."""
        ...


def imported(name: str) -> Any:
    """Returns a package that only this comparison needs.

    Raises:
      UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{name} cannot be imported ({error}): pip install -r requirements-peers.txt"
        ) from None


def check(config: ModelConfig) -> None:
    """Raises UserError if the libraries cannot compute this model."""
    for key, values in NEEDED.items():
        if (value := getattr(config, key)) not in values:
            wanted = " or ".join(map(repr, values))
            raise UserError(f"model.{key}={value!r} cannot be compared: it must be {wanted}")


class Tables:
    """The embedding tables of both sides and of the output; if they are tied, the same array."""

    def __init__(self, config: ModelConfig, params: Params):
        self.target = np.asarray(params["target_embedding"]["table"])
        source, output = params.get("source_embedding"), params.get("output_embedding")
        self.source = self.target if source is None else np.asarray(source["table"])
        self.output = self.target if output is None else np.asarray(output["table"])


def position_table(config: ModelConfig) -> Float[np.ndarray, "L D"]:
    """Returns the encoding that is added at each position."""
    nothing = jnp.zeros((1, config.max_length, config.d_model))
    encoding = SumOfPositions(config, names=config.positions)
    added = encoding.apply({}, nothing, jnp.arange(config.max_length), method="add")
    return np.asarray(added[0])
