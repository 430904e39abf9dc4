"""Applies a trained model to text, line by line; and prints tables."""

import contextlib
import functools
import importlib
import itertools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from transformer.data.corpora import Tagger
from transformer.data.files.text import HEAD_BYTES, content_of, decode_line
from transformer.errors import UserError
from transformer.files import delete_leftovers, naming, whole_file
from transformer.runs.run import Run
from transformer.training.progress import line_progress
from .options import Options

logger = logging.getLogger(__name__)

PIPE_COLUMNS, MAX_COLUMNS = 120, 100_000  # characters: of a pipe at least, and of any table
LINES_AT_ONCE = 1024  # of a file before the first of them is answered: enough to sort by length
BLOCK = 2**16  # bytes read from a pipe at once
LINE_ENDS = re.compile(r"[\r\n]+")
PROMPT = "> "
TYPING_HINT = "type a line and press Enter for its answer; Ctrl-D ends"
Line = TypeVar("Line")


def input_file(name: str | None) -> Path | None:
    """Returns the file that --input names; None if it names none."""
    path = None if name is None else Path(name).expanduser()
    if path and (path.is_dir() or not path.exists()):
        raise UserError(f"--input {path} is not a file: name a text file, one sentence per line")
    return path


@contextlib.contextmanager
def open_output(name: str | None, *sources: Path | None) -> Iterator[TextIO]:
    """Standard output, or the file that --output names, which is whole or as it was.

    It must be none of the `sources`, the files that are read.
    """
    if name is None:
        yield sys.stdout
        return
    path = Path(name).expanduser()
    target = Path(os.path.realpath(path))  # of a link, what it leads to
    if not target.parent.is_dir():
        raise UserError(f"--output {path}: {target.parent} is not a folder: make it first")
    is_read = path.exists() and any(source and path.samefile(source) for source in sources)
    if path.is_dir() or is_read:
        what = "a folder" if path.is_dir() else "a file that is read"
        raise UserError(f"--output {path} is {what}: name another file")
    is_device = path.exists() and not path.is_file()
    delete_leftovers(target)
    with contextlib.ExitStack() as files:
        files.enter_context(naming(path))
        device = is_device and path.open("w", encoding="utf-8")
        yield files.enter_context(device or whole_file(target))


def line_mode(answer: Callable[[Run, "Lines"], Iterator[str]]) -> Callable:
    """Turns a function that answers lines into a mode that reads --input and writes --output.

    It takes the run and the lines, and yields the lines of its answers.
    """

    @functools.wraps(answer)
    def mode(run: Run, options: Options) -> None:
        source, count = input_file(options.input), 0
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(open_output(options.output, source))
            stream = stack.enter_context(source.open("rb")) if source else sys.stdin.buffer
            tag = Tagger(run.config.data, options.source_tag)
            lines = Lines(stream, source or "standard input", tag)
            bar = line_progress(lines.total, output.isatty() or lines.typed)
            lines.advance = stack.enter_context(bar)
            for text in answer(run, lines):
                print(text, file=output, flush=True)
                count += 1
        if options.output is not None:
            written = "1 line" if count == 1 else f"{count:,} lines"
            logger.info(f"wrote {written} to {options.output}")

    return mode


class Lines:
    """The lines of a UTF-8 text, in chunks that are answered one by one.

    Messages call the text by its name; `tag` returns a line with its tag, given its place, too.

    Attributes:
      total: how many lines a file has; None of a pipe or a terminal.
      typed: whether somebody types them.
      advance: to be called with the number of lines that are answered since the last call.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: Path | str,
        tag: Callable[[str, str], str] = lambda line, place: line,
    ):
        self._stream, self._name, self._tag = stream, name, tag
        self.typed = stream.isatty()
        self.total = sum(1 for _ in self._ahead()) if stream.seekable() else None
        self.advance: Callable[[int], None] = lambda count: None

    def chunks(
        self,
        parse: Callable[[str, int], Line] = lambda line, number: line,
    ) -> Iterator[tuple[int, list[Line]]]:
        """Yields (number of the first line, from one, lines): of a file, LINES_AT_ONCE.

        Of a pipe and a terminal it is what has arrived, so that a line is answered before the next
        one is written; the lines before one that `parse` refuses come first. In a file, that one is
        met before the first chunk, since the answers to the lines before it may take hours.
        """
        if self.total is not None:
            for number, line in enumerate(self._ahead(), 1):
                parse(self._text(line, number), number)
        first = 1
        for chunk in self._raw():
            if first == 1 and self.total is None and not self.typed:
                self._check(b"\n".join(chunk))
            parsed: list[Line] = []
            try:
                for number, line in enumerate(chunk, first):
                    parsed.append(parse(self._text(line, number), number))
            except UserError:
                if parsed:
                    yield first, parsed
                raise
            yield first, parsed
            first += len(chunk)

    def _ahead(self) -> Iterator[bytes]:
        """Yields the lines of a file, which can be read again after the last one."""
        start = self._stream.tell()  # the program before may have read some
        self._check(self._stream.read(HEAD_BYTES))
        self._stream.seek(start)
        yield from self._stream
        self._stream.seek(start)

    def _raw(self) -> Iterator[list[bytes]]:
        if self.total is not None:
            return iter(lambda: list(itertools.islice(self._stream, LINES_AT_ONCE)), [])
        return typed_lines() if self.typed else self._arriving()

    def _arriving(self) -> Iterator[list[bytes]]:
        """Yields the lines of a pipe as soon as there are any."""
        last = bytearray()
        while block := os.read(self._stream.fileno(), BLOCK):
            *lines, rest = block.split(b"\n")
            if lines:
                lines[0] = bytes(last) + lines[0]
                last.clear()
                yield lines
            last += rest
        if last:
            yield [bytes(last)]

    def _check(self, head: bytes) -> None:
        """Refuses what is not text, by its first bytes."""
        if kind := content_of(head[:HEAD_BYTES], self._name):
            fix = "name an unpacked file with one text per line, such as one of its columns"
            raise UserError(f"{self._name} is a {kind} file: {fix}")

    def _text(self, line: bytes, number: int) -> str:
        """A line without its end, and with its tag."""
        text = decode_line(line, self._name, number).rstrip("\r\n")
        return self._tag(text, f"line {number}")


def typed_lines() -> Iterator[list[bytes]]:
    """Yields each line that is typed on a terminal, or the lines that are pasted together."""
    # It lets `input` edit, bring back former lines, and read more than 4,096 characters.
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")
    print(TYPING_HINT, file=sys.stderr, flush=True)
    while True:
        try:
            text = input(PROMPT if sys.stdout.isatty() else "")
        except EOFError:
            print(file=sys.stderr)
            return
        yield text.encode(errors="surrogateescape").split(b"\n")


def join_lines(text: str) -> str:
    """Returns a text as one line of a file, with a blank for each end of a line in it."""
    return LINE_ENDS.sub(" ", text)


def two_columns(line: str, place: str, mode: str) -> tuple[str, str]:
    """Returns the source and the target of a line; messages name its place and the mode."""
    columns = line.split("\t" if "\t" in line else "|||")
    if len(columns) != 2:
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        raise UserError(f"{place} has {count}: {mode} reads source<TAB>target")
    return columns[0], columns[1]


def print_table(table: Table) -> None:
    """Prints a table without cutting anything: a terminal folds it, a pipe is as wide as it is."""
    console = Console(markup=False, emoji=False)  # a name may have brackets and colons
    if not sys.stdout.isatty():
        wide = console.options.update(max_width=MAX_COLUMNS)
        console.width = max(PIPE_COLUMNS, Measurement.get(console, wide, table).maximum)
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
