"""Markdown with the tables and the strikethrough of GitHub.

The parser tells the inline tokens of a block, but not where they stand, so a pattern for each token
follows them through the file.

Source: CommonMark 0.31, https://spec.commonmark.org
"""

import functools
import html
import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from transformer.data.formats import markup
from transformer.data.formats.document import Document, TextDocument, Texts, Unit, decode
from transformer.data.formats.markup import Event
from transformer.data.formats.tags import CLOSE, OPEN, Pieces, Tag

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
PREFIX = re.compile(r"(?m)^[ \t]*>[ \t>]*")  # of a line in a quotation
BAR = "\ufdd0"  # stands for an escaped bar, from which the parser would remove the backslash
LINK_END = r"""(?P<end>\](?:\((?:\\.|\s"[^"]*"|[^()\\]|\([^()]*\))*+\)|\[[^\[\]]*\])?)"""
TEXTS = ("text", "text_special", "softbreak")
PATTERNS = {  # of inline tokens; other tokens have their characters
    "code_inline": r"(`+)(?!`).+?(?<!`)\1(?!`)",
    "softbreak": r"\s+",
    "hardbreak": r"\\?\s+",
    "link_open": r"\[",
    "link_close": LINK_END,
    "image": rf"!\[CONTENT{LINK_END}",
}
FIXED = re.compile(  # the mark of a footnote, a tick box or an address
    r"(?<!\\)(?:\[(?:\^[^\]\s]+\]:?|[ xX]\](?=\s))|<(?:\w[\w+.-]+:|[^\s<>]+@)[^\s<>]*>)"
)
ESCAPE = re.compile(rf"\\([!-/:-@\[-`{{-~{BAR}])|(&(?:#\w{{1,7}}|\w{{2,32}});)|[ \t]*\r?\n[ \t]*")
SPECIAL = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
TAG = re.compile(rf"<(/?)(?!(?:{'|'.join(markup.VOID)})\b)[a-zA-Z](?!.*/>)", re.DOTALL)
START = re.compile(  # of a list, a heading, a quotation or an underline
    r"^[ \t]*(?:\d{1,9}(?=[.)](?!\S))|(?=(?:#{1,6}|[-+])(?!\S)|>|=+\s*$|-+\s*$))", re.MULTILINE
)


def read_md(data: bytes, name: str) -> Document:
    """Returns the headings, paragraphs, table cells and image descriptions of a Markdown file.

    Code, link targets, HTML tags and the front matter are not texts.
    """
    text, encoding, mark = decode(data, name)
    body = FRONT_MATTER.sub(lambda match: re.sub(r"\S", " ", match[0]), text)
    body = body.replace(r"\|", "\\" + BAR).replace("\0", "\ufffd")  # as the parser does
    plain = PREFIX.sub(lambda match: " " * len(match[0]), body)
    lines = [0, *(match.end() for match in re.finditer(r"\r\n?|\n", text)), len(text)]
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    units: list[Unit] = []
    position, parent = 0, ""
    for token in parser.disable(["autolink", "text_join"]).parse(body):
        first, last = token.map or (0, 0)
        if token.type == "html_block":
            units += markup.page_units(text, lines[first], lines[last])
        elif token.type == "inline" and token.children:
            start = lines[first]
            if parent not in ("th_open", "td_open"):  # a cell begins after the previous one
                start = plain.rfind(token.content.partition("\n")[0], start, lines[first + 1])
            tokens = [*_places(plain, token.children, max(position, start), lines[last])]
            start, position = tokens[0][1].start(), tokens[-1][1].end()
            line_break = re.search(r"\n([ \t>]*)", text[start:position])
            prefix = line_break[1] if line_break else ""
            write = functools.partial(_escape, parent=parent, prefix=prefix)
            units += (unit._replace(write=write) for unit in _units(plain, tokens))
        parent = token.type
    return _Markdown(**vars(markup.document(text, units, encoding, mark)))


class _Markdown(TextDocument):
    """A document without emphasis of no words, which Markdown would show as `****`."""

    def write(self, texts: Texts) -> bytes:
        return super().write([pieces and self._with_words(pieces) for pieces in texts])

    def _with_words(self, pieces: Pieces) -> list[str | Tag]:
        result: list[str | Tag] = []
        for piece in pieces:
            result.append(piece)
            tags = [each for each in result[-2:] if isinstance(each, Tag)]
            is_empty = [tag.kind for tag in tags] == [OPEN, CLOSE]
            if is_empty and self.text[tags[0].place[0]] in "*_~":
                del result[-2:]
        return result


def _places(
    text: str, tokens: Sequence[Token], position: int, stop: int
) -> Iterator[tuple[str, re.Match[str]]]:
    """Yields the types of the inline tokens of a block, and where they stand in the file."""
    for token in tokens:
        content = re.escape(token.markup or token.content).replace("\\\n", r"\s+")
        pattern = PATTERNS.get(token.type, "CONTENT").replace("CONTENT", content)
        match = re.compile(pattern, re.DOTALL).search(text, position, stop)
        if match and match[0]:  # of `**`, the parser makes an empty token, too
            position = match.end()
            yield token.type, match


def _escape(text: str, before: str | Tag, after: str | Tag, parent: str, prefix: str) -> str:
    """Returns a text as characters of Markdown; `prefix` begins its other lines in the file.

    A letter next to a tag becomes a reference: `**` is no end of bold text in **`a`**b.
    """
    text = START.sub(r"\g<0>\\", SPECIAL.sub(r"\\\g<0>", text))
    text = text.replace("|", r"\|") if parent in ("th_open", "td_open") else text
    if isinstance(before, Tag) and before.kind == CLOSE and text[:1].isalnum():
        text = f"&#{ord(text[0])};{text[1:]}"
    if isinstance(after, Tag) and after.kind == OPEN and text[-1:].isalnum():
        text = f"{text[:-1]}&#{ord(text[-1])};"
    is_line = parent in ("th_open", "td_open", "heading_open")
    return text.replace("\n", " " if is_line else "\n" + prefix)


def _plain(raw: str) -> str:
    """Returns the text of characters of Markdown."""
    text = ESCAPE.sub(lambda match: match[1] or html.unescape(match[2] or "\n"), raw)
    return text.replace(BAR, "|")


def _units(text: str, tokens: Sequence[tuple[str, re.Match[str]]]) -> list[Unit]:
    """Returns the unit of a block, and those of the descriptions of images."""
    start, end = tokens[0][1].start(), tokens[-1][1].end()
    codes = [Event("code", *match.span()) for match in FIXED.finditer(text, start, end)]
    labels, openings, result = {}, [], []
    for name, match in tokens:
        kind = name.rpartition("_")[2] if name.endswith(("_open", "_close")) else "code"
        first, last = match.span()
        if name == "html_inline" and (html_tag := TAG.match(match[0])):
            kind = "close" if html_tag[1] else "open"
        elif name == "link_open":
            openings.append(last)
        elif name == "link_close" and (opening := openings.pop()):
            if match["end"] in ("]", "][]"):  # a reference needs its label: [new text][label]
                labels[first] = f"[{text[opening:first]}]".replace(BAR, "|")
        elif name == "image" and match["end"] not in ("]", "][]"):
            result += markup.units(text, [Event("text", first + 2, match.start("end"))], _plain)
        codes += [Event(kind, first, last)] * (name not in TEXTS)
    parts: list[Event] = []
    for code in sorted(codes, key=lambda code: code.start):
        if code.start >= start:
            parts += Event("text", start, code.start), code
            start = code.end

    def tag(text: str, part: Event) -> Tag:
        label = labels.get(part.start, "")
        end = part.start + 1 if label else part.end
        return markup.tag_of(text, part)._replace(place=(part.start, end), after=label)

    parts = [part for part in [*parts, Event("text", start, end)] if part.start < part.end]
    return markup.units(text, parts, _plain, tag) + result
