"""The items of corpora, sentence pairs and texts with a label, and the splits that hold them."""

from typing import NamedTuple

from transformer.data.characters import canonicalize

SPLITS = ("train", "validation", "test")


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` holds gold word links (i, j), from zero, between words that blanks separate.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None


class Labelled(NamedTuple):
    """A text and its class; `kind` is the phenomenon of a synthetic text, '' if unknown."""

    text: str
    label: str
    kind: str = ""


def canonical(pair: Pair) -> Pair:
    """Returns a pair of canonical texts, see `canonicalize`."""
    return Pair(canonicalize(pair.source), canonicalize(pair.target), pair.alignment)
