"""The lines of text files, plain or compressed, and their encoding.

Compression is recognised by a file's first bytes, whatever its name, and so are files without
lines of text, such as office documents: `unread.toml` lists these.
"""

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
WIDE = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")  # longer byte order marks first
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
CONTENTS = {  # of data files with rows
    ".parquet": re.compile(rb"PAR1"),
    ".arrow": re.compile(rb"ARROW1"),
    ".tmx": re.compile(rb"(?s)[^\w<]*(<.*)?<\0?t\0?m\0?x\b"),
    ".jsonl": re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*)?(\{\s*"[^"]*"\s*:|\[\s*"(\\.|[^"\\])*"\s*,)'),
}
SKIPPED, BREAKS = " \t\r\n\ufeff\xef\xbb\xbf", re.compile("\r\n?")  # also as decoded by Latin-1
SUFFIXES = (".gz", ".xz", ".zst")


def compression_of(head: bytes) -> str:
    """Returns the compression of a file by its first bytes, a value of `MAGIC`; '' for none."""
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")


def plain_name(name: str) -> str:
    """Returns a file name in lower case, without a compression suffix."""
    name = name.lower()
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


@contextlib.contextmanager
def open_unpacked(path: Path) -> Iterator[Any]:
    """Yields a file as a stream of bytes, decompressed while it is read."""
    kind = ""
    try:
        with open(path, "rb") as file:
            kind = compression_of(file.peek())
            with OPENERS[kind](file) as stream:
                yield stream
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise unreadable(path, kind, error) from error


def unreadable(path: Path, kind: str, error: Exception) -> UserError:
    """Returns the error for a file that cannot be opened, or is not valid for its kind."""
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{path} cannot be read ({error.strerror}): check the file")
    what = f"a damaged or incomplete {kind} file ({one_line(str(error))})"
    return UserError(f"{path} is {what}: copy or download it again")


def _open_zstd(file: Any) -> io.BufferedReader:
    import pyarrow  # takes a quarter of a second

    return io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"))


OPENERS: dict[str, Callable[[Any], Any]] = {
    "": contextlib.nullcontext,
    "gzip": gzip.open,
    "xz": lzma.open,
    "zstd": _open_zstd,
}


@functools.cache
def _other_content() -> list[tuple[re.Pattern[str], str, str]]:
    """Returns the formats that are not read as text: start pattern, name and suggested fix."""
    table = tomllib.loads(Path(__file__).with_name("unread.toml").read_text("utf-8"))["document"]
    return [(re.compile(d["content"], re.M | re.S), d["name"], d["fix"]) for d in table]


def content_of(head: bytes, name: Path | str, any_text: bool = False) -> str:
    """Returns the format of a file by its first bytes, from `CONTENTS` or `MAGIC`; '' for text.

    Raises UserError for documents, with advice on how to get plain text or a table. With
    `any_text`, documents that are text themselves, such as programs, are accepted.
    """
    texts = [head.decode(code, "ignore") for code in {"latin-1", _wide_encoding(head)} if code]
    texts = [BREAKS.sub("\n", text.lstrip(SKIPPED)) for text in texts]
    for pattern, what, fix in () if any_text and b"\0" not in head else _other_content():
        if any(map(pattern.match, texts)):
            fix = fix.replace("FILE", shlex.quote(str(name))) if isinstance(name, Path) else fix
            raise UserError(f"{name} is {what}: {fix}")
    kinds = (kind for kind, content in CONTENTS.items() if content.match(head))
    return next(kinds, compression_of(head))


def read_lines(path: Path, any_text: bool = False) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain or compressed, whatever its name.

    A line ends at '\n' or '\r\n' and nowhere else: other separators of `str.splitlines`, such as
    U+2028, occur inside sentences of real corpora and would shift all lines after them.
    """
    with open_unpacked(path) as file:
        content_of(file.peek(HEAD_BYTES)[:HEAD_BYTES], path, any_text)
        for number, line in enumerate(file, 1):
            yield decode_line(line, path, number).removesuffix("\n").removesuffix("\r")


def decode_line(line: bytes, name: Path | str, number: int) -> str:
    """Returns a line of UTF-8 text, including its end.

    The first line may have a byte order mark. An error message names the actual encoding if the
    bytes reveal it.
    """
    encoding, what = _wide_encoding(line[:HEAD_BYTES]) if number == 1 else "", "the text"
    if not encoding:
        try:
            return line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            encoding = "UTF-16" if b"\0" in line else ""
            what = f"byte 0x{line[error.start]:02X}"
    likely = f" but {encoding}" if encoding else ""
    fix = f"convert the file, for example with `iconv -f {encoding or 'WINDOWS-1252'} -t UTF-8`"
    if not encoding:  # guessing wrong would go unnoticed
        fix += ", if it is Western European; Cyrillic may be WINDOWS-1251, others are in `iconv -l`"
        fix += "; if this line alone is not UTF-8, write it again"
    raise UserError(f"{name}, line {number}: {what} is not UTF-8{likely}: {fix}")


def _wide_encoding(head: bytes) -> str:
    """Returns the iconv name of an encoding with two or four bytes per character; '' for others."""
    for encoding in WIDE:
        if head.startswith("\ufeff".encode(encoding)):
            return encoding[:-2]
    if len(head) < 4 or 3 * head.count(0) < len(head):
        return ""
    return "UTF-16BE" if 4 * head[::2].count(0) > len(head) else "UTF-16LE"
