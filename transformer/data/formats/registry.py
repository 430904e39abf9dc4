"""The formats of documents, keyed by file suffix."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from transformer.data.formats.bilingual import read_tmx, read_xliff
from transformer.data.formats.catalogues import read_json, read_po, read_properties
from transformer.data.formats.columns import read_csv
from transformer.data.formats.document import Document
from transformer.data.formats.markdown import read_md
from transformer.data.formats.markup import read_html
from transformer.data.formats.office import read_docx, read_odt, read_xlsx
from transformer.data.formats.subtitles import read_srt, read_vtt
from transformer.errors import UserError

MAX_BYTES = 100 * 2**20  # of a document, which is read into memory


class Format(NamedTuple):
    """A format: its reader, which takes bytes and the name of the file, and what it needs more."""

    read: Callable[..., Document]
    has_rows: bool = False  # see `Document`
    has_columns: bool = False  # whether a column must be named
    has_languages: bool = False  # whether texts are in several languages


FORMATS = {
    ".srt": Format(read_srt),
    ".vtt": Format(read_vtt),
    ".po": Format(read_po, has_rows=True),
    ".pot": Format(read_po, has_rows=True),
    ".xliff": Format(read_xliff, has_rows=True),
    ".xlf": Format(read_xliff, has_rows=True),
    ".tmx": Format(read_tmx, has_rows=True, has_languages=True),
    ".html": Format(read_html),
    ".htm": Format(read_html),
    ".xhtml": Format(read_html),
    ".md": Format(read_md),
    ".docx": Format(read_docx),
    ".odt": Format(read_odt),
    ".xlsx": Format(read_xlsx, has_rows=True),
    ".json": Format(read_json, has_rows=True),
    ".properties": Format(read_properties, has_rows=True),
    ".csv": Format(read_csv, has_rows=True, has_columns=True),
    ".tsv": Format(read_csv, has_rows=True, has_columns=True),
}


def open_document(
    path: Path, column: str | None = None, languages: tuple[str, str] = ("", "")
) -> Document:
    """Returns the document in a file; see `read_document`."""
    return read_document(path.read_bytes(), str(path), column, languages)


def read_document(
    data: bytes, name: str, column: str | None = None, languages: tuple[str, str] = ("", "")
) -> Document:
    """Returns a document, whose format is that of the suffix of its name.

    Args:
      column: the name or the zero-based number of the column of a table that has the texts.
      languages: the languages of the texts and of the translations, for a file of several.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UserError(f"{name} is not a document: its name must end in {', '.join(FORMATS)}")
    if len(data) > MAX_BYTES:
        raise UserError(f"{name} has more than {MAX_BYTES:,} bytes: divide it")
    kind = FORMATS[suffix]
    if kind.has_columns and column is None:
        raise UserError(f"{name} is a table: name its column of texts, or its number from 0")
    more = (column,) * kind.has_columns + languages * kind.has_languages
    document = kind.read(data, name, *more)
    document.has_rows = kind.has_rows
    return document
