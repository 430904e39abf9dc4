r"""Text files with rows: TSV with verbatim cells, CSV, and JSON.

Spreadsheets and pandas also write TSV with quoted cells, which is detected from the content.
pyarrow's readers are not suitable. The CSV reader ends rows at a lone '\r', accepts text after a
closing quote, and does not report the line of a malformed row. The JSON reader rejects mixed types
in a field, such as labels `0` and `"pos"`, and a whole block if one line is malformed.
"""

import csv
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer.data.files.rows import (
    BrokenError,
    Fields,
    Rows,
    RowTable,
    listed,
    missing,
    names_of,
)
from transformer.data.files.text import plain_name, read_lines, unreadable
from transformer.errors import UserError

# Possible names of the label column, and words in the names of other columns.
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "topic", "intent")
HEADER_WORDS = """source src target tgt trg sentence sentences text texts translation reference
language greek""".split()  # noqa: SIM905
REGION = re.compile(r"[-_][A-Z][A-Za-z]{1,3}$")  # region or script, as in pt_BR and zh-Hant
SEPARATORS = ",;\t|"  # column separators of CSV, the most common first
SAMPLE_RECORDS = 100  # number of records used to infer the separator
csv.field_size_limit(2**24)  # maximum characters of a cell, which may be a book
QUOTED_CELL = re.compile(r'(?m)(?:^|\t)("(?:[^"]|"")*")(?=\t|$)')  # in TSV
QUOTES_SHOWN = 100_000  # number of TSV lines searched for quoted cells
WHOLE = re.compile(r"\s*\[\s*($|[\[{])")  # start of a JSON list of rows; a row contains no lists
Records = Iterator[tuple[int, list[str] | csv.Error]]  # (first line number, cells or error)


def read_delimited(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a TSV file, or of a CSV file (see `_guess_dialect`).

    Quoted cells may contain line breaks. A row of CSV or quoted TSV is malformed if its number of
    columns differs from that of the first row, since an unquoted cell may contain a separator.
    """
    separator, quote = _guess_dialect(path, *fields[-2:], path.stat().st_mtime_ns)
    lines = enumerate(read_lines(path), 1)
    plain = ((n, line.split("\t")) for n, line in lines if line.strip() or not fields.exact)
    records = _csv_records(read_lines(path), separator, quote) if separator else plain
    table = _make_table(path, fields, records, strict=separator != "" or fields.exact)
    is_quoted = separator != "" and not _is_csv(path) and bool(table.names)
    return table._replace(about=table.about + "; its cells are quoted as in CSV" * is_quoted)


def read_sheet(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of the first sheet of an Excel workbook."""
    try:
        import openpyxl
    except ModuleNotFoundError:
        fix = 'pip install "transformer-jax[documents]"'
        raise UserError(f"{path} needs the package openpyxl: {fix}") from None
    try:
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
    except Exception as error:  # of the archive, its XML or the workbook
        raise unreadable(path, "Excel", error) from None
    rows = enumerate(sheet.iter_rows(values_only=True), 1)
    texts = ((n, ["" if cell is None else str(cell) for cell in row]) for n, row in rows)
    return _make_table(path, fields, (row for row in texts if any(row[1])), strict=True)


def _make_table(path: Path, fields: Fields, records: Records, strict: bool) -> RowTable:
    """Returns the rows of a table, whose first record may be a header.

    If `strict` is set, a row must have as many cells as the first one.
    """
    number, cells = next(records, (0, []))
    if not number:
        return RowTable("it has no lines", [], iter(()))
    if isinstance(cells, csv.Error):
        raise UserError(f"{path}, line {number}: not CSV ({cells}): fix the line")
    names, are_numbers = [cell.strip() for cell in cells], all(map(str.isdecimal, fields.names))
    if lacking := [name for name in fields.names if not are_numbers and name not in names]:
        raise UserError(
            f"{path}, line {number} has {missing(lacking[0], names)}: set {fields} to names of it; "
            "or, of a file without a header line, to numbers of columns, from 0"
        )
    places = [int(name) if are_numbers else names.index(name) for name in fields.names]
    is_header = not are_numbers or _is_header(names, fields, places)
    about = "a header that is not read as text" if is_header else "which is read as a row"
    about = f"its first line, {about}, has the columns {listed(map(repr, cells))}"
    if not is_header:
        records = itertools.chain([(number, cells)], records)
        names = names_of(cells)
    width = len(cells) if strict else 0
    return RowTable(about, names, _rows(records, places, width))


def _rows(records: Records, places: Sequence[int], width: int) -> Rows:
    """Yields the fields of each record; unless `width` is 0, a record must have `width` cells."""
    for number, cells in records:
        if isinstance(cells, csv.Error):
            yield number, BrokenError(f"not CSV ({cells})")
        elif width and len(cells) != width:
            quotes = "a cell that has a separator needs quotes: see data.quote"
            why = f"{len(cells)} column(s), where the first line has {width} ({quotes})"
            yield number, BrokenError(why)
        elif max(places) >= len(cells):
            yield number, BrokenError(f"{len(cells)} column(s), and no column {max(places)}")
        else:
            yield number, tuple([cells[place] for place in places])


def _is_header(first: list[str], fields: Fields, places: Sequence[int]) -> bool:
    """Returns whether the first row has column names for the fields, or for the label field."""
    cells = [first[place] if place < len(first) else "" for place in places]
    if "label_field" in fields.keys:
        return cells[fields.keys.index("label_field")].lower() in LABELS
    names = [*filter(None, cells)]  # pandas writes an empty header for its index
    return len({*cells}) == len(cells) and bool(names) and all(map(_names_column, names))


def _names_column(cell: str) -> bool:
    """Returns whether a cell consists of `HEADER_WORDS` and language names or ISO 639 codes."""
    from iso639 import is_language  # takes 0.1 s to import

    words = re.findall(r"[^\W\d_]+", REGION.sub("", cell))
    forms = ((word.lower() if word.isupper() else word, word.title()) for word in words)
    are_names = all(b.lower() in HEADER_WORDS or is_language(a) or is_language(b) for a, b in forms)
    return bool(words) and are_names and cell[-1] not in ".!?。"


def _is_csv(path: Path) -> bool:
    return plain_name(path.name).endswith(".csv")


@functools.lru_cache
def _guess_dialect(path: Path, separator: str, quote: str, _: int) -> tuple[str, str]:
    """Returns the separator and the quote character of a file, or '' and '' for plain TSV.

    By default, the CSV separator is the one for which most of the first records have the same
    number of columns, or else a comma. Spreadsheets use semicolons if commas are decimal marks. TSV
    is quoted if all quotes belong to quoted cells, which contain a doubled quote or all commas.
    """
    if _is_csv(path) or separator:
        quote = quote or '"'
        fits = lambda each: count_fitting(read_lines(path), quote, each)  # noqa: E731
        return max(separator or SEPARATORS, key=fits), quote
    text = "\n".join(itertools.islice(read_lines(path), QUOTES_SHOWN))
    return ("\t", '"') if has_quoted_cells(text) else ("", "")


def has_quoted_cells(text: str) -> bool:
    """Returns whether the cells of TSV are quoted as in CSV."""
    cells, rest = QUOTED_CELL.findall(text), QUOTED_CELL.sub("", text)
    is_doubled = any('""' in cell[1:-1] for cell in cells)
    return bool(cells) and '"' not in rest and (is_doubled or "," not in rest)


def count_fitting(lines: Iterable[str], quote: str, separator: str) -> int:
    """Counts records with as many columns as the first record and without unpaired quotes."""
    records = itertools.islice(_csv_records(lines, separator, quote), SAMPLE_RECORDS)
    rows = ([] if isinstance(cells, csv.Error) else cells for _, cells in records)
    widths = [0 if any(cell.count(quote) % 2 for cell in row) else len(row) for row in rows]
    return widths.count(widths[0]) if widths and widths[0] > 1 else 0


def _csv_records(lines: Iterable[str], separator: str, quote: str) -> Records:
    """Yields each record, or an error if it is not valid CSV."""
    lines = (f"{line}\n" for line in lines)
    reader = csv.reader(lines, strict=True, delimiter=separator, quotechar=quote)
    while True:
        number = reader.line_num + 1
        try:
            if cells := next(reader):
                yield number, cells
        except StopIteration:
            return
        except csv.Error as error:
            yield number, error


# -- JSON


def read_jsonl(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a JSON lines file; blank lines are skipped.

    A field is an object key, a dotted path to a nested value (`translation.en`, `targets.0`), or a
    zero-based element index if rows are lists.
    """
    records = _json_records(path)
    head = [*itertools.islice(records, 1)]
    names = [name for _, row in head if not isinstance(row, BrokenError) for name in names_of(row)]
    rows = ((number, fields.values(row)) for number, row in itertools.chain(head, records))
    return RowTable(f"its fields are {listed(map(repr, names))}", names, rows)


def _json_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields the number and value of each line, or of each element if the file is one list."""
    lines = ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())
    for number, line in lines:
        is_whole = number == 1 and WHOLE.match(line)
        text = "\n".join([line, *(line for _, line in lines)]) if is_whole else line
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield number, BrokenError(f"no JSON ({error})")
            continue
        for place, row in enumerate(value, 1) if is_whole else [(number, value)]:
            why = f"not a JSON object but {type(row).__name__}"
            yield place, row if isinstance(row, dict | list) else BrokenError(why)
