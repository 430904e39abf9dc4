"""The interface of a positional encoding [3.5].

An encoding has five hooks, and overrides those it needs. Two act once for a whole stack: `add`
changes the embeddings, `bias` is added to the attention scores of every layer. Three act inside
each layer, with parameters of that layer: `rotate` changes queries and keys, `score` adds a term of
query and distance to the scores, and `value_bias` adds a term of the distances to the weighted
values ("relative values").
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
    """The identity in all hooks: a model that sees a bag of words, up to its masks.

    Args:
      config: config of the model.
      bidirectional: whether queries read keys on both sides of them; false in a decoder's
        self-attention.
    """

    config: ModelConfig
    bidirectional: bool = True
    of_pictures: ClassVar[bool] = False  # whether positions are cells of a grid of patches

    @classmethod
    def limit(cls, config: ModelConfig) -> int | None:
        """Returns the maximum number of positions, or None if it is unlimited."""
        return None

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        """Raises UserError if the model's numbers do not suit the encoding.

        Args:
          setting: key and value that select the encoding, for the message.
        """

    def add(
        self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]
    ) -> Float[Array, "B L D"]:
        """Returns the embeddings with their positions, counted from zero, encoded.

        Args:
          positions: shared by all sequences of a batch, or separate for each.
        """
        return embeddings

    def bias(
        self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]
    ) -> Float[Array, "H L M"] | None:
        """Returns the bias of the scaled scores, or None for no bias."""
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
        """Returns the term added to the scores of scaled queries, or None for no term."""
        return None

    def value_bias(
        self,
        weights: Float[Array, "B H L M"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
    ) -> Float[Array, "B L H K"] | None:
        """Returns the term added to the heads' weighted values, or None for no term."""
        return None


def use_hooks(encoding: NoPositions, hooks: Sequence[str] = (*STACK_HOOKS, *LAYER_HOOKS)) -> None:
    """Calls these hooks of an encoding, with one query and one key.

    As the `method` of `init`, it initialises all parameters, including those of `nn.compact` hooks.
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
