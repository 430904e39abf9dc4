"""Texts of like length read together, in few static shapes."""

from collections.abc import Iterator, Sequence

SHORTEST = 16  # tokens; static lengths are this times powers of two


def length_groups(
    indices: Sequence[int], lengths: Sequence[int], size: int, longest: int
) -> Iterator[tuple[list[int], int]]:
    """Yields groups of at most `size` texts, and the static length that holds each.

    Args:
      indices: of the texts to group, from zero.
      lengths: of all texts, in tokens.
      longest: static lengths end here, but for a text that is longer.
    """
    by_length: dict[int, list[int]] = {}
    for i in sorted(indices, key=lambda i: lengths[i]):
        by_length.setdefault(_static_length(lengths[i], longest), []).append(i)
    for length, members in by_length.items():
        for start in range(0, len(members), size):
            yield members[start : start + size], length


def _static_length(length: int, longest: int) -> int:
    static = SHORTEST
    while static < length:
        static *= 2
    return min(static, max(longest, length))
