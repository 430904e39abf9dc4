"""Corpus items, such as sentence pairs and labelled texts, and the names of splits."""

import difflib
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize, split_words
from transformer.errors import UserError

Source = TypeVar("Source")

SPLITS = ("train", "validation", "test")


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` is the gold word alignment: links (i, j), from zero, between space-separated words.
    `further` has additional references for scoring translations.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All references; the first reference is the training target."""
        return self.target, *self.further


class Labelled(NamedTuple):
    """A text and its class; `kind` is the phenomenon in a synthetic text, or '' if not known."""

    text: str
    label: str
    kind: str = ""


class LabelledPicture(NamedTuple):
    """An image, an optional question about it, and the answer, class or caption.

    Attributes:
      picture: index of the image in its split, from zero.
      name: file name of the image.
      boxes: bounding boxes of the objects that the answer depends on, or () if they are unknown.
        A box is (left, top, right, bottom) in pixels; right and bottom are exclusive.
    """

    picture: int
    name: str
    question: str
    label: str
    kind: str = ""
    boxes: tuple[tuple[int, ...], ...] = ()

    @property
    def text(self) -> str:
        """The name and the question as an input line for `--mode=classify`."""
        return f"{self.name}\t{self.question}" if self.question else self.name


def canonical(pair: Pair) -> Pair:
    """Returns the pair with canonical texts; see `canonicalize`."""
    return Pair(canonicalize(pair.source), canonicalize(pair.target), pair.alignment)


def move_links(pair: Pair, source: str, target: str) -> Pair:
    """Returns the pair with changed texts, and the links of the words that are still there.

    A word is also there if as many words replace a part of the text.
    """
    links = pair.alignment
    if links is not None:
        places: list[dict[int, int]] = []
        for before, after in zip(pair[:2], (source, target), strict=True):
            words = split_words(before), split_words(after)
            parts = difflib.SequenceMatcher(None, *words, autojunk=False).get_opcodes()
            same = [(i, j, end - i) for _, i, end, j, stop in parts if end - i == stop - j]
            places.append({i + n: j + n for i, j, size in same for n in range(size)})
        links = tuple((places[0].get(i, -1), places[1].get(j, -1)) for i, j in links)
        links = tuple(link for link in links if -1 not in link)
    return pair._replace(source=source, target=target, alignment=links)


def split_sizes(settings: ConfigDict) -> dict[str, int]:
    """Returns the number of items that `config.data` sets for each split of a generated corpus."""
    return {split: settings[f"{split}_size"] for split in SPLITS}


def choose_source(settings: ConfigDict, registry: Mapping[str, Source]) -> Source:
    """Returns the registry entry for `data.source`; raises UserError if there is none."""
    if settings.source not in registry:
        raise UserError(
            f"config.data.source={settings.source!r} is not a source for this task: choose one of "
            f"{', '.join(registry)}"
        )
    return registry[settings.source]
