"""Documents of office programs (docx, odt, xlsx), which are ZIP archives of XML files.

Source: Office Open XML, ECMA-376; OpenDocument 1.3, https://docs.oasis-open.org/office
"""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator

from transformer.data.formats import markup
from transformer.data.formats.document import Document, TextDocument, Texts, Unit
from transformer.data.formats.markup import Event, Roles
from transformer.errors import UserError

MAX_BYTES = 300_000_000  # of the XML files
MAX_RATIO, MIN_BYTES = 100, 10_000_000  # XML of more than these bytes must not be packed better
WORD = r"word/(document\d*|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
OOXML = markup.roles(
    block="p si is",
    inline="hyperlink ins moveTo smartTag sdt sdtContent customXml dir bdo",
    run="r t proofErr lastRenderedPageBreak bookmarkStart bookmarkEnd",
)
ODF = markup.roles(
    block="p h",
    inline="span a meta ruby ruby-base",
    run="soft-page-break bookmark bookmark-start bookmark-end",
)
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
            end = position + sum(len(unit.segments) for unit in member.units)
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
    return _read(data, name, WORD, OOXML, _runs)


def read_xlsx(data: bytes, name: str) -> Document:
    """Returns the texts in the cells of an Excel workbook."""
    return _read(data, name, r"xl/(sharedStrings|worksheets/[^/]+)\.xml", OOXML, _runs)


def read_odt(data: bytes, name: str) -> Document:
    """Returns the paragraphs of a text document of LibreOffice with its headers and footers."""
    return _read(data, name, r"(content|styles)\.xml", ODF, markup.events)


def _read(
    data: bytes, name: str, pattern: str, role: Roles, events: Callable[[str], Iterable[Event]]
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
                Unit(markup.segments(text, block.parts))
                for block in markup.blocks(events(text), role)
                if all(tag.name != "tracked-changes" for tag in block.path)
            )
            members[member] = markup.document(text, units, encoding, mark)
    return OfficeDocument(data, members)


def _runs(text: str) -> Iterator[Event]:
    """Yields the tags, and the texts of runs with their format as the style.

    The result of a field, such as a page number, is left out, but the text of a link is not.
    """
    style, end, inside, fields = "", 0, "", []
    for event in markup.events(text):
        raw = text[event.start : event.end]
        if event.start < end:
            continue
        if event.kind == "text":
            if inside == "instrText" and fields:
                fields[-1] += raw
            elif inside == "t" and all(field.split()[:1] == ["HYPERLINK"] for field in fields):
                yield event._replace(name=style)
        elif event.kind == "start" and (match := PROPERTIES.match(text, event.start)):
            style, end = INVISIBLE.sub("", match[2] or "").strip(), match.end()
        else:
            inside = event.name if event.kind == "start" else ""
            style = "" if inside == "r" else style
            if inside == "fldChar" and 'fldCharType="begin"' in raw:
                fields.append("")
            elif inside == "fldChar" and 'fldCharType="end"' in raw:
                fields[-1:] = []
            yield event
