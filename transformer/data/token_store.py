"""Encoded text, in memory or on disk."""

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from transformer.storage.files import whole_file, write_json

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


def cached_arrays(
    folder: Path, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns arrays, memory-mapped from a folder of the cache, which is created if it is missing.

    All files are read once and compared with their digests, which takes a second for 1.4 GB in the
    page cache.

    Args:
      make: creates the arrays, by name.
    """
    if folder.exists():
        if is_whole(folder):
            return load_arrays(folder)
        logger.warning(f"{folder} is damaged: the text is encoded again")
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink()
    save_arrays(folder, make())
    return load_arrays(folder)


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays and their digests to `folder`, which appears only when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        for name, array in arrays.items():
            with whole_file(Path(partial, f"{name}.npy"), binary=True) as file:
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
    return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}


def is_whole(folder: Path) -> bool:
    """Whether a folder has the files of `save_arrays`, bit for bit."""
    try:
        digests = json.loads((folder / DIGESTS).read_bytes())
        return digests == {path.name: _digest(path) for path in folder.glob("*.npy")}
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
