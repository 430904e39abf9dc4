"""Inline tags, such as <b>, which return around the words of a translation.

A text is translated without its tags. Links between words then say where the tags belong.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

OPEN, CLOSE, EMPTY = "open", "close", "empty"  # kinds of tags
OPENING, CLOSING = '([{<“„”«»‹›‘‚"¿¡「『', '.,;:!?…)]}>”“»›‘"」』。！？、，；：؟،؛'  # around words


class Tag(NamedTuple):
    """A tag that begins ("open") or ends ("close") an element, or stands alone ("empty").

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
    """White space of the text that stays with a tag."""


@dataclasses.dataclass
class _Element:
    """An element with its tags, and the offsets of its content in the text and the translation."""

    tags: list[list[str | Tag]]  # the start tag and the end tag with their white space
    start: int
    end: int
    children: "list[_Element]"
    words: tuple[int, int] | None = None  # range of words of the translation
    begin: int = 0
    stop: int = 0


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
    and the other gets the part of its range that has most of its links. An element without a link,
    or without a word, stands before the word that is linked to the next word of its parent, or else
    at the parent's end; an empty tag at the end of a word stays behind it. Punctuation at an end of
    a range is enclosed if the enclosed text begins or ends with punctuation, too.
    """
    placer = _Placer(plain_text(pieces), target, links)
    top = _parse(pieces)
    placer.place(top, 0, len(placer.target_words))
    placer.measure(top, 0, len(target))
    return _joined(_written(top, target))


class _Placer:
    """Finds the places of elements in a translation."""

    def __init__(self, source: str, target: str, links: Links):
        self.source, self.target = source, target
        self.source_words, self.target_words = (
            [match.span() for match in re.finditer(r"\S+", text)] for text in (source, target)
        )
        self.links: dict[int, list[int]] = collections.defaultdict(list)
        for i, j in sorted(links):
            self.links[i].append(j)

    def place(self, parent: _Element, low: int, high: int) -> None:
        """Chooses the range of words of each element in a parent's range from `low` to `high`."""
        used: set[int] = set()
        linked = {id(each): self._linked(each, low, high) for each in parent.children}
        hulls = {key: places[-1] - places[0] for key, places in linked.items() if places}
        for each in sorted(parent.children, key=lambda each: hulls.get(id(each), 0)):
            parts: list[list[int]] = [[]]
            for j in linked[id(each)]:
                if not used.isdisjoint(range(parts[-1][-1] if parts[-1] else j, j + 1)):
                    parts.append([])
                parts[-1].extend([j] * (j not in used))
            if best := max(parts, key=len):
                each.words = best[0], best[-1] + 1
                used.update(range(*each.words))
        for number, each in enumerate(parent.children):
            if not each.words:
                gap = self._gap(each.start, each.end, parent.end, low, high)
                for other, sibling in enumerate(parent.children):
                    first, last = sibling.words or (gap, gap)
                    if first < gap < last:
                        gap = first if number < other else last
                each.words = gap, gap
            self.place(each, *each.words)

    def measure(self, parent: _Element, low: int, high: int) -> None:
        """Sets the offsets of elements in the translation, from `low` to `high`."""
        words, ends = self.target_words, len(self.target)
        for each in parent.children:
            first, last = each.words or (0, 0)
            begin = stop = words[first][0] if first < len(words) else ends
            if first < last:
                stop, inside = words[last - 1][1], self.source[each.start : each.end]
                is_dense = not _has_gap(each)  # an empty tag divides no word from its punctuation
                if is_dense and inside[0] not in OPENING and not inside[0].isspace():
                    begin += _trim(self.target[slice(*words[first])], OPENING, str.lstrip)
                if is_dense and inside[-1] not in CLOSING and not inside[-1].isspace():
                    stop -= _trim(self.target[slice(*words[last - 1])], CLOSING, str.rstrip)
            each.begin, each.stop = (min(max(x, low), high) for x in (begin, stop))
            self.measure(each, each.begin, each.stop)

    def _linked(self, element: _Element, low: int, high: int) -> list[int]:
        """Returns the words of a range of the translation that are linked to an element's words."""
        targets = set()
        for i, (start, end) in enumerate(self.source_words):
            inside = self.source[max(start, element.start) : min(end, element.end)]
            if re.search(r"\w", inside) or inside == self.source[start:end]:
                targets.update(j for j in self.links[i] if low <= j < high)
        return sorted(targets)

    def _gap(self, start: int, position: int, end: int, low: int, high: int) -> int:
        """Returns the word that is linked to the next word after a position, or else `high`.

        A mark at the end of a word, such as that of a footnote, stays behind the word.
        """
        before, after = self.source[position - 1 : position], self.source[position : position + 1]
        is_mark = start == position and before.strip() and not after.strip()
        for i, (first, _) in reversed([*enumerate(self.source_words)] if is_mark else []):
            inside = [j + 1 for j in self.links[i] if first < position and low <= j < high]
            if inside:
                return inside[-1]
        for i, (start, stop) in enumerate(self.source_words):
            rest = self.source[max(start, position) : min(stop, end)]
            inside = [j for j in self.links[i] if low <= j < high]
            if inside and (re.search(r"\w", rest) or (rest and start >= position)):
                return inside[0]
        return high


def _has_gap(element: _Element) -> bool:
    """Returns whether there is an element without words, or white space at a tag, in an element."""
    return any(
        len({*(each.words or ())}) < 2
        or any(isinstance(part, str) and part for tag in each.tags for part in tag)
        or _has_gap(each)
        for each in element.children
    )


def _trim(word: str, marks: str, strip: Callable[[str, str], str]) -> int:
    """Returns the number of marks at an end of a word."""
    return len(word) - len(strip(word, marks) or word)


def _parse(pieces: Pieces) -> _Element:
    """Returns the tree of elements; tags without a partner enclose what is before or after."""
    spaces, position = _spaces(pieces), 0
    open_elements = [_Element([], 0, 0, [])]
    for piece, (before, after) in zip(pieces, spaces, strict=True):
        if isinstance(piece, str):
            position += len(piece)
            continue
        position += piece.breaks
        if piece.kind == CLOSE:
            tags = [before, piece]
            if len(open_elements) > 1:
                element = open_elements.pop()
                element.tags[1], element.end = tags, position
            else:
                top = open_elements[0]
                top.children = [_Element([[], tags], 0, position, top.children)]
            continue
        tags = [piece, after] if piece.kind == OPEN else [before, piece, after]
        element = _Element([tags, []], position, position, [])
        open_elements[-1].children.append(element)
        open_elements += [element] * (piece.kind == OPEN)
    for element in open_elements:
        element.end = position
    return open_elements[0]


def _spaces(pieces: Pieces) -> list[list[str]]:
    """Returns the white space before and after each tag that stays with it.

    An element keeps the white space at its ends, and an empty tag the one on both sides. It is in
    place of the blank between two words, unless the text has white space outside the element, too.
    """
    around = [*pieces, "", "", ""]  # index -1 and the following ones are no tags
    spaces = [["", ""] for _ in around]
    for i, piece in enumerate(pieces):
        if isinstance(piece, str):
            sides = piece[: len(piece) - len(piece.lstrip())], piece[len(piece.rstrip()) :]
            for step, side, end in ((-1, 1, CLOSE), (1, 0, OPEN)):
                tag, other, is_blank = around[i + step], around[i + 2 * step], not piece.strip()
                is_first = step < 0 or not (is_blank and spaces[i - 1][1])
                if isinstance(tag, Tag) and tag.kind != end and is_first:
                    text = other if isinstance(other, str) and tag.kind != EMPTY else ""
                    is_outside = text[-1:].isspace() if step < 0 else text[:1].isspace()
                    spaces[i + step][side] = (str if is_outside else _Space)(sides[side == 0])
    return spaces[: len(pieces)]


def _written(parent: _Element, target: str, begin: int = 0) -> Iterator[str | Tag]:
    """Yields the pieces of an element in the translation."""
    for each in sorted(parent.children, key=lambda each: (each.begin, each.stop)):
        yield target[begin : each.begin]
        yield from each.tags[0]
        yield from _written(each, target, each.begin)
        yield from each.tags[1]
        begin = each.stop
    yield target[begin : parent.stop if parent.tags else len(target)]


def _joined(pieces: Iterable[str | Tag]) -> list[str | Tag]:
    """Joins adjacent texts, and removes blanks where a tag has white space or breaks the text."""
    parts: list[str | Tag] = []
    for piece in pieces:
        parts += (
            [piece] if isinstance(piece, Tag | _Space) and piece else re.findall(r"\s+|\S+", piece)
        )
    result: list[str | Tag] = []
    is_gap = lambda part: isinstance(part, Tag) or not part.strip()  # noqa: E731
    for of_gap, group in itertools.groupby(parts, key=is_gap):
        items = list(group)
        if of_gap and any(x.breaks if isinstance(x, Tag) else isinstance(x, _Space) for x in items):
            items = [x for x in items if isinstance(x, Tag | _Space)]
        result += items
    texts: list[str | Tag] = []
    for part in result:
        is_joined = texts and isinstance(part, str) and isinstance(texts[-1], str)
        texts.append(f"{texts.pop()}{part}" if is_joined else part)
    for at, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if texts and isinstance(edge := texts[at], str):
            texts[at] = strip(edge)
    return [text for text in texts if text]
