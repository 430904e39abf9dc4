"""The outputs of a run for each text of its test set, for all tasks that save them."""

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

MAX_BUCKETS = 5


@dataclasses.dataclass(frozen=True)
class Texts:
    """What a run made of the texts of its test set, in their order.

    Attributes:
      counts: int64 [texts, n]: sums of rows make the main score of any corpus of these texts.
      exact: bool [texts]: came out as it should, letter by letter or as its very label.
      lengths: int64 [texts]: words of what was put in.
      given: a digest of the content that must be equal in all runs, by file.
    """

    counts: np.ndarray
    exact: np.ndarray
    lengths: np.ndarray
    given: dict[str, str]


class UnreadableError(Exception):
    """A file is missing or damaged: its path, and why."""

    def __init__(self, path: Path, reason: object):
        super().__init__(path, reason)
        self.path = path
        self.reason = reason.strerror if isinstance(reason, OSError) else reason


def read_lines(path: Path) -> list[str]:
    """The lines of a file that a run wrote, without their ends; at least one.

    Raises:
      UnreadableError: it is missing, empty or not UTF-8.
    """
    try:
        # Bytes, for a text may hold what text files and `splitlines` take for the end of a line.
        text = path.read_bytes().decode("utf-8")
    except (OSError, ValueError) as error:
        raise UnreadableError(path, error) from None
    if not text:
        raise UnreadableError(path, "it is empty")
    return text.removesuffix("\n").split("\n")


def digest(lines: Iterable[str]) -> str:
    """What tells lines from others."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def count_words(texts: Iterable[str]) -> np.ndarray:
    """int64 [texts]: how many words each has, between blanks."""
    return np.array([len(text.split()) for text in texts], np.int64)


def exact_fraction(texts: Texts, rows: np.ndarray) -> float:
    """The percentage of these rows that is exact."""
    return 100 * texts.exact[rows].mean()


def length_buckets(lengths: np.ndarray) -> list[np.ndarray]:
    """The rows of texts of like length, up to five times about equally many.

    Texts of one length stay together, so fewer lengths make fewer buckets.

    Args:
      lengths: int64 [texts], in words.

    Returns:
      Row numbers of each bucket, the shortest texts first; none is empty.
    """
    shares = np.arange(1, MAX_BUCKETS) / MAX_BUCKETS
    longest = np.unique(np.quantile(lengths, shares, method="lower"))
    longest = longest[longest < lengths.max()]  # of every bucket but the last
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]
