"""Markdown with the tables and the strikethrough of GitHub.

The parser tells the inline tokens of a block, but not where they stand, so a pattern for each token
follows them through the file.

Source: CommonMark 0.31, https://spec.commonmark.org
"""

import functools
import html
import re
from collections.abc import Callable, Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from transformer.data.formats import markup
from transformer.data.formats.document import Document, Segment, Unit, decode
from transformer.data.formats.markup import Event

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
OPENED, CLOSED = re.compile(r"(?<=[*_~])(?=[\W_])"), re.compile(r"(?<=[\W_])(?=[*_~])")
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
            units += map(Unit, _segments(plain, tokens, write))
        parent = token.type
    return markup.document(text, units, encoding, mark)


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


def _escape(text: str, parent: str, prefix: str, ends: Sequence[object]) -> str:
    """Returns a text as characters of Markdown; `prefix` begins its other lines in the file.

    A letter at one of `ends` becomes a reference: `**` is no end of bold text in **`a`**b.
    """
    text = START.sub(r"\g<0>\\", SPECIAL.sub(r"\\\g<0>", text))
    text = text.replace("|", r"\|") if parent in ("th_open", "td_open") else text
    if ends[0] and text[:1].isalnum():
        text = f"&#{ord(text[0])};{text[1:]}"
    if ends[1] and text[-1:].isalnum():
        text = f"{text[:-1]}&#{ord(text[-1])};"
    is_line = parent in ("th_open", "td_open", "heading_open")
    return text.replace("\n", " " if is_line else "\n" + prefix)


def _plain(raw: str) -> str:
    """Returns the text of characters of Markdown."""
    text = ESCAPE.sub(lambda match: match[1] or html.unescape(match[2] or "\n"), raw)
    return text.replace(BAR, "|")


def _segments(
    text: str, tokens: Sequence[tuple[str, re.Match[str]]], write: Callable[..., str]
) -> list[list[Segment]]:
    """Returns the segments of a block, and those of each image's description."""
    start, end = tokens[0][1].start(), tokens[-1][1].end()
    codes = [match.span() for match in FIXED.finditer(text, start, end)]
    codes += [match.span() for name, match in tokens if name not in TEXTS]
    parts, labels, descriptions, opening = [], [], [], 0
    for first, last in sorted(codes):
        if first >= start:
            parts += Event("text", start, first), Event("code", first, last)
            start = last
    for name, match in tokens:
        if name == "link_open":
            opening = match.end()
        elif name == "link_close" and match["end"] in ("]", "][]"):
            labels.append((opening, *match.span()))
        elif name == "image" and match["end"] not in ("]", "][]"):
            descriptions.append([Event("text", match.start() + 2, match.start("end"))])
    blocks = [
        markup.segments(text, [part for part in each if part.start < part.end], _plain)
        for each in ([*parts, Event("text", start, end)], *descriptions)
    ]
    for block in blocks:
        for i, each in enumerate(block):  # a punctuation mark at emphasis may become a letter
            start, end = each.places[0]
            ends = OPENED.match(text, start), CLOSED.match(text, end)
            block[i] = each._replace(escape=functools.partial(write, ends=ends))
    for start, stop, end in labels:  # a reference needs its label: [new text][label]
        inner = [i for i, each in enumerate(blocks[0]) if start <= each.places[0][0] < stop]
        for i in inner[-1:]:
            ((first, last),) = blocks[0][i].places
            after = f"{text[last:stop]}][{text[start:stop]}]".replace(BAR, "|")
            blocks[0][i] = blocks[0][i]._replace(places=((first, end),), after=after)
    return blocks
