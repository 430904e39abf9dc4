"""The lines to translate in a document, and the document with their translations.

A line has no escapes, tags or line breaks. Texts without letters stay as they are.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from transformer.data.characters import UNSPACED
from transformer.data.formats.document import Document, Unit
from transformer.data.words import TEMPLATES

CODE = regex.compile("|".join(("%%", r"\{\}", *TEMPLATES)))  # strings that a translation must keep
LETTER = regex.compile(r"\p{L}")
SPACE = regex.compile(rf"\s+|(?<={UNSPACED.pattern})(?=\w)")  # where a line may end
SPACE_OR_MARK = regex.compile(rf"{SPACE.pattern}|(?<=[^\w\s])|(?=[^\w\s])")
SENTENCE_END = re.compile(r"[.!?…。！？:;♪][\"”’'»)\]]*\s*$")
SPEAKER = re.compile(r"\s*[-–—]")  # before what a speaker says, if a subtitle has two of them
LONGEST_PAUSE = 1.0  # seconds between two subtitles of one sentence
MAX_CUES = 4  # maximum number of subtitles that are translated together
Outputs = Sequence[str]  # the translation of each line


class DocumentLines:
    """The lines of a document that are translated.

    A text with inline codes, such as tags, is one line, as is a sentence that runs over several
    subtitles. Its translation is divided by length.

    Args:
      retranslates: whether entries that have a translation are translated, too.

    Attributes:
      lines: the lines, in the order of the document.
      left_out: the number of entries that keep the translation that they have.
      divided: the number of lines with inline codes, whose places are a guess.
    """

    def __init__(self, document: Document, retranslates: bool = False):
        self.lines: list[str] = []
        self.left_out = self.divided = 0
        self._document = document
        self._writers: list[Callable[[Outputs], Sequence[str | None]]] = []
        for group in _sentences(document.units):
            unit, count = group[0], len(group[0].segments)
            if unit.target and not retranslates:
                self.left_out += 1
                self._writers.append(lambda _, count=count: [None] * count)
            elif count > 1 or (unit.times and not SPEAKER.match(unit.source)):
                self.divided += count > 1
                self._add_joined(group, has_rows=bool(unit.times))
            else:
                has_rows = bool(unit.times) or document.has_rows
                self._add_rows(unit.source.split("\n") if has_rows else [unit.source])

    def write(self, outputs: Outputs) -> bytes:
        """Returns the document with the translation of each line."""
        return self._document.write([text for write in self._writers for text in write(outputs)])

    def _add_rows(self, rows: Sequence[str]) -> None:
        writers = [self._read(row) for row in rows]
        self._writers.append(lambda outputs: ["\n".join(write(outputs) for write in writers)])

    def _add_joined(self, units: Sequence[Unit], has_rows: bool) -> None:
        """Adds units as one line; if they have rows, each place gets as many as before."""
        texts, gaps = [], []
        for unit in units:
            gaps += [" ", *(segment.gap for segment in unit.segments[1:])]
            texts += [segment.text for segment in unit.segments]
        write_all = self._read("".join(itertools.chain(*zip(gaps, texts, strict=True)))[1:])

        def write(outputs: Outputs) -> list[str]:
            pieces = divide(write_all(outputs), [*map(len, texts)], [*map(bool, gaps[1:])])
            rows = [has_rows * text.count("\n") + 1 for text in texts]
            pairs = zip(pieces, rows, strict=True)
            return [piece if n == 1 else "\n".join(divide(piece, [1] * n)) for piece, n in pairs]

        self._writers.append(write)

    def _read(self, text: str) -> Callable[[Outputs], str]:
        """Adds a line; returns a function that writes its translation, in the same white space.

        If a translation lacks a code such as `%s`, the texts between codes are translated alone.
        """
        inner = text.strip()
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
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


def divide(text: str, sizes: Sequence[int], gaps: Sequence[bool] = ()) -> list[str]:
    """Divides a text into parts whose lengths are about proportional to `sizes`.

    Args:
      gaps: whether there is white space between a part and the next one, which is left out; by
        default there is. A text may be divided next to punctuation otherwise.
    """
    cuts, has_gap = [0], [True, *(gaps or [True] * (len(sizes) - 1)), True]
    for number, share in enumerate(itertools.accumulate(sizes[:-1]), 1):
        ideal = len(text) * share / max(1, sum(sizes))
        breaks = SPACE if has_gap[number] else SPACE_OR_MARK
        places = [match.end() for match in breaks.finditer(text) if match.end() > cuts[-1]]
        cuts.append(min(places, key=lambda place: abs(place - ideal), default=len(text)))
    parts = [text[start:end] for start, end in itertools.pairwise([*cuts, len(text)])]
    parts = [part.lstrip() if gap else part for part, gap in zip(parts, has_gap, strict=False)]
    return [part.rstrip() if gap else part for part, gap in zip(parts, has_gap[1:], strict=True)]


def _sentences(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Yields each unit alone, but the subtitles of one sentence together."""
    group: list[Unit] = []
    for unit in units:
        if group and not (len(group) < MAX_CUES and _goes_on(group[-1], unit)):
            yield group
            group = []
        group.append(unit)
    if group:
        yield group


def _goes_on(unit: Unit, following: Unit) -> bool:
    """Returns whether a sentence goes on from a subtitle to the following one."""
    if not (unit.times and following.times):
        return False
    pause = following.times[0] - unit.times[1]
    ends = SENTENCE_END.search(unit.source) or not LETTER.search(unit.source)
    starts = SPEAKER.match(following.source) or not LETTER.search(following.source)
    return pause <= LONGEST_PAUSE and not (ends or starts or SPEAKER.match(unit.source))
