"""Reading lines of plain or compressed text files, and checking their encoding.

Compression is detected from the first bytes of a file, regardless of its name. Files that are not
text, such as office documents, are detected in the same way; `unread.toml` lists their formats.
"""

import codecs
import contextlib
import functools
import gzip
import io
import lzma
import re
import shlex
import tomllib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformer.errors import UserError, one_line

HEAD_BYTES = 8192  # number of bytes that identify a format or an encoding
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
CONTENTS = {  # first bytes of data files with rows
    ".parquet": re.compile(rb"PAR1"),
    ".arrow": re.compile(rb"ARROW1"),
    ".tmx": re.compile(rb"(?s)[^\w<]*(<.*)?<\0?t\0?m\0?x\b"),
    ".jsonl": re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*)?(\{\s*"[^"]*"\s*:|\[\s*"(\\.|[^"\\])*"\s*,)'),
}
SKIPPED, BREAKS = " \t\r\n\xef\xbb\xbf", re.compile("\r\n?")  # as decoded by Latin-1
SUFFIXES = (".gz", ".xz", ".zst")


def compression_of(head: bytes) -> str:
    """Returns the compression format (a value of `MAGIC`) of a file, or '' if it has none."""
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")


def plain_name(name: str) -> str:
    """Returns a file name in lower case and without a compression suffix."""
    name = name.lower()
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


@contextlib.contextmanager
def open_unpacked(path: Path) -> Iterator[Any]:
    """Yields a file as a byte stream, decompressed while reading."""
    kind = ""
    try:
        with open(path, "rb") as file:
            kind = compression_of(file.peek())
            with OPENERS[kind](file) as stream:
                yield stream
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise unreadable(path, kind, error) from error


def unreadable(path: Path, kind: str, error: Exception) -> UserError:
    """Returns the error for a file that cannot be opened, or is invalid for its format."""
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{path} cannot be read ({error.strerror}): check the file")
    what = f"a damaged or incomplete {kind} file ({one_line(str(error))})"
    return UserError(f"{path} is {what}: copy or download it again")


def _open_zstd(file: Any) -> io.BufferedReader:
    import pyarrow  # takes 0.25 s to import

    return io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"))


OPENERS: dict[str, Callable[[Any], Any]] = {
    "": contextlib.nullcontext,
    "gzip": gzip.open,
    "xz": lzma.open,
    "zstd": _open_zstd,
}


@functools.cache
def _other_content() -> list[tuple[re.Pattern[str], str, str]]:
    """Returns (pattern of the first bytes, name, suggested fix) for each unsupported format."""
    table = tomllib.loads(Path(__file__).with_name("unread.toml").read_text("utf-8"))["document"]
    return [(re.compile(d["content"], re.M | re.S), d["name"], d["fix"]) for d in table]


def content_of(head: bytes, name: Path | str, any_text: bool = False) -> str:
    """Infers a file's format in `CONTENTS` or `MAGIC` from the first bytes; returns '' for text.

    Raises UserError for documents, with advice on how to get plain text or a table. With
    `any_text`, documents that are plain text, such as source code, are accepted.
    """
    text = BREAKS.sub("\n", head.decode("latin-1").lstrip(SKIPPED))
    for pattern, what, fix in () if any_text and b"\0" not in head else _other_content():
        if pattern.match(text):
            fix = fix.replace("FILE", shlex.quote(str(name))) if isinstance(name, Path) else fix
            raise UserError(f"{name} is {what}: {fix}")
    kinds = (kind for kind, content in CONTENTS.items() if content.match(head))
    return next(kinds, compression_of(head))


def read_lines(path: Path, any_text: bool = False) -> Iterator[str]:
    r"""Yields the lines of a plain or compressed UTF-8 file, regardless of its name.

    A line ends only at '\n' or '\r\n': other separators of `str.splitlines`, such as U+2028, occur
    inside sentences of real corpora and would shift all following lines.
    """
    with open_unpacked(path) as file:
        content_of(file.peek(HEAD_BYTES)[:HEAD_BYTES], path, any_text)
        for number, line in enumerate(file, 1):
            yield decode_line(line, path, number).removesuffix("\n").removesuffix("\r")


def decode_line(line: bytes, name: Path | str, number: int) -> str:
    """Decodes a line of UTF-8 text, including its end; line 1 may have a byte order mark."""
    is_wide = b"\0" in line or line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    what, encoding, more = "the text", "UTF-16", ""
    if number > 1 or not is_wide:  # English text in UTF-16 is valid UTF-8
        try:
            return line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"byte 0x{line[error.start]:02X}"
    if not is_wide:  # only a suggestion, since a wrong guess would go unnoticed
        encoding = "WINDOWS-1252"
        more = ", if it is Western European; `iconv -l` lists others, such as WINDOWS-1251"
    fix = f"convert the file, for example with `iconv -f {encoding} -t UTF-8`{more}"
    raise UserError(f"{name}, line {number}: {what} is not UTF-8: {fix}")
