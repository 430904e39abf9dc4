"""Files that may be compressed: gzip, xz or zstd by their first bytes, whatever their names."""

import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from transformer.errors import UserError

MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
SUFFIXES = (".gz", ".xz", ".zst")


def compression_of(head: bytes) -> str:
    """Returns how a file is compressed, by its first bytes: a value of `MAGIC`, '' if it is not."""
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")


def plain_name(name: str) -> str:
    """Returns a file's name in lower case, without the suffix of a compression."""
    name = name.lower()
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


@contextlib.contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """The content of a file as a stream of bytes, decompressed as it is read.

    If the file cannot be opened or read, or is a damaged archive, that is a `UserError`.
    """
    kind = ""
    try:
        with open(path, "rb") as file:
            kind = compression_of(file.peek())
            with OPENERS[kind](file) as stream:
                yield stream
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"{path} cannot be read ({error.strerror}): check the file") from error
        raise UserError(
            f"{path} is a damaged or incomplete {kind} file ({error}): copy or download it again"
        ) from error


def _open_zstd(file: Any) -> io.BufferedReader:
    import pyarrow  # takes a quarter of a second

    return io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"))


OPENERS: dict[str, Callable[[Any], Any]] = {
    "": contextlib.nullcontext,
    "gzip": gzip.open,
    "xz": lzma.open,
    "zstd": _open_zstd,
}
