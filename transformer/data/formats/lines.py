"""The lines to translate in a document, and the document with their translations.

A line has no escapes, tags or line breaks. Texts without letters stay as they are.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from transformer.data.characters import UNSPACED
from transformer.data.formats.document import Document, Unit
from transformer.data.formats.tags import Aligned, Pieces, join_aligned, place_tags
from transformer.data.words import TEMPLATES

CODE = regex.compile("|".join(("%%", r"\{\}", *TEMPLATES)))  # strings that a translation must keep
LETTER = regex.compile(r"\p{L}")
SPACE = regex.compile(rf"\s+|(?<={UNSPACED.pattern})(?=\w)")  # where a line may end
SENTENCE_END = re.compile(r"[.!?…。！？:;♪][\"”’'»)\]]*\s*$")
SPEAKER = re.compile(r"\s*[-–—]")  # before what a speaker says, if a subtitle has two of them
LONGEST_PAUSE = 1.0  # seconds between two subtitles of one sentence
MAX_CUES = 4  # maximum number of subtitles that are translated together
Outputs = Sequence[Aligned]  # the translation of each line


class DocumentLines:
    """The lines of a document that are translated.

    A sentence that runs over several subtitles is one line, whose translation is divided by length.

    Args:
      retranslates: whether entries that have a translation are translated, too.

    Attributes:
      lines: the lines, in the order of the document.
      left_out: the number of entries that keep the translation that they have.
      tagged: the number of texts with inline tags, placed by the links of words.
    """

    def __init__(self, document: Document, retranslates: bool = False):
        self.lines: list[str] = []
        self.left_out = self.tagged = 0
        self._document = document
        self._writers: list[Callable[[Outputs], Sequence[Pieces | None]]] = []
        for group in _sentences(document.units):
            unit = group[0]
            if unit.target and not retranslates:
                self.left_out += 1
                self._writers.append(lambda _: [None])
            else:
                self.tagged += sum(len(unit.pieces) > 1 for unit in group)
                self._add(group)

    def write(self, outputs: Outputs) -> bytes:
        """Returns the document with the translation of each line."""
        return self._document.write([text for write in self._writers for text in write(outputs)])

    def _add(self, units: Sequence[Unit]) -> None:
        """Adds a line for each row of a unit, or one for the subtitles of a sentence."""
        texts, is_cue = [unit.source for unit in units], bool(units[0].times)
        is_sentence = is_cue and not SPEAKER.match(texts[0])
        has_rows = not is_sentence and (is_cue or self._document.has_rows)
        rows = re.split(r"(?<=\n)", texts[0]) if has_rows else [" ".join(texts)]
        writers = [self._read(row) for row in rows]

        def write(outputs: Outputs) -> Iterator[Pieces]:
            written = (write_row(outputs) for write_row in writers)
            whole, source, target = join_aligned([*zip(rows, written, strict=True)]), 0, 0
            parts = divide(whole.text, [*map(len, texts)]) if is_sentence else [whole.text]
            for unit, text, part in zip(units, texts, parts, strict=True):
                if is_sentence:  # each subtitle gets as many rows as before
                    part = "\n".join(divide(part, [1] * (text.count("\n") + 1)))
                links = [(i - source, j - target) for i, j in whole.links]
                yield place_tags(unit.pieces, part, links) if len(unit.pieces) > 1 else [part]
                source, target = source + len(text.split()), target + len(part.split())

        self._writers.append(lambda outputs: [*write(outputs)])

    def _read(self, text: str) -> Callable[[Outputs], Aligned]:
        """Adds a line; returns a function that writes its translation, in the same white space.

        If a translation lacks a code such as `%s`, the texts between codes are translated alone.
        """
        inner = text.strip()
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        if not LETTER.search(CODE.sub("", inner)):
            count = len(inner.split())
            return lambda outputs: Aligned(text, [(i, i) for i in range(count)])
        number, codes = len(self.lines), CODE.findall(inner)
        self.lines.append(" ".join(inner.split()))
        texts = CODE.split(inner) if codes else []
        parts = [
            *itertools.chain(*itertools.zip_longest(map(self._read, texts), codes, fillvalue=""))
        ]

        def write(outputs: Outputs) -> Aligned:
            whole = outputs[number]
            if sorted(CODE.findall(whole.text)) != sorted(codes):
                written = [
                    Aligned(x, [(0, 0)]) if isinstance(x, str) else x(outputs) for x in parts
                ]
                sources = itertools.chain(*itertools.zip_longest(texts, codes, fillvalue=""))
                whole = join_aligned([*zip(sources, written, strict=True)])
            return whole._replace(text=before + whole.text.strip() + after)

        return write


def divide(text: str, sizes: Sequence[int]) -> list[str]:
    """Divides a text at white space into parts of lengths that are about proportional to `sizes`.

    Chinese and Japanese texts are divided between characters, too.
    """
    cuts = [0]
    for share in itertools.accumulate(sizes[:-1]):
        ideal = len(text) * share / max(1, sum(sizes))
        places = [match.end() for match in SPACE.finditer(text) if match.end() > cuts[-1]]
        cuts.append(min(places, key=lambda place: abs(place - ideal), default=len(text)))
    return [text[start:end].strip() for start, end in itertools.pairwise([*cuts, len(text)])]


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
