"""The texts of HTML and XML, with their offsets in the file.

A scanner finds tags and texts, since parsers do not tell where the value of an attribute stands.
Each element has a role. An inline element is part of the text of its block, and a run is only its
format. A code has no text that is translated with the block.

Source: HTML, https://html.spec.whatwg.org
"""

import dataclasses
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from transformer.data.formats.document import Document, TextDocument, Unit, decode
from transformer.data.formats.tags import CLOSE, EMPTY, OPEN, WORD, Tag
from transformer.errors import UserError

CHARSET = r"""(?i)<(?:\?xml[^>]*?encoding|meta[^>]*?charset)\s*=\s*["']?([A-Za-z0-9._:-]+)"""
VALUE = r""""[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+"""
ATTRIBUTE = re.compile(rf"([^\s/>=]++)\s*+=\s*+({VALUE})")
TOKEN = re.compile(  # a comment, a CDATA section, an instruction, a declaration or a tag
    r"<(?:!--.*?(?:--!?>|\Z)|!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)|\?(?:xml:[^>]*+>|.*?(?:\?>|\Z))"
    r"""|!(?i:DOCTYPE)(?:[^\["'>]|"[^"]*"|'[^']*'|\[.*?(?:\]\s*(?=>)|\Z))*+>?"""
    r"|(?:!|/(?![^\W\d]))[^>]*+>?|(?P<close>/?)(?P<name>[^\W\d][^\s/>]*+)"
    rf"(?:[\s/=]++|[^\s/>=]++(?:\s*+=\s*+(?:{VALUE}|[\"'].*+)?)?+)*+(?:>|\Z))",
    re.DOTALL,
)
SPACE = r"(?:\s|&(?:nbsp|#0*(?:9|10|13|32|160)|#[xX]0*(?:9|[aA]0?|[dD]|20));)*+"
INNER = re.compile(rf"{SPACE}((?:{SPACE}.)*+)", re.DOTALL)  # without white space at both ends
BREAK = re.compile(
    r"<(?:br|w:br|w:cr|w:tab|w:noBreakHyphen|text:s|text:tab|text:line-break)\b|\\?\s"
)  # divides words
BLOCK, INLINE, RUN, CODE = "block", "inline", "run", "code"  # roles
# Kinds of parts, and names of codes in pairs.
TAGS = {"open": OPEN, "close": CLOSE, "bpt": OPEN, "ept": CLOSE, "sc": OPEN, "ec": CLOSE}
CDATA, CDATA_END = "cdata", "]]]]><![CDATA[>"  # `]]>` as text


class Event(NamedTuple):
    """A tag ("start" or "end"), a "text" in a style, or a "code" such as a comment, with offsets.

    The parts of a block are texts, codes, and the tags "open" and "close" of inline elements.
    """

    kind: str
    start: int
    end: int
    name: str = ""  # in XML without a prefix, in HTML in lower case; of a text, its style
    run: int = -1  # offset of the run around it


@dataclasses.dataclass
class Element:
    """An element whose end tag starts at `end`; `parts` are those of its block."""

    tag: Event
    parent: "Element | None"
    role: str
    parts: list[Event]
    end: int = 0

    @property
    def path(self) -> list[Event]:
        """The start tags of the elements around it, the innermost first."""
        element, tags = self.parent, []
        while element:
            tags.append(element.tag)
            element = element.parent
        return tags


Roles = Callable[[Event, Element], str]  # the role of a start tag in an element


def roles(default: str = CODE, **names: str) -> Roles:
    """Returns the roles of elements by their names, from the names for each role."""
    table = {name: role for role, elements in names.items() for name in elements.split()}
    return lambda tag, _: table.get(tag.name, default)


def escape(text: str) -> str:
    """Returns a text as characters between tags."""
    return html.escape(text, quote=False)


def attributes(text: str, tag: Event) -> dict[str, tuple[int, int]]:
    """Returns the places of a tag's values, with their quotes; names are in lower case."""
    matches = ATTRIBUTE.finditer(text, tag.start, tag.end)
    return {match[1].lower(): match.span(2) for match in matches}


def values(text: str, tag: Event) -> dict[str, str]:
    """Returns the values of a tag's attributes; names are in lower case."""
    places = attributes(text, tag).items()
    return {name: html.unescape(text[start:end].strip("\"'")) for name, (start, end) in places}


def events(
    text: str, is_html: bool = False, position: int = 0, stop: int | None = None
) -> Iterator[Event]:
    """Yields the tags and texts; an empty element also has an end tag, which is empty."""
    stop = len(text) if stop is None else stop
    is_xml = not is_html or text.startswith("<?xml")
    while match := TOKEN.search(text, position, stop):
        start, end = match.span()
        yield Event("text", position, start)
        position = end
        if match[CDATA] and not is_html:
            yield Event("text", *match.span(CDATA), CDATA)
        elif not match["name"]:
            yield Event("code", start, end)
        if name := match["name"]:
            name = name.lower() if is_html else name.rpartition(":")[2]
            yield Event("end" if match["close"] else "start", start, end, name)
            if (is_xml and text[end - 2] == "/") or (is_html and name in VOID):
                yield Event("end", end, end, name)
            elif is_html and name in RAW and not match["close"]:
                tag = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, end, stop)
                position = tag.start() if tag else stop
                yield Event("text", end, position)
    yield Event("text", position, stop)
    yield Event("end", stop, stop)


def blocks(stream: Iterable[Event], role: Roles, is_html: bool = False) -> Iterator[Element]:
    """Yields the blocks when they end."""
    top: Element | None = Element(Event("start", 0, 0), None, BLOCK if is_html else CODE, [])
    for event in stream:
        if not top:
            return
        if event.kind in ("text", "code"):
            top.parts.extend([event] * (top.role != CODE and event.start < event.end))
        elif event.kind == "start":
            kind = role(event, top)
            if kind == BLOCK and is_html:  # divides the text around it; in XML, a footnote does not
                yield dataclasses.replace(top, parts=[*top.parts])
                top.parts.clear()
            elif top.role == CODE and kind != BLOCK:
                kind = CODE
            elif kind != RUN and top.role != CODE:
                top.parts.append(event._replace(kind="open" if kind == INLINE else "code"))
            top = Element(event, top, kind, [] if kind == BLOCK else top.parts)
        else:
            element = top
            while element and element.tag.name != event.name:
                element = element.parent
            if not element and top.role != CODE:
                top.parts.append(event._replace(kind="code"))
            last = element.parent if element else top
            while top and top is not last:  # also elements whose end tag is missing
                top.end = event.start
                end = event.end if top is element else event.start
                if top.role == BLOCK:
                    yield top
                elif top.role == INLINE:
                    top.parts.append(Event("close", event.start, end))
                if top.role == CODE or (top.role == BLOCK and not is_html):
                    _extend(top, end)
                top = top.parent


def _extend(element: Element, end: int) -> None:
    """Makes the code of an element in its parent's block include its end tag."""
    if element.parent and element.parent.role != CODE and element.parent.parts:
        parts = element.parent.parts
        parts[-1] = parts[-1]._replace(end=end)


def tag_of(text: str, part: Event) -> Tag:
    """Returns an inline tag, or a code as a tag of its own."""
    place, name = (part.start, part.end), part.name if part.kind == "code" else part.kind
    has_text = re.sub(r"<[^>]*>", "", text[slice(*place)]).strip()
    kind = TAGS.get(name, WORD if has_text else EMPTY)
    return Tag(kind, place, breaks=bool(BREAK.match(text, *place)))


def units(
    text: str,
    parts: Sequence[Event],
    unescape: Callable[[str], str] = html.unescape,
    tag: Callable[[str, Event], Tag] = tag_of,
) -> list[Unit]:
    """Returns the unit of a block, if it has words.

    White space and codes at its ends are outside its places.
    """

    def inner(part: Event) -> tuple[int, int]:
        match = INNER.match(text, part.start, part.end) if part.kind == "text" else None
        return match.span(1) if match else (part.start, part.end)

    ends = [
        number
        for number, part in enumerate(parts)
        if part.kind != "code" and (part.kind != "text" or len({*inner(part)}) > 1)
    ]
    if all(parts[number].kind != "text" for number in ends):
        return []
    parts = parts[ends[0] : ends[-1] + 1]
    first, last = parts[0], parts[-1]
    whole = inner(first)[0], inner(last)[1]
    places = [(max(part.start, whole[0]), min(part.end, whole[1])) for part in parts]
    pieces: list[str | Tag] = []
    for part, (start, end) in zip(parts, places, strict=True):
        if part.kind != "text":
            pieces.append(tag(text, part))
        elif start < end:
            before = pieces.pop() if pieces and isinstance(pieces[-1], str) else ""
            raw = text[start:end]
            pieces.append(f"{before}{raw if part.name == CDATA else unescape(raw)}")
    if len(pieces) > 1:
        start = first.start - len("<![CDATA[") if first.name == CDATA else whole[0]
        end = last.end + len("]]>") if last.name == CDATA else whole[1]
        return [Unit(pieces, ((start, end),), pieces)]
    write = (lambda new, *_: new.replace("]]>", CDATA_END)) if first.name == CDATA else None
    return [Unit(pieces, (*places,), pieces, write=write)]


def document(text: str, units: Iterable[Unit], encoding: str, mark: bytes) -> TextDocument:
    """Returns a document of the units with a text, which are escaped as HTML or XML."""
    ordered = sorted(units, key=lambda unit: unit.places)
    return TextDocument(text, ordered, escape, encoding, mark, "xmlcharrefreplace")


def decode_xml(data: bytes, name: str) -> tuple[str, str, bytes]:
    """Returns the text of an XML file, its encoding and its byte order mark.

    Entities that the file declares are refused, since a small file could expand to a huge text.
    """

    def refuse(entity: str, *_: object) -> None:
        raise UserError(f"{name} declares the entity {entity!r}: replace entities with their text")

    text, encoding, mark = decode(data, name, CHARSET)
    parser = expat.ParserCreate("utf-8")
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise UserError(f"{name} is broken XML ({error}): fix it, or save it again") from None
    return text, encoding, mark


VOID = "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
RAW = "script style textarea title xmp iframe noembed noframes".split()  # noqa: SIM905
MARK = re.compile(r"(?i)(?:<(?!/sup)[^>]*+>|[^\w<]|\d)*+</sup")  # of a footnote, or an exponent
TEXTS = ("alt", "title", "placeholder", "aria-label")  # attributes
HTML = roles(
    default=BLOCK,
    inline="a abbr acronym b bdi bdo big cite del dfn em font i ins mark q rb rt ruby s small span "
    "strike strong sub sup time tt u",
    code="script style pre code textarea xmp iframe noembed noframes kbd samp var svg math br img "
    "input object audio video canvas embed wbr",
)


def read_html(data: bytes, name: str) -> Document:
    """Returns the paragraphs and other blocks of a web page, and attributes such as `alt`."""
    text, encoding, mark = decode(data, name, CHARSET)
    return document(text, page_units(text), encoding, mark)


def read_html_lines(data: bytes, name: str) -> Document:
    """Returns the texts of a file in which each line is a piece of HTML."""
    text, encoding, mark = decode(data, name)
    lines = (match.span() for match in re.finditer(r"[^\r\n]+", text))
    units = [unit for line in lines for unit in page_units(text, *line)]
    return document(text, units, encoding, mark)


def page_units(text: str, start: int = 0, stop: int | None = None) -> list[Unit]:
    """Returns the units of HTML, which may be a part of a text."""
    result: list[Unit] = []

    def role(tag: Event, parent: Element) -> str:
        facts = values(text, tag)
        is_fixed = facts.get("translate") == "no" or "notranslate" in facts.get("class", "").split()
        is_fixed = is_fixed or (tag.name == "sup" and MARK.match(text, tag.end))
        if is_fixed or parent.role == CODE:
            return CODE
        is_description = tag.name == "meta" and facts.get("name", "").lower() == "description"
        for name, place in attributes(text, tag).items():
            if name in TEXTS or (name == "content" and is_description):
                result.extend(_attribute(text, *place))
        return HTML(tag, parent)

    elements = blocks(events(text, True, start, stop), role, is_html=True)
    return result + [unit for element in elements for unit in units(text, element.parts)]


def _attribute(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yields the text of an attribute, which is written in double quotes when it changes."""
    quote = text[start] in "\"'"
    write = lambda new, *_: escape(new).replace('"', "&quot;")  # noqa: E731
    for unit in units(text, [Event("text", start + quote, end - quote)]):
        ((first, last),) = unit.places
        before, after = '"' + text[start + quote : first], text[last : end - quote] + '"'
        yield unit._replace(places=((start, end),), before=before, after=after, write=write)
