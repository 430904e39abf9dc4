"""Translation memories (TMX), streamed as segments in two languages.

Only the file itself is read, and only the five predefined XML entities are expanded, since a file
may come from an untrusted source.

Source: TMX 1.4b Specification, https://www.gala-global.org/tmx-14b
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import open_unpacked, plain_name
from transformer.errors import UserError, one_line

T = TypeVar("T")
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Matches the text of a segment, without inline elements that contain formatting codes.
TEXT = ".//text()[not(ancestor::*[contains(' bpt ept it ph ut ', concat(' ', local-name(), ' '))])]"


def memories(path: Path) -> list[Path]:
    """Returns the TMX files of a folder."""
    names = sorted(os.listdir(path)) if path.is_dir() else ()
    return [path / name for name in names if plain_name(name).endswith(".tmx")]


def read_tmx(path: Path, fields: Fields) -> RowTable:
    """Returns the segments of each translation unit in the languages given by `fields`.

    The language `en` also matches a segment in `en-US` if no segment is in `en`. Case is ignored.
    """
    files = memories(path) or [path]
    _, first = next(_translation_units(files[0]), (0, {}))
    names = [] if isinstance(first, BrokenError) else [*first]
    about = f"its languages are {listed(map(repr, names))}; TMX files: {len(files)}"
    return RowTable(about, names, _translation_rows(files, fields))


def _translation_rows(files: list[Path], fields: Fields) -> Rows:
    tags = fields._replace(names=tuple(map(plain_tag, fields.names)))
    for file in files:
        where = f" in {file.name}" * (len(files) > 1)
        for line, unit in _translation_units(file):
            yield f"{line}{where}", tags.values(unit)


def plain_tag(language: str) -> str:
    """Returns a language tag as it is compared."""
    return language.lower().replace("_", "-")


def with_languages(segments: dict[str, T]) -> dict[str, T]:
    """Returns the segments of a unit by tag, where `en` has the one of `en-us` if it has none."""
    regional: dict[str, T] = {}
    for tag, segment in segments.items():
        regional.setdefault(tag.partition("-")[0], segment)
    return regional | segments


def _translation_units(path: Path) -> Iterator[tuple[int, dict[str, str] | BrokenError]]:
    """Yields the line number of each translation unit, and its segments, keyed by language."""
    from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

    text_of = etree.XPath(TEXT)
    with open_unpacked(path) as stream:
        units = etree.iterparse(stream, tag="{*}tu", resolve_entities=False)
        try:
            for _, unit in units:
                segments: dict[str, str] = {}
                for segment in unit.iterfind("{*}tuv/{*}seg"):
                    tuv = segment.getparent()
                    tag = plain_tag(tuv.get(LANGUAGE) or tuv.get("lang", ""))
                    text = "".join(text_of(segment)) if len(segment) else segment.text or ""
                    segments.setdefault(tag, text)
                entity = next(unit.iter(etree.Entity), None)
                broken = BrokenError(f"the entity {getattr(entity, 'text', '')} is not expanded")
                yield unit.sourceline, with_languages(segments) if entity is None else broken
                unit.clear()
                while unit.getprevious() is not None and unit.getparent() is not None:
                    del unit.getparent()[0]  # frees units that have been read
        except etree.XMLSyntaxError as error:
            fix = "fix the file or its encoding, or copy or download it again"
            raise UserError(f"{path}: broken XML ({one_line(str(error))}): {fix}") from None
