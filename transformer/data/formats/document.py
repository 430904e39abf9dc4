"""Documents: the texts in a file, and the file with other texts in their places.

A format is a function that finds the units of a document. Everything that is not the text of a unit
keeps its bytes, so a format never writes a file; it only says where each text stands.
"""

import abc
import codecs
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer.errors import UserError, shorten

BOMS = {  # byte order marks; UTF-32 first, whose mark begins like the one of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
Texts = Sequence[str | None]  # the new text of each segment, or None to keep the present one


class Segment(NamedTuple):
    """A text between two inline codes, such as tags, and where its translation is written.

    Attributes:
      text: the text to translate, without escapes.
      places: (start, end) offsets in characters. The translation replaces the first place, and the
        others become empty: Word, for example, divides a text into runs of the same format.
      current: the text that the places have now, or None if they have none. For a document in one
        language, it equals `text`.
      before: characters to insert before the translation, such as a tag that is missing.
      after: characters to insert after the translation.
      gap: the white space between the text and the one of the previous segment, or ''.
      escape: writes a text as characters of this place, or None for the document's function.
    """

    text: str
    places: tuple[tuple[int, int], ...]
    current: str | None = None
    before: str = ""
    after: str = ""
    gap: str = ""
    escape: Callable[[str], str] | None = None


class Unit(NamedTuple):
    """A text that is translated as a whole, such as a paragraph, a message or a subtitle.

    Attributes:
      segments: the parts between inline codes, which stay in their places.
      target: the translation that the document has, or '' if it has none.
      key: what identifies the unit in the same document of another language, or ''.
      times: the start and the end of a subtitle in seconds, or None.
      is_fuzzy: whether the translation that the document has must be checked by a person.
    """

    segments: Sequence[Segment]
    target: str = ""
    key: str = ""
    times: tuple[float, float] | None = None
    is_fuzzy: bool = False

    @property
    def source(self) -> str:
        """The text to translate, without inline codes."""
        return "".join(segment.gap + segment.text for segment in self.segments)


class Document(abc.ABC):
    """The units of a file.

    Attributes:
      has_rows: whether a line break in a text is a part of it, as in messages of programs. In a
        paragraph, it is white space.
    """

    units: Sequence[Unit]
    has_rows = False

    @abc.abstractmethod
    def write(self, texts: Texts) -> bytes:
        """Returns the file with new texts of all segments, in the order of the units.

        A text that equals the current one keeps its bytes.
        """


@dataclasses.dataclass
class TextDocument(Document):
    """A document that is one text.

    Attributes:
      text: the content, with line ends as in the file.
      escape: writes a text as characters of the format.
      encoding: the encoding of the file; `mark` is its byte order mark.
      errors: how to write a character that the encoding lacks, as in `str.encode`.
    """

    text: str
    units: Sequence[Unit]
    escape: Callable[[str], str]
    encoding: str = "utf-8"
    mark: bytes = b""
    errors: str = "strict"

    def write(self, texts: Texts) -> bytes:
        changes: list[tuple[int, int, str]] = []
        segments = (segment for unit in self.units for segment in unit.segments)
        for segment, new in zip(segments, texts, strict=True):
            if new is not None and new != segment.current:
                (start, end), *others = segment.places
                raw = (segment.escape or self.escape)(new)
                changes.append((start, end, segment.before + raw + segment.after))
                changes += [(*place, "") for place in others]
        pieces, last = [], 0
        for start, end, new in sorted(changes, key=lambda change: change[:2]):
            pieces += self.text[last:start], new
            last = end
        text = "".join(pieces) + self.text[last:]
        try:
            return self.mark + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            lacking = text[error.start]
            raise UserError(
                f"the encoding {self.encoding} of the document has no {lacking!r}, which a "
                "translation has: convert the document to UTF-8 first"
            ) from None


def decode(data: bytes, name: str, declared: str = "") -> tuple[str, str, bytes]:
    """Returns a document's text, its encoding and its byte order mark.

    Args:
      declared: a regular expression whose group matches the name of the encoding in the first
        bytes; without a match, a text without a byte order mark is UTF-8.
    """
    mark = next((mark for mark in BOMS if data.startswith(mark)), b"")
    match = re.search(declared.encode(), data[:4096]) if declared and not mark else None
    encoding = BOMS.get(mark) or (match[1].decode("ascii", "replace") if match else "utf-8")
    try:
        return data[len(mark) :].decode(encoding), encoding, mark
    except LookupError:
        raise UserError(f"{name} has the unknown encoding {encoding!r}: correct its name") from None
    except UnicodeDecodeError as error:
        byte = f"byte {error.start:,} is 0x{data[len(mark) + error.start]:02X}"
        fix = "convert the file, for example with `iconv -f WINDOWS-1252 -t UTF-8`"
        raise UserError(f"{name} is not {encoding.upper()} ({byte}): {fix}") from None


def by_key(first: Document, second: Document) -> list[tuple[Unit, Unit]]:
    """Returns pairs of units with the same key, for example of JSON files in two languages."""
    partners = {unit.key: unit for unit in second.units if unit.key}
    return [(unit, partners[unit.key]) for unit in first.units if unit.key in partners]


def damaged(name: str, text: str, position: int, why: str) -> UserError:
    """Returns the error for a malformed line; `position` is an offset in it."""
    start, number = text.rfind("\n", 0, position) + 1, text.count("\n", 0, position) + 1
    line = shorten(text[start:].partition("\n")[0].strip(), 60)
    return UserError(f"{name}, line {number}: {line!r} {why}: fix the line")
