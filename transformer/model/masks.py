"""Attention masks [3.2.3], and all inputs of attention other than hidden states."""

from collections.abc import Callable

import flax.struct
from jaxtyping import Array, Bool, Float, Int


def padding_mask(is_token: Bool[Array, "B M"]) -> Bool[Array, "B 1 1 M"]:
    """Returns the mask that hides padding from all queries."""
    return is_token[:, None, None, :]


def look_ahead_mask(queries: Int[Array, "L"], keys: Int[Array, "M"]) -> Bool[Array, "1 1 L M"]:
    """Returns the mask with which position i attends to positions up to and including i.

    Args:
      queries, keys: positions, from zero.

    Source: Vaswani et al. 2017, section 3.2.3, third bullet.
    """
    return (keys <= queries[:, None])[None, None]


def segment_mask(queries: Int[Array, "B L"], keys: Int[Array, "B M"]) -> Bool[Array, "B 1 L M"]:
    """Returns the mask with which tokens attend only within their own segment of a row.

    So several short documents can share a row as if each had its own row.

    Args:
      queries, keys: a number for each token, equal within a document.
    """
    return (queries[:, :, None] == keys[:, None, :])[:, None]


@flax.struct.dataclass
class AttentionInputs:
    """The inputs of attention other than hidden states; the same in all layers of a stack.

    Attributes:
      mask: True where a query may attend to a key.
      query_positions, key_positions: from zero.
      bias: the sum that positional encodings add to the scores.
    """

    mask: Bool[Array, "#B #H #L M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Float[Array, "H L M"] | None = None


@flax.struct.dataclass
class AttentionPattern:
    """The rules that give the `AttentionInputs` for any subset of the queries.

    So a long sequence needs no array with an axis of all queries and one of all keys.

    Attributes:
      is_key: True at tokens, False at padding.
      query_positions, key_positions: from zero.
      bias: (query positions, key positions) -> the bias of `AttentionInputs`; a pytree, if the
        pattern has to be one.
      segments: see `segment_mask`, if queries and keys are the same tokens and have segments.
      look_ahead: whether a query may attend only to positions up to its own.
    """

    is_key: Bool[Array, "B M"]
    query_positions: Int[Array, "L"]
    key_positions: Int[Array, "M"]
    bias: Callable[[Int[Array, "l"], Int[Array, "M"]], Float[Array, "H l M"] | None]
    segments: Int[Array, "B M"] | None = None
    look_ahead: bool = flax.struct.field(pytree_node=False, default=False)

    def inputs(self, queries: Int[Array, "l"]) -> AttentionInputs:
        """Returns the inputs of the queries at these positions."""
        mask = padding_mask(self.is_key)
        if self.look_ahead:
            mask &= look_ahead_mask(queries, self.key_positions)
        if self.segments is not None:
            mask &= segment_mask(self.segments[:, queries], self.segments)
        bias = self.bias(queries, self.key_positions)
        return AttentionInputs(mask, queries, self.key_positions, bias)
