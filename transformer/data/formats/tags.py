"""Inline tags, such as <b>, which return around the words of a translation.

A text is translated without its tags. Links between words then say where the tags belong.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

OPEN, CLOSE, EMPTY, WORD = "open", "close", "empty", "word"  # kinds of tags
OPENING, CLOSING = '([{<“„”«»‹›‘‚"¿¡「『', '.,;:!?…)]}>”“»›‘"」』。！？、，；：؟،؛'  # around words


class Tag(NamedTuple):
    """A tag that begins ("open") or ends ("close") an element, or stands alone ("empty").

    A "word" stands alone, too, and has a text that is not translated, such as code.

    Attributes:
      place: the (start, end) offsets of its characters in the document.
      before: characters to write before it; `after` are those after it.
      breaks: whether it divides words, as a line break does.
      write: writes a text in the element as characters of the document, or None to write it as
        around the element.
    """

    kind: str
    place: tuple[int, int]
    before: str = ""
    after: str = ""
    breaks: bool = False
    write: Callable[..., str] | None = None


Pieces = Sequence[str | Tag]  # a text with tags
Links = Iterable[tuple[int, int]]  # (i, j): word i of the text and word j of its translation


class Aligned(NamedTuple):
    """A translation, and the links (i, j) from words of the text to its words, from zero.

    Words are separated by white space. The tag of a source is not a word.
    """

    text: str
    links: Sequence[tuple[int, int]] = ()


def join_aligned(parts: Sequence[tuple[str, Aligned]]) -> Aligned:
    """Joins (text, translation) pairs, which follow each other without white space."""
    source, target = ("".join(x) for x in zip(*((a, b.text) for a, b in parts), strict=True))
    return Aligned(target, find_links(source, target, parts))


def find_links(
    source: str, target: str, parts: Iterable[tuple[str, Aligned]]
) -> list[tuple[int, int]]:
    """Returns the links of a text and its translation, given its parts in order."""
    ends, links = [0, 0], list[tuple[int, int]]()
    for text, (translation, of_part) in parts:
        starts = source.find(text, ends[0]), target.find(translation, ends[1])
        ends = [starts[0] + len(text), starts[1] + len(translation)]
        first, second = (
            len(f"{whole[:start]}x".split()) - 1
            for whole, start in zip((source, target), starts, strict=True)
        )
        links += ((first + i, second + j) for i, j in of_part)
    return links


class _Space(str):
    """White space of the text, perhaps none, that stays with a tag."""


@dataclasses.dataclass
class _Element:
    """An element, or an empty tag, with the offsets of its content in the text.

    Attributes:
      tags: the start tag and the end tag, or '', with the white space on both sides.
    """

    tags: list[Sequence[str | Tag]]
    start: int
    end: int
    children: "list[_Element]"

    def tag(self, number: int) -> Sequence[str | Tag]:
        """Returns a tag with the white space that stays with it.

        The tags of an element without words keep it on both sides, and so do others if there is
        white space on the inner side.
        """
        tag = self.tags[number]
        return tag if self.start == self.end or tag[2 - 2 * number] else tag[1:2]


def write_aligned(aligned: Aligned) -> str:
    """Returns a translation, a tab and its links in Pharaoh format, such as 0-1."""
    return f"{aligned.text}\t{' '.join(f'{i}-{j}' for i, j in sorted(aligned.links))}"


def read_aligned(row: str) -> Aligned:
    """Returns what `write_aligned` wrote; without a tab there are no links."""
    text, _, links = row.partition("\t")
    pairs = (link.split("-") for link in links.split())
    return Aligned(text, [(int(i), int(j)) for i, j in pairs])


def plain_text(pieces: Pieces) -> str:
    """Returns a text without its tags."""
    return "".join(each if isinstance(each, str) else " " * each.breaks for each in pieces)


def place_tags(pieces: Pieces, target: str, links: Links) -> list[str | Tag]:
    """Returns the translation of a text with the tags of the text.

    Each tag comes back once, nested as in the text. An element encloses the shortest range of words
    that contains all links of its words. If the ranges of siblings overlap, the shorter one stays,
    and the other gets the part of its range that has most of its links. Punctuation at an end of a
    range is enclosed if the enclosed text begins or ends with punctuation, too.

    An element without a link, or without a word, stands before the word that is linked to the next
    word of its parent, or else at the parent's end. An empty tag that only punctuation or nothing
    follows before the next white space, such as the mark of a footnote, stays behind the word that
    is linked to the previous word.
    """
    placer = _Placer(plain_text(pieces), target, links)
    return _joined(placer.write(_parse(pieces), 0, len(target)))


class _Placer:
    """Writes elements around the words of a translation."""

    def __init__(self, source: str, target: str, links: Links):
        self.source, self.target = source, target
        self.source_words, self.target_words = (
            [match.span() for match in re.finditer(r"\S+", text)] for text in (source, target)
        )
        self.links: dict[int, list[int]] = collections.defaultdict(list)
        for i, j in sorted(links):
            self.links[i].append(j)

    def write(self, parent: _Element, low: int, high: int) -> Iterator[str | Tag]:
        """Yields the content of an element, given its offsets in the translation."""
        used: set[int] = set()
        linked = [self._linked(each, low, high) for each in parent.children]
        spans = [(-1, -1)] * len(linked)
        sizes = [places[-1] - places[0] if places else 0 for places in linked]
        for number in sorted(range(len(linked)), key=sizes.__getitem__):
            parts: list[list[int]] = [[]]
            for j in linked[number]:
                if not used.isdisjoint(range(parts[-1][-1] if parts[-1] else j, j + 1)):
                    parts.append([])
                parts[-1].extend([j] * (j not in used))
            if best := max(parts, key=len):
                used.update(range(best[0], best[-1] + 1))
                spans[number] = self._span(parent.children[number], best[0], best[-1])
        for number, each in enumerate(parent.children):
            if spans[number] == (-1, -1):
                gap = self._gap(each, parent.end, low, high)
                for other, (first, last) in enumerate(spans):
                    if first < gap < last:
                        gap = first if number < other else last
                spans[number] = gap, gap
        for number in sorted(range(len(spans)), key=spans.__getitem__):
            each, (begin, stop) = parent.children[number], spans[number]
            begin, stop = (min(max(x, low), high) for x in (begin, stop))
            yield self.target[low:begin]
            yield from each.tag(0)
            inner = [part for part in self.write(each, begin, stop) if part]
            # White space of an empty tag at an end of the element is not inside it.
            for end, place in (0, 2), (1, 0):
                if inner and isinstance(inner[-end], _Space) and not each.tags[end][place]:
                    inner.pop(-end)
            yield from inner
            yield from each.tag(1)
            low = stop
        yield self.target[low:high]

    def _span(self, element: _Element, first: int, last: int) -> tuple[int, int]:
        """Returns the offsets of words of the translation, with punctuation as in the element."""
        begin, stop = self.target_words[first][0], self.target_words[last][1]
        inside = self.source[element.start : element.end] or self.source[: element.end].rstrip()
        if inside[:1] not in OPENING and not inside[:1].isspace():
            begin += _trim(self.target[slice(*self.target_words[first])], OPENING, str.lstrip)
        if inside[-1:] not in CLOSING and not inside[-1:].isspace():
            stop -= _trim(self.target[slice(*self.target_words[last])], CLOSING, str.rstrip)
        return begin, stop

    def _linked(self, element: _Element, low: int, high: int) -> list[int]:
        """Returns the words from `low` to `high` that are linked to an element's words."""
        targets = set()
        for i, (start, end) in enumerate(self.source_words):
            inside = self.source[max(start, element.start) : min(end, element.end)]
            if re.search(r"\w", inside) or inside == self.source[start:end]:
                targets.update(self._links_of(i, low, high))
        return sorted(targets)

    def _links_of(self, i: int, low: int, high: int) -> list[int]:
        spans = self.target_words
        return [j for j in self.links[i] if spans[j][0] < high and low < spans[j][1]]

    def _gap(self, element: _Element, end: int, low: int, high: int) -> int:
        """Returns the place of an element without words in a parent that ends at `end`."""
        position, places = element.end, [*enumerate(self.source_words)]
        after = re.split(r"\s", self.source[position:], maxsplit=1)[0]
        is_mark = after or self.source[position - 1 : position].strip()
        if element.start == position and is_mark and not re.search(r"\w", after):
            for i, (start, _) in reversed(places):
                if start < position and (inside := self._links_of(i, low, high)):
                    return self._span(element, inside[-1], inside[-1])[1]
        for i, (start, stop) in places:
            rest = self.source[max(start, position) : min(stop, end)]
            inside = self._links_of(i, low, high)
            if inside and (re.search(r"\w", rest) or (rest and start >= position)):
                return self.target_words[inside[0]][0]
        return high


def _trim(word: str, marks: str, strip: Callable[[str, str], str]) -> int:
    """Returns the number of marks at an end of a word."""
    return len(word) - len(strip(word, marks) or word)


def _parse(pieces: Pieces) -> _Element:
    """Returns the tree of elements; tags without a partner enclose what is before or after."""
    nothing, position = ("", "", ""), 0
    open_elements = [_Element([nothing] * 2, 0, 0, [])]
    spaces = [("", ""), *map(_spaces, pieces), ("", "")]
    for piece, (_, before), (after, _) in zip(pieces, spaces, spaces[2:], strict=False):
        if isinstance(piece, str):
            position += len(piece)
            continue
        position += piece.breaks
        tag, top = (before, piece, after), open_elements[0]
        if piece.kind != CLOSE:
            element = _Element([tag, nothing], position, position, [])
            open_elements[-1].children.append(element)
            open_elements.append(element)
        elif len(open_elements) == 1:
            top.children = [_Element([nothing] * 2, 0, position, top.children)]
            open_elements += top.children
        if piece.kind != OPEN:
            element = open_elements.pop()
            element.end = position
            element.tags[1] = tag if piece.kind == CLOSE else nothing
    for element in open_elements:
        element.end = position
    return open_elements[0]


def _spaces(piece: str | Tag) -> tuple[str, str]:
    """Returns the white space at the start and the end of a text; it is one object in a blank."""
    text = "" if isinstance(piece, Tag) else piece
    first = _Space(text[: len(text) - len(text.lstrip())])
    return first, _Space(text[len(text.rstrip()) :]) if text.strip() else first


def _is_gap(part: str | Tag) -> bool:
    return part.kind != WORD if isinstance(part, Tag) else part.isspace()


def _divides(part: str | Tag) -> bool:
    return isinstance(part, _Space) or (isinstance(part, Tag) and part.breaks)


def _with_whole_words(parts: Iterable[str | Tag]) -> list[str | Tag]:
    """Moves punctuation to the word before it if white space of a tag or a break divides them."""
    result: list[str | Tag] = []
    for part in parts:
        place = next((n for n in range(len(result), 0, -1) if not _is_gap(result[n - 1])), 0)
        gap = result[place:]
        is_word = all(isinstance(x, Tag | _Space) for x in gap)  # without a blank between words
        moves = place and is_word and any(map(_divides, gap)) and not _is_gap(part)
        moves = moves and not re.search(r"\w", str(part))
        result.insert(place if moves else len(result), part)
    return result


def _joined(pieces: Iterable[str | Tag]) -> list[str | Tag]:
    """Joins adjacent texts, and removes blanks where a tag has white space or breaks the text."""
    parts: list[str | Tag] = []
    for piece in filter(None, pieces):
        is_whole = isinstance(piece, Tag | _Space)
        parts += [piece] if is_whole else re.findall(r"\s+|\S+", piece)
    for _ in "before", "after":
        parts = _with_whole_words(parts)[::-1]
    result: list[str | Tag] = []
    for _, group in itertools.groupby(parts, _is_gap):
        items = list(group)
        if any(map(_divides, items)):
            blanks = {id(x): x for x in items if isinstance(x, Tag | _Space)}
            items = [*blanks.values()]
        result += items
    texts: list[str | Tag] = []
    for part in result:
        is_joined = texts and isinstance(part, str) and isinstance(texts[-1], str)
        texts.append(f"{texts.pop()}{part}" if is_joined else part)
    for at, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if texts and isinstance(edge := texts[at], str):
            texts[at] = strip(edge)
    return [text for text in texts if text]
