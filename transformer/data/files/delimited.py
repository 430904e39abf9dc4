"""Tables of text: TSV, whose cells stand between tabs as they are, and CSV, which may be quoted.

Spreadsheets and pandas quote the cells of TSV as well; such a file is recognised by its content.
"""

import csv
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from transformer.data.files.rows import Broken, Fields, Row, listed
from transformer.data.files.text import read_lines
from transformer.errors import UserError, shorten

# Names that a header line may have for the column of labels, and words of other columns' names.
LABELS = ("label", "labels", "class", "category", "target", "sentiment")
WORDS = """source src target tgt trg sentence sentences text texts translation reference language
arabic chinese czech dutch english french german hindi italian japanese korean persian polish
portuguese russian spanish swedish turkish ukrainian vietnamese ara ces cmn deu eng fas fra ger hin
ita jpn kor nld pol por rus spa swe tur ukr vie zho""".split()  # noqa: SIM905
CODE = re.compile("[a-z]{2}(?:[-_][A-Za-z]{2})?|[A-Z]{2}")  # of a language, such as en or pt_BR
SEPARATORS = ",;\t|"  # between the columns of CSV, the usual one first
SHOWN = 100  # records that show which of them a file has
QUOTES_SHOWN = 100_000  # lines of TSV that show whether it is quoted
MANY, FEW = 10, 0.01  # cells in quotes that are no chance; quotes that may be at a wrong place
QUOTED = re.compile(r'(?m)(?:^|\t)("(?:[^"]|"")*")(?=\t|$)')  # a cell
Cells = list[str] | csv.Error


def read_tsv(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the rows of a TSV file; those of a quoted one as `read_csv` does.

    Raises:
      UserError: the file cannot be read, or its first line does not have the fields.
    """
    if _is_quoted(path, path.stat().st_mtime_ns):
        return read_csv(path, fields, "\t")
    return _rows(path, fields, _tsv_records(read_lines(path), fields.exact), fields.exact)


def read_csv(path: Path, fields: Fields, separator: str = "") -> Iterator[Row | Broken]:
    """Yields the rows of a CSV file, see `read_tsv`; a quoted cell may hold ends of lines.

    The columns are separated as given, or as they are in its first records, see `_separator`. A row
    of another number of columns than the first is broken: the text of a cell may hold a separator
    that no quotes protect.
    """
    records = _csv_records(read_lines(path), separator or _separator(path))
    return _rows(path, fields, records, True, " (a cell that has a separator needs quotes)")


def describe_tsv(path: Path, fields: Fields) -> tuple[str, list[str]]:
    """Returns a phrase on the first line's columns; and their names, or numbers if it has none."""
    if _is_quoted(path, path.stat().st_mtime_ns):
        columns, names = describe_csv(path, fields, "\t")
        return columns + "; its cells are quoted as in CSV", names
    return _describe(_tsv_records(read_lines(path), True), fields)


def describe_csv(path: Path, fields: Fields, separator: str = "") -> tuple[str, list[str]]:
    """Returns the columns of the first record, see `describe_tsv`."""
    return _describe(_csv_records(read_lines(path), separator or _separator(path)), fields)


def _describe(records: Iterator[tuple[int, Cells]], fields: Fields) -> tuple[str, list[str]]:
    _, cells = next(records, (0, None))
    if not isinstance(cells, list):
        return "its first line is not CSV" if cells else "it has no lines", []
    is_header = fields.numbers is None or _is_header(cells, fields, fields.numbers)
    item = "pair" if "source_field" in fields.keys else "text"
    read = "a header that is not read as text" if is_header else f"read as a {item}"
    names = [cell.strip() if is_header else str(place) for place, cell in enumerate(cells)]
    return f"its first line, {read}, has the columns {listed(map(repr, cells))}", names


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
            why = f"data.{key}={shorten(name)!r} is column {place}, counted from 0"
            yield Broken(number, f"{len(cells)} column(s), and {why}")
        else:
            values = [cells[place] for place in places]  # quick, for there are many
            yield Row(number, tuple(values))


def _places(where: str, first: list[str], fields: Fields) -> tuple[tuple[int, ...], bool]:
    """Returns the columns of the fields, and whether the first line is a header."""
    if (places := fields.numbers) is not None:
        return places, _is_header(first, fields, places)
    names = [cell.strip() for cell in first]
    for key, name in zip(fields.keys, fields.names, strict=True):
        if name not in names:
            raise UserError(
                f"{where} has {fields.missing(name, names)}: set config.data.{key} to the name of "
                f"one; or, of a file without a header line, {fields} to numbers of columns, from 0"
            )
    return tuple(map(names.index, fields.names)), True


def _is_header(first: list[str], fields: Fields, places: Sequence[int]) -> bool:
    """Whether the cells of the fields, or that of the label, are names of columns."""
    cells = [first[place].strip() if place < len(first) else "" for place in places]
    if "label_field" in fields.keys:
        return cells[fields.keys.index("label_field")].lower() in LABELS
    names = [cell for cell in cells if cell]  # that of the index which pandas writes is empty
    return len({*cells}) == len(cells) and bool(names) and all(map(_names_column, names))


def _names_column(cell: str) -> bool:
    """Whether a cell is the code of a language, or has `WORDS` and codes alone."""
    words = re.findall(r"[^\W_]+", cell.lower())
    is_name = any(w in WORDS for w in words) and all(w in WORDS or len(w) == 2 for w in words)
    return bool(CODE.fullmatch(cell)) or (is_name and cell[-1] not in ".!?")


@functools.lru_cache
def _is_quoted(path: Path, _: int) -> bool:
    """Whether quotes of a TSV file are around cells, and doubled or around all commas in them."""
    text = "\n".join(itertools.islice(read_lines(path), QUOTES_SHOWN))
    cells, rest = QUOTED.findall(text), QUOTED.sub("", text)
    doubled = sum('""' in cell[1:-1] for cell in cells)
    commas = not {'"', ","} & {*rest} and len(cells) >= MANY
    return commas or 0 < doubled >= rest.count('"') / FEW


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
