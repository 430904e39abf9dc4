"""Documents: the texts in a file, and the file with other texts in their places.

A format is a function that finds the units of a document. Everything that is not the text of a unit
keeps its bytes, so a format never writes a file; it only says where each text stands.
"""

import abc
import bisect
import codecs
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from transformer.data.formats.tags import CLOSE, OPEN, Pieces, plain_text
from transformer.errors import UserError, shorten

BOMS = {  # byte order marks; UTF-32 first, whose mark begins like the one of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
Texts = Sequence[Pieces | None]  # the new pieces of each unit, or None to keep the present ones


class Unit(NamedTuple):
    """A text that is translated as a whole, such as a paragraph, a message or a subtitle.

    Attributes:
      pieces: the text, without escapes, and its inline tags.
      places: (start, end) offsets in characters. The translation replaces the first place, and the
        others become empty: Word, for example, divides a text into runs of the same format.
      current: the pieces that the places have now, or None if they have none. For a document in one
        language, they equal `pieces`.
      before: characters to insert before the translation, such as a tag that is missing.
      after: characters to insert after the translation.
      write: writes a text as characters of this place, or None for the document's function. Its
        further arguments are the pieces around the text, or ''.
      target: the translation that the document has, or '' if it has none.
      key: what identifies the unit in the same document of another language, or ''.
      times: the start and the end of a subtitle in seconds, or None.
      is_fuzzy: whether the translation that the document has must be checked by a person.
    """

    pieces: Pieces
    places: tuple[tuple[int, int], ...]
    current: Pieces | None = None
    before: str = ""
    after: str = ""
    write: Callable[..., str] | None = None
    target: str = ""
    key: str = ""
    times: tuple[float, float] | None = None
    is_fuzzy: bool = False

    @property
    def source(self) -> str:
        """The text to translate, without inline tags."""
        return plain_text(self.pieces)


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
        """Returns the file with new pieces of all units, in their order.

        Pieces that equal the current ones keep their bytes.
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
        changes: list[tuple[int, int, list[str | tuple[int, int]]]] = []
        for unit, pieces in zip(self.units, texts, strict=True):
            if pieces is not None and (unit.current is None or [*pieces] != [*unit.current]):
                (start, end), *others = unit.places
                changes.append(
                    (start, end, [unit.before, *self._written(unit, pieces), unit.after])
                )
                changes += [(*place, []) for place in others]
        changes.sort(key=lambda change: (change[0], change[0] < change[1], -change[1]))

        def copy(start: int, end: int) -> Iterator[str]:
            """Yields a part of the text, with the changes in it: a tag may contain a footnote."""
            for number in range(bisect.bisect_left(changes, (start,)), len(changes)):
                first, last, parts = changes[number]
                if first >= end and start < end:
                    break
                if start <= first and last <= end:
                    yield self.text[start:first]
                    for part in parts:
                        yield from [part] if isinstance(part, str) else copy(*part)
                    start = last
            yield self.text[start:end]

        text = "".join(copy(0, len(self.text)))
        try:
            return self.mark + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            lacking = text[error.start]
            raise UserError(
                f"the encoding {self.encoding} of the document has no {lacking!r}, which a "
                "translation has: convert the document to UTF-8 first"
            ) from None

    def _written(self, unit: Unit, pieces: Pieces) -> Iterator[str | tuple[int, int]]:
        """Yields the characters of texts, and the places of tags with what is around them."""
        writers = [unit.write or (lambda text, *_: self.escape(text))]
        for before, piece, after in zip(["", *pieces], pieces, [*pieces[1:], ""], strict=False):
            if isinstance(piece, str):
                yield writers[-1](piece, before, after)
                continue
            yield from (piece.before, piece.place, piece.after)
            if piece.kind == OPEN:
                writers.append(piece.write or writers[-1])
            elif piece.kind == CLOSE:
                writers = writers[:-1] or writers


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
