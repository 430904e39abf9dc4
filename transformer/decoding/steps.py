"""The interface that search and sampling share: steps of any model, and prompts.

A step takes the last token of each of P hypotheses of each of B sentences, and a cache, and
returns the logits of the next token, and the cache. The cache is any state of the model.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float, Int


class Cache(Protocol):
    """The state of a model between steps."""

    def reorder(self, parents: Int[Array, "B P"]) -> "Cache":
        """Returns the cache in which hypothesis p continues hypothesis parents[p]."""
        ...

    def grow(self, steps: int) -> "Cache":
        """Returns the cache with room for a number of steps."""
        ...

    def take(self, rows: Int[Array, "n"]) -> "Cache":
        """Returns the cache of some sentences."""
        ...


Step = Callable[[Int[Array, "B P"], Any], tuple[Float[Array, "B P V"], Any]]


class Prompts(NamedTuple):
    """The prompts of texts: the first `lengths` of `tokens`, at least one; the rest is generated.

    The first token is read and never predicted, like begin-of-sentence.
    """

    tokens: Int[Array, "B steps"]
    lengths: Int[Array, "B"]
