"""The outputs of a run for each text of its test set, for all tasks that save them."""

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, Int64

from transformer.data.documents import encode
from transformer.storage.reading import read_file

MAX_BUCKETS = 5
MAX_TEXTS = 2**30  # bytes of the outputs for a test set


@dataclasses.dataclass(frozen=True)
class Texts:
    """The outputs of a run for the texts of its test set, in their order.

    Attributes:
      counts: sums of rows make the main score of any corpus of these texts.
      exact: came out as it should, letter by letter or as its very label.
      lengths: words of the inputs.
      given: a digest of the content that must be equal in all runs, by file.
    """

    counts: Int64[np.ndarray, "N n"]
    exact: Bool[np.ndarray, "N"]
    lengths: Int64[np.ndarray, "N"]
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
        text = read_file(path, MAX_TEXTS).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UnreadableError(path, error) from None
    if not text:
        raise UnreadableError(path, "it is empty")
    return text.removesuffix("\n").split("\n")


def read_rows(path: Path, columns: int) -> list[list[str]]:
    """The columns of each line of a table that a run wrote, between tabs.

    The last column is text, which may have tabs itself.

    Raises:
      UnreadableError: see `read_lines`; or a line has fewer columns.
    """
    rows = [line.split("\t", columns - 1) for line in read_lines(path)]
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise UnreadableError(
                path, f"line {number} has {len(row)} columns instead of {columns}"
            )
    return rows


def digest(lines: Iterable[str]) -> str:
    """A digest of lines: other lines have another."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def count_words(texts: Iterable[str]) -> Int64[np.ndarray, "N"]:
    """How many words each has, see `encode.count_words`."""
    return np.array([*map(encode.count_words, texts)], np.int64)


def exact_fraction(texts: Texts, rows: Int[np.ndarray, "rows"]) -> float:
    """The percentage of these rows that is exact."""
    return 100 * texts.exact[rows].mean()


def length_buckets(lengths: Int[np.ndarray, "N"]) -> list[Int[np.ndarray, "_"]]:
    """The rows of texts of like length, up to five times about equally many.

    Texts of one length stay together, so fewer lengths make fewer buckets.

    Args:
      lengths: of the texts, in words.

    Returns:
      Row numbers of each bucket, the shortest texts first; none is empty.
    """
    shares = np.arange(1, MAX_BUCKETS) / MAX_BUCKETS
    longest = np.unique(np.quantile(lengths, shares, method="lower"))
    longest = longest[longest < lengths.max()]  # of every bucket but the last
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]
