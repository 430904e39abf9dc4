"""Translation memories (TMX): the segments of two languages, streamed.

Only the file itself is read, and no entities are expanded except the five of XML, since a file may
come from an untrusted source.

Source: TMX 1.4b Specification, https://www.gala-global.org/tmx-14b
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from transformer.data.files.rows import BrokenError, Fields, Rows, RowTable, listed
from transformer.data.files.text import open_unpacked, plain_name
from transformer.errors import UserError

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Matches the text of a segment, without inline elements that hold document codes.
TEXT = ".//text()[not(ancestor::*[contains(' bpt ept it ph ut ', concat(' ', local-name(), ' '))])]"


def memories(path: Path) -> list[Path]:
    """Returns the TMX files of a folder."""
    names = sorted(os.listdir(path)) if path.is_dir() else ()
    return [path / name for name in names if plain_name(name).endswith(".tmx")]


def read_tmx(path: Path, fields: Fields) -> RowTable:
    """Returns the segments of each translation unit in the languages that the fields name.

    The language `en` also matches a segment in `en-US`, if there is none in `en`; case is ignored.
    """
    files = memories(path) or [path]
    _, first = next(_translation_units(files[0]), (0, {}))
    names = [] if isinstance(first, BrokenError) else [*first]
    about = f"its languages are {listed(map(repr, names))}; TMX files: {len(files)}"
    return RowTable(about, names, _translation_rows(files, fields))


def _translation_rows(files: list[Path], fields: Fields) -> Rows:
    for file in files:
        where = f" in {file.name}" * (len(files) > 1)
        for line, unit in _translation_units(file):
            tags = () if isinstance(unit, BrokenError) else tuple(unit)
            tagged = fields._replace(names=tuple(_find_tag(name, tags) for name in fields.names))
            yield f"{line}{where}", tagged.values(unit)


@functools.lru_cache
def _find_tag(language: str, tags: tuple[str, ...]) -> str:
    """Returns the tag that matches a language: an equal one, or else the first regional variant."""
    wanted = _plain_tag(language)
    near = [tag for tag in tags if _plain_tag(tag).startswith(wanted)]
    return min(near, key=lambda tag: _plain_tag(tag) != wanted, default=language)


def _plain_tag(language: str) -> str:
    return f"{language}-".lower().replace("_", "-")


def _translation_units(path: Path) -> Iterator[tuple[int, dict[str, str] | BrokenError]]:
    """Yields the line of each translation unit, and its segments by language."""
    from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

    text_of = etree.XPath(TEXT)
    with open_unpacked(path) as stream:
        units = etree.iterparse(stream, tag="{*}tu", resolve_entities=False)
        try:
            for _, unit in units:
                segments: dict[str, str] | BrokenError = {}
                for tuv in unit.iterchildren("{*}tuv"):
                    for segment in tuv.iterchildren("{*}seg"):
                        language = tuv.get(LANGUAGE) or tuv.get("lang", "")
                        text = "".join(text_of(segment)) if len(segment) else segment.text or ""
                        segments.setdefault(language, text)
                for entity in unit.iter(etree.Entity):
                    segments = BrokenError(f"the entity {entity.text} is not expanded")
                yield unit.sourceline, segments
                unit.clear()
                while unit.getprevious() is not None and unit.getparent() is not None:
                    del unit.getparent()[0]  # frees units that have been read
        except etree.XMLSyntaxError as error:
            first = next(iter(units.error_log), None)
            line, why = (first.line, first.message) if first else (1, error.msg)
            fix = "fix the file or its encoding, or copy or download it again"
            raise UserError(f"{path}, line {line}: broken XML ({why}): {fix}") from None
