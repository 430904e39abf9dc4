r"""Rows in lines of text: TSV with verbatim cells between tabs, CSV, and JSON.

Spreadsheets and pandas also quote the cells of TSV; such a file is recognised by its content.
pyarrow's readers are not suitable. Its CSV reader ends rows at a lone '\r', accepts text after a
closing quote, and does not report the line of a broken row; its JSON reader rejects mixed types in
a field, such as labels `0` and `"pos"`, and rejects a whole block if one line is broken.
"""

import csv
import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed, missing
from transformer.data.files.text import plain_name, read_lines
from transformer.errors import UserError, shorten

# Possible headers of the column of labels, and words in the headers of other columns.
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "topic", "intent")
HEADER_WORDS = """source src target tgt trg sentence sentences text texts translation reference
language greek""".split()  # noqa: SIM905
REGION = re.compile(r"[-_][A-Z][A-Za-z]{1,3}$")  # region or script, as in pt_BR and zh-Hant
SEPARATORS = ",;\t|"  # column separators of CSV, the most common first
SAMPLE_RECORDS = 100  # number of records used to guess the separator
csv.field_size_limit(2**24)  # maximum characters of a cell, which may be a book
QUOTED_CELL = re.compile(r'(?m)(?:^|\t)("(?:[^"]|"")*")(?=\t|$)')  # in TSV
QUOTES_SHOWN = 100_000  # number of TSV lines used to look for quoted cells
MANY, FEW = 10, 0.01  # minimum number of quoted cells; maximum fraction of stray quotes
WHOLE = re.compile(r"\s*\[\s*($|[\[{])")  # start of a JSON list of rows; a row holds no lists
Records = Iterator[tuple[int, list[str] | csv.Error]]  # with the number of their first line


def read_delimited(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a CSV file, or of a TSV file if the name does not end in `.csv`.

    A quoted cell may hold line breaks. A row of CSV, or of quoted TSV, is broken if its number of
    columns differs from the first row: an unquoted cell may contain a separator.
    """
    separator, quote = _guess_dialect(path, *fields[-2:], path.stat().st_mtime_ns)
    lines = enumerate(read_lines(path), 1)
    plain = ((n, line.split("\t")) for n, line in lines if line.strip() or not fields.exact)
    records = _csv_records(path, separator, quote) if separator else plain
    number, cells = next(records, (0, []))
    if not number:
        return RowTable("it has no lines", [], iter(()))
    if isinstance(cells, csv.Error):
        raise UserError(f"{path}, line {number}: not CSV ({cells}): fix the line")
    names, places = [cell.strip() for cell in cells], fields.numbers
    is_header = places is None or _is_header(names, fields, places)
    if places is None:
        for key, name in zip(fields.keys, fields.names, strict=True):
            if name not in names:
                raise UserError(
                    f"{path}, line {number} has {missing(name, names)}: set config.data.{key} to "
                    f"the name of one; or, of a file without a header line, {fields} to numbers of "
                    "columns, from 0"
                )
        places = tuple(map(names.index, fields.names))
    item = "pair" if "source_field" in fields.keys else "text"
    read = "a header that is not read as text" if is_header else f"read as a {item}"
    about = f"its first line, {read}, has the columns {listed(map(repr, cells))}"
    about += "; its cells are quoted as in CSV" * (separator != "" and not _is_csv(path))
    if not is_header:
        records = itertools.chain([(number, cells)], records)
        names = [*map(str, range(len(cells)))]
    width = len(cells) if separator or fields.exact else 0
    uneven = f"where the first line has {width}"
    uneven += " (a cell that has a separator needs quotes: see data.quote)" * (separator != "")
    return RowTable(about, names, _rows(records, fields, places, width, uneven))


def _rows(records: Records, fields: Fields, places: Sequence[int], width: int, uneven: str) -> Rows:
    """Yields the fields of each record; a record of another width, unless it is 0, is broken."""
    last = max(places)
    for number, cells in records:
        if isinstance(cells, csv.Error):
            yield number, BrokenError(f"not CSV ({cells})")
        elif width and len(cells) != width:
            yield number, BrokenError(f"{len(cells)} column(s), {uneven}")
        elif last >= len(cells):
            key, name = fields.keys[places.index(last)], fields.names[places.index(last)]
            why = f"data.{key}={shorten(name)!r} is column {last}, counted from 0"
            yield number, BrokenError(f"{len(cells)} column(s), and {why}")
        else:
            yield number, tuple([cells[place] for place in places])  # the fast path


def _is_header(first: list[str], fields: Fields, places: Sequence[int]) -> bool:
    """Returns whether the cells of the fields, or only of the label, are column names."""
    cells = [first[place] if place < len(first) else "" for place in places]
    if "label_field" in fields.keys:
        return cells[fields.keys.index("label_field")].lower() in LABELS
    if len({*cells}) < len(cells):  # two columns of one language, or a copied text
        cells = first if len({*first}) > 1 else []
    names = [*filter(None, cells)]  # pandas leaves the header of its index empty
    return bool(names) and all(map(_names_column, names))


def _names_column(cell: str) -> bool:
    """Returns whether a cell has only `HEADER_WORDS` and language names or codes (ISO 639)."""
    from iso639 import is_language  # takes a tenth of a second

    words = re.findall(r"[^\W\d_]+", REGION.sub("", cell))
    forms = ((word.lower() if word.isupper() else word, word.title()) for word in words)
    are_names = all(b.lower() in HEADER_WORDS or is_language(a) or is_language(b) for a, b in forms)
    return bool(words) and are_names and cell[-1] not in ".!?。"


def _is_csv(path: Path) -> bool:
    return plain_name(path.name).endswith(".csv")


@functools.lru_cache
def _guess_dialect(path: Path, separator: str, quote: str, _: int) -> tuple[str, str]:
    """Returns the separator and the quote character of a file; '' for both if it is plain TSV.

    For CSV, unless the separator is given, it is the one that gives most of the first records equal
    numbers of columns, or else a comma. Spreadsheets write semicolons if the comma is a decimal
    point. TSV is quoted if quotes enclose cells and are doubled, or enclose all commas.
    """
    if _is_csv(path) or separator:
        quote = quote or '"'
        fits = functools.partial(_count_fitting, path, quote)
        return max(separator or SEPARATORS, key=fits), quote
    text = "\n".join(itertools.islice(read_lines(path), QUOTES_SHOWN))
    cells, rest = QUOTED_CELL.findall(text), QUOTED_CELL.sub("", text)
    doubled = sum('""' in cell[1:-1] for cell in cells)
    commas = not {'"', ","} & {*rest} and len(cells) >= MANY
    return ("\t", '"') if commas or 0 < doubled >= rest.count('"') / FEW else ("", "")


def _count_fitting(path: Path, quote: str, separator: str) -> int:
    """Returns the number of first records as wide as the first one, without unpaired quotes."""
    records = itertools.islice(_csv_records(path, separator, quote), SAMPLE_RECORDS)
    rows = ([] if isinstance(cells, csv.Error) else cells for _, cells in records)
    widths = [0 if any(cell.count(quote) % 2 for cell in row) else len(row) for row in rows]
    return widths.count(widths[0]) if widths and widths[0] > 1 else 0


def _csv_records(path: Path, separator: str, quote: str) -> Records:
    """Yields each record; for one that is not valid CSV, the error for each of its lines."""
    lines = (f"{line}\n" for line in read_lines(path))
    reader = csv.reader(lines, strict=True, delimiter=separator, quotechar=quote)
    while True:
        number = reader.line_num + 1
        try:
            if cells := next(reader):
                yield number, cells
        except StopIteration:
            return
        except csv.Error as error:
            yield from ((line, error) for line in range(number, reader.line_num + 1))


# -- JSON


def read_jsonl(path: Path, fields: Fields) -> RowTable:
    """Returns the rows of a file of JSON lines. Blank lines are not rows.

    A field is a key of an object, a key or index inside it after a dot (`translation.en`,
    `targets.0`), or the number of an element of a list, from zero.
    """
    records = _json_records(path)
    first = next(records, (0, BrokenError()))
    names = [] if isinstance(first[1], BrokenError) else [*first[1]]
    records = itertools.chain([first] * (first[0] > 0), records)
    rows = ((number, fields.values(record)) for number, record in records)
    return RowTable(f"its fields are {listed(map(repr, names))}", names, rows)


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, Any] | BrokenError]]:
    """Yields the number and the fields of each line, or of each element if the file is a list."""
    lines = ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())
    for number, line in lines:
        is_whole = number == 1 and WHOLE.match(line)
        try:
            value = json.loads(
                "\n".join([line, *(line for _, line in lines)]) if is_whole else line
            )
        except (ValueError, RecursionError) as error:
            yield number, BrokenError(f"no JSON ({error})")
        else:
            yield from (enumerate(map(_cells, value), 1) if is_whole else [(number, _cells(value))])


def _cells(value: Any) -> dict[str, Any] | BrokenError:
    """Returns the fields of an object or a list; a dot precedes the keys of nested ones."""
    if isinstance(value, list):
        return dict(zip(map(str, itertools.count()), value, strict=False))
    if not isinstance(value, dict):
        return BrokenError(f"not a JSON object but {type(value).__name__}")
    fields = {}
    for name, inner in value.items():
        inside = inner.items() if isinstance(inner, dict) else ()
        if isinstance(inner, list) and isinstance(next(iter(inner), None), str):
            fields[name], inside = inner, enumerate(inner)
        fields |= {f"{name}.{key}": each for key, each in inside} or {name: inner}
    return fields
