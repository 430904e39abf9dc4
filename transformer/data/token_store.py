"""Encoded text, in memory or on disk."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """Encoded sentences one after another in one array, which may lie on disk.

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


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays below `folder`, which appears when all of them are there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        for name, array in arrays.items():
            np.save(f"{partial}/{name}.npy", array)
        os.chmod(partial, 0o755)
        try:
            os.rename(partial, folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise


def load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Returns what `save_arrays` wrote, memory-mapped."""
    return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
