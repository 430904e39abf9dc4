"""Splits lines that are longer than what a translator reads well, and joins their translations."""

import functools
import itertools
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from transformer.data import held_out
from transformer.data.corpora.settings import parts_of
from transformer.data.corpora.tags import Tagger
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.hypotheses import Translation
from transformer.inference.translator import Translator

logger = logging.getLogger(__name__)

COMMON = 0.99  # of the validation sources are as short as a segment has to be
CODE = re.compile(r"[a-z]{2,3}")
ENDING = re.compile(r"(?:.*\.)?([a-z]{2,3})")  # of train.de or translation.de
PACKED = re.compile(r"\.(gz|xz|zst)$")
# The end of a clause, with the white space behind it.
CLAUSE = re.compile(r"[,;:…–—)\]»”]\s+|\s(?=[–—(\[«„“])|[、，；：،؛]\s*")
SPACE = re.compile(r"\s")
ZERO_WIDTH_JOINER = "\u200d"
# Han, kana and bopomofo with their punctuation, and full-width forms: no blank is written after
# them. Hangul and emoji are as wide, but are followed by one.
UNSPACED = re.compile(
    "[\u2e80-\u312f\u3190-\u31ff\u3400-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff9f"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff]"
)


class Segmenter:
    """Splits a line into the segments that are translated one by one, see `decode.split_sentences`.

    A sentence is whole unless it is longer than `model.max_length`. Then its parts are as short as
    other text of the run, and a warning names the line.

    Args:
      config: the run's.
      folder: the run's, whose validation text tells how long its lines are.
      encode: returns the tokens of source texts, without an end.
      max_length: the tokens that the model reads, with an end.
      keep_whole: whether only lines of more tokens than these are split.

    Raises:
      UserError: `decode.source_language` is not a code.
    """

    def __init__(
        self,
        config: ConfigDict,
        folder: Path,
        encode: Callable[[Sequence[str]], Sequence[Sequence[int]]],
        max_length: int,
        keep_whole: bool = False,
    ):
        self._splits, self._keep_whole = config.decode.split_sentences, keep_whole
        self._language = source_language(config)
        self._folder = folder
        self._validation = parts_of(config.data, "validation")
        self._tagger = Tagger(config.data, None)
        self._encode = encode
        self._max_length = max_length
        self._max_tokens = min(config.data.max_tokens, max_length)

    def __call__(self, line: str, number: int) -> list[str]:
        """Returns the segments of a line, each with the line's tag; or the line as it is.

        Args:
          number: of the line, for warnings.
        """
        tag, text = self._tagger.split(line)
        if self._splits == "never" or not text.strip():
            return [line]
        length = self._length(tag, text)
        if self._keep_whole and length <= self._max_length:
            return [line]
        sentences = split_sentences(text, self._language)
        if len(sentences) == 1:
            whole = length <= self._max_length
        else:
            most, limit = self._limits
            whole = len(sentences) <= most and length <= limit
        if whole:
            return [line]
        segments, cut = [], 0
        for group in self._groups(tag, sentences):
            parts = self._parts(tag, group)
            segments += [f"{tag} {part.strip()}".lstrip() for part in parts]
            cut += len(parts) > 1
        if cut:
            sentence = "a sentence" if cut == 1 else f"{cut} sentences"
            logger.warning(
                f"line {number} has {sentence} of more than {self._max_length - 1} tokens, "
                f"translated in parts (model.max_length={self._max_length})"
            )
        return segments

    def _length(self, tag: str, text: str) -> int:
        """The tokens of a text with its tag and its end."""
        return len(self._encode([f"{tag} {text}".lstrip()])[0]) + 1

    @functools.cached_property
    def _limits(self) -> tuple[int, int]:
        """The maximum numbers of sentences and of tokens in a segment that is not one sentence."""
        parts = [part for part in self._validation if held_out.has(self._folder, part)]
        if not parts:
            return 1, self._max_tokens
        pairs = itertools.chain(*(held_out.read_pairs(self._folder, part) for part in parts))
        sources = [pair.source for pair in pairs]
        texts = [self._tagger.split(source)[1] for source in sources]
        sentences = _common([len(split_sentences(text, self._language)) for text in texts])
        tokens = _common([len(ids) + 1 for ids in self._encode(sources)])
        return 1 if self._splits == "always" else sentences, min(tokens, self._max_tokens)

    def _groups(self, tag: str, sentences: Sequence[str]) -> Iterator[str]:
        """Yields consecutive sentences together, as many as a segment may have."""
        (most, limit), group, size = self._limits, "", 0
        for sentence in sentences:
            if size and (size == most or self._length(tag, group + sentence) > limit):
                yield group
                group, size = "", 0
            group, size = group + sentence, size + 1
        yield group

    def _parts(self, tag: str, text: str) -> list[str]:
        """The parts of a sentence that is too long, or all of it."""
        if self._length(tag, text) <= self._max_length:
            return [text]
        return halve(text, lambda part: self._length(tag, part) <= self._limits[1])


def _common(numbers: Sequence[int]) -> int:
    """The smallest number that is no less than nearly all of them."""
    return sorted(numbers)[math.ceil(COMMON * len(numbers)) - 1]


def source_language(config: ConfigDict) -> str:
    """Returns the code of the source's language, as far as the config names it; '' if not.

    Raises:
      UserError: `decode.source_language` is not a code.
    """
    data, code = config.data, config.decode.source_language
    if code and not CODE.fullmatch(code):
        raise UserError(
            f"config.decode.source_language={code} is not a code of a language: give one such as "
            "en or de"
        )
    if code or data.languages[0] or data.corpora:
        return code or data.languages[0]
    file = Path(data.train_source).name if data.train_target else data.source_field
    names = {"files": file, "tfds": data.tfds_fields[0]}
    found = ENDING.fullmatch(PACKED.sub("", names.get(data.source, "")))
    return found[1] if found else ""


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text with the white space behind them; at least one.

    Joined, they are the text. A sentence without a letter, such as the number of a list, is a part
    of the next one.

    Args:
      language: code; for '' and unknown ones, the rules of English for the punctuation of any
        script.
    """
    from sentencex import segment  # only for lines to split

    # Version 1.0.32 panics at some white space that is not ASCII, as in "A\u00a0. B".
    lengths = map(len, segment(language, SPACE.sub(" ", text)))
    bounds = [0, *itertools.accumulate(lengths)]
    sentences, begin = [], 0
    for start, end in itertools.pairwise(bounds):
        if any(map(str.isalpha, text[start:end])):
            sentences.append(text[begin:end])
            begin = end
    if not sentences:
        return [text]
    sentences[-1] += text[begin:]
    return sentences


def halve(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Returns parts of a text that fit, halved as often as needed; joined, they are the text.

    The cut is the end of a clause in the middle half of the text, else white space, else any
    character; of these the one nearest to the middle.

    Args:
      fits: whether a part is short enough; a single character always is.
    """
    if len(text) < 2 or fits(text):
        return [text]
    middle = len(text) // 2
    at = (
        _nearest(CLAUSE, text, middle // 2)
        or _nearest(SPACE, text, middle)
        or _between_characters(text, middle)
    )
    return [*halve(text[:at], fits), *halve(text[at:], fits)]


def _nearest(pattern: re.Pattern[str], text: str, reach: int) -> int | None:
    """The end of the match that is nearest to the middle of a text.

    None if there is none within `reach` characters, or without text on both sides.
    """
    middle = len(text) // 2
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    ends = [found.end() for found in pattern.finditer(text)]
    near = [end for end in ends if first < end < last and abs(end - middle) <= reach]
    return min(near, key=lambda end: abs(end - middle), default=None)


def _between_characters(text: str, at: int) -> int:
    """The last position up to `at` that is not within an accented letter or a joined emoji."""
    for start in range(at, max(0, at - 16), -1):
        joins = unicodedata.category(text[start]) in ("Mn", "Mc", "Me", "Cf", "Sk")
        if not joins and text[start - 1] != ZERO_WIDTH_JOINER:
            return start
    return at


def translate_lines(
    translator: Translator,
    variables: Variables,
    split: Segmenter,
    lines: Sequence[str],
    first_line: int = 1,
    done: Callable[[int], None] = lambda count: None,
    num_best: int | None = None,
) -> list[list[Translation]]:
    """Returns the translations of each line, best first, see `join`.

    Args:
      first_line: number of the first line, for warnings.
      done: called with the number of lines that are done since the last call.
      num_best: in place of `decode.num_best`.
    """
    if not lines:
        return []
    segments = [split(line, number) for number, line in enumerate(lines, first_line)]
    flat = list(itertools.chain.from_iterable(segments))
    numbers = [number for number, own in enumerate(segments, first_line) for _ in own]
    seen = 0

    def advance(count: int) -> None:
        nonlocal seen
        before, seen = seen * len(lines) // len(flat), seen + count
        done(seen * len(lines) // len(flat) - before)

    most = num_best or translator.decode.num_best
    found = iter(
        translator.translate(variables, flat, numbers=numbers, done=advance, num_best=most)
    )
    return [join([next(found) for _ in own], most) for own in segments]


def join(parts: Sequence[Sequence[Translation]], most: int) -> list[Translation]:
    """Returns the best translations of a line, given those of its segments.

    A score is the sum of the segments' scores.

    Args:
      parts: the translations of each segment, best first.
      most: maximum number of translations.
    """
    best = list(parts[0])
    for part in parts[1:]:
        both = [
            Translation(_text(a.text, b.text), a.score + b.score, a.tokens + b.tokens)
            for a in best
            for b in part
        ]
        best = sorted(both, key=lambda found: -found.score)[: max(1, most)]
    return best


def _text(left: str, right: str) -> str:
    """Two texts with a blank between them, but not after Chinese and Japanese letters or marks."""
    joined = not (left and right) or UNSPACED.fullmatch(left[-1])
    return left + right if joined else f"{left} {right}"
