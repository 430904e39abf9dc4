"""Encoded text, in memory or on disk."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

from transformer import files
from transformer.errors import UserError

logger = logging.getLogger(__name__)

DIGESTS, NOTES = "digests.json", "notes.json"  # digests of a folder's other files; metadata


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """Encoded sentences in one array: sentence i is `tokens[offsets[i]:offsets[i + 1]]`.

    The tokens of raw text are its bytes in UTF-8.
    """

    tokens: Integer[np.ndarray, "tokens"]
    offsets: Int[np.ndarray, "bounds"]

    @classmethod
    def of(cls, sentences: Sequence[Any]) -> "TokenStore":
        """Returns a store with the given encoded sentences."""
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        flat = itertools.chain.from_iterable(sentences)
        return cls(np.fromiter(flat, np.int32, offsets[-1]), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Integer[np.ndarray, "length"]:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def gather(
        self, numbers: Int[np.ndarray, "*rows"], width: int
    ) -> tuple[Int[np.ndarray, "*rows width"], Int[np.ndarray, "*rows"]]:
        """Returns the sentences `numbers`, padded with 0 to `width` tokens, and their lengths.

        The index -1 gives a row of zeros and a length of -1.
        """
        starts = self.offsets[numbers]
        lengths = np.where(numbers < 0, -1, self.offsets[numbers + 1] - starts)
        columns = np.arange(width)
        rows = self.tokens.take(starts[..., None] + columns, mode="clip")
        rows *= columns < lengths[..., None]
        return rows, lengths

    @property
    def lengths(self) -> Int[np.ndarray, "sentences"]:
        """Number of tokens of each sentence."""
        return np.diff(self.offsets)


def digest_arrays(*arrays: np.ndarray) -> str:
    """Returns a digest of arrays as 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


class StoreWriter:
    """Collects sequences in an anonymous temporary file, to save memory.

    Args:
      folder: folder of the temporary file, which `stack` closes, or None to use memory.
      dtype: np.int32 for token ids, np.uint8 for texts in UTF-8.
    """

    def __init__(
        self, folder: Path | None, stack: contextlib.ExitStack, dtype: type[np.generic] = np.int32
    ):
        file = tempfile.TemporaryFile(dir=folder) if folder else io.BytesIO()  # noqa: SIM115
        self._file, self._dtype = stack.enter_context(file), dtype
        self._lengths = [np.zeros(1, np.int64)]

    def add(self, sequences: Sequence[Any]) -> None:
        """Appends sequences of token ids or of bytes."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        self._lengths.append(lengths)
        if self._dtype is np.uint8:
            self._file.write(b"".join(sequences))
        else:
            numbers = itertools.chain.from_iterable(sequences)
            self._file.write(np.fromiter(numbers, self._dtype, lengths.sum()).data)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Returns the arrays of a `TokenStore`: `name` and `<name>_offsets`."""
        offsets = np.cumsum(np.concatenate(self._lengths), dtype=np.int64)
        if isinstance(self._file, io.BytesIO):
            numbers = np.frombuffer(self._file.getvalue(), self._dtype)
        else:
            self._file.flush()
            numbers = np.memmap(self._file, self._dtype, "r") if offsets[-1] else np.zeros(0, int)
        return {name: numbers.astype(self._dtype, copy=False), f"{name}_offsets": offsets}


def cached_arrays(
    folder: Path, make: Callable[[Path], tuple[Mapping[str, np.ndarray], Any]]
) -> tuple[Mapping[str, np.ndarray], Any, str]:
    """Returns the contents of a cache folder, which is created if it is missing or damaged.

    The contents are the memory-mapped arrays (keyed by name), the JSON metadata (the notes), and a
    digest of the arrays. All files are verified against their digests, which takes a second for
    1.4 GB in the page cache.

    Args:
      make: function that returns the arrays and the metadata, given a folder for large files.
    """
    if folder.exists() and not _is_whole(folder):
        logger.warning(f"{folder} is damaged: it is made again")
        shutil.rmtree(folder)
    if not folder.exists():  # it only appears once it is complete
        with files.partial_folder(folder) as partial:
            arrays, notes = make(partial)
            for name, array in arrays.items():
                with files.whole_file(partial / f"{name}.npy", binary=True) as file:
                    np.save(file, array)
            files.write_text(partial / NOTES, json.dumps(notes))
            files.write_json(partial / DIGESTS, _digest_files(partial))
            try:
                os.rename(partial, folder)
            except OSError:
                if not folder.exists():  # otherwise another process was faster
                    raise
    # Uses plain arrays: slicing np.memmap, a subclass, takes ten times as long.
    arrays = {p.stem: np.asarray(np.load(p, mmap_mode="r")) for p in folder.glob("*.npy")}
    digests = files.read_json(folder / DIGESTS, files.Each(str), f"delete {folder}")
    del digests[NOTES]
    digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:24]
    return arrays, json.loads((folder / NOTES).read_bytes()), digest


def _is_whole(folder: Path) -> bool:
    """Returns whether all files of a cache folder match their digests."""
    try:
        return files.read_json(folder / DIGESTS, files.Each(str), "") == _digest_files(folder)
    except (OSError, UserError):
        return False


def _digest_files(folder: Path) -> dict[str, str]:
    """Returns the size and the digest of each file of a cache folder, keyed by name."""
    paths = *folder.glob("*.npy"), folder / NOTES
    return {path.name: f"{path.stat().st_size}:{files.digest_file(path, '')}" for path in paths}
