"""Attention masks [3.2.3], and all other inputs to attention except hidden states."""

from collections.abc import Callable

import flax.struct
from jaxtyping import Array, Bool, Float, Int


def padding_mask(is_token: Bool[Array, "B M"]) -> Bool[Array, "B 1 1 M"]:
    """Returns the mask that hides padding from all queries."""
    return is_token[:, None, None, :]


def look_ahead_mask(queries: Int[Array, "L"], keys: Int[Array, "M"]) -> Bool[Array, "1 1 L M"]:
    """Returns the causal mask: position i may attend to positions up to and including i.

    Args:
      queries, keys: positions, counted from zero.

    Source: Vaswani et al. 2017, section 3.2.3, third bullet.
    """
    return (keys <= queries[:, None])[None, None]


def segment_mask(queries: Int[Array, "B L"], keys: Int[Array, "B M"]) -> Bool[Array, "B 1 L M"]:
    """Returns the mask that restricts attention to tokens of the same segment.

    Several short documents can then be packed into one sequence and remain independent.

    Args:
      queries, keys: segment number of each token, which is the same within a document.
    """
    return (queries[:, :, None] == keys[:, None, :])[:, None]


@flax.struct.dataclass
class AttentionInputs:
    """The inputs to attention except hidden states; they are the same in all layers of a stack.

    Attributes:
      mask: True where a query may attend to a key.
      query_positions, key_positions: positions, counted from zero.
      bias: the sum of the positional encodings' biases, which is added to the scores.
    """

    mask: Bool[Array, "#B #H #L M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Float[Array, "H L M"] | None = None


@flax.struct.dataclass
class AttentionPattern:
    """The rules that determine the `AttentionInputs` of any subset of the queries.

    Long sequences then need no array of shape [L, M] over all queries and all keys.

    Attributes:
      is_key: True at tokens, False at padding.
      query_positions, key_positions: positions, counted from zero.
      bias: a function (query positions, key positions) -> `AttentionInputs.bias`; it must be a
        pytree if the pattern is used as a pytree.
      segments: the segment numbers of the tokens in self-attention (see `segment_mask`), or None.
      look_ahead: whether the mask is causal: a query may attend only up to its own position.
    """

    is_key: Bool[Array, "B M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Callable[[Int[Array, "l"], Int[Array, "M"]], Float[Array, "H l M"] | None]
    segments: Int[Array, "B M"] | None = None
    look_ahead: bool = flax.struct.field(pytree_node=False, default=False)

    def inputs(self, queries: Int[Array, "l"]) -> AttentionInputs:
        """Returns the attention inputs for the queries at these positions."""
        mask = padding_mask(self.is_key)
        if self.look_ahead:
            mask &= look_ahead_mask(queries, self.key_positions)
        if self.segments is not None:
            mask &= segment_mask(self.segments[:, queries], self.segments)
        bias = self.bias(queries, self.key_positions)
        return AttentionInputs(mask, queries, self.key_positions, bias)
