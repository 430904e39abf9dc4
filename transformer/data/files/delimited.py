"""Tables of text: TSV, whose cells stand between tabs as they are, and CSV, which may be quoted."""

import csv
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from transformer.data.files.rows import Broken, Fields, Row, listed
from transformer.data.files.text import read_lines
from transformer.errors import UserError, shorten

# Names that a header line may have for the columns of these fields, and no text has.
HEADERS = {
    "label_field": ("label", "labels", "class", "category", "target", "sentiment"),
    "source_field": ("source", "src"),
    "target_field": ("target", "tgt", "trg"),
}
PAIR = ("source_field", "target_field")
CODE = re.compile("[a-z]{2}(?:[-_][A-Za-z]{2})?")  # of a language, such as en or pt_BR
SEPARATORS = ",;\t|"  # between the columns of CSV, the usual one first
SHOWN = 100  # records that show which of them a file has
Cells = list[str] | csv.Error


def read_tsv(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the rows of a TSV file.

    Raises:
      UserError: the file cannot be read, or its first line does not have the fields.
    """
    return _rows(path, fields, _tsv_records(read_lines(path), fields.exact), fields.exact)


def read_csv(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the rows of a CSV file, see `read_tsv`; a quoted cell may hold ends of lines.

    The columns are separated as they are in its first records, see `_separator`. A row of another
    number of columns than the first is broken: the text of a cell may hold a separator that no
    quotes protect.
    """
    records = _csv_records(read_lines(path), _separator(path))
    return _rows(path, fields, records, True, ": put quotes around a cell that has a separator")


def describe_tsv(path: Path) -> str:
    """Returns the columns of the first line, for messages."""
    return _describe(_tsv_records(read_lines(path), True))


def describe_csv(path: Path) -> str:
    """Returns the columns of the first record, for messages."""
    return _describe(_csv_records(read_lines(path), _separator(path)))


def _describe(records: Iterator[tuple[int, Cells]]) -> str:
    _, cells = next(records, (0, None))
    if cells is None:
        return "it has no lines"
    if isinstance(cells, csv.Error):
        return "its first line is not CSV"
    return f"its first line has the columns {listed(map(repr, cells))}"


def _rows(
    path: Path, fields: Fields, records: Iterable[tuple[int, Cells]], even: bool, hint: str = ""
) -> Iterator[Row | Broken]:
    """Yields the rows of records; if `even`, all must have as many columns as the first.

    Args:
      hint: to a row that has not.
    """
    width, places = 0, ()
    for number, cells in records:
        if not width:
            where = f"{path}, line {number}"
            if isinstance(cells, csv.Error):
                raise UserError(f"{where}: not CSV ({cells}): fix the line")
            places, is_header = _places(where, cells, fields)
            width = len(cells)
            if is_header:
                continue
        if isinstance(cells, csv.Error):
            yield Broken(number, f"not CSV ({cells})")
        elif even and len(cells) != width:
            yield Broken(number, f"{len(cells)} column(s), where the first line has {width}{hint}")
        elif max(places) >= len(cells):
            place = max(places)
            key, name = fields.keys[places.index(place)], fields.names[places.index(place)]
            yield Broken(
                number,
                f"{len(cells)} column(s), and data.{key}={shorten(name)!r} is column {place}, "
                f"counted from 0: check {fields}",
            )
        else:
            values = [cells[place] for place in places]  # quick, for there are many
            yield Row(number, tuple(values))


def _places(where: str, first: list[str], fields: Fields) -> tuple[tuple[int, ...], bool]:
    """Returns the columns of the fields, and whether the first line is a header."""
    if (places := fields.numbers) is not None:
        for key, place in zip(fields.keys, places, strict=True):
            if fields.exact and place >= len(first):
                raise UserError(
                    f"{where} has {len(first)} column(s), and data.{key}='{place}' is none of "
                    f"them: set config.data.{key} to a number from 0 to {len(first) - 1}"
                )
        if _is_header(first, fields, places):
            raise UserError(
                f"{where} looks like a header ({listed(first)}), and numbers of columns are "
                f"for files without one: set {fields} to names of its columns"
            )
        return places, False
    names = [cell.strip() for cell in first]
    for key, name in zip(fields.keys, fields.names, strict=True):
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UserError(
                f"{where} names no column data.{key}={shorten(name)!r}{hint}: its columns are "
                f"{listed(names)}: set config.data.{key} to the name of one; or, of a file "
                f"without a header line, {fields} to numbers of columns, from 0"
            )
    return tuple(map(names.index, fields.names)), True


def _is_header(first: list[str], fields: Fields, places: tuple[int, ...]) -> bool:
    """Whether all fields that a header line is known by look like one."""
    cells = {
        key: first[place].strip() if place < len(first) else ""
        for key, place in zip(fields.keys, places, strict=True)
        if key in HEADERS
    }
    if set(cells) == set(PAIR) and all(map(CODE.fullmatch, cells.values())):
        return len(set(cells.values())) > 1
    return bool(cells) and all(cell.lower() in HEADERS[key] for key, cell in cells.items())


def _tsv_records(lines: Iterable[str], skip_blank: bool) -> Iterator[tuple[int, Cells]]:
    """Yields the number and the cells of each line."""
    for number, line in enumerate(lines, 1):
        if not skip_blank or line.strip():
            yield number, line.split("\t")


def _separator(path: Path) -> str:
    """Returns the one of `SEPARATORS` by which most of the first records have equal columns.

    Spreadsheets write semicolons if the comma is a decimal point. Of equally good ones it is the
    first, and a comma if there is no second column.
    """

    def count_equal(separator: str) -> int:
        """How many records have as many columns as the first one."""
        records = itertools.islice(_csv_records(read_lines(path), separator), SHOWN)
        widths = [0 if isinstance(cells, csv.Error) else len(cells) for _, cells in records]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    return max(SEPARATORS, key=count_equal)


def _csv_records(lines: Iterable[str], separator: str) -> Iterator[tuple[int, Cells]]:
    """Yields the number of each record's first line, and its cells.

    Of a record that is not CSV, it yields the number of each line and the fault: a quote that is
    never closed takes in lines that would be records.
    """
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, delimiter=separator)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield from ((line, error) for line in range(number, reader.line_num + 1))
            continue
        if cells:
            yield number, cells
