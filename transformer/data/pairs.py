"""The items of corpora, sentence pairs and texts with a label, and the splits that hold them."""

from typing import NamedTuple

from transformer.data.characters import canonicalize

SPLITS = ("train", "validation", "test")


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` holds gold word links (i, j), from zero, between words that blanks separate.
    `further` are other references than `target`, to score translations with.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All references, the first of which the loss is of."""
        return self.target, *self.further


class Labelled(NamedTuple):
    """A text and its class; `kind` is the phenomenon of a synthetic text, '' if unknown."""

    text: str
    label: str
    kind: str = ""


class LabelledPicture(NamedTuple):
    """A picture, a question about it or none, and the answer or class.

    Attributes:
      picture: its number among those of its split.
      name: of its file.
      boxes: around the things that the answer rests on, if they are known: x and y in pixels of the
        upper left corner, and of the corner outside.
    """

    picture: int
    name: str
    question: str
    label: str
    kind: str = ""
    boxes: tuple[tuple[int, ...], ...] = ()

    @property
    def text(self) -> str:
        """Name and question as a line that `--mode=classify` reads."""
        return f"{self.name}\t{self.question}" if self.question else self.name


def canonical(pair: Pair) -> Pair:
    """Returns a pair of canonical texts, see `canonicalize`."""
    return Pair(canonicalize(pair.source), canonicalize(pair.target), pair.alignment)
