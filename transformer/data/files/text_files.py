"""Sentence pairs from text files, plain or gzip.

Everything is streamed, however large.
"""

import codecs
import dataclasses
import difflib
import gzip
import io
import itertools
import os
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from transformer.data.pairs import Pair
from transformer.errors import UserError

HEAD = 4096  # bytes that show an encoding
# Byte order marks; the longer first, since one begins with another.
WIDE = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain or gzip, whatever its name.

    A line ends at '\n' or '\r\n' and nowhere else: what `str.splitlines` also takes for an
    end, such as U+2028, occurs inside sentences of real corpora and would shift all that follow.

    Raises:
      UserError: the file cannot be read, is a damaged gzip file, or is not UTF-8.
    """
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield decode_line(line, path, number).removesuffix("\n").removesuffix("\r")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} is a damaged or incomplete gzip file ({error}): copy or download it again"
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the file") from error


def _open(path: Path) -> io.BufferedIOBase:
    with open(path, "rb") as file:
        zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else open(path, "rb")


def decode_line(line: bytes, name: Path | str, number: int) -> str:
    """Returns a line of UTF-8 text, its end included.

    Args:
      name: of the file, for messages.
      number: of the line, from one; before the first there may be a byte order mark.

    Raises:
      UserError: it is of another encoding, which is named if the bytes tell it.
    """
    encoding = _wide_encoding(line[:HEAD]) if number == 1 else ""
    try:
        if not encoding:
            return line.decode("utf-8-sig" if number == 1 else "utf-8")
        what = "the text"
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if b"\0" in line else "LATIN1"
        what = f"byte 0x{line[error.start]:02X}"
    likely = "" if encoding == "LATIN1" else f" but {encoding}"
    raise UserError(
        f"{name}, line {number}: {what} is not UTF-8{likely}: convert the file, for example with "
        f"`iconv -f {encoding} -t UTF-8`"
    ) from None


def _wide_encoding(head: bytes) -> str:
    """The encoding, as iconv calls it, of a text in two or four bytes a character; else ''."""
    for mark, encoding in WIDE:
        if head.startswith(mark):
            return encoding
    if len(head) < 4 or 3 * head.count(0) < len(head):
        return ""
    zeros = [4 * head[i::4].count(0) > len(head) / 2 for i in range(4)]
    width = 32 if sum(zeros) == 3 else 16
    return f"UTF-{width}{'BE' if zeros[0] else 'LE'}"


@dataclasses.dataclass(frozen=True)
class TwoFiles:
    """Pairs of line n of one file and line n of another, read from its start by each iteration."""

    source: Path
    target: Path

    def __iter__(self) -> Iterator[Pair]:
        files = self.source, self.target
        lines = [read_lines(path) for path in files]
        for number, pair in enumerate(itertools.zip_longest(*lines)):
            if None in pair:
                counts = [number if side is None else number + 1 for side in pair]
                longer = pair.index(None) ^ 1
                counts[longer] += sum(1 for _ in lines[longer])
                raise UserError(
                    "the files do not have the same number of lines, "
                    + " and ".join(f"{p}: {n:,}" for p, n in zip(files, counts, strict=True))
                    + "; line n of one must be the translation of line n of the other"
                )
            source, target = pair
            yield Pair(source, target)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Pairs of two columns, counted from zero, of one TSV file, read by each iteration."""

    source: Path
    columns: tuple[int, int]

    def __iter__(self) -> Iterator[Pair]:
        needed = max(self.columns) + 1
        for number, line in enumerate(read_lines(self.source), 1):
            cells = line.split("\t")
            if len(cells) < needed:
                raise UserError(
                    f"{self.source}, line {number}: {len(cells)} column(s) between tabs, but "
                    f"data.tsv_columns={self.columns} needs {needed}: fix the line or set "
                    "--config.data.tsv_columns"
                )
            source, target = (cells[i] for i in self.columns)
            yield Pair(source, target)


def parallel_text(settings: ConfigDict, split: str) -> TwoFiles | Columns:
    """Returns the text of one split, from its two files or its TSV.

    Args:
      settings: `config.data`.
      split: whose `<split>_source` and `<split>_target` are read; no target means a TSV.

    Raises:
      UserError: a file is not there, or `tsv_columns` are no two columns.
    """
    source, target = f"{split}_source", f"{split}_target"
    path = locate(settings, source)
    if getattr(settings, target):
        return TwoFiles(path, locate(settings, target))
    columns = tuple(settings.tsv_columns)
    if len(columns) != 2 or min(columns) < 0:
        raise UserError(
            f"--config.data.tsv_columns={columns}: give the numbers of two columns (source, "
            "target), the first being 0"
        )
    return Columns(path, columns)


def training_text(settings: ConfigDict) -> str:
    """Returns what to call the training text in messages: by its file if it has one.

    Args:
      settings: `config.data`.
    """
    of_file = f" (data.train_source={settings.train_source!r})"
    return "the training text" + (of_file if settings.source == "files" else "")


def locate(settings: ConfigDict, key: str) -> Path:
    """Returns the full path of the file that `data.<key>` names, perhaps without its '.gz'."""
    name = getattr(settings, key)
    if not name:
        raise UserError(
            f"--config.data.{key} is empty: name a text file, below --config.data.path or in full"
        )
    path = Path(settings.path or ".").expanduser().absolute() / Path(name).expanduser()
    if not path.parent.is_dir():
        raise UserError(
            f"data.{key}={name!r}: there is no folder {path.parent}: check --config.data.path"
        )
    # The same umlaut may be one character or two, depending on where the file was named.
    entries = {unicodedata.normalize("NFC", entry): entry for entry in os.listdir(path.parent)}
    wanted = unicodedata.normalize("NFC", path.name)
    for found in (path.name, entries.get(wanted), entries.get(wanted + ".gz")):
        if found and (path.parent / found).is_file():
            return path.parent / found
    if path.is_dir():
        raise UserError(f"data.{key}={name!r}: {path} is a folder: name a text file in it")
    near = difflib.get_close_matches(wanted, entries, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "check --config.data.path and the name"
    raise UserError(f"data.{key}={name!r}: there is no file {path}: {hint}")
