"""A sentence pair, the item of a parallel corpus."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` holds gold word links (i, j), both from zero, between the
    whitespace-separated words of `source` and `target`; it is None if unknown.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None


def strip(pair: Pair) -> Pair:
    """Returns a pair without white space around its sides."""
    return Pair(pair.source.strip(), pair.target.strip(), pair.alignment)
