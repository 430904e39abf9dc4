"""Encoded text, in memory or on disk."""

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Integer, UInt8

from transformer.storage.files import sync, whole_file, write_json
from transformer.storage.reading import Each, open_file, parse_json, read_file

logger = logging.getLogger(__name__)

DIGESTS = "digests.json"  # of the files of a folder, by name


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """Encoded sentences concatenated in one array, which may be memory-mapped.

    Sentence i is `tokens[offsets[i]:offsets[i + 1]]`.
    """

    tokens: Int[np.ndarray, "tokens"]
    offsets: Int[np.ndarray, "bounds"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Int[np.ndarray, "length"]:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def gather(
        self, numbers: Int[np.ndarray, "*rows"], width: int
    ) -> tuple[Int[np.ndarray, "*rows width"], Int[np.ndarray, "*rows"]]:
        """Returns sentences as rows of `width` tokens, filled up with 0, and their lengths.

        Args:
          numbers: of the sentences, from zero; -1 gives a row of zeros and the length -1.
          width: at least that of the longest.
        """
        starts = self.offsets[numbers]
        lengths = np.where(numbers < 0, -1, self.offsets[numbers + 1] - starts)
        columns = np.arange(width)
        rows = self.tokens.take(starts[..., None] + columns, mode="clip")
        rows *= columns < lengths[..., None]
        return rows, lengths

    @property
    def lengths(self) -> Int[np.ndarray, "sentences"]:
        """Tokens of each sentence."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True)
class TextStore:
    """Texts one after another as UTF-8 in one array, which may lie on disk; see `TokenStore`."""

    bytes: UInt8[np.ndarray, "bytes"]
    offsets: Int[np.ndarray, "bounds"]

    def __getitem__(self, i: int) -> str:
        return self.bytes[self.offsets[i] : self.offsets[i + 1]].tobytes().decode()


class ArrayWriter:
    """Tokens or bytes of text that are added in parts, in memory or, to need none, in an .npy file.

    Args:
      path: of the file; None for memory.
      dtype: of the numbers.
    """

    def __init__(self, path: Path | None, dtype: type[np.generic] = np.int32):
        self._path, self._memory, self._count = path, io.BytesIO(), 0
        self._dtype = np.dtype(dtype)
        if path is not None:
            path.touch()
        self._write_header()

    def add(self, numbers: Integer[np.ndarray, "numbers"]) -> None:
        """Adds numbers after all others."""
        with self._open() as file:
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(numbers, self._dtype).data)
        self._count += len(numbers)

    def finish(self) -> Integer[np.ndarray, "numbers"]:
        """Returns all numbers, memory-mapped if they are in a file."""
        offset = self._write_header()
        if self._path is None:
            return np.frombuffer(self._memory.getvalue(), self._dtype, offset=offset)
        sync(self._path)
        return np.load(self._path, mmap_mode="r")

    def _write_header(self) -> int:
        """Writes the header of an .npy file, and returns its size, the same for any number."""
        descr = np.lib.format.dtype_to_descr(self._dtype)
        fields = {"descr": descr, "fortran_order": False, "shape": (self._count,)}
        with self._open() as file:
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, fields)
            return file.tell()

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        if self._path is None:
            yield self._memory
            return
        try:
            with self._path.open("r+b") as file:
                yield file
        except OSError as error:
            error.filename = str(self._path)  # a full disk names none
            raise


class TextWriter:
    """Texts that are added in parts, in an .npy file, so that they need no memory."""

    def __init__(self, path: Path):
        self._bytes, self._lengths = ArrayWriter(path, np.uint8), [np.zeros(1, np.int64)]

    def add(self, texts: Sequence[str]) -> None:
        """Adds texts after all others."""
        encoded = [text.encode() for text in texts]
        self._bytes.add(np.frombuffer(b"".join(encoded), np.uint8))
        self._lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))

    def finish(self) -> TextStore:
        """Returns all texts."""
        offsets = np.cumsum(np.concatenate(self._lengths), dtype=np.int64)
        return TextStore(self._bytes.finish(), offsets)


def cached_arrays(
    folder: Path,
    make: Callable[[Path], Mapping[str, np.ndarray]],
    done: str = "encoded",
) -> dict[str, np.ndarray]:
    """Returns arrays, memory-mapped from a folder of the cache, which is created if it is missing.

    All files are read once and compared with their digests, which takes a second for 1.4 GB in the
    page cache.

    Args:
      make: creates the arrays, by name; called with a folder, in which it may write some of them
        itself as .npy files, so that they need no memory.
      done: the work on the text, such as "encoded", for the warning.
    """
    if folder.exists():
        if is_whole(folder):
            return load_arrays(folder)
        logger.warning(f"{folder} is damaged: the text is {done} again")
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink()
    save_arrays(folder, make)
    return load_arrays(folder)


def save_arrays(folder: Path, make: Callable[[Path], Mapping[str, np.ndarray]]) -> None:
    """Writes arrays and their digests to `folder`, which appears only when it is complete.

    Args:
      make: see `cached_arrays`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        for name, array in make(Path(partial)).items():
            if not (path := Path(partial, f"{name}.npy")).exists():
                with whole_file(path, binary=True) as file:
                    np.save(file, array)
        digests = {path.name: _digest(path) for path in Path(partial).iterdir()}
        write_json(Path(partial, DIGESTS), digests)
        os.chmod(partial, 0o755)
        try:
            os.rename(partial, folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise


def load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Returns the arrays that `save_arrays` wrote, memory-mapped."""
    # As plain arrays: a slice of np.memmap, a subclass, takes ten times as long.
    return {p.stem: np.asarray(np.load(p, mmap_mode="r")) for p in folder.glob("*.npy")}


def arrays_digest(folder: Path, leave_out: str) -> str:
    """Returns one digest of the arrays that `save_arrays` wrote, except that of one name."""
    digests = _read_digests(folder)
    digests.pop(f"{leave_out}.npy", None)
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:24]


def is_whole(folder: Path) -> bool:
    """Whether a folder has the files of `save_arrays`, bit for bit."""
    try:
        digests = _read_digests(folder)
        sizes = {name: int(digest.partition(":")[0]) for name, digest in digests.items()}
        names = {path.name: sizes[path.name] for path in folder.glob("*.npy")}
        return digests == {name: _digest(folder / name, size) for name, size in names.items()}
    except (OSError, ValueError, KeyError):
        return False


def _read_digests(folder: Path) -> dict[str, str]:
    digests, wrong = parse_json(read_file(folder / DIGESTS), Each(str))
    if wrong:
        raise ValueError(wrong)
    return digests


def _digest(path: Path, limit: int | None = None) -> str:
    """The size of a file and the digest of its content."""
    with open_file(path, limit) as file:
        return f"{path.stat().st_size}:{hashlib.file_digest(file, 'sha256').hexdigest()}"
