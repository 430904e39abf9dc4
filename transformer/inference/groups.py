"""Groups of texts of similar length, in few static shapes."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

from transformer.errors import RunError

MIN_LENGTH = 16  # tokens; static lengths are this times powers of two
MAX_NUMBERS = 2**26  # float32 outputs of a batch: 256 MiB


def length_groups(
    indices: Sequence[int], lengths: Sequence[int], size: int, longest: int
) -> Iterator[tuple[list[int], int]]:
    """Yields groups of at most `size` texts, and the static length that holds each.

    Args:
      indices: of the texts to group, from zero.
      lengths: of all texts, in tokens.
      longest: the maximum static length, except for a text that is longer.
    """
    by_length: dict[int, list[int]] = {}
    for i in sorted(indices, key=lambda i: lengths[i]):
        by_length.setdefault(static_length(lengths[i], longest), []).append(i)
    for length, members in by_length.items():
        for start in range(0, len(members), size):
            yield members[start : start + size], length


def static_lengths(longest: int) -> Iterator[int]:
    """Yields the static lengths of texts of up to `longest` tokens, shortest first."""
    length = MIN_LENGTH
    while length < longest:
        yield length
        length *= 2
    yield longest


def compile_ahead(run: Callable[[int], object], longest: int, first: int = 1) -> None:
    """Calls `run` with each static length from `first` on, shortest first.

    It stops at a length that is too large for the device; a text of that length is told so.
    """
    with contextlib.suppress(RunError):
        for length in static_lengths(longest):
            if length >= first:
                run(length)


def static_length(length: int, longest: int) -> int:
    """Returns the smallest static length of a text of `length` tokens; see `static_lengths`."""
    return next(static for static in static_lengths(max(longest, length)) if static >= length)


def static_rows(count: int, most: int) -> int:
    """Returns the rows of batches for `count` texts: a power of two, or `most`.

    So a single text costs one row instead of a whole batch, and there are few shapes.
    """
    return min(1 << max(0, count - 1).bit_length(), most)


def rows_at_once(size: int, numbers: int) -> int:
    """Returns the rows of the fewest equal parts of a batch that make MAX_NUMBERS at most.

    Args:
      size: rows of the whole batch.
      numbers: output numbers per row. A single row may have more than MAX_NUMBERS.
    """
    return math.ceil(size / math.ceil(size * numbers / MAX_NUMBERS))
