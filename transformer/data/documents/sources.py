"""Documents for language models: built in, read from files, or from TensorFlow Datasets.

A document is text that stands by itself: a line, a paragraph, or a whole file. Every source returns
its splits as iterables that can be read repeatedly.
"""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data import tfds
from transformer.data.characters import canonicalize
from transformer.data.encode import Restartable
from transformer.data.files.locate import locate
from transformer.data.files.rows import text_value
from transformer.data.files.table import FORMATS, TableFile, describe_rows, format_of
from transformer.data.files.text import read_lines
from transformer.data.pairs import SPLITS
from transformer.data.parallel import sources
from transformer.errors import UserError

logger = logging.getLogger(__name__)

# Old quotations, enough to test memorisation.
QUOTATIONS = (
    "the only true wisdom is in knowing you know nothing",
    "the unexamined life is not worth living",
    "no man ever steps in the same river twice",
    "a journey of a thousand miles begins with a single step",
    "i think therefore i am",
    "if i have seen further it is by standing on the shoulders of giants",
    "all that glitters is not gold",
    "the journey not the arrival matters",
)

Documents = Mapping[str, Iterable[str]]


def open_documents(settings: ConfigDict) -> Documents:
    """Returns the documents of each split of the corpus that `config.data` describes."""
    if settings.source in REGISTRY:
        return REGISTRY[settings.source](settings)
    if settings.source not in sources.REGISTRY:
        names = ", ".join(sorted({*REGISTRY, *sources.REGISTRY}))
        raise UserError(f"data.source={settings.source!r} is unknown: choose one of {names}")
    pairs = sources.open_source(settings)
    return {split: [pair.source for pair in pairs[split]] for split in SPLITS}


def _file_documents(settings: ConfigDict) -> Documents:
    """Returns the documents of the files that the settings name.

    A split without a file is cut off the end of the training text: first `validation_fraction` and
    then `test_fraction` of all characters if a document is a whole file, else of all documents.
    A fraction of zero leaves the split out.
    """
    named = {
        split: text_file(locate(settings, f"{split}_source"), settings)
        for split in SPLITS
        if split == "train" or getattr(settings, f"{split}_source")
    }
    for line in describe_rows(text.rows for text in named.values()):
        logger.warning(line)
    fractions = {
        split: getattr(settings, f"{split}_fraction")
        for split in SPLITS[1:]
        if split not in named and getattr(settings, f"{split}_fraction")
    }
    return {**named, **_cut_splits(named["train"], fractions)} if fractions else named


def _cut_splits(text: "TextFile", fractions: Mapping[str, float]) -> Documents:
    """Returns "train" and the splits cut off its end; the documents of these are in memory."""
    parts: list[Iterable[str]]
    if text.documents == "file":
        whole = next(iter(text), "")
        bounds = _bounds(text, len(whole), "characters", fractions)
        parts = [[whole[start:end]] for start, end in itertools.pairwise(bounds)]
    else:
        bounds = _bounds(text, sum(1 for _ in text), "documents", fractions)
        rest = itertools.islice(text, bounds[1], None)
        parts = [Restartable(lambda: itertools.islice(text, bounds[1]))]
        parts += [[*itertools.islice(rest, b - a)] for a, b in itertools.pairwise(bounds[1:])]
    return dict(zip(("train", *fractions), parts, strict=True))


def _bounds(text: "TextFile", count: int, units: str, fractions: Mapping[str, float]) -> list[int]:
    """Returns 0 and the ends of the training text and of each split after it, in units."""
    end = 1.0 - sum(fractions.values())
    bounds = [0, int(end * count)]
    for fraction in fractions.values():
        end += fraction
        bounds.append(max(bounds[-1] + 1, int(end * count + 1e-6)))
    bounds[-1] = count
    if bounds[1] < 1 or bounds[-2] >= bounds[-1]:
        asked = " and ".join(f"config.data.{split}_fraction={x}" for split, x in fractions.items())
        raise UserError(
            f"{text.path} has {count:,} {units}, too few to hold out {asked}: lower them, or name "
            "more text"
        )
    return bounds


@dataclasses.dataclass(frozen=True)
class TextFile:
    """The documents of a file, which each iteration reads from the start.

    Lines and paragraphs come without the blank lines around them; a file comes unchanged. The text
    of a row is treated as a line, but it may have paragraphs, and always ends one.
    """

    path: Path
    documents: str
    rows: TableFile[str] | None  # for a data file with rows

    def __iter__(self) -> Iterator[str]:
        lines: Iterable[str] = read_lines(self.path, True) if self.rows is None else self.rows
        if self.rows is not None and self.documents == "paragraph":
            lines = itertools.chain.from_iterable((*text.split("\n"), "") for text in self.rows)
        if self.documents == "file":
            text = "".join(f"{line}\n" for line in lines)
            if canonicalize(text):
                yield text
        elif self.documents == "line":
            yield from filter(canonicalize, lines)
        else:
            for blank, block in itertools.groupby(lines, key=lambda line: not canonicalize(line)):
                if not blank:
                    yield "\n".join(block)


def text_file(path: Path, settings: ConfigDict) -> TextFile:
    """Returns the documents of a file, split as `config.data` says (unit, or field of rows)."""
    has_rows = format_of(path, any_text=True) in FORMATS
    rows = TableFile(path, settings, ("text_field",), text_value) if has_rows else None
    return TextFile(path, settings.documents, rows)


REGISTRY: dict[str, Callable[[Any], Documents]] = {
    "files": _file_documents,
    "quotations": lambda _: dict.fromkeys(SPLITS, QUOTATIONS),  # to measure memorisation
    "tfds": lambda settings: tfds.open_splits(settings, ("text",), str),
}
