"""Sentence pairs from a file with rows, two text files, or documents, and files of word links."""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize, split_words
from transformer.data.files.locate import locate
from transformer.data.files.rows import text_value
from transformer.data.files.table import FORMATS, ROWS_ALONE, TableFile, format_of
from transformer.data.files.text import read_lines
from transformer.data.formats.document import Document, TextDocument, by_key
from transformer.data.formats.registry import read_document
from transformer.data.formats.subtitles import aligned
from transformer.data.pairs import Pair
from transformer.errors import UserError

KEYED = (".srt", ".vtt", ".json", ".properties")  # documents in one language
BILINGUAL = (".po", ".xliff", ".xlf")
LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
Links = list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class TwoFiles:
    """Sentence pairs from two parallel files; each iteration reads the files from the start."""

    source: Path
    target: Path

    def __iter__(self) -> Iterator[Pair]:
        files = self.source, self.target
        for number, pair in enumerate(itertools.zip_longest(*map(read_lines, files))):
            if None in pair:
                shorter, longer = files if pair[0] is None else files[::-1]
                raise UserError(
                    f"{shorter} ends after {number:,} lines, before {longer}: "
                    "line n of one must be the translation of line n of the other"
                )
            source, target = pair
            yield Pair(source, target)


@dataclasses.dataclass(frozen=True)
class DocumentPairs:
    """Sentence pairs of documents: of one with both languages, or of one in each language.

    Subtitles are paired by their times, and messages by their keys. Folders have documents with the
    same names.
    """

    source: Path
    target: Path | None

    def __iter__(self) -> Iterator[Pair]:
        for source, target in self._read()[0]:
            yield Pair(" ".join(source.split()), " ".join(target.split()))

    def describe(self) -> str:
        """Returns a log line on the texts that are left out."""
        pairs, rest = self._read()
        why = "have no partner" if self.target else "are fuzzy or have no translation"
        return f"{self.source}: reads {len(pairs):,} pairs; {rest:,} texts are left out: they {why}"

    def _read(self) -> tuple[list[tuple[str, str]], int]:
        """Returns the pairs of texts, and the number of texts that are left out."""
        if self.target is None:
            units = _open(self.source).units
            pairs = [(u.source, u.target) for u in units if u.target and not u.is_fuzzy]
            return pairs, len(units) - len(pairs)
        pairs, rest = [], 0
        for path in documents(self.source):
            other = self.target / path.relative_to(self.source)  # of a file: the target itself
            first, second = _open(path), _open(other)
            if any(unit.times for unit in first.units):
                more, lacking = aligned(first, second)
            else:
                more = [(a.source, b.source) for a, b in by_key(first, second)]
                lacking = len(first.units) + len(second.units) - 2 * len(more)
            pairs += more
            rest += lacking
        return pairs, rest


def _open(path: Path) -> Document:
    """Returns the document in a file, or an empty one if there is no such file."""
    is_file = path.exists()
    return read_document(path.read_bytes(), str(path)) if is_file else TextDocument("", [], str)


def documents(path: Path, formats: Collection[str] = KEYED) -> list[Path]:
    """Returns a document in one of the formats, or all such documents in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in files if file.suffix.lower() in formats and file.is_file()]


def parallel_text(settings: ConfigDict, split: str) -> TwoFiles | DocumentPairs | TableFile[Pair]:
    """Returns the pairs of a split, from two files, or from a table if no target file is set."""
    source, target = f"{split}_source", f"{split}_target"
    path = locate(settings, source, folders=True)
    if documents(path) and getattr(settings, target):
        return DocumentPairs(path, locate(settings, target, folders=True))
    path = locate(settings, source)
    if not getattr(settings, target):
        return pair_table(path, settings)
    is_same = getattr(settings, source) == getattr(settings, target)
    if format_of(path) in (FORMATS if is_same else ROWS_ALONE):
        raise UserError(
            f"data.{source}={getattr(settings, source)!r} has both sides in its rows, and "
            f"data.{target} names a second file: set config.data.{target}= (empty)"
        )
    return TwoFiles(path, locate(settings, target))


def pair_table(path: Path, settings: ConfigDict) -> DocumentPairs | TableFile[Pair]:
    """Returns the pairs in the rows or the units of one file, given `config.data`."""
    if documents(path, BILINGUAL):
        return DocumentPairs(path, None)
    return TableFile(path, settings, ("source_field", "target_field"), _pair_of_row)


def _pair_of_row(source: Any, target: Any) -> Pair:
    return Pair(text_value(source, "source"), text_value(target, "target"))


# -- word links


def read_links(
    path: Path, sizes: Iterable[Sequence[int]], name: str
) -> Iterator[tuple[Links, Links]]:
    """Yields the sure and the possible links of each sentence pair in a Pharaoh-format file.

    Each line has the links of a pair, separated by blanks. A link i-j joins source word i and
    target word j, counted from zero. A possible (not sure) link is ipj or i?j. Words are the
    blank-separated parts of the text.

    Args:
      sizes: the numbers of source and target words of each pair.
      name: the name of the file in messages.
    """
    for number, (line, size) in enumerate(itertools.zip_longest(read_lines(path), sizes), 1):
        if line is None or size is None:
            raise UserError(
                f"{name} has {'fewer' if line is None else 'more'} lines than the text has pairs, "
                f"{number - 1:,} of which have one: each pair needs its line, a blank one if it "
                "has no link"
            )
        place, sure, possible = f"{name}, line {number}", [], []
        for text in line.split():
            link = LINK.fullmatch(text)
            if link is None:
                raise UserError(
                    f"{place}: {text[:40]!r} is not a link: write source-target, two word numbers "
                    "from zero such as 0-0, or 0p0 for a link that is only possible"
                )
            i, j = int(link[1]), int(link[3])
            if i >= size[0] or j >= size[1]:
                raise UserError(
                    f"{place}: link {text} points past the sentence, which has {size[0]} source "
                    f"words and {size[1]} target words between blanks: count them from zero"
                )
            (sure if link[2] == "-" else possible).append((i, j))
        yield sure, possible


def with_links(pairs: Iterable[Pair], path: Path) -> Iterator[Pair]:
    """Yields the pairs with the sure links of a file."""
    pairs, copies = itertools.tee(pairs)
    sizes = ([len(split_words(canonicalize(text))) for text in pair[:2]] for pair in copies)
    for pair, links in zip(pairs, read_links(path, sizes, f"data.train_links={path}"), strict=True):
        yield pair._replace(alignment=tuple(links[0]))
