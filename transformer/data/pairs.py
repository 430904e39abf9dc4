"""The items of corpora, such as sentence pairs and labelled texts, and their splits."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.errors import UserError

Source = TypeVar("Source")

SPLITS = ("train", "validation", "test")


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` holds gold word links (i, j), from zero, between words that are separated by blanks.
    `further` are references other than `target` that translations are scored with.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All references; the first one is the target of the loss."""
        return self.target, *self.further


class Labelled(NamedTuple):
    """A text and its class; `kind` is the phenomenon of a synthetic text, '' if unknown."""

    text: str
    label: str
    kind: str = ""


class LabelledPicture(NamedTuple):
    """A picture, an optional question about it, and the answer or class.

    Attributes:
      picture: its number among the pictures of its split.
      name: its file name.
      boxes: bounding boxes of the objects that the answer depends on, if known: x and y in pixels
        of the upper left corner, and of the corner just outside the lower right.
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
    """Returns a pair with canonical texts, see `canonicalize`."""
    return Pair(canonicalize(pair.source), canonicalize(pair.target), pair.alignment)


def choose_source(settings: ConfigDict, registry: Mapping[str, Source]) -> Source:
    """Returns the entry of `data.source` in a registry of sources; UserError if it has none."""
    if settings.source not in registry:
        raise UserError(
            f"config.data.source={settings.source!r} is not a source for this task: choose one of "
            f"{', '.join(registry)}"
        )
    return registry[settings.source]
