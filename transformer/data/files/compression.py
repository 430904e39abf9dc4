"""Files that may be compressed: gzip, xz or zstd by their first bytes, whatever their names."""

import contextlib
import functools
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from transformer.errors import UserError

MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
SUFFIXES = (".gz", ".xz", ".zst")
HEAD = max(map(len, MAGIC))  # bytes


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

    Raises:
      UserError: the file cannot be read, or is a damaged archive; of reading too.
    """
    kind = ""
    try:
        with open(path, "rb") as file:
            kind = compression_of(file.read(HEAD))
        with OPENERS[kind](path) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"{path} cannot be read ({error.strerror}): check the file") from error
        raise UserError(
            f"{path} is a damaged or incomplete {kind} file ({error}): copy or download it again"
        ) from error


@contextlib.contextmanager
def _open_zstd(path: Path) -> Iterator[BinaryIO]:
    import pyarrow  # takes a quarter of a second

    with (
        open(path, "rb") as file,
        pyarrow.CompressedInputStream(file, "zstd") as stream,
        io.BufferedReader(stream) as buffered,
    ):
        yield buffered


OPENERS: dict[str, Callable[[Path], contextlib.AbstractContextManager]] = {
    "": functools.partial(open, mode="rb"),
    "gzip": gzip.open,
    "xz": lzma.open,
    "zstd": _open_zstd,
}
