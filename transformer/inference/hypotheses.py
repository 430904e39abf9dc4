"""Reads lines and converts the results of beam search to text; types of all results."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.data.placeholders import read_line, write_text
from transformer.data.tokenizer import Tokenizer
from transformer.data.words import Words, read_case, write_case
from transformer.decoding.search import Hypotheses
from transformer.errors import RunError
from transformer.inference.prefixes import Prefix


class Translation(NamedTuple):
    """A translation, its score (log-probability / length penalty) and its number of tokens.

    `tokens` includes end-of-sentence, and is 0 for a blank line. `degenerate` counts segments that
    are empty, repeat a phrase (see `loops`), lack a string to copy, or end at the length limit.
    """

    text: str
    score: float
    tokens: int
    degenerate: int = 0


class Candidate(NamedTuple):
    """A token that may come next, as a piece, and its log-probability in nats."""

    token: str
    log_prob: float


class NextToken(NamedTuple):
    """A token of a text, its log-probability, and the entropy of its distribution, in nats.

    `best` are the most probable tokens, without those that no text has.
    """

    token: str
    log_prob: float
    entropy: float
    best: list[Candidate]


class Alternative(NamedTuple):
    """A token that may come next, and the translation that would follow with its score.

    `word` is the whole word in which the token stands, and `prefix` the text up to its end.
    """

    token: str
    log_prob: float
    word: str
    prefix: str
    text: str
    score: float


class Branch(NamedTuple):
    """A continuation at a step of a beam search; `fate` is "kept", "finished" or "pruned".

    `parent` is the index of its hypothesis among those that the previous step kept. `log_prob` is
    that of the whole hypothesis, and `score` divides it by the length penalty.
    """

    parent: int
    token: str
    log_prob: float
    score: float
    fate: str


BLANK = Translation("", 0.0, 0)
SEPARATOR = re.compile(r"(?<=\w)[^\w\s]?\s*")  # punctuation and spaces after a word
REPETITION = re.compile(r"(.{1,80}?)\1\1+")
MIN_LOOP = 10  # characters; shorter repetitions are normal, as in "los osos" or "ha ha ha"


class Lines:
    """What a translation model reads of a line, and writes for it; `words` are of its sources."""

    def __init__(self, words: Words, decode: ConfigDict):
        self._words, self._decode = words, decode

    def copy(self, line: str) -> Translation:
        """Returns a copy of a line that has no words to translate, or `BLANK`."""
        words, line = self._words, canonicalize(line)
        return Translation(words.written(line), 0.0, 0) if words.is_copied(line) else BLANK

    def without_case(self, line: str) -> str:
        """Returns a line in its usual case if its case is transferred to the translation."""
        return read_case(canonicalize(line), self._words) if self._decode.transfer_case else line

    def read(self, line: str) -> tuple[str, dict[str, str]]:
        """Returns a line as model input, and its copied strings, keyed by placeholder."""
        return read_line(self.without_case(line), self._words)

    def write(self, text: str, line: str, strings: Mapping[str, str]) -> tuple[str, int]:
        """Returns a text with a line's case and copied strings, and a count of missing strings."""
        if self._decode.transfer_case:
            text = write_case(text, canonicalize(line), self._words)
        return write_text(text, strings)

    def read_prefix(self, line: str, prefix: Prefix) -> Prefix:
        """Returns a prefix as the model writes it, before copied strings and case are restored."""
        text = prefix.text
        for name, string in self.read(line)[1].items():
            text = re.sub(rf"(?<!\w){re.escape(string)}(?!\w)", name, text, count=1)
        ignore_case = self.without_case(line) not in (line, canonicalize(line))
        return prefix._replace(text=text, ignore_case=ignore_case)


def read_hypotheses(
    hypotheses: Hypotheses,
    tokenizer: Tokenizer,
    source: str,
    count: int,
    write: Callable[[str], tuple[str, int]] = lambda text: (text, 0),
    search: str = "beam",
) -> list[Translation]:
    """Returns the distinct translations of one sentence, best first, or all samples in turn.

    Degenerate translations come last. The list is empty if no score is finite.

    Args:
      hypotheses: search results for the sentence as arrays of shape [P, steps], [P], [P] and [P].
      count: maximum number of translations, at least one.
      write: text -> (text with restored case and copied strings, number of missing strings).
      search: "beam", "sample" or "mbr", whose scores are `mean_chrf` (Eikema and Aziz 2020).
    """
    results = []
    for ids, length, score, forced in zip(*hypotheses, strict=True):
        if length and score < math.inf:  # and not NaN
            text, lacks = write(canonicalize(tokenizer.decode(ids[:length])))
            degenerate = int(forced or lacks or not text.strip() or loops(text, source))
            results.append(Translation(text, float(score), int(length), degenerate))
    if search == "mbr":
        scores = mean_chrf([each.text for each in results])
        results = list(map(lambda each, score: each._replace(score=score), results, scores))
    if search != "sample":
        results.sort(key=lambda each: (each.degenerate, -each.score))
        results = distinct(results)
    return results[: max(1, count)]


def mean_chrf(texts: Sequence[str]) -> list[float]:
    """Returns the mean chrF (0 to 100) of each text, with each other text as reference.

    Source: Popović 2015, with the settings of sacreBLEU's sentence-level chrF.
    """
    names, copies, counts = np.unique(texts, return_inverse=True, return_counts=True)
    lines, sums, orders = ["".join(text.split()) for text in names], np.zeros((2, 1, 1)), 0
    letters = np.array([*map(ord, "".join(lines))], np.int64)
    rows, grams = np.repeat(np.arange(len(lines)), [*map(len, lines)]), np.zeros_like(letters)
    for n in range(1, 7):
        grams = grams[: len(letters) - n + 1] << 21 | letters[n - 1 :]
        kinds, grams = np.unique(grams, return_inverse=True)
        is_whole = rows[: len(grams)] == rows[n - 1 :]
        places = (rows[: len(grams)] * len(kinds) + grams)[is_whole]
        has = np.bincount(places, minlength=len(lines) * len(kinds)).reshape(len(lines), len(kinds))
        # The minimum of two counts is the number of k for which both are at least k.
        levels = ((has >= k).astype(np.float32) for k in range(1, 2 + has.max(initial=0)))
        matches, total = sum(x @ x.T for x in levels), has.sum(axis=1, keepdims=True)
        sums = sums + np.stack([matches / np.maximum(total, 1), matches / np.maximum(total.T, 1)])
        orders = orders + (total > 0) * (total.T > 0)
    precision, recall = sums / np.maximum(orders, 1)
    scores = 500 * precision * recall / np.maximum(4 * precision + recall, 1e-16)  # beta = 2
    means = (scores @ counts - scores.diagonal()) / max(1, counts.sum() - 1)
    return means[copies].tolist()


def loops(text: str, source: str) -> bool:
    """Returns whether a translation repeats a phrase three times or more in a row.

    Together, the repetitions must have MIN_LOOP characters or more, without spaces and punctuation
    after words. Case is ignored. If the source repeats a phrase n times, 2n times are allowed.
    """
    count = _repetitions(text, MIN_LOOP)
    return count > 2 and count > 2 * _repetitions(source)


def _repetitions(text: str, least: int = 0) -> int:
    """Returns the maximum repetition count in spans of `least` characters or more; 1 if below 3."""
    matches = REPETITION.finditer(SEPARATOR.sub("", text.lower()))
    counts = (len(match[0]) // len(match[1]) for match in matches if len(match[0]) >= least)
    return max(counts, default=1)


def distinct(results: Iterable[Any]) -> list[Any]:
    """Removes duplicate texts, since several token sequences can decode to the same text."""
    firsts: dict[str, Any] = {}
    for result in results:
        firsts.setdefault(result.text, result)
    return [*firsts.values()]


def not_finite(line: int, what: str) -> RunError:
    """Returns the error to raise if the model's scores for a line are not finite."""
    return RunError(
        f"line {line} has no {what}: the model's scores of it are not finite: its training "
        "diverged, or its checkpoint is damaged: use config.evaluate.checkpoint=best, or train "
        "again with a lower config.optimizer.learning_rate"
    )
