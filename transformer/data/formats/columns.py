"""A column of a CSV or TSV file as a document."""

import functools
import re

from transformer.data.files.delimited import SEPARATORS, count_fitting, has_quoted_cells
from transformer.data.files.rows import missing
from transformer.data.files.text import plain_name
from transformer.data.formats.document import TextDocument, Unit, damaged, decode
from transformer.errors import UserError


def read_csv(data: bytes, name: str, column: str) -> TextDocument:
    """Returns the cells of a column of CSV, if `name` ends in .csv, or else TSV as units.

    A column is a name in the first line, or a zero-based number if the first line is text, too.
    """
    text, encoding, mark = decode(data, name)
    is_csv = plain_name(name).endswith(".csv")
    fits = functools.partial(count_fitting, text.split("\n"), '"')
    separator = max(SEPARATORS, key=fits) if is_csv else "\t"
    quote = '"' if is_csv or has_quoted_cells(text) else r"(?!)"
    pattern = rf"(?:{quote}(?P<quoted>(?:[^\"]++|\"\")*+)\"|(?P<plain>[^{separator}\n]*?))"
    rows: list[list[Unit]] = [[]]
    for cell in re.finditer(rf"{pattern}(?P<end>[{separator}]|\r?\n|\Z)", text):
        value = cell["plain"] or (cell["quoted"] or "").replace('""', '"')
        if (cell["plain"] or "").startswith(quote):
            raise damaged(name, text, cell.start(), "has text outside the quotes of a cell")
        rows[-1].append(Unit([value], ((cell.start(), cell.start("end")),), [value]))
        rows += [[]] if cell["end"] != separator else []
    names = [cell.source.strip() for cell in rows[0]]
    place = int(column) if (is_number := column.isdecimal()) else [*names, column].index(column)
    if place >= len(names):
        raise UserError(f"{name} has {missing(column, names)}: choose one, or a number from 0")
    rows = [row for row in rows[not is_number :] if place < len(row) and row[place].source.strip()]

    def escape(new: str) -> str:
        if quote != '"':  # cells without quotes have one line
            return re.sub(r"[\t\r\n]+", " ", new)
        needs_quotes = re.search(f'["\r\n{separator}]', new)
        return '"{}"'.format(new.replace('"', '""')) if needs_quotes else new

    return TextDocument(text, [row[place] for row in rows], escape, encoding, mark)
