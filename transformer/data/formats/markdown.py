"""Texts in Markdown.

The parser says which lines a text has, but not where its inline tags stand. So the rules of the
inline parser are wrapped, and the ranges that are not text are recorded.

Source: CommonMark 0.31, https://spec.commonmark.org; tables and strikethrough of GitHub
"""

import functools
import html
import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

from transformer.data.formats import markup
from transformer.data.formats.document import Document, Segment, TextDocument, Unit, decode
from transformer.data.formats.markup import Event

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"([^\r\n]*)(?:\r\n?|\n|\Z)")
CHARACTER = re.compile(r"\\([!-/:-@\[-`{-~])|&(?:#\w{1,7}|\w{2,32});|[ \t]*\n[ \t]*")
FIXED = re.compile(r"\[(?:\^[^\]\s]+\]:?|[ xX]\](?=\s))")  # a footnote's number, and a box to tick
SPECIAL = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
START = re.compile(  # of a list, a heading, a quotation or an underline
    r"^[ \t]*(?:\d{1,9}(?=[.)](?!\S))|(?=(?:#{1,6}|[-+])(?!\S)|>|=+\s*$|-+\s*$))", re.MULTILINE
)


def read_md(data: bytes, name: str) -> Document:
    """Returns the headings, paragraphs, table cells and image descriptions of a Markdown file.

    Code, link targets, HTML tags and the front matter are not texts.
    """
    text, encoding, mark = decode(data, name)
    body = FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = [(match.start(), match[1]) for match in LINE.finditer(text)] + [(len(text), "")]
    parser, env, units = _parser(), {}, []
    cursors: dict[int, int] = {}
    parent = ""  # the kind of the block
    for token in parser.parse(body, env):
        first, last = token.map or (0, 0)
        if token.type == "html_block":
            offsets = range(lines[first][0], lines[last][0])
            for unit in markup.page_units(text[offsets.start : offsets.stop]):
                units.append(_place(unit.segments, offsets, markup.escape))
        elif token.type == "inline" and token.content:
            offsets = _offsets(token.content, first, lines, cursors)
            second = token.content.find("\n") + 1  # its prefix is that of other lines, such as "> "
            prefix = text[lines[first + 1][0] : offsets[second]] if second else ""
            write = functools.partial(_escape, parent=parent, prefix=prefix)
            for segments in _segments(token.content, parser, env):
                units.append(_place(segments, offsets, write))
        parent = token.type
    units = [unit for unit in units if unit.segments]
    return TextDocument(text, units, markup.escape, encoding, mark)


def _place(
    segments: Sequence[Segment], offsets: Sequence[int], write: Callable[[str], str]
) -> Unit:
    """Returns a unit whose places are offsets in the file; `offsets` are those of each character."""
    return Unit(
        [
            segment._replace(
                places=tuple(
                    (offsets[start], offsets[end - 1] + 1) for start, end in segment.places
                ),
                escape=segment.escape or write,
            )
            for segment in segments
        ]
    )


def _offsets(
    content: str, first: int, lines: list[tuple[int, str]], cursors: dict[int, int]
) -> list[int]:
    """Returns the offset in the file of each character of a text that begins in a line.

    The parser removes white space, and backslashes before the bars in a table; `cursors` are the
    ends of the cells of each line so far.
    """
    offsets = []
    for number, line in enumerate(content.split("\n"), first):
        start, raw = lines[number]
        words = line.strip()
        pattern = re.escape(words).replace(r"\|", r"\\?\|")
        match = re.compile(pattern).search(raw, cursors.get(number, 0))
        position = match.start() if match else 0
        offsets += [start + position] * (len(line) - len(line.lstrip()))
        for character in line.lstrip():
            position += raw[position : position + 1] != character
            offsets.append(start + position)
            position += 1
        offsets.append(start + len(raw))  # the line break
        cursors[number] = position
    return offsets


def _escape(text: str, parent: str, prefix: str) -> str:
    """Returns a text as characters of Markdown in a block; `prefix` begins its other lines."""
    text = START.sub(r"\g<0>\\", SPECIAL.sub(r"\\\g<0>", text))
    if parent in ("th_open", "td_open"):
        text = text.replace("|", r"\|")
    is_line = parent in ("th_open", "td_open", "heading_open")
    return " ".join(text.split("\n")) if is_line else text.replace("\n", "\n" + prefix)


def _plain(raw: str) -> str:
    """Returns the text of characters of Markdown."""

    def character(match: re.Match[str]) -> str:
        return match[1] or ("\n" if "\n" in match[0] else html.unescape(match[0]))

    return CHARACTER.sub(character, raw)


def _segments(content: str, parser: MarkdownIt, env: dict) -> list[list[Segment]]:
    """Returns the segments of a block, then those of its images' descriptions."""
    codes, labels, images = env["codes"], env["labels"], env["images"] = [], [], []
    parser.inline.parse(content, parser, env, [])
    position, parts = 0, []
    for start, end, delimiter in sorted(codes, key=lambda code: code[:2]):
        if delimiter is None or not delimiter.content:  # a lone asterisk is a text
            parts += Event("text", position, start), Event("code", start, end)
            position = end
    parts.append(Event("text", position, len(content)))
    segments = markup.segments(content, parts, _plain)
    for start, end, link_end in labels:  # a reference needs its label: [new text][label]
        inside = [index for index, each in enumerate(segments) if start <= each.places[0][0] < end]
        for index in inside[-1:]:
            ((first, last),) = segments[index].places
            after = f"{content[last:end]}][{content[start:end]}]"
            segments[index] = segments[index]._replace(places=((first, link_end),), after=after)
    texts = [[Event("text", start, end)] for start, end in images]
    return [segments, *(markup.segments(content, parts, _plain) for parts in texts)]


def _parser() -> MarkdownIt:
    """Returns a parser that records the ranges of inline codes in `env`."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable(["inline", "fragments_join"])
    parser.inline.ruler.before("link", "fixed", _fixed)
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, functools.partial(_record, name, rule))
    return parser


def _fixed(state: StateInline, silent: bool) -> bool:
    match = FIXED.match(state.src, state.pos, state.posMax)
    if match and not silent:
        state.push("fixed", "", 0)
    state.pos = match.end() if match else state.pos
    return match is not None


def _record(
    name: str, rule: Callable[[StateInline, bool], bool], state: StateInline, silent: bool
) -> bool:
    """Runs a rule of the inline parser, and records the range that it matches, if it is a code."""
    start, before, codes = state.pos, len(state.tokens), state.env["codes"]
    count = len(codes)
    if not rule(state, silent) or silent:
        return state.pos > start
    tokens, end = state.tokens[before:], state.pos
    label = start + (name == "image")
    last = (
        state.md.helpers.parseLinkLabel(state, label, name == "link")
        if name in ("link", "image")
        else 0
    )
    is_label = state.src[last:end] in ("]", "][]")
    if name == "link":
        codes += (start, start + 1, None), (last, end, None)
        state.env["labels"] += [(start + 1, last, end)] * is_label
    elif name == "image":
        codes[count:] = [(start, end, None)]  # without those in the description
        state.env["images"] += [(start + 2, last)] * (not is_label)
    elif name in ("emphasis", "strikethrough"):
        for token in reversed(tokens):
            if end > start:
                codes.append((end - len(token.content), end, token))
                end -= len(token.content)
    elif tokens and tokens[-1].type not in ("text", "text_special", "softbreak"):
        codes.append((start, end, None))
    return True
