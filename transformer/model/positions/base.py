"""The interface of positional encodings [3.5].

There are five hooks, of which an encoding overrides the ones it needs. Two are called once per
stack: `add` changes the embeddings, and `bias` is added to the attention scores of every layer.
Three are called in each layer, with parameters of the layer: `rotate` changes queries and keys,
`score` returns a term for the scores that depends on query and distance, and `value_bias` returns a
term for the weighted values that depends on the distances ("relative values").
"""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.model.config import ModelConfig

STACK_HOOKS = ("add", "bias")
LAYER_HOOKS = ("rotate", "score", "value_bias")


class NoPositions(nn.Module):
    """The base class of encodings, with no-op hooks: apart from masks, models see a bag of words.

    Args:
      config: the model config.
      bidirectional: whether queries attend to keys on both sides; False in a decoder's
        self-attention.
    """

    config: ModelConfig
    bidirectional: bool = True
    of_pictures: ClassVar[bool] = False  # whether positions are patches of an image

    @classmethod
    def limit(cls, config: ModelConfig) -> int | None:
        """Returns the maximum number of positions, or None if there is no limit."""
        return None

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        """Raises UserError if the model config is not valid for this encoding.

        Args:
          setting: config key and value that select the encoding, for the error message.
        """

    def add(
        self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]
    ) -> Float[Array, "B L D"]:
        """Returns the embeddings with encoded positions.

        Args:
          positions: zero-based, and either shared by all sequences of a batch or separate for each.
        """
        return embeddings

    def bias(
        self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]
    ) -> Float[Array, "H L M"] | None:
        """Returns the bias added to the scaled scores, or None if there is none."""
        return None

    def rotate(
        self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]
    ) -> Float[Array, "B L H K"]:
        """Returns queries or keys rotated by their positions."""
        return heads

    def score(
        self,
        queries: Float[Array, "B L H K"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
    ) -> Float[Array, "B H L M"] | None:
        """Returns the term added to the scores, given scaled queries, or None if there is none."""
        return None

    def value_bias(
        self,
        weights: Float[Array, "B H L M"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
    ) -> Float[Array, "B L H K"] | None:
        """Returns the term added to the heads' weighted values, or None if there is none."""
        return None


def use_hooks(encoding: NoPositions, hooks: Sequence[str] = (*STACK_HOOKS, *LAYER_HOOKS)) -> None:
    """Calls the given hooks of an encoding with one query and one key.

    Passed as `method` to `init`, it initialises all parameters, also those of `nn.compact` hooks.
    """
    config, here = encoding.config, jnp.arange(1)
    heads = jnp.zeros((1, 1, config.num_heads, config.head_width))
    arguments = {
        "add": (jnp.zeros((1, 1, config.d_model)), here),
        "bias": (here, here),
        "rotate": (heads, here),
        "score": (heads, here, here),
        "value_bias": (jnp.ones((1, config.num_heads, 1, 1)), here, here),
    }
    for hook in hooks:
        getattr(encoding, hook)(*arguments[hook])
