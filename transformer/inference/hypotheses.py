"""Converts search results to text, and reports a search without results."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from transformer.data.characters import canonicalize
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.search import Hypotheses
from transformer.errors import RunError


class Translation(NamedTuple):
    """A translation, its score (log-probability over the length penalty) and its tokens.

    `tokens` includes end-of-sentence; for a blank line it is 0. `degenerate` is the number of
    segments that are empty, repeat a phrase (see `loops`), or end only at the length limit.
    """

    text: str
    score: float
    tokens: int
    degenerate: int = 0


BLANK = Translation("", 0.0, 0)
SEPARATOR = re.compile(r"(?<=\w)[^\w\s]?\s*")  # between words, and after the last one
REPETITION = re.compile(r"(.{1,80}?)\1\1+")
MIN_LOOP = 10  # minimum characters; shorter loops are in "los osos" and in "ha ha ha"


def read_hypotheses(
    hypotheses: Hypotheses,
    tokenizer: Tokenizer,
    source: str,
    count: int,
    write: Callable[[str], tuple[str, int]] = lambda text: (text, 0),
) -> list[Translation]:
    """Returns the distinct translations of one sentence, best first.

    Degenerate ones come last. The list is empty if no score is finite.

    Args:
      hypotheses: search results of the sentence: arrays [P, steps], [P], [P] and [P].
      count: maximum number of translations, at least one.
      write: restores the source's case and strings in a text; also counts missing strings.
    """
    results = []
    for ids, length, score, forced in zip(*hypotheses, strict=True):
        if length and score < math.inf:  # and not NaN
            text, lacks = write(canonicalize(tokenizer.decode(ids[:length])))
            degenerate = int(forced or lacks or not text.strip() or loops(text, source))
            results.append(Translation(text, float(score), int(length), degenerate))
    results.sort(key=lambda each: each.degenerate)
    return distinct(results)[: max(1, count)]


def loops(text: str, source: str) -> bool:
    """Returns whether a translation has a phrase three times or more in a row.

    The repetitions have at least MIN_LOOP characters, ignoring case, blanks and marks after words.
    If the source also repeats a phrase, of any length, twice as many repetitions are allowed.
    """
    count = _repetitions(text, MIN_LOOP)
    return count > 2 and count > 2 * _repetitions(source)


def _repetitions(text: str, least: int = 0) -> int:
    """Returns how often a phrase is repeated, over `least` characters or more; 1 if below 3."""
    matches = REPETITION.finditer(SEPARATOR.sub("", text.lower()))
    counts = (len(match[0]) // len(match[1]) for match in matches if len(match[0]) >= least)
    return max(counts, default=1)


def distinct(results: Iterable[Any]) -> list[Any]:
    """Returns the first result for each text, which several token sequences may spell."""
    firsts: dict[str, Any] = {}
    for result in results:
        firsts.setdefault(result.text, result)
    return [*firsts.values()]


def not_finite(line: int, what: str) -> RunError:
    """Returns the error for a line, by its number, without finite scores."""
    return RunError(
        f"line {line} has no {what}: the model's scores of it are not finite: its training "
        "diverged, or its checkpoint is damaged: use config.evaluate.checkpoint=best, or train "
        "again with a lower config.optimizer.learning_rate"
    )
