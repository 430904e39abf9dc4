"""Documents of office programs (docx, odt, xlsx), which are ZIP archives of XML files.

Source: Office Open XML, ECMA-376; OpenDocument 1.3, https://docs.oasis-open.org/office
"""

import collections
import functools
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator

from transformer.data.formats import markup
from transformer.data.formats.document import Document, TextDocument, Texts, Unit
from transformer.data.formats.markup import Event, Roles
from transformer.data.formats.tags import Tag
from transformer.errors import UserError

MAX_BYTES = 300_000_000  # of the XML files
MAX_RATIO, MIN_BYTES = 100, 10_000_000  # XML of more than these bytes must not be packed better
WORD = r"word/(document\d*|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
OOXML = markup.roles(
    block="p si is",
    inline="hyperlink ins moveTo smartTag sdt sdtContent customXml dir bdo",
    run="r t proofErr lastRenderedPageBreak",
)
ODF = markup.roles(block="p h", inline="span a meta ruby ruby-base")
T = r"<(?:\w+:)?t(?:\s[^>]*)?>"
RUN_END = re.compile(r"(?:</(?:\w+:)?t\s*>\s*)?</(?:\w+:)?r\s*>")
FORMAT = r"<(?:\w+:)?rPr\b(?:[^>]*/>|.*?</(?:\w+:)?rPr\s*>)"
RUN = re.compile(rf"(?s)<(\w+:)?r(?:\s[^>]*)?>\s*({FORMAT})?")
FIELD = re.compile(r'<(?:\w+:)?fldChar\b[^>]*fldCharType="(\w+)"')
PROPERTIES = re.compile(r"(?s)<((?:\w+:)?(?:rPr|pPr|rPh))\b(?:[^>]*/>|[^>]*>(.*?)</\1\s*>)")
INVISIBLE = re.compile(r'<(?:\w+:)?(?:lang|noProof)\b[^>]*>|\s\w+:rsid\w*="\w*"')  # of a format


class OfficeDocument(Document):
    """A ZIP archive; `members` are the files in it that have texts."""

    def __init__(self, data: bytes, members: dict[str, TextDocument]):
        self._data, self._members = data, members
        self.units = [unit for member in members.values() for unit in member.units]

    def write(self, texts: Texts) -> bytes:
        changes, position, stream = {}, 0, io.BytesIO()
        for name, member in self._members.items():
            end = position + len(member.units)
            changes[name], position = member.write(texts[position:end]), end
        with zipfile.ZipFile(io.BytesIO(self._data)) as old, zipfile.ZipFile(stream, "w") as new:
            new.comment = old.comment
            starts = sorted([*(info.header_offset for info in old.infolist()), old.start_dir])
            for info in old.infolist():
                start, rights = info.header_offset, info.external_attr
                if info.filename in changes and changes[info.filename] != old.read(info):
                    new.writestr(info, changes[info.filename])
                    info.external_attr = rights  # `writestr` replaces 0
                else:  # copies the compressed data
                    info.header_offset = stream.seek(new.start_dir)
                    stream.write(self._data[start : starts[starts.index(start) + 1]])
                    new.start_dir = stream.tell()
                    new.filelist.append(info)
        return stream.getvalue()


def read_docx(data: bytes, name: str) -> Document:
    """Returns the paragraphs of a Word document with its headers, footers, notes and comments."""
    return _read(data, name, WORD, OOXML, _runs, _units)


def read_xlsx(data: bytes, name: str) -> Document:
    """Returns the texts in the cells of an Excel workbook."""
    return _read(data, name, r"xl/(sharedStrings|worksheets/[^/]+)\.xml", OOXML, _runs, _units)


def read_odt(data: bytes, name: str) -> Document:
    """Returns the paragraphs of a text document of LibreOffice with its headers and footers."""
    return _read(data, name, r"(content|styles)\.xml", ODF, markup.events)


def _read(
    data: bytes,
    name: str,
    pattern: str,
    role: Roles,
    events: Callable[[str], Iterable[Event]],
    read: Callable[[str, list[Event]], list[Unit]] = markup.units,
) -> Document:
    """Returns the texts of the files that match a pattern, without deleted paragraphs."""
    manifest = "META-INF/manifest.xml"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [
                i for i in archive.infolist() if re.fullmatch(f"{pattern}|{manifest}", i.filename)
            ]
            size = sum(info.file_size for info in files)
            ratio = size / max(sum(info.compress_size for info in files), 1)
            if size > MAX_BYTES or (size > MIN_BYTES and ratio > MAX_RATIO):
                raise UserError(f"{name} has {size:,} bytes of XML when unpacked: divide it")
            contents = {info.filename: archive.read(info) for info in files}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        fix = "copy it again, or save it in the present format and without a password"
        raise UserError(f"{name} is damaged or encrypted ({error}): {fix}") from None
    if b"encryption-data" in contents.pop(manifest, b""):
        raise UserError(f"{name} has a password: save it without one")
    if not contents:
        raise UserError(f"{name} is an archive of another format: give it the ending of its format")
    members = {}
    for member, content in contents.items():
        if "worksheets" not in member or b"inlineStr" in content:
            text, encoding, mark = markup.decode_xml(content, f"{name}: {member}")
            units = (
                unit
                for block in markup.blocks(events(text), role)
                if all(tag.name != "tracked-changes" for tag in block.path)
                for unit in read(text, block.parts)
            )
            members[member] = markup.document(text, units, encoding, mark)
    return OfficeDocument(data, members)


def _units(text: str, parts: list[Event]) -> list[Unit]:
    """Returns the unit of a paragraph, in which runs of an unusual format are elements.

    If it has tags, the translation gets runs of its own: one for each text or code of a run.
    """
    sizes = collections.Counter[str]()
    for part in parts:
        sizes[part.name] += (part.end - part.start) * (part.kind == "text")
    usual = max(sizes, key=sizes.__getitem__, default="")
    units = markup.units(text, [*_with_formats(_with_fields(text, parts), usual)], tag=_tag)
    if not units or len(units[0].pieces) == 1:
        return units
    (start, end), before, after = units[0].places[0], "", ""
    first, last = (
        next(part for part in parts if part.start <= place < part.end) for place in (start, end - 1)
    )
    (first_run, head), opening, before = _run_of(text, first)
    if opening and re.fullmatch(rf"(?:{T})?", text[head:start]):
        start, before = first_run, ""
    _, after, closing = _run_of(text, last)
    if closing and (match := RUN_END.match(text, end)):
        end, after = match.end(), ""
    usual_text = next(part for part in parts if part.kind == "text" and part.name == usual)
    write = functools.partial(_write, *_run_of(text, usual_text)[1:])
    places = ((start, end),)
    return [units[0]._replace(places=places, before=before, after=after, write=write)]


def _run_of(text: str, part: Event) -> tuple[tuple[int, int], str, str]:
    """Returns the start of a part's run and the end of its format, and tags for a run like it.

    The tags begin and end the run around the part. If it is between runs, they are ''.
    """
    if not (run := RUN.match(text, part.run) if part.run >= 0 else None):
        return (part.start, part.start), "", ""
    name, of_text = run[1] or "", f"{run[1] or ''}t"
    opening, closing = f"<{name}r>{run[2] or ''}", f"</{name}r>"
    if part.kind == "text":
        opening, closing = f'{opening}<{of_text} xml:space="preserve">', f"</{of_text}>{closing}"
    return run.span(), opening, closing


def _write(opening: str, closing: str, new: str, *_: object) -> str:
    """Returns a run with a text."""
    return f"{opening}{markup.escape(new)}{closing}"


def _tag(text: str, part: Event) -> Tag:
    """Returns a tag; one in a run gets a run of its own, and that of a format writes its texts."""
    tag = markup.tag_of(text, part)
    if part.start == part.end:
        write = functools.partial(_write, *_run_of(text, part._replace(kind="text"))[1:])
        return tag._replace(write=write) if part.kind == "open" else tag
    _, before, after = _run_of(text, part)
    return tag._replace(before=before, after=after)


def _with_fields(text: str, parts: list[Event]) -> list[Event]:
    """Makes each field a code, but a link whose text is read an element."""
    result, fields = list[Event](), list[int]()
    for part in parts:
        match = FIELD.match(text, part.start, part.end) if part.kind == "code" else None
        if match and match[1] == "begin":
            fields.append(len(result))
        elif match and fields:
            first = fields[-1] if match[1] == "separate" else fields.pop()
            has_text = any(each.kind == "text" for each in result[first:])
            if has_text:
                part = part._replace(kind="close")
            else:
                kind = "open" if match[1] == "separate" else "code"
                part = result[first]._replace(kind=kind, end=part.end)
                del result[first:]
        result.append(part)
    return result


def _with_formats(parts: list[Event], usual: str) -> Iterator[Event]:
    """Yields the parts of a paragraph, with empty tags around texts of another format."""
    current, last, codes = usual, 0, []
    for part in [*parts, Event("end", 0, 0)]:
        if part.kind == "code":
            codes.append(part)
            continue
        style = part.name if part.kind == "text" else usual
        if style != current and current != usual:
            yield Event("close", last, last)
        yield from codes
        if style not in (current, usual):
            yield part._replace(kind="open", end=part.start)
        current, last, codes = style, part.end, []
        yield from [part] * (part.kind != "end")


def _runs(text: str) -> Iterator[Event]:
    """Yields the tags, and the texts of runs with their format as the style.

    The result of a field, such as a page number, is left out, but the text of a link is not.
    """
    runs, end, inside, fields = [(-1, "")], 0, "", []  # offset and format of the runs around
    for event in markup.events(text):
        raw, event = text[event.start : event.end], event._replace(run=runs[-1][0])
        if event.start < end:
            continue
        if event.kind == "text":
            if inside == "instrText" and fields:
                fields[-1] += raw
            elif inside == "t" and all(field.split()[:1] == ["HYPERLINK"] for field in fields):
                yield event._replace(name=runs[-1][1])
        elif event.kind == "start" and (match := PROPERTIES.match(text, event.start)):
            end = match.end()
            if event.name == "rPr":
                runs[-1] = runs[-1][0], INVISIBLE.sub("", match[2] or "").strip()
        else:
            inside = event.name if event.kind == "start" else ""
            if event.name == "r":
                runs = [*runs, (event.start, "")] if inside else runs[:-1]
            if inside == "fldChar" and 'fldCharType="begin"' in raw:
                fields.append("")
            elif inside == "fldChar" and 'fldCharType="end"' in raw:
                fields[-1:] = []
            yield event
