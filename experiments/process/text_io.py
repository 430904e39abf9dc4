"""Line-by-line text I/O for the modes, and table printing."""

import contextlib
import dataclasses
import functools
import importlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from rich.console import Console
from rich.table import Table

from transformer.data.corpora import Tagger
from transformer.data.files.text import HEAD_BYTES, content_of, decode_line, read_lines
from transformer.data.formats.lines import DocumentLines
from transformer.data.formats.tags import read_aligned
from transformer.errors import UserError
from transformer.files import (
    Each,
    delete_leftovers,
    digest_file,
    naming,
    read_json,
    whole_file,
    write_bytes,
    write_json,
)
from transformer.inference.confidence import FILE
from transformer.runs.run import Run
from transformer.runs.weights import CHOICE
from transformer.runs.workdir import locked
from transformer.training.progress import line_progress
from .modes import Options

logger = logging.getLogger(__name__)

MAX_COLUMNS = 100_000  # width of a table that is printed to a pipe
UNFINISHED = ".unfinished"  # ending of the folder next to an output file
RECORD = {"lines": int, "bytes": int, "of": Each(str)}
LINES_AT_ONCE = 1024  # lines per chunk of a file; enough to sort by length
BLOCK = 2**16  # bytes read from a pipe at once
LINE_ENDS = re.compile(r"[\r\n]+")
PROMPT = "> "
END = "Ctrl-D" if os.name == "posix" else "Ctrl-Z with Enter"
TYPING_HINT = f"type a line and press Enter for its answer; {END} ends"
Line = TypeVar("Line")


def input_file(name: str | None) -> Path | None:
    """Returns the path given by --input, or None if it is not set."""
    path = None if name is None else Path(name).expanduser()
    if path and (path.is_dir() or not path.exists()):
        raise UserError(f"--input {path} is not a file: name a text file, one sentence per line")
    return path


@contextlib.contextmanager
def open_output(name: str | None, *sources: Path | None) -> Iterator[TextIO]:
    """Yields standard output, or the file given by --output, which is written atomically.

    Raises UserError if the file is one of the input files `sources`.
    """
    if name is None:
        yield sys.stdout
        return
    target = output_file(name, *sources)
    delete_leftovers(target)
    with whole_file(target) as file:
        yield file


def output_file(name: str, *sources: Path | None) -> Path:
    """Returns the file to write, which a link may name; raises UserError if it is impossible."""
    path = Path(name).expanduser()
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise UserError(f"--output {path}: {target.parent} is not a folder: make it first")
    is_read = path.exists() and any(source and path.samefile(source) for source in sources)
    if path.exists() and (is_read or not path.is_file()):
        what = "a file that is read" if is_read else "a folder or a device"
        raise UserError(f"--output {path} is {what}: name another file")
    return target


class Journal:
    """The lines of an output file that are finished, in a folder next to it.

    Args:
      describe: returns what the lines depend on, by name; a command goes on only if all are equal.

    Attributes:
      output: the file to write to.
      done: number of input lines whose output is finished.
    """

    def __init__(self, folder: Path, describe: Callable[[], Mapping[str, str]]):
        self._record, self._describe = folder / "record.json", functools.cache(describe)
        self.done = size = 0
        if self._record.exists():
            fix = f"delete {folder} to start over"
            record, now = read_json(self._record, RECORD, fix), self._describe()
            if changed := [name for name in now if now[name] != record["of"].get(name)]:
                what = " and ".join(changed)
                raise UserError(f"{folder} is of other {what}: repeat that command, or {fix}")
            size, self.done = record["bytes"], record["lines"]
            logger.info(f"going on after {self.done:,} lines, which are finished")
        self.output = (folder / "lines").open("a", encoding="utf-8", newline="")
        self.output.truncate(size)

    def commit(self, done: int) -> None:
        """Makes sure that the output of the first `done` input lines is on the disk."""
        if done > self.done:
            size = self.sync()
            of = dict(self._describe())
            write_json(self._record, {"lines": done, "bytes": size, "of": of})
            self.done = done

    def sync(self) -> int:
        """Writes the output to the disk, and returns its size in bytes."""
        self.output.flush()
        os.fsync(self.output.fileno())
        return os.fstat(self.output.fileno()).st_size


@contextlib.contextmanager
def unfinished(
    target: Path,
    describe: Callable[[], Mapping[str, str]],
    finish: Callable[[list[str]], bytes] | None = None,
) -> Iterator[Journal]:
    """Yields the journal of an output file, which gets its name when it is complete.

    If `finish` is given, it makes the content of the file from the lines.
    """
    folder = target.with_name(target.name + UNFINISHED)
    with locked(folder):
        journal = Journal(folder, describe)
        with naming(target), journal.output:  # closing writes, too
            try:
                yield journal
                journal.sync()
            except BaseException:
                if journal.done:
                    logger.info(f"{folder} has {journal.done:,} finished lines: repeat the command")
                else:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
        whole = folder / "lines"
        if finish:
            data = finish(whole.read_text("utf-8").split("\n")[:-1])
            write_bytes(whole := folder / "document", data)
        os.replace(whole, target)
    shutil.rmtree(folder)


def least_sure_first(rows: list[str]) -> bytes:
    """Returns rows that are sorted by their second column, a probability."""
    rows = sorted(rows, key=lambda row: float(row.split("\t")[1]))
    return "".join(f"{row}\n" for row in rows).encode()


def line_mode(
    answer: Callable[[Run, "Lines"], Iterator[str]],
    open_document: Callable[[Run, Options, Path], DocumentLines | None] = lambda *_: None,
) -> Callable:
    """Turns a function that processes lines into a mode with --input and --output.

    The function takes the run and the input lines, and yields the output lines. If the input is a
    document, whose lines `open_document` returns, the output is the document with other lines.
    """

    @functools.wraps(answer)
    def mode(run: Run, options: Options) -> None:
        source, count = input_file(options.input), 0
        is_sorted = options.sort is not None
        if is_sorted and (options.sort != "confidence" or None in (source, options.output)):
            fix = "use --sort=confidence with --input and --output"
            raise UserError(f"--sort={options.sort}: {fix}")
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(source.open("rb")) if source else sys.stdin.buffer
            document = open_document(run, options, source) if source else None
            if document:
                stream = io.BytesIO("".join(f"{line}\n" for line in document.lines).encode())
                options = dataclasses.replace(options, alignments=document.tagged > 0)
            tag = Tagger(run.config.data, options.source_tag)
            lines = Lines(stream, source or "standard input", tag, options)
            if source and options.output and lines.total is not None:
                describe = functools.partial(_described, answer.__name__, run, options, source)
                target = output_file(options.output, source)
                finish = least_sure_first if is_sorted else None
                if document:
                    finish = lambda rows: document.write([*map(read_aligned, rows)])  # noqa: E731
                journal = stack.enter_context(unfinished(target, describe, finish))
                output, lines.done, lines.commit = journal.output, journal.done, journal.commit
            else:
                output = stack.enter_context(open_output(options.output, source))
            bar = line_progress(lines.total, output.isatty() or lines.typed)
            lines.advance = stack.enter_context(bar)
            lines.advance(lines.done)
            for text in answer(run, lines):
                print(text, file=output, flush=True)
                count += 1
        if options.output is not None:
            more, unit = "more " * bool(lines.done), "text" if document else "line"
            logger.info(f"wrote {count:,} {more}{unit}{'s' * (count != 1)} to {options.output}")

    return mode


def _described(mode: str, run: Run, options: Options, source: Path) -> dict[str, str]:
    """Returns what the output lines of a mode depend on; see `Journal`."""
    names = "source_tag", "prefix_column", "column", "retranslate", "confidence", "alignments"
    names = *names, "sort", "format"
    terms = read_glossary(options.glossary)
    flags = ", ".join([mode, *(str(getattr(options, name)) for name in names), str(terms)])
    decode = json.dumps(run.config.decode.to_dict(), sort_keys=True, default=str)
    # A run that has not chosen its weights yet uses the best of its checkpoints so far.
    weights = repr(sorted(path.name for path in run.folder.glob("checkpoints/*")))
    if (choice := run.folder / CHOICE).exists():
        weights = digest_file(choice, "restore it")
    if (calibration := run.folder / FILE).exists():
        weights += digest_file(calibration, "restore it")
    digest = digest_file(source, "restore it")
    return {"input": digest, "weights": weights, "decode keys": decode, "flags": flags}


class Lines:
    """The lines of a UTF-8 text, read in chunks.

    `name` is the text's name in messages; `tag(line, place)` adds the source tag to a line.

    Attributes:
      options: the flags of the mode.
      total: the number of lines in a file, or None for a pipe or a terminal.
      typed: whether the input is a terminal.
      advance: a function to call with the number of lines processed since the last call.
      done: number of first lines to leave out, since they are finished.
      commit: a function that is called with the number of lines whose results are written.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: Path | str,
        tag: Callable[[str, str], str] = lambda line, place: line,
        options: Options | None = None,
    ):
        self._stream, self._name, self._tag = stream, name, tag
        self.options = options or Options()
        self.typed = stream.isatty()
        is_file = stream.seekable() and not _is_pipe(stream)
        self.total = sum(1 for _ in self._ahead()) if is_file else None
        self.advance: Callable[[int], None] = lambda count: None
        self.commit: Callable[[int], None] = lambda done: None
        self.done = 0

    def chunks(
        self,
        parse: Callable[[str, int], Line] = lambda line, number: line,
    ) -> Iterator[tuple[int, list[Line]]]:
        """Yields chunks as (1-based number of the first line, lines), LINES_AT_ONCE from a file.

        From a pipe or terminal, a chunk contains the lines that have arrived, so each is processed
        immediately; if `parse` rejects a line, the lines before it are yielded first. A file is
        parsed in advance, since it may take hours to process the lines before a malformed one.
        """
        if self.total is not None:
            for number, line in enumerate(self._ahead(), 1):
                parse(self._text(line, number), number)
        first = 1 + sum(1 for _ in itertools.islice(self._stream, self.done))
        for chunk in self._raw():
            self.commit(first - 1)
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
        """Yields all lines of a file, and then rewinds it."""
        start = self._stream.tell()  # another program may have read a part of it
        self._check(self._stream.read(HEAD_BYTES))
        self._stream.seek(start)
        yield from self._stream
        self._stream.seek(start)

    def _raw(self) -> Iterator[list[bytes]]:
        if self.total is not None:
            return iter(lambda: list(itertools.islice(self._stream, LINES_AT_ONCE)), [])
        return typed_lines() if self.typed else self._arriving()

    def _arriving(self) -> Iterator[list[bytes]]:
        """Yields the lines of a pipe in chunks, as they arrive."""
        rest = b""
        while block := os.read(self._stream.fileno(), BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield lines
        if rest:
            yield [rest]

    def _check(self, head: bytes) -> None:
        """Raises UserError if the first bytes of a file show that it is not a text file."""
        if kind := content_of(head[:HEAD_BYTES], self._name):
            fix = "name an unpacked file with one text per line, such as one of its columns"
            raise UserError(f"{self._name} is a {kind} file: {fix}")

    def _text(self, line: bytes, number: int) -> str:
        """Decodes a line, removes the line break and adds the source tag."""
        text = decode_line(line, self._name, number).rstrip("\r\n")
        return self._tag(text, f"line {number}")


def _is_pipe(stream: BinaryIO) -> bool:
    """Returns whether a stream is a pipe; on Windows, pipes are `seekable`, too."""
    with contextlib.suppress(io.UnsupportedOperation):  # a stream in memory
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False


def typed_lines() -> Iterator[list[bytes]]:
    """Yields each line that is typed on a terminal, or several lines if they are pasted at once."""
    # Makes `input` support editing, history and lines of more than 4,096 characters.
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
    """Joins the lines of a text with spaces."""
    return LINE_ENDS.sub(" ", text)


def two_columns(line: str, place: str, mode: str) -> tuple[str, str]:
    """Splits a line into source and target; error messages contain `place` and `mode`."""
    columns = line.split("\t" if "\t" in line else "|||")
    if len(columns) != 2:
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        raise UserError(f"{place} has {count}: {mode} reads source<TAB>target")
    return columns[0], columns[1]


def read_glossary(name: str | None) -> dict[str, str]:
    """Returns the terms of a file, target by source, or none without a file."""
    rows = enumerate(read_lines(path := Path(name).expanduser()) if name else (), 1)
    rows = ((f"{path}, line {number}", row) for number, row in rows if row.strip())
    return dict(two_columns(row, place, "--glossary") for place, row in rows)


def print_table(table: Table) -> None:
    """Prints a table without truncation; cells wrap in a terminal."""
    width = None if sys.stdout.isatty() else MAX_COLUMNS
    console = Console(width=width, markup=False, emoji=False)  # names may have brackets and colons
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
