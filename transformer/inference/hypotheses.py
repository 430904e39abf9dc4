"""What a search found, as text, and what is said where it found nothing."""

from typing import NamedTuple

from transformer.data.tokenizer import Tokenizer
from transformer.decode import Hypotheses
from transformer.errors import RunError


class Translation(NamedTuple):
    """A translation, its score (log-probability over the length penalty) and its tokens.

    `tokens` counts the end of the sentence; of a blank line it is 0.
    """

    text: str
    score: float
    tokens: int


BLANK = Translation("", 0.0, 0)


def read_hypotheses(found: Hypotheses, tokenizer: Tokenizer, count: int) -> list[Translation]:
    """Returns what was found for one sentence, best first.

    It is nothing where no score was a number.

    Args:
      found: arrays [P, steps], [P] and [P].
      count: translations at most, and at least one.
    """
    return [
        Translation(tokenizer.decode(ids[:length]), float(score), int(length))
        for ids, length, score in zip(*found, strict=True)
        if length
    ][: max(1, count)]


def not_finite(line: int, what: str) -> RunError:
    """Returns the error of a line whose scores are not numbers.

    Args:
      line: its number, from one.
      what: a model would have made of it.
    """
    return RunError(
        f"line {line} has no {what}: the model's scores of it are not finite: its training "
        "diverged, or its checkpoint is damaged: use --config.evaluate.checkpoint=best, or train "
        "again with a lower --config.optimizer.learning_rate"
    )
