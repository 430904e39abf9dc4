"""Text that goes through a trained model a line at a time."""

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

from transformer.errors import UserError
from transformer.files import whole_file

LINES_AT_ONCE = 1024  # read before the first of them is written: enough to sort by length


def input_file(name: str | None) -> Path | None:
    """Returns the file that --input names; None where it names none.

    Raises:
      UserError: it is no file.
    """
    path = None if name is None else Path(name)
    if path and (path.is_dir() or not path.exists()):
        raise UserError(f"--input {path} is no file: name a text file, a sentence a line")
    return path


@contextlib.contextmanager
def open_output(name: str | None, *sources: Path | None) -> Iterator[TextIO]:
    """Standard output, or the file that --output names, which is whole or as it was.

    Args:
      sources: the files that are read; None among them is none.

    Raises:
      UserError: the file cannot be one, or is among the sources.
    """
    if name is None:
        yield sys.stdout
        return
    path = Path(name)
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}: make it first")
    read = path.exists() and any(source and path.samefile(source) for source in sources)
    if path.is_dir() or read:
        what = "a folder" if path.is_dir() else "a file that is read"
        raise UserError(f"--output {path} is {what}: name another file")
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    with whole_file(path) as file:
        yield file


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


def two_columns(line: str, place: str, mode: str) -> list[str]:
    """Returns the source and the target of a line.

    Args:
      place, mode: where the line is and which mode reads it, for messages.

    Raises:
      UserError: it has not two columns.
    """
    columns = line.split("\t")
    if len(columns) != 2:
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        raise UserError(f"{place} has {count}: {mode} reads source<TAB>target")
    return columns


def print_table(table: Table) -> None:
    """Prints a table as wide as the terminal; a file or a pipe has 120 columns."""
    # They have no width of their own, and nothing there should be cut.
    Console(width=None if sys.stdout.isatty() else 120).print(table)


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
