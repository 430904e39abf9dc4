"""The words or characters of a text that are not in a vocabulary."""

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transformer.data.tokenizer import UNK_ID, Ids, Tokenizer
from transformer.errors import RunError

NAMED = 10  # of the lost characters or words, the most frequent
MORE_CHARACTERS = (
    "raise config.tokenizer.vocab_size or config.tokenizer.character_coverage, or set "
    "config.tokenizer.byte_fallback=True with bpe or unigram"
)


class Lost(NamedTuple):
    """The words, or characters, of a text that its vocabulary lacks.

    Attributes:
      what: "words" or "characters".
      different: how many there are.
      frequent: the most frequent, and how often each occurs.
    """

    what: str = "characters"
    different: int = 0
    frequent: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, what: str, counts: collections.Counter[str]) -> "Lost":
        """Returns the summary; equally frequent ones are in alphabetical order."""
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(what, len(ranked), tuple(ranked[:NAMED]))

    def __str__(self) -> str:
        named = ", ".join(f"{text!r} ({count:,})" for text, count in self.frequent)
        more = ", ..." if self.different > len(self.frequent) else ""
        return f"{self.different:,} {self.what} are not in the vocabulary: {named}{more}"

    def describe(self) -> list[str]:
        """Returns the line to print at the start; none if nothing is unknown."""
        return [f"unknown: {self}"] if self.different else []


def kind_of_lost(tokenizer: Tokenizer) -> str:
    """Returns whether a tokenizer lacks "words" or "characters"."""
    return "words" if tokenizer.kind == "word" else "characters"


def lost_strings(
    tokenizer: Tokenizer, texts: Sequence[str], encoded: Sequence[Ids]
) -> Iterator[str]:
    """Yields the unknown words or characters of texts, whose tokens are `encoded`."""
    strange = [i for i, ids in enumerate(encoded) if UNK_ID in ids]
    pieces = tokenizer.unknown_pieces([texts[i] for i in strange], [encoded[i] for i in strange])
    for piece in pieces:
        yield from [piece] if kind_of_lost(tokenizer) == "words" else piece


def check_unknown(fraction: float, limit: float, lost: Lost, kept: bool = False) -> None:
    """Raises RunError if more than a fraction `limit` of the training tokens is unknown.

    Args:
      kept: whether the tokenizer is another run's, which `config.tokenizer` does not describe.
    """
    if fraction > limit:
        fix = "set config.tokenizer.initial to grow or new" if kept else MORE_CHARACTERS
        raise RunError(
            f"{fraction:.1%} of the training tokens are unknown, more than "
            f"data.max_oov_rate={limit:.1%} ({lost}): {fix}"
        )
