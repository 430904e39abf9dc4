"""Text that goes through a trained model a line at a time."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from transformer.errors import UserError

LINES_AT_ONCE = 1024  # read before the first of them is written: enough to sort by length


def read_lines(path: Path | None) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, or of standard input, without their ends.

    Raises:
      UserError: a line is not UTF-8.
    """
    stream = path.open("rb") if path else sys.stdin.buffer
    with stream:
        for number, line in enumerate(stream, 1):
            try:
                # What editors of one kind put before the first line is no part of it.
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                name = path or "standard input"
                raise UserError(f"{name}, line {number}, is not UTF-8: convert it first") from None


def count_lines(path: Path | None) -> int | None:
    """Returns the lines of a file; None where they cannot be counted before they are read."""
    if path is None or not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(1 for _ in file)


def warn(line: str) -> None:
    """Prints a line beside the output."""
    print(line, file=sys.stderr, flush=True)


def chunks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, from one, lines)."""
    lines = iter(lines)
    first = 1
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        yield first, chunk
        first += len(chunk)
