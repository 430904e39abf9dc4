"""Labelled texts from files: TSV, CSV and JSON lines.

Everything is streamed, however large.
"""

import contextlib
import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.data.files.text_files import locate, read_lines
from transformer.data.labels import Labelled
from transformer.errors import UserError, shorten

SUFFIXES = (".tsv", ".csv", ".jsonl")
# What a header line, not a class, may have in the column of the labels.
HEADERS = ("label", "labels", "class", "category", "target", "sentiment")


class Broken(NamedTuple):
    """A record that is not a labelled text: the line it starts in, from one, and why."""

    line: int
    why: str


class _BrokenError(Exception):
    """Why a record is not a labelled text."""


@dataclasses.dataclass(frozen=True)
class LabelledFile:
    """The labelled texts of one file, read from its start by each iteration.

    Blank lines are not records. Iteration raises UserError at the first broken record, unless
    `skip_broken`.

    Attributes:
      source: a `.tsv`, `.csv` or `.jsonl` file, perhaps with `.gz` behind.
      fields: where text and label are: numbers of columns, from zero, of a table without a header
        line; otherwise names, of a header line's columns or of the keys of JSON objects.
      skip_broken: whether broken records are passed over.
    """

    source: Path
    fields: tuple[str, str]
    skip_broken: bool

    def __iter__(self) -> Iterator[Labelled]:
        for record in self.records():
            if isinstance(record, Labelled):
                yield record
            elif not self.skip_broken:
                raise UserError(
                    f"{self.source}, line {record.line}: {record.why}: fix the line, or set "
                    "--config.data.skip_broken=True to do without such lines"
                )

    def records(self) -> Iterator[Labelled | Broken]:
        """Yields what each record is, broken ones in their places."""
        lines = read_lines(self.source)
        if kind_of(self.source) == ".jsonl":
            return self._objects(lines)
        return self._table(_csv_rows(lines) if kind_of(self.source) == ".csv" else _tsv_rows(lines))

    def describe(self) -> str:
        """Returns what the columns of the first record hold, for messages."""
        for line in read_lines(self.source):
            if not line.strip():
                continue
            kind = kind_of(self.source)
            if kind == ".jsonl":
                with contextlib.suppress(ValueError, AttributeError):
                    return f"its fields are {_listed(map(repr, json.loads(line).keys()))}"
                return "its first line is not an object"
            rows = _csv_rows([line]) if kind == ".csv" else _tsv_rows([line])
            cells = next(rows)[1]
            if not isinstance(cells, csv.Error):
                return f"its first line has the columns {_listed(map(repr, cells))}"
            return "its first line is not CSV"
        return "it has no lines"

    def _objects(self, lines: Iterable[str]) -> Iterator[Labelled | Broken]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield _labelled(*_values(line, self.fields))
                except _BrokenError as error:
                    yield Broken(number, str(error))

    def _table(self, rows: Iterable[tuple[int, Any]]) -> Iterator[Labelled | Broken]:
        width, places = 0, (0, 0)
        for number, cells in rows:
            if not width:
                places, is_header = self._places(number, cells)
                width = len(cells)
                if is_header:
                    continue
            try:
                if isinstance(cells, csv.Error):
                    raise _BrokenError(f"no CSV ({cells})")
                if len(cells) != width:
                    raise _BrokenError(f"{len(cells)} column(s), where the first line has {width}")
                yield _labelled(*(cells[place] for place in places))
            except _BrokenError as error:
                yield Broken(number, str(error))

    def _places(self, number: int, first: Any) -> tuple[tuple[int, int], bool]:
        """Returns the columns of text and label, and whether the first line is a header."""
        where = f"{self.source}, line {number}"
        if isinstance(first, csv.Error):
            raise UserError(f"{where}: no CSV ({first}): fix the line")
        keys = zip(("text_field", "label_field"), self.fields, strict=True)
        if all(field.isdecimal() for field in self.fields):
            text, label = map(int, self.fields)
            places = text, label
            for key, field in keys:
                if int(field) >= len(first):
                    raise UserError(
                        f"{where} has {len(first)} column(s), and data.{key}={field!r} is none of "
                        f"them: set --config.data.{key} to a number from 0 to {len(first) - 1}"
                    )
            if first[places[1]].strip().lower() in HEADERS:
                raise UserError(
                    f"{where} looks like a header ({_listed(first)}), and numbers of columns are "
                    "for files without one: set --config.data.text_field and "
                    "--config.data.label_field to names of its columns"
                )
            return places, False
        names = [cell.strip() for cell in first]
        for key, field in keys:
            if field not in names:
                raise UserError(
                    f"{where} names no column data.{key}={shorten(field)!r}: its columns are "
                    f"{_listed(names)}: set --config.data.{key} to the name of one; or, of a file "
                    "without a header line, --config.data.text_field and --config.data.label_field "
                    "to numbers of columns, from 0"
                )
        text, label = map(names.index, self.fields)
        return (text, label), True


def kind_of(path: Path) -> str:
    """Returns the suffix of a file's name, in lower case and without a '.gz' behind it."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def labelled_file(settings: ConfigDict, split: str) -> LabelledFile:
    """Returns the labelled texts of the file of one split.

    Args:
      settings: `config.data`.
      split: whose `<split>_source` is read.

    Raises:
      UserError: the file is not there or of no known kind, or a field is missing or named twice.
    """
    path = locate(settings, f"{split}_source")
    if kind_of(path) not in SUFFIXES:
        raise UserError(
            f"data.{split}_source={path.name!r} is none of {', '.join(SUFFIXES)}: name a file of "
            "labelled texts, and let its name say what it is"
        )
    fields = settings.text_field, settings.label_field
    if "" in fields or fields[0] == fields[1]:
        raise UserError(
            f"--config.data.text_field={fields[0]!r} and --config.data.label_field={fields[1]!r}: "
            "name two fields"
        )
    return LabelledFile(path, fields, settings.skip_broken)


def _tsv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of each line and the line's number."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line.split("\t")


def _csv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yields the cells of each record, or what is wrong with it, and its first line's number."""
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells = error
        if cells:
            yield number, cells


def _values(line: str, fields: tuple[str, str]) -> Iterator[Any]:
    """Yields the values of these fields of a JSON object, which is one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BrokenError(f"no JSON ({error})") from None
    if not isinstance(record, dict):
        raise _BrokenError(f"no JSON object, but {type(record).__name__}")
    for field in fields:
        if field not in record:
            raise _BrokenError(
                f"no field {shorten(field)!r}; its fields are {_listed(map(repr, record))}: set "
                "--config.data.text_field and --config.data.label_field"
            )
        yield record[field]


def _listed(names: Iterable[str]) -> str:
    """Names as a message quotes them."""
    return shorten(", ".join(shorten(name, 40) for name in names) or "none")


def _labelled(text: Any, label: Any) -> Labelled:
    """Returns a labelled text; of JSON, a label may be a whole number or a truth value too."""
    if isinstance(label, bool | int):
        label = json.dumps(label)
    for name, value in (("text", text), ("label", label)):
        if not isinstance(value, str):
            raise _BrokenError(f"the {name} is no string, but {json.dumps(value)[:40]}")
        if not value.strip():
            raise _BrokenError(f"the {name} is empty")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise _BrokenError(f"the {name} has half a character, {ascii(value)[:40]}")
    return Labelled(text.strip(), label.strip())
