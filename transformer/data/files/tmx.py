"""Translation memories (TMX): the segments of two languages, streamed.

Nothing but the file is ever read, and no entity is expanded but the five of XML: a file may be a
stranger's.

Source: TMX 1.4b Specification, https://www.gala-global.org/tmx-14b
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from transformer.data.files.compression import open_unpacked, plain_name
from transformer.data.files.rows import Broken, Fields, Row, listed
from transformer.errors import UserError

BLOCK = 2**16  # bytes
MAX_UNIT = 2**20  # characters of a unit: a bound of the memory
# Elements inside a segment whose content is code of a document, not text.
CODE = ("bpt", "ept", "it", "ph", "ut")


def memories(path: Path) -> list[Path]:
    """Returns the TMX files of a folder, or all files of a list of names."""
    files = [Path(name) for name in split_list(str(path))]
    if path.is_dir():
        names = sorted(os.listdir(path))
        files = [path / name for name in names if plain_name(name).endswith(".tmx")]
    return files if all(file.is_file() for file in files) else []


def split_list(names: str) -> list[str]:
    """Returns the names of a list, `tms/a.tmx,b.tmx`: one without a folder is in the first's."""
    parts = names.split(",")
    return [p if "/" in p else os.path.join(os.path.dirname(parts[0]), p) for p in parts]


def read_tmx(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the segments of each translation unit in the languages that the fields name.

    They are those of one file after another, if the path stands for several, see `memories`.

    A language `en` is also a segment's `en-US`, if it has no `en`; letters' case does not count.

    Raises:
      UserError: the file cannot be read, its XML is broken, or it declares entities.
    """
    languages = [name.lower().replace("_", "-") for name in fields.names]
    files = memories(path) or [path]
    units = (
        (f"in {file.parent.name}/{file.name}: ", unit) for file in files for unit in _units(file)
    )
    for where, (line, segments, lost) in units:
        texts = tuple(_find(segments, language) for language in languages)
        where *= len(files) > 1
        if lost:
            yield Broken(line, f"{where}the entity &{lost}; is not declared in the file")
        elif None in texts:
            why = fields.missing(fields.names[texts.index(None)], dict(segments))
            yield Broken(line, where + why)
        else:
            yield Row(line, texts)


def describe_tmx(path: Path, _: Fields) -> tuple[str, list[str]]:
    """Returns a phrase on the languages of the first unit and on several files, for messages."""
    files = memories(path) or [path]
    skipped = {*os.listdir(path)} - {file.name for file in files} if path.is_dir() else ()
    count = "" if path.is_file() else f"; it has {len(files)} TMX file(s)"
    count += f", and {listed(sorted(skipped))} is skipped" if skipped else ""
    for _line, segments, _lost in _units(files[0]):
        return f"its languages are {listed(map(repr, dict(segments)))}{count}", []
    return "it has no units", []


def _find(segments: list[tuple[str, str]], language: str) -> str | None:
    """Returns the segment of a language: an exact match, or else the first of a region of it."""
    tags = [(tag.lower().replace("_", "-"), text) for tag, text in segments]
    for tag, text in tags:
        if tag == language:
            return text
    return next((text for tag, text in tags if tag.startswith(f"{language}-")), None)


def _units(path: Path) -> Iterator[tuple[int, list[tuple[str, str]], str]]:
    """Yields the line of each unit, its (language, segment) pairs, and an entity that is lost."""
    parser, size = _Parser(path), 0
    with open_unpacked(path) as stream:
        try:
            while block := stream.read(BLOCK):
                parser.expat.Parse(block, False)
                yield from parser.take()
                size += len(block)
                parser.check(size - parser.expat.CurrentByteIndex)
            parser.expat.Parse(b"", True)
        except expat.ExpatError as error:
            raise UserError(
                f"{path}, line {error.lineno}: broken XML ({expat.ErrorString(error.code)}): fix "
                "the file, or copy or download it again"
            ) from None
        except (LookupError, ValueError) as error:  # of the encoding that its first line declares
            raise UserError(
                f"{path}: its encoding cannot be read ({error}): convert the file to UTF-8 and "
                'declare that: encoding="UTF-8"'
            ) from None
    yield from parser.take()


class _Parser:
    """Collects translation units from the events of expat."""

    def __init__(self, path: Path):
        self._path = path
        self._units: list[tuple[int, list[tuple[str, str]], str]] = []
        self._line, self._language, self._lost = 0, "", ""
        self._segments: list[tuple[str, str]] = []
        self._parts: list[str] | None = None  # of the segment that is open
        self._code = 0  # elements of code that are open
        self._size = 0  # characters of the unit
        self.expat = expat.ParserCreate()
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self._text
        self.expat.EntityDeclHandler = self._refuse_entity
        self.expat.SkippedEntityHandler = self._skip_entity

    def take(self) -> list[tuple[int, list[tuple[str, str]], str]]:
        """Returns the units that have ended since the last call."""
        units, self._units = self._units, []
        return units

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._line, self._segments = self.expat.CurrentLineNumber, []
            self._size, self._lost = 0, ""
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang", "")
        elif name == "seg":
            self._parts, self._code = [], 0
        elif self._parts is not None and (name in CODE or self._code):
            self._code += 1

    def _end(self, name: str) -> None:
        if name == "seg" and self._parts is not None:
            self._segments.append((self._language, "".join(self._parts)))
            self._parts = None
            self._grow(1)
        elif name == "tu":
            self._units.append((self._line, self._segments, self._lost))
            self._segments = []
        elif self._code:
            self._code -= 1

    def _text(self, text: str) -> None:
        if self._parts is not None and not self._code:
            self._parts.append(text)
            self._grow(len(text))

    def _grow(self, characters: int) -> None:
        self._size += characters
        self.check(self._size)

    def check(self, size: int) -> None:
        """Raises UserError if a unit, or a tag that has not ended, is too large.

        Expat reads such a tag from its start with every block.
        """
        if size > MAX_UNIT:
            raise UserError(
                f"{self._path}, line {self._line or 1}: a unit or a tag of more than {MAX_UNIT:,} "
                "characters is no translation of sentences: fix the file"
            )

    def _refuse_entity(self, name: str, *declaration: Any) -> None:
        raise UserError(
            f"{self._path}, line {self.expat.CurrentLineNumber}: the entity {name!a} is declared, "
            "which may read other files or fill the memory: write out what it stands for"
        )

    def _skip_entity(self, name: str, is_parameter: int) -> None:
        if not is_parameter:
            self._lost = name
