"""The formats of documents, keyed by file suffix."""

from collections.abc import Callable
from pathlib import Path

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
PARAGRAPHS = (".html", ".htm", ".xhtml", ".md", ".docx", ".odt")  # have no rows, see `Document`
COLUMNS = (".csv", ".tsv")  # need the name of a column
FORMATS: dict[str, Callable[..., Document]] = {
    ".srt": read_srt,
    ".vtt": read_vtt,
    **dict.fromkeys((".po", ".pot"), read_po),
    **dict.fromkeys((".xliff", ".xlf"), read_xliff),
    ".tmx": read_tmx,
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".md": read_md,
    ".docx": read_docx,
    ".odt": read_odt,
    ".xlsx": read_xlsx,
    ".json": read_json,
    ".properties": read_properties,
    **dict.fromkeys(COLUMNS, read_csv),
}


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
    if suffix in COLUMNS and column is None:
        raise UserError(f"{name} is a table: name its column of texts, or its number from 0")
    more = (column,) if suffix in COLUMNS else languages if suffix == ".tmx" else ()
    document = FORMATS[suffix](data, name, *more)
    document.has_rows = suffix not in PARAGRAPHS
    return document
