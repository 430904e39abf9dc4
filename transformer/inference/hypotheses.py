"""The results of a search as text, and the error if it found nothing."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from transformer.data.characters import canonicalize
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.search import Hypotheses
from transformer.errors import RunError


class Translation(NamedTuple):
    """A translation, its score (log-probability over the length penalty) and its tokens.

    `tokens` includes end-of-sentence; for a blank line it is 0.
    """

    text: str
    score: float
    tokens: int


BLANK = Translation("", 0.0, 0)


def read_hypotheses(
    found: Hypotheses, tokenizer: Tokenizer, count: int, better: Sequence[Translation] = ()
) -> list[Translation]:
    """Returns the translations of one sentence, best first, each text once.

    The list is empty if no score is finite.

    Args:
      found: arrays [P, steps], [P] and [P].
      count: maximum number of translations, at least one.
      better: of another search; they come first, and the others have lower scores.
    """
    lowest = better[-1].score if better else math.inf
    others = (
        Translation(canonicalize(tokenizer.decode(ids[:length])), float(score), int(length))
        for ids, length, score in zip(*found, strict=True)
        if length and score < lowest
    )
    return distinct((*better, *others))[: max(1, count)]


def distinct(results: Iterable[Any]) -> list[Any]:
    """Returns the first result of each text, which tokens may spell in several ways."""
    firsts: dict[str, Any] = {}
    for result in results:
        firsts.setdefault(result.text, result)
    return [*firsts.values()]


def not_finite(line: int, what: str) -> RunError:
    """Returns the error of a line whose scores are not finite.

    Args:
      line: its number, from one.
      what: the expected output, such as "translation".
    """
    return RunError(
        f"line {line} has no {what}: the model's scores of it are not finite: its training "
        "diverged, or its checkpoint is damaged: use config.evaluate.checkpoint=best, or train "
        "again with a lower config.optimizer.learning_rate"
    )
