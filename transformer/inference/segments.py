"""Splits long lines into segments for a translation model, and joins their translations."""

import collections
import functools
import itertools
import logging
import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import regex
from ml_collections import ConfigDict

from transformer.data.characters import UNSPACED
from transformer.data.corpora import Tagger, languages_of
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import UNK_ID, Ids
from transformer.errors import UserError
from transformer.files import Each, read_json
from transformer.inference.hypotheses import Translation, distinct
from transformer.inference.prefixes import Prefix

logger = logging.getLogger(__name__)

SHORT_FRACTION = 0.99  # fraction of training sources that fit into the segment length limit
MEASURED = 2_000  # number of training sources for statistics of lengths
READ = 20_000  # number of training sources for learning abbreviations
MIN_USES = 5  # minimum frequency of a word in these sources
REACH = 500  # number of characters after a punctuation mark that rules can match
USUAL = 0.1  # minimum fraction of multi-sentence sources to allow multi-sentence segments
RUN = "run.json"  # file in a run's folder that contains `data.source_lines`
LENGTHS_SHAPE = {"several_sentences": float, "sentences": int, "tokens": int, "words?": Each(bool)}
LENGTHS_FIX = "delete it; without it each sentence of a line is translated on its own"
ISO_CODE = re.compile(r"[a-z]{2,3}")
# The end of a clause, with the white space after it.
CLAUSE = re.compile(r"[,;:…–—)\]»”]\s+|\s(?=[–—(\[«„“])|[、，；：،؛]\s*")
SPACE = re.compile(r"\s")
SPACES = regex.compile(r"\p{White_Space}*")
# Unicode's mandatory line breaks (UAX #14), and the white space around lines, which is kept.
BREAK = re.compile("[\n-\r\x85\u2028\u2029]")
LAYOUT = regex.compile(rf"(^\s+|(?<!\s)\s*{BREAK.pattern}\s*|(?<!\s)\s+$)")
RULES = Path(__file__).with_name("sentences.toml")
NAME = re.compile("<([a-z]+)>")  # a named part of a pattern
LETTER = regex.compile(r"\p{L}")
# A word, the full stop after it if there is one, and the first character of the next word.
WORD = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}.'’-])([\p{L}\p{M}]{2,20})(?![\p{L}\p{M}\p{N}'’-])"
    r"(?=(\.(?![^\s\p{P}]))?\W*(\w?))"
)
CHARACTER = regex.compile(r"\X")  # grapheme cluster: a letter with its accents, or a joined emoji


class Layout(str):
    """White space around a line of a text, which is copied to the translation unchanged."""


class Segmenter:
    """Splits a line into segments that are translated separately; see `decode.split_sentences`.

    A sentence is split only if it exceeds `model.max_length`. The parts are then as short as the
    training sources, and a warning with the line number is logged.

    Args:
      folder: the run's folder, which has statistics of the training sources in `run.json`.
      encode: returns the token ids of source texts without end-of-sentence.
      max_length: the model's maximum source length in tokens, including end-of-sentence.
      keep_whole: whether to split only lines that exceed `max_length` or `data.max_tokens`.
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
        self.language = source_language(config.decode, config.data)
        self._tagger = Tagger(config.data, None)
        self._folder, self._encode, self._max_length = folder, encode, max_length
        self._max_tokens = min(config.data.max_tokens, max_length)

    def __call__(self, line: str, number: int) -> list[str]:
        """Returns the segments of a line, each with the line's tag, or the unchanged line."""
        tag, text = self._tagger.split(line)
        if self._splits == "never" or not text.strip():
            return [line]
        length = self._length(tag, text)
        if self._keep_whole and length <= self._max_length:
            return [line]
        sentences = split_sentences(text, self.language, self.measured.get("words", {}))
        most, limit = self.limits if len(sentences) > 1 else (1, self._max_length)
        if len(sentences) <= most and length <= limit:
            return [line]
        segments, cut = [], 0
        for group in self._groups(tag, sentences):
            parts = [group]
            if self._length(tag, group) > self._max_length:
                parts = halve(group, lambda part: self._length(tag, part) <= self.limits[1])
                cut += len(parts) > 1
            segments += [f"{tag} {part.strip()}".lstrip() for part in parts]
        if cut:
            sentence = "a sentence" if cut == 1 else f"{cut} sentences"
            logger.warning(
                f"line {number} has {sentence} of more than {self._max_length - 1} tokens, "
                f"translated in parts (model.max_length={self._max_length})"
            )
        return segments

    def lines(self, text: str, number: int) -> list[str]:
        """Returns the segments of all lines of a text, with a `Layout` between lines.

        A text without line breaks except at its end, such as a line of a file, is a single line.
        """
        if not BREAK.search(text.rstrip()):
            return self(text, number)
        tag, rest = self._tagger.split(text)
        segments: list[str] = []
        for part in filter(None, LAYOUT.split(rest.lstrip(" ") if tag else rest)):
            is_line = not part.isspace()
            segments += self(f"{tag} {part}".lstrip(), number) if is_line else [Layout(part)]
        return segments

    def deal(self, prefix: str, segments: Sequence[str], language: str) -> Iterator[Prefix]:
        """Yields how the translation of each segment begins, given how that of the whole begins.

        A segment of n sentences gets the next n sentences of the prefix, and the last one the rest.
        """
        rest = split_sentences(prefix, language)
        for number, segment in enumerate(segments, 1):
            count = len(split_sentences(segment, self.language, self.measured.get("words", {})))
            part, rest = (rest, []) if number == len(segments) else (rest[:count], rest[count:])
            text = "".join(part)
            is_whole = bool(rest) or (number < len(segments) and text[-1:].isspace())
            yield Prefix(text.rstrip() if is_whole else text, is_whole)

    def _length(self, tag: str, text: str) -> int:
        """Returns the number of tokens of a text, including its tag and end-of-sentence."""
        return len(self._encode([f"{tag} {text}".lstrip()])[0]) + 1

    @functools.cached_property
    def measured(self) -> dict[str, Any]:
        """The recorded result of `measure_lines` for the training sources, or an empty dict."""
        path, shape = self._folder / RUN, {"data?": {"source_lines?": LENGTHS_SHAPE}}
        recorded = read_json(path, shape, LENGTHS_FIX) if path.exists() else {}
        return recorded.get("data", {}).get("source_lines") or {}

    @functools.cached_property
    def limits(self) -> tuple[int, int]:
        """The maximum numbers of sentences and tokens in a multi-sentence segment."""
        if not (lines := self.measured):
            return 1, self._max_tokens
        several = self._splits == "auto" and lines["several_sentences"] >= USUAL
        return lines["sentences"] if several else 1, min(lines["tokens"], self._max_tokens)

    def _groups(self, tag: str, sentences: Sequence[str]) -> Iterator[str]:
        """Yields groups of consecutive sentences, each as long as `limits` allow."""
        (most, limit), group, size = self.limits, "", 0
        for sentence in sentences:
            if size and (size == most or self._length(tag, group + sentence) > limit):
                yield group
                group, size = "", 0
            group, size = group + sentence, size + 1
        yield group


def measure_lines(
    lines: TokenStore | Sequence[Ids], decode: Callable[[Ids], str], language: str
) -> dict[str, Any]:
    """Returns statistics (`LENGTHS_SHAPE`) for about `READ` evenly spaced encoded texts.

    Maxima are `SHORT_FRACTION` quantiles of about `MEASURED` texts; tokens include end-of-sentence.
    """
    ids = [lines[i] for i in range(0, len(lines), max(1, len(lines) // READ))]
    # An unknown token is decoded as ⁇, which would end a sentence.
    texts = [decode([int(token) for token in line if token != UNK_ID]) for line in ids]
    words = learn_words(texts, language)
    step = max(1, len(ids) // MEASURED)
    sentences = [len(split_sentences(text, language, words)) for text in texts[::step]]
    tokens = sorted(map(len, ids[::step]))
    several, at = sum(count > 1 for count in sentences), math.ceil(SHORT_FRACTION * len(tokens)) - 1
    most = {"sentences": sorted(sentences)[at], "tokens": tokens[at] + 1}
    return {"several_sentences": several / len(tokens), **most, "words": words}


def source_language(decode: ConfigDict, data: ConfigDict) -> str:
    """Returns the source language code from `config.decode`, or else from `languages_of`."""
    code = decode.source_language
    if code and not ISO_CODE.fullmatch(code):
        raise UserError(
            f"config.decode.source_language={code} is not a code of a language: give one such as "
            "en or de"
        )
    return code or languages_of(data)[0]


def learn_words(texts: Iterable[str], language: str) -> dict[str, bool]:
    """Returns {word: whether it is an abbreviation} for words that the rules misclassify.

    A full stop after an abbreviation usually precedes a lowercase letter or a digit; a full stop
    after another word ends a line (similar to the collocations of Kiss and Strunk, 2006).
    """
    counts = collections.Counter(
        (word, "plain" if not stop else "inside" if after.islower() or after.isdigit() else after)
        for text in texts
        for word, stop, after in WORD.findall(text)
    )
    words = {}
    for word in sorted({word for word, _ in counts}):
        plain, inside, final = (counts[word, use] for use in ("plain", "inside", ""))
        is_abbreviation = inside >= MIN_USES and inside >= 9 * plain and inside > 4 * final
        is_shown = is_abbreviation or (final >= MIN_USES and plain + final >= 9 * inside)
        if is_shown and (len(split_sentences(f"Aa {word}. Aa", language)) > 1) == is_abbreviation:
            words[word] = is_abbreviation
    return words


def segment_rules(language: str, words: Mapping[str, bool]) -> dict[str, Any]:
    """Returns the rules for splitting and joining texts as JSON data; see `sentences.toml`.

    Args:
      language: language code; '' and unknown codes use the abbreviations of all languages.
      words: see `learn_words`.
    """
    tables = tomllib.loads(RULES.read_text("utf-8"))
    lists, parts = tables["words"], tables["parts"]
    for kind in ("before", "often", "numbers", "plain", "starters", "months", "ordinals", "known"):
        of_all = language not in lists and kind not in ("plain", "starters")
        codes = lists if of_all else ("any", language if language in lists else "en")
        entries = [word for code in codes for word in lists[code].get(kind, "").split()]
        if kind in ("known", "plain"):
            entries += [w for w in words if words[w] == (kind == "known") and WORD.fullmatch(w)]
        # Each of these words may be capitalised at the start of a sentence.
        cases = (f"[{w[0]}{w[0].upper()}]{w[1:]}" if w[0].islower() else w for w in entries)
        parts[kind] = "|".join(dict.fromkeys(cases)).replace(".", r"\.") or "(?!)"

    def fill(pattern: str) -> str:
        while NAME.search(pattern):
            pattern = NAME.sub(lambda match: f"(?:{parts[match[1]]})", pattern)
        return pattern

    rules = [[fill(rule["at"]), rule["ends"]] for rule in tables["rules"]]
    patterns = {"layout": LAYOUT, "break": BREAK, "clause": CLAUSE, "unspaced": UNSPACED}
    named = {name: pattern.pattern for name, pattern in patterns.items()}
    return {"candidate": fill(tables["candidate"]), "rules": rules, "reach": REACH, **named}


@functools.lru_cache(maxsize=8)
def _compiled(language: str, words: tuple[tuple[str, bool], ...]) -> tuple[Any, list[Any]]:
    """Returns the pattern of candidate boundaries, and the rules as pairs (pattern, ends)."""
    data = segment_rules(language, dict(words))
    rules = [(regex.compile(at, regex.DOTALL), ends) for at, ends in data["rules"]]
    return regex.compile(data["candidate"]), rules


def split_sentences(text: str, language: str, words: Mapping[str, bool] = {}) -> list[str]:
    """Splits a text into one or more sentences, each with the white space after it.

    The concatenated sentences equal the text. A sentence without letters, such as a list number, is
    joined to the next sentence. See `segment_rules`.
    """
    candidate, rules = _compiled(language, tuple(words.items()))
    sentences, begin = [], 0
    for marks in candidate.finditer(text):
        rest, at = text[begin : marks.end() + REACH], marks.end() - begin
        if next((ends for pattern, ends in rules if pattern.match(rest, at)), True):
            end = next(SPACES.finditer(text, marks.end())).end()
            sentences.append(text[begin:end])
            begin = end
    if not sentences or LETTER.search(text, begin):
        sentences.append("")
    sentences[-1] += text[begin:]
    return sentences


def halve(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halves a text recursively until all parts fit; the concatenated parts equal the text.

    A text is cut at the end of a clause in its middle half, or else at white space, or else between
    any characters. In each case, the position nearest to the middle is chosen.

    Args:
      fits: returns whether a part is short enough; a single character always fits.
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
    """Returns the end of the match nearest to the middle of a text, or None beyond `reach`."""
    middle = len(text) // 2
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    ends = [match.end() for match in pattern.finditer(text)]
    near = [end for end in ends if first < end < last and abs(end - middle) <= reach]
    return min(near, key=lambda end: abs(end - middle), default=None)


def join(parts: Sequence[Sequence[Translation]], most: int) -> list[Translation]:
    """Returns the `most` best translations of a line, which join translations of its segments.

    The scores of segments are summed. Translations with fewer degenerate segments come first.
    """
    best = list(parts[0])
    whole = "".join(part[0].text for part in parts if not part[0].text.isspace())
    spaced = 3 * len("".join(UNSPACED.findall(whole)).encode()) < len(whole.encode())
    for part in parts[1:]:
        both = [
            Translation._make((_text(a.text, b.text, spaced), *map(operator.add, a[1:], b[1:])))
            for a, b in itertools.product(best, part)
        ]
        both.sort(key=lambda each: (each.degenerate, -each.score))
        best = distinct(both)[: max(1, most)]
    return best


def _text(left: str, right: str, spaced: bool) -> str:
    """Joins two texts with a space, except between Chinese or Japanese sentences."""
    joined = not (left and right) or UNSPACED.fullmatch(left[-1])
    joined = joined or SPACE.match(left[-1]) or SPACE.match(right[0])  # around a `Layout`
    if joined or not (spaced or (left[-1] + right[0]).isascii()):
        return left + right
    return f"{left} {right}"
