"""Splits lines that are longer than what a translator reads well, and joins their translations."""

import functools
import itertools
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import regex
from ml_collections import ConfigDict

from transformer.data.characters import UNSPACED
from transformer.data.corpora import Tagger
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import UNK_ID, Ids
from transformer.errors import UserError
from transformer.files import read_json
from transformer.inference.base import Variables
from transformer.inference.hypotheses import Translation, distinct
from transformer.inference.translator import Translator

logger = logging.getLogger(__name__)

SHORT_FRACTION = 0.99  # of the training sources are as short as a segment has to be
MEASURED = 2_000  # training sources
USUAL = 0.1  # of the training sources have several sentences, for a segment to have several
MAX_WORD = 40  # characters before the end of a sentence, to look for an abbreviation
RUN = "run.json"  # of a run's folder, with `data.source_lines`
LENGTHS_SHAPE = {"several_sentences": float, "sentences": int, "tokens": int}
LENGTHS_FIX = "delete it; without it each sentence of a line is translated on its own"
ISO_CODE = re.compile(r"[a-z]{2,3}")
ENDING = re.compile(r"(?:.*\.)?([a-z]{2,3})")  # of train.de or translation.de
COMPRESSED_ENDING = re.compile(r"\.(gz|xz|zst)$")
# The end of a clause, with the white space behind it.
CLAUSE = re.compile(r"[,;:…–—)\]»”]\s+|\s(?=[–—(\[«„“])|[、，；：،؛]\s*")
SPACE = re.compile(r"\s")
OPENING_MARKS = r"(\[{\"'«“„‘¿¡"
ABBREVIATION = re.compile(
    rf"([^\s{OPENING_MARKS}]*[^\s.])\.\s*$"
)  # the last word, with a full stop
NUMERIC = " #NUMERIC_ONLY#"  # behind an abbreviation that only a number makes one, as in No. 5
# What neither sentencex nor the lists of Moses know.
MORE = {
    "en": ("vol",),
    "fr": ("Mme", "Mlle", f"no{NUMERIC}"),
    "it": ("sig", "pag", "cfr"),
    "pt": ("Av", "Exa", "pág", "vol"),
    "ru": ("им",),
}
CHARACTER = regex.compile(r"\X")  # a letter with its accents, or a joined emoji


class Segmenter:
    """Splits a line into the segments that are translated one by one, see `decode.split_sentences`.

    A sentence is whole unless it is longer than `model.max_length`. Then its parts are as short as
    other text of the run, and a warning names the line.

    Args:
      folder: the run's, whose `run.json` tells how long the lines of its training text are.
      encode: returns the tokens of source texts, without an end.
      max_length: the tokens that the model reads, with an end.
      keep_whole: whether only lines of more tokens than these are split.
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
        self._language, self._tagger = source_language(config), Tagger(config.data, None)
        self._folder, self._encode, self._max_length = folder, encode, max_length
        self._max_tokens = min(config.data.max_tokens, max_length)

    def __call__(self, line: str, number: int) -> list[str]:
        """Returns the segments of a line, each with the line's tag; or the line as it is."""
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
            most, limit = self.limits
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
    def limits(self) -> tuple[int, int]:
        """The maximum numbers of sentences and of tokens in a segment that is not one sentence."""
        path, shape = self._folder / RUN, {"data?": {"source_lines?": LENGTHS_SHAPE}}
        recorded = read_json(path, shape, LENGTHS_FIX) if path.exists() else {}
        lines = recorded.get("data", {}).get("source_lines")
        if not lines:
            return 1, self._max_tokens
        several = self._splits == "auto" and lines["several_sentences"] >= USUAL
        return lines["sentences"] if several else 1, min(lines["tokens"], self._max_tokens)

    def _groups(self, tag: str, sentences: Sequence[str]) -> Iterator[str]:
        """Yields consecutive sentences together, as many as a segment may have."""
        (most, limit), group, size = self.limits, "", 0
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
        return halve(text, lambda part: self._length(tag, part) <= self.limits[1])


def measure_lines(
    lines: TokenStore | Sequence[Ids], decode: Callable[[Ids], str], language: str
) -> dict[str, float | int]:
    """Returns `LENGTHS_SHAPE` of encoded texts, measured on `MEASURED` that are spread over them.

    `SHORT_FRACTION` of these have at most the numbers of sentences and of tokens, with an end.
    """
    ids = [lines[i] for i in range(0, len(lines), max(1, len(lines) // MEASURED))]
    # An unknown token is written as ⁇, which would end a sentence.
    texts = (decode([int(token) for token in line if token != UNK_ID]) for line in ids)
    sentences = [len(split_sentences(text, language)) for text in texts]
    several, at = sum(count > 1 for count in sentences), math.ceil(SHORT_FRACTION * len(ids)) - 1
    most = {"sentences": sorted(sentences)[at], "tokens": sorted(map(len, ids))[at] + 1}
    return {"several_sentences": several / len(ids), **most}


def source_language(config: ConfigDict) -> str:
    """Returns the code of the source's language, see `languages_of`, or the one to decode with."""
    code = config.decode.source_language
    if code and not ISO_CODE.fullmatch(code):
        raise UserError(
            f"config.decode.source_language={code} is not a code of a language: give one such as "
            "en or de"
        )
    return code or languages_of(config.data)[0]


def languages_of(data: ConfigDict) -> list[str]:
    """Returns the codes of source and target, as far as `config.data` names them; '' if not."""
    files, fields = (data.train_source, data.train_target), (data.source_field, data.target_field)
    names = {"files": files if data.train_target else fields, "tfds": data.tfds_fields}
    if data.source not in names or data.corpora:
        return list(data.languages)
    ends = [COMPRESSED_ENDING.sub("", Path(name).name) for name in names[data.source]]
    pairs = zip(data.languages, map(ENDING.fullmatch, ends), strict=True)
    return [code or (match[1] if match else "") for code, match in pairs]


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
    sentences, begin = [], 0
    for end in itertools.accumulate(lengths):
        sentence = text[begin:end]
        if any(map(str.isalpha, sentence)) and not _goes_on(sentence, text[end:], language):
            sentences.append(sentence)
            begin = end
    if not sentences:
        return [text]
    sentences[-1] += text[begin:]
    return sentences


def _goes_on(before: str, after: str, language: str) -> bool:
    """Whether a sentence goes on where sentencex ends it."""
    if before[-1:] in "」』”" and after.startswith(("と", "って")):  # he said, in Japanese
        return True
    if not after or not (match := ABBREVIATION.search(before[-MAX_WORD:])):
        return False
    word, following = match[1], after.lstrip(f" {OPENING_MARKS}")[:1]
    abbreviations = _abbreviations(language)
    return (
        word in abbreviations
        or (word + NUMERIC in abbreviations and following.isdigit())
        or (before[-1] == "." and (following.isupper() or after[0] == "-"))  # av. J.-C.
        or (following.islower() and before != before.lower())  # not in a text without capitals
    )


@functools.cache
def _abbreviations(language: str) -> frozenset[str]:
    """The words that a full stop ends without ending a sentence."""
    from sacremoses.corpus import NonbreakingPrefixes  # only for lines to split

    moses = NonbreakingPrefixes()
    words = moses.words(language if language in moses.available_langs else "en")
    # Numbers, which end dates, are left to sentencex; "I" is an English word.
    return frozenset(w for w in words if not w.isdigit() and w != "I").union(MORE.get(language, ()))


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
        or _nearest(CHARACTER, text, middle)
        or middle
    )
    return [*halve(text[:at], fits), *halve(text[at:], fits)]


def _nearest(pattern: Any, text: str, reach: int) -> int | None:
    """The end of the match nearest to a text's middle, within `reach` and text on both sides."""
    middle = len(text) // 2
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    ends = [match.end() for match in pattern.finditer(text)]
    near = [end for end in ends if first < end < last and abs(end - middle) <= reach]
    return min(near, key=lambda end: abs(end - middle), default=None)


def translate_lines(
    translator: Translator,
    variables: Variables,
    split: Segmenter,
    lines: Sequence[str],
    first_line: int = 1,
    done: Callable[[int], None] = lambda count: None,
    num_best: int | None = None,
) -> list[list[Translation]]:
    """Returns the translations of each line, best first, see `join` and `Translator.translate`."""
    if not lines:
        return []
    segments = [split(line, number) for number, line in enumerate(lines, first_line)]
    flat = list(itertools.chain.from_iterable(segments))
    numbers = [number for number, line in enumerate(segments, first_line) for _ in line]
    count = 0  # of the translated segments

    def advance(more: int) -> None:
        nonlocal count
        before, count = count * len(lines) // len(flat), count + more
        done(count * len(lines) // len(flat) - before)

    most = num_best or translator.decode.num_best
    translations = iter(
        translator.translate(variables, flat, numbers=numbers, done=advance, num_best=most)
    )
    return [join([next(translations) for _ in line], most) for line in segments]


def join(parts: Sequence[Sequence[Translation]], most: int) -> list[Translation]:
    """Returns the best translations of a line, `most` of them, given those of its segments.

    A score is the sum of the segments' scores. Fewer degenerate segments come before more.
    """
    best = list(parts[0])
    whole = "".join(part[0].text for part in parts)
    spaced = 3 * len("".join(UNSPACED.findall(whole)).encode()) < len(whole.encode())
    for part in parts[1:]:
        both = [
            Translation(
                _text(a.text, b.text, spaced),
                a.score + b.score,
                a.tokens + b.tokens,
                a.degenerate + b.degenerate,
            )
            for a in best
            for b in part
        ]
        both.sort(key=lambda each: (each.degenerate, -each.score))
        best = distinct(both)[: max(1, most)]
    return best


def _text(left: str, right: str, spaced: bool) -> str:
    """Two texts with a blank between them, but not between Chinese or Japanese sentences."""
    joined = not (left and right) or UNSPACED.fullmatch(left[-1])
    if joined or not (spaced or (left[-1] + right[0]).isascii()):
        return left + right
    return f"{left} {right}"
