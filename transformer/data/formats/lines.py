"""The lines to translate in a document, and the document with their translations.

A line has no escapes, tags or line breaks. Texts without letters stay as they are.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from transformer.data.characters import UNSPACED
from transformer.data.formats.document import Document, Segment, Unit
from transformer.data.words import TEMPLATES

CODE = regex.compile("|".join(("%%", r"\{\}", *TEMPLATES)))  # strings that a translation must keep
LETTER = regex.compile(r"\p{L}")
OUTER = re.compile(r"(\s*)(.*?)(\s*)", re.S)  # a text, and the white space around it
BREAK = regex.compile(rf"\s+|(?<={UNSPACED.pattern})(?=\w)")  # where a line may end
SENTENCE_END = re.compile(r"[.!?…。！？:;♪][\"”’'»)\]]*\s*$")
SPEAKER = re.compile(r"\s*[-–—]")  # before what a speaker says, if a subtitle has two of them
LONGEST_PAUSE = 1.0  # seconds between two subtitles of one sentence
MAX_CUES = 4  # maximum number of subtitles that are translated together
Outputs = Sequence[str]  # the translation of each line
Numbered = tuple[Unit, list[tuple[int, Segment]]]  # a unit, and the indices of its segments


class DocumentLines:
    """The lines of a document that are translated.

    Args:
      retranslates: whether entries that have a translation are translated, too.

    Attributes:
      lines: the lines, in the order of the document.
      left_out: the number of entries that keep the translation that they have.
    """

    def __init__(self, document: Document, retranslates: bool = False):
        self.lines: list[str] = []
        self.left_out = 0
        self._document = document
        self._writers: list[tuple[list[int], Callable[[Outputs], list[str]]]] = []
        numbers = itertools.count()
        units = [(unit, [(next(numbers), s) for s in unit.segments]) for unit in document.units]
        self._count = next(numbers)
        for group in _sentences(units):
            (unit, segments), *others = group
            if unit.target and not retranslates:
                self.left_out += 1
            elif unit.times and len(segments) == 1 and not SPEAKER.match(unit.source):
                self._add_subtitles([segments[0], *(more[0] for _, more in others)])
            else:
                for segment in segments:
                    self._add_text(*segment, has_rows=bool(unit.times) or document.has_rows)

    def write(self, outputs: Outputs) -> bytes:
        """Returns the document with the translation of each line."""
        texts: list[str | None] = [None] * self._count
        for numbers, write in self._writers:
            for number, text in zip(numbers, write(outputs), strict=True):
                texts[number] = text
        return self._document.write(texts)

    def _add_text(self, number: int, segment: Segment, has_rows: bool) -> None:
        rows = segment.text.split("\n") if has_rows else [segment.text]
        writers = [self._read(row) for row in rows]
        self._writers.append(([number], lambda x: ["\n".join(write(x) for write in writers)]))

    def _add_subtitles(self, segments: Sequence[tuple[int, Segment]]) -> None:
        """Adds the texts of subtitles as one line, which is divided by their lengths again."""
        numbers, texts = zip(*((number, segment.text) for number, segment in segments), strict=True)
        write_all = self._read(" ".join(" ".join(texts).split()))

        def write(outputs: Outputs) -> list[str]:
            parts = divide(write_all(outputs), [*map(len, texts)])
            rows = [
                divide(part, [1] * (text.count("\n") + 1))
                for part, text in zip(parts, texts, strict=True)
            ]
            return ["\n".join(filter(None, each)) for each in rows]

        self._writers.append(([*numbers], write))

    def _read(self, text: str) -> Callable[[Outputs], str]:
        """Adds a line; returns a function that writes its translation, in the same white space.

        If a translation lacks a code such as `%s`, the texts between codes are translated alone.
        """
        before, inner, after = OUTER.fullmatch(text).groups()
        if not LETTER.search(CODE.sub("", inner)):
            return lambda outputs: text
        number, codes = len(self.lines), CODE.findall(inner)
        self.lines.append(" ".join(inner.split()))
        texts = CODE.split(inner) if codes else []
        parts = [
            *itertools.chain(*itertools.zip_longest(map(self._read, texts), codes, fillvalue=""))
        ]

        def write(outputs: Outputs) -> str:
            whole = outputs[number].strip()
            if sorted(CODE.findall(whole)) != sorted(codes):
                whole = "".join(part if isinstance(part, str) else part(outputs) for part in parts)
            return before + whole + after

        return write


def divide(text: str, sizes: Sequence[int]) -> list[str]:
    """Divides a text into parts whose lengths are about proportional to `sizes`."""
    places = [match.end() for match in BREAK.finditer(text)]
    cuts = [0]
    for share in itertools.accumulate(sizes[:-1]):
        ideal = len(text) * share / max(1, sum(sizes))
        later = [place for place in places if place > cuts[-1]]
        cuts.append(min(later, key=lambda place: abs(place - ideal), default=len(text)))
    return [text[a:b].strip() for a, b in itertools.pairwise([*cuts, len(text)])]


def _sentences(units: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    """Yields each unit alone, but the subtitles of one sentence together."""
    group: list[Numbered] = []
    for each in units:
        if group and not (len(group) < MAX_CUES and _goes_on(group[-1][0], each[0])):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _goes_on(unit: Unit, following: Unit) -> bool:
    """Returns whether a sentence goes on from a subtitle to the following one."""
    if not (unit.times and following.times):
        return False
    pause = following.times[0] - unit.times[1]
    is_one = len(unit.segments) == len(following.segments) == 1 and pause <= LONGEST_PAUSE
    ends = SENTENCE_END.search(unit.source) or not LETTER.search(unit.source)
    starts = SPEAKER.match(following.source) or not LETTER.search(following.source)
    return is_one and not (ends or starts or SPEAKER.match(unit.source))
