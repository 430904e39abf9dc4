"""Applies a trained model to text, line by line."""

import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import logging
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, TextIO, TypeVar

from ml_collections import ConfigDict
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from experiments import prompt
from experiments.options import Options
from experiments.process import named_output
from transformer import signals
from transformer.data.corpora import Tagger
from transformer.data.files.compression import compression_of
from transformer.data.files.text import decode_line, split_lines
from transformer.errors import UserError
from transformer.storage.files import whole_file

logger = logging.getLogger(__name__)

PIPE_COLUMNS, MAX_COLUMNS = 120, 100_000  # characters: of a pipe at least, and of any table
FRAME, FRAME_OF_CELL = 1, 3  # characters: of a table's left side; of a cell's blanks and right side
LINES_AT_ONCE = 1024  # read before the first of them is written: enough to sort by length
BLOCK = 2**16  # bytes read from a pipe at once
UNPACK = {"gzip": "gunzip", "xz": "unxz", "zstd": "unzstd"}
PAUSE = 0.01  # seconds without a byte after which what has arrived is answered
LINE_ENDS = re.compile(r"[\r\n]+")
Line = TypeVar("Line")


def input_file(name: str | None) -> Path | None:
    """Returns the file that --input names; None if it names none.

    Raises:
      UserError: it is not a file.
    """
    path = None if name is None else Path(name).expanduser()
    if path and (path.is_dir() or not path.exists()):
        raise UserError(f"--input {path} is not a file: name a text file, one sentence per line")
    return path


@contextlib.contextmanager
def open_output(name: str | None, *sources: Path | None) -> Iterator[TextIO]:
    """Standard output, or the file that --output names, which is whole or as it was.

    Args:
      sources: the files that are read; None among them is none.

    Raises:
      UserError: the file cannot be one, or is among the sources; or standard output is closed.
    """
    if name is None:
        if sys.__stdout__ is None:
            raise UserError("standard output is closed: name a file with --output")
        yield sys.stdout
        return
    path = Path(name).expanduser()
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}: make it first")
    read = path.exists() and any(source and path.samefile(source) for source in sources)
    if path.is_dir() or read:
        what = "a folder" if path.is_dir() else "a file that is read"
        raise UserError(f"--output {path} is {what}: name another file")
    if _is_stdout(path):
        yield sys.stdout
        return
    if path.exists() and not path.is_file():  # a pipe or a device
        with named_output(str(path)) as file:
            yield file
        return
    with whole_file(path.resolve()) as file:  # of a link, what it leads to
        yield file


def _is_stdout(path: Path) -> bool:
    """Whether a path is standard output, such as /dev/stdout or the file that it goes to."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # there is none of them
        return False


def line_mode(answer: Callable[[Any, Path, "Lines", TextIO], int]) -> Callable:
    """Turns a function that answers lines into a mode that reads --input and writes --output.

    Args:
      answer: takes the config, the run's folder, the lines and the output, returns the number of
        lines it wrote.
    """

    @functools.wraps(answer)
    def mode(config: ConfigDict, folder: Path, options: Options) -> None:
        source = input_file(options.input)
        with open_output(options.output, source) as output:
            tag = Tagger(config.data, options.source_tag)
            count = answer(config, folder, Lines(source, tag), output)
        if options.output is not None:
            written = "1 line" if count == 1 else f"{count:,} lines"
            logger.info(f"wrote {written} to {options.output}")

    return mode


def read_lines(path: Path | None) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, or of standard input, without their ends.

    Raises:
      UserError: a line is not UTF-8, or standard input cannot be read.
    """
    return itertools.chain.from_iterable(chunk for _, chunk in Lines(path).chunks())


class Lines:
    """The lines of a UTF-8 file, or of standard input, in chunks that are answered one by one.

    Args:
      path: the file; None for standard input.
      tag: returns a line with its tag, given the line and its place.

    Attributes:
      total: how many lines there are; None if that is not known before they are read.
      typed: whether somebody types them.
    """

    def __init__(
        self, path: Path | None, tag: Callable[[str, str], str] = lambda line, place: line
    ):
        self.path, self.tag, self.total, self.typed = path, tag, None, False
        if path is None:
            if sys.stdin is None:
                raise UserError("standard input is closed: name a file with --input")
            self.typed = sys.stdin.isatty()
        if path.is_file() if path else _is_file(sys.stdin.buffer):
            self.total = sum(1 for _ in self._ahead())

    def chunks(
        self,
        parse: Callable[[str, int], Line] = lambda line, number: line,
        prepare: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[int, list[Line]]]:
        """Yields (number of the first line, from one, lines): of a file, LINES_AT_ONCE.

        Of a pipe and a terminal it is what has arrived, so that a line is answered before the next
        one is written; the lines before a bad one come first. A bad line of a file is found before
        the first chunk, since the answers to the lines before it may take hours.

        Args:
          parse: takes a line and its number; raises UserError if the line is bad.
          prepare: called once, in another thread, when a line has to be waited for.

        Raises:
          UserError: a line is bad or not UTF-8, or standard input cannot be read.
        """
        first = 1
        with self._open() as stream:
            if self.total is not None:
                self._check(parse)
            descriptor = _descriptor(stream)
            if descriptor is None:
                raw = _batched(stream)
            elif self.typed and sys.stdout.isatty():
                signals.call_aside(prepare)
                raw = prompt.typed_lines()
            else:
                raw = self._arriving(descriptor, prepare)
            while chunk := self._next(raw):
                parsed, bad = [], None
                for number, line in enumerate(chunk, first):
                    try:
                        parsed.append(parse(self._text(line, number), number))
                    except UserError as error:
                        bad = error
                        break
                if parsed:
                    yield first, parsed
                if bad:
                    raise bad
                first += len(chunk)

    def _check(self, parse: Callable[[str, int], object]) -> None:
        """Raises the UserError of the first bad line of a file."""
        for number, line in enumerate(self._ahead(), 1):
            parse(self._text(line, number), number)

    def _ahead(self) -> Iterator[bytes]:
        """Yields the lines of a file, which can be read again after the last one."""
        with self._named():
            if self.path is not None:
                with self.path.open("rb") as file:
                    yield from split_lines(file)
                return
            first = sys.stdin.buffer.tell()  # the program before may have read some lines
            yield from split_lines(sys.stdin.buffer)
            sys.stdin.buffer.seek(first)

    def _open(self) -> BinaryIO:
        if self.path is not None:
            return self.path.open("rb")
        return sys.stdin.buffer

    def _next(self, raw: Iterator[list[bytes]]) -> list[bytes]:
        with self._named():
            return next(raw, [])

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Within it, an OSError names what is read."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or str(self.path or "standard input")
            raise

    def _arriving(self, descriptor: int, prepare: Callable[[], None]) -> Iterator[list[bytes]]:
        """Yields the lines of a pipe or terminal as soon as there are any."""
        lines: list[bytes] = []
        parts: list[bytes] = []  # of a line whose end has not arrived
        asked = self.typed and sys.stderr.isatty()
        if asked:
            prompt.show(prompt.ABOUT)
        waited = False
        while True:
            if asked and not lines and not any(parts):
                prompt.show(prompt.PROMPT)
            if not waited and not select.select([descriptor], [], [], PAUSE)[0]:
                signals.call_aside(prepare)
                waited = True
            select.select([descriptor], [], [])
            block = os.read(descriptor, BLOCK)
            first, *others = block.split(b"\n")
            parts.append(first)
            for part in others:
                lines.append(b"".join(parts))
                parts = [part]
            if not block:
                break
            while len(lines) >= LINES_AT_ONCE:
                yield lines[:LINES_AT_ONCE]
                lines = lines[LINES_AT_ONCE:]
            if lines and not select.select([descriptor], [], [], PAUSE)[0]:
                yield lines
                lines = []
        if asked:
            prompt.show("\n")
        if last := b"".join(parts):
            lines.append(last)
        if lines:
            yield lines

    def _text(self, line: bytes, number: int) -> str:
        """A line without its end, and with its tag."""
        name = self.path or "standard input"
        if number == 1 and (kind := compression_of(line)):
            raise UserError(f"{name} is a {kind} file: unpack it first with {UNPACK[kind]}")
        text = decode_line(line, name, number).rstrip("\r\n")
        return self.tag(text, f"line {number}")


def _is_file(stream: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except io.UnsupportedOperation:  # bytes in memory
        return False


def _descriptor(stream: BinaryIO) -> int | None:
    """The descriptor of a stream whose content arrives bit by bit; None of a file."""
    in_memory = isinstance(stream, io.BytesIO)
    return None if in_memory or _is_file(stream) else stream.fileno()


def _batched(stream: BinaryIO) -> Iterator[list[bytes]]:
    lines = split_lines(stream)
    while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
        yield chunk


def join_lines(text: str) -> str:
    """Returns a text as one line of a file, with a blank for each end of a line in it."""
    return LINE_ENDS.sub(" ", text)


def two_columns(line: str, place: str, mode: str) -> tuple[str, str]:
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
    return columns[0], columns[1]


def print_table(table: Table, keys: int = 1) -> None:
    """Prints a table without cutting anything, for any width of the terminal.

    Cells too wide for the terminal wrap between words; if even that does not fit, the columns
    continue in further tables below. A file or a pipe is as wide as the table.

    Args:
      keys: the first columns, which name a row and stand in each of these tables.
    """
    plain: dict[str, Any] = {"markup": False, "emoji": False}  # a name may have brackets and colons
    console = _Console(**plain)
    wide = console.options.update(max_width=MAX_COLUMNS)
    if not sys.stdout.isatty():
        natural = Measurement.get(console, wide, table).maximum
        console = _Console(width=max(PIPE_COLUMNS, natural), **plain)
    columns = [
        _Size(
            i,
            max(Measurement.get(console, wide, cell).minimum for cell in cells),
            max(Measurement.get(console, wide, cell).maximum for cell in cells),
        )
        for i, cells in enumerate((column.header, *column.cells) for column in table.columns)
    ]
    parts = list(_parts(columns[:keys], columns[keys:], console.width - FRAME))
    for i, part in enumerate(parts):
        own = copy.copy(table)
        own.min_width = table.min_width and min(table.min_width, console.width)
        own.title = table.title if i == 0 else None
        own.caption = table.caption if i == len(parts) - 1 else None
        own.columns = _columns(table, part, console.width - FRAME)
        console.print(own)


class _Console(Console):
    """A console that leaves a closed standard output to the caller, as `print` does."""

    def on_broken_pipe(self) -> NoReturn:
        raise  # BrokenPipeError, in place of SystemExit


class _Size(NamedTuple):
    """A column by its number: the width of its longest word, and of its longest cell."""

    number: int
    word: int
    cell: int


def _parts(head: list[_Size], rest: list[_Size], room: int) -> Iterator[list[_Size]]:
    """Yields the columns of each table: the first ones, and further ones as long as words fit."""
    part = list(head)
    for size in rest:
        if len(part) > len(head) and sum(FRAME_OF_CELL + s.word for s in (*part, size)) > room:
            yield part
            part = list(head)
        part.append(size)
    yield part


def _columns(table: Table, part: list[_Size], room: int) -> list[Column]:
    """The columns of a table, as wide as their words, and further ones as there is room for."""
    spare = room - sum(FRAME_OF_CELL + size.word for size in part)
    columns = []
    for i, size in enumerate(part):
        # If not even the words fit, those of the last column continue on the next line.
        last = i == len(part) - 1
        more = min(spare, size.cell - size.word) if spare >= 0 else last * max(spare, 1 - size.word)
        spare -= more
        column = table.columns[size.number]
        columns.append(
            dataclasses.replace(column, _index=i, overflow="fold", width=size.word + more)
        )
    return columns
