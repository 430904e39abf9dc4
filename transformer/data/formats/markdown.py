"""Markdown with the tables and the strikethrough of GitHub.

The parser tells the lines of a text, but not where its inline codes stand, so each inline rule is
wrapped and records the range of a code in `env`.

Source: CommonMark 0.31, https://spec.commonmark.org
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
ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])|(&(?:#\w{1,7}|\w{2,32});)|[ \t]*\n[ \t]*")
FIXED = re.compile(r"\[(?:\^[^\]\s]+\]:?|[ xX]\](?=\s))")  # the mark of a footnote, or a tick box
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
    parser, env, cursors, parent = _parser(), {}, {}, ""
    units: list[Unit] = []
    for token in parser.parse(body, env):
        first, last = token.map or (0, 0)
        if token.type == "html_block":
            place = range(lines[first][0], lines[last][0])
            for unit in markup.page_units(text[place.start : place.stop]):
                units.append(_unit(unit.segments, place, markup.escape))
        elif token.type == "inline" and token.content:
            offsets = _offsets(token.content, first, lines, cursors)
            second = token.content.find("\n") + 1  # its line may begin with a prefix such as "> "
            prefix = text[lines[first + 1][0] : offsets[second]] if second else ""
            write = functools.partial(_escape, parent=parent, prefix=prefix)
            for segments in _segments(token.content, parser, env, write):
                units.append(_unit(segments, offsets, write))
        parent = token.type
    units = [unit for unit in units if unit.segments]
    return TextDocument(text, units, markup.escape, encoding, mark)


def _unit(segments: Sequence[Segment], offsets: Sequence[int], write: Callable[[str], str]) -> Unit:
    """Returns a unit with places in the file, from the offsets of a block's characters."""
    places = [
        tuple((offsets[start], offsets[end - 1] + 1) for start, end in segment.places)
        for segment in segments
    ]
    pairs = zip(segments, places, strict=True)
    return Unit([each._replace(places=new, escape=each.escape or write) for each, new in pairs])


def _offsets(
    content: str, first: int, lines: list[tuple[int, str]], cursors: dict[int, int]
) -> list[int]:
    """Returns the offset in the file of each character of a block that begins in a line.

    The parser removes white space, and backslashes before the bars in a table. `cursors` are the
    ends of the cells in each line.
    """
    offsets = []
    for number, line in enumerate(content.split("\n"), first):
        start, raw = lines[number]
        words = re.escape(line.strip()).replace(r"\|", r"\\?\|")
        match = re.compile(words).search(raw, cursors.get(number, 0))
        position = match.start() if match else 0
        offsets += [start + position] * (len(line) - len(line.lstrip()))
        for character in line.lstrip():
            position += raw[position : position + 1] != character
            offsets.append(start + position)
            position += 1
        offsets.append(start + len(raw))  # of the line break
        cursors[number] = position
    return offsets


def _escape(text: str, parent: str, prefix: str, ends: Sequence[bool] = (False, False)) -> str:
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
    return ESCAPE.sub(lambda match: match[1] or html.unescape(match[2] or "\n"), raw)


def _segments(
    content: str, parser: MarkdownIt, env: dict, write: Callable[..., str]
) -> list[list[Segment]]:
    """Returns the segments of a block, and those of each image's description."""
    codes, labels, images = env["codes"], env["labels"], env["images"] = [], [], []
    parser.inline.parse(content, parser, env, [])
    codes += [(*match.span(), None) for match in FIXED.finditer(content)]
    position, parts = 0, []
    for start, end, delimiter in sorted(codes, key=lambda code: code[:2]):
        is_code = delimiter is None or not delimiter.content  # a lone asterisk is text
        if is_code and start >= position:
            parts += Event("text", position, start), Event("code", start, end)
            position = end
    parts = [*parts, Event("text", position, len(content))]
    segments = markup.segments(content, [p for p in parts if p.start < p.end], _plain)
    for i, each in enumerate(segments):  # a punctuation mark at emphasis may become a letter
        start, end = each.places[0]
        sides = f" {content}"[start : start + 2], f"{content} "[end - 1 : end + 1][::-1]
        ends = [side[0] in "*_~" and not side[1].isalnum() for side in sides]
        segments[i] = each._replace(escape=functools.partial(write, ends=ends))
    for start, end, last in labels:  # a reference needs its label: [new text][label]
        indices = [i for i, each in enumerate(segments) if start <= each.places[0][0] < end]
        for i in indices[-1:]:
            ((first, stop),) = segments[i].places
            after = f"{content[stop:end]}][{content[start:end]}]"
            segments[i] = segments[i]._replace(places=((first, last),), after=after)
    texts = [[Event("text", start, end)] for start, end in images]
    return [segments, *(markup.segments(content, parts, _plain) for parts in texts)]


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable(["inline", "fragments_join"])  # joined texts would hide lone asterisks
    rules = parser.inline.ruler.getRules("")
    for name, rule in zip(parser.get_active_rules()["inline"], rules, strict=True):
        parser.inline.ruler.at(name, functools.partial(_record, name, rule))
    return parser


def _record(
    name: str, rule: Callable[[StateInline, bool], bool], state: StateInline, silent: bool
) -> bool:
    """Runs an inline rule, and records the range of the code that it finds."""
    start, before, codes = state.pos, len(state.tokens), state.env["codes"]
    count = len(codes)
    if silent or not rule(state, False):
        return silent and rule(state, True)
    tokens, end = state.tokens[before:], state.pos
    if name in ("link", "image"):
        text = start + 1 + (name == "image")
        label_end = state.md.helpers.parseLinkLabel(state, text - 1, name == "link")
        is_label = state.src[label_end:end] in ("]", "][]")
        if name == "link":
            codes += (start, text, None), (label_end, end, None)
            state.env["labels"] += [(text, label_end, end)] * is_label
        else:
            codes[count:] = [(start, end, None)]  # without the codes in the description
            state.env["images"] += [(text, label_end)] * (not is_label)
    elif name in ("emphasis", "strikethrough"):
        while end > start:
            token = tokens.pop()
            codes.append((end - len(token.content), end, token))
            end -= len(token.content)
    elif tokens and tokens[-1].type not in ("text", "text_special", "softbreak"):
        codes.append((start, end, None))
    return True
