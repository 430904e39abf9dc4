"""Files out of archives: only those that are wanted, under names of ours, and none too large."""

import collections
import errno
import gzip
import lzma
import random
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from transformer.data.files.catalogue import Download
from transformer.data.files.compression import open_unpacked
from transformer.errors import UserError, one_line, shorten
from transformer.storage.files import whole_file
from transformer.storage.reading import open_file

BLOCK = 2**20  # bytes
MAX_UNPACKED = 2**34  # bytes of all members of an archive
MAX_TEXT = 2**20  # bytes of a text that is a file
MAX_HEADER = 2**16  # bytes of a long name or of other notes on a member of a tar archive
NOTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
NOTES += (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# The modules raise RuntimeError of an encrypted file, and the last ones of numbers that cannot be.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)
BROKEN += (RuntimeError, ValueError, LookupError, OverflowError, struct.error, OSError)
BLANKS = re.compile(r"[\t\r\n]+")


class _Member(tarfile.TarInfo):
    """A member whose notes cannot fill the memory, as tarfile reads them whole."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        member = super().frombuf(buf, encoding, errors)
        if member.type in NOTES and member.size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of {member.size:,} bytes")
        return member


def unpack(archive: Path, download: Download, folder: Path) -> None:
    """Writes the files of an archive that are kept into a folder.

    Raises:
      UserError: the archive is damaged or too large, lacks a file, or a name in it leads out of
        the folder.
    """
    texts: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    tables = {part: table for table, parts in download.classes.items() for part in parts}
    missing = {*download.members, *tables}
    open_file(archive).close()  # which refuses a pipe
    try:
        for name, stream in _members(archive):
            parent = str(PurePosixPath(name).parent)
            if name in download.members:
                with whole_file(folder / download.members[name], binary=True) as file:
                    _copy(archive, stream, file)
                missing.discard(name)
            elif parent in tables and name.endswith(".txt"):
                text = stream.read(MAX_TEXT).decode("utf-8", errors="replace")
                label = PurePosixPath(parent).name
                texts[tables[parent]].append((label, name, BLANKS.sub(" ", text).strip()))
                missing.discard(parent)
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # of the disk
        why = shorten(one_line(str(next(iter(error.args), ""))))
        raise UserError(
            f"{archive.stem} is a damaged archive ({why}): run the same command again"
        ) from None
    if missing:
        raise UserError(f"{archive.stem} has no {sorted(missing)[0]}: its content has changed")
    for table, rows in texts.items():
        _write_table(folder / table, rows)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields the names and the contents of the files of an archive; links are passed over."""
    total = 0
    for name, size, stream in _zip(archive) if zipfile.is_zipfile(archive) else _tar(archive):
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
            raise UserError(
                f"{archive.stem} has a file {name!a}, which leads out of the folder: it cannot be "
                "the corpus, and nothing more of it is unpacked"
            )
        total += size
        if total > MAX_UNPACKED:
            raise UserError(_too_large(archive))
        if stream is not None:
            yield str(path), stream


def _too_large(archive: Path) -> str:
    return f"{archive.stem} unpacks to more than {MAX_UNPACKED:,} bytes: it cannot be the corpus"


def _zip(archive: Path) -> Iterator[tuple[str, int, Any]]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.is_dir():
                yield info.filename, 0, None
            else:
                with file.open(info) as stream:
                    yield info.filename, info.file_size, stream


def _tar(archive: Path) -> Iterator[tuple[str, int, Any]]:
    # Not by tarfile itself, which does not look at the checksum of gzip.
    with open_unpacked(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as file:
            for info in file:
                yield info.name, info.size, file.extractfile(info) if info.isreg() else None
        while stream.read(BLOCK):  # to its end, where its checksum is
            pass


def _copy(archive: Path, stream: IO[bytes], file: IO[bytes]) -> None:
    written = 0
    while block := stream.read(BLOCK):
        written += len(block)
        if written > MAX_UNPACKED:  # whatever the archive says
            raise UserError(_too_large(archive))
        file.write(block)


def _write_table(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Writes label<TAB>text of each row, gzip, in an order that depends on their names alone."""
    rows.sort(key=lambda row: row[:2])
    random.Random(0).shuffle(rows)
    with whole_file(path, binary=True) as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        for label, _, text in rows:
            packed.write(f"{label}\t{text}\n".encode())
