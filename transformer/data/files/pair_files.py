"""Sentence pairs from files: two parallel texts, or one of rows in any format.

Everything is streamed, however large.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.data.files.locate import locate
from transformer.data.files.rows import text_value
from transformer.data.files.table import FORMATS, TableFile, format_of
from transformer.data.files.text import read_lines
from transformer.data.pairs import Pair
from transformer.errors import UserError

ROWS_ALONE = FORMATS.keys() - {".tsv", ".csv"}  # whose lines are never sentences


@dataclasses.dataclass(frozen=True)
class TwoFiles:
    """Pairs of line n of one file and line n of another, read from its start by each iteration."""

    source: Path
    target: Path

    def __iter__(self) -> Iterator[Pair]:
        files = self.source, self.target
        lines = [read_lines(path) for path in files]
        for number, pair in enumerate(itertools.zip_longest(*lines)):
            if None in pair:
                counts = [number + (side is not None) for side in pair]
                longer = pair.index(None) ^ 1
                counts[longer] += sum(1 for _ in lines[longer])
                raise UserError(
                    "the files do not have the same number of lines, "
                    + " and ".join(f"{p}: {n:,}" for p, n in zip(files, counts, strict=True))
                    + "; line n of one must be the translation of line n of the other"
                )
            source, target = pair
            yield Pair(source, target)


def parallel_text(settings: ConfigDict, split: str) -> TwoFiles | TableFile[Pair]:
    """Returns the text of one split, from its two files or its one of rows.

    Args:
      settings: `config.data`.
      split: whose `<split>_source` and `<split>_target` are read; no target means rows.
    """
    source, target = f"{split}_source", f"{split}_target"
    path = locate(settings, source)
    if not getattr(settings, target):
        return pair_table(path, settings)
    kind = format_of(path)
    if kind in ROWS_ALONE:
        raise UserError(
            f"data.{source}={getattr(settings, source)!r} has both sides in its rows, and "
            f"data.{target} names a second file: set config.data.{target}= (empty)"
        )
    if (other := locate(settings, target)) == path and kind in FORMATS:
        raise UserError(
            f"data.{source} and data.{target} are the same file, {path}: to read both sides "
            f"from its rows, set config.data.{target}= (empty)"
        )
    return TwoFiles(path, other)


def pair_table(path: Path, settings: ConfigDict) -> TableFile[Pair]:
    """Returns the pairs in the rows of one file; `settings` is `config.data`, for the fields."""
    return TableFile(path, settings, ("source_field", "target_field"), _pair)


def _pair(source: Any, target: Any) -> Pair:
    """Returns a pair, each side in one line."""
    try:
        (source + target).encode()  # quick, for there are many
    except (TypeError, AttributeError, UnicodeEncodeError):
        text_value(source, "source")
        text_value(target, "target")
    if "\n" in source or "\n" in target:
        source, target = (s.replace("\r\n", " ").replace("\n", " ") for s in (source, target))
    return Pair(source, target)
