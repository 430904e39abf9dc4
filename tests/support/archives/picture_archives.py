"""A tiny archive in the layout that CIFAR-10 is published in, for TFDS; see `review_archives`."""

import io
import tarfile
from pathlib import Path

import numpy as np

NAMES = [f"class{number}" for number in range(10)]


def cifar_picture(number: int) -> np.ndarray:
    """A picture of 32 x 32 pixels, by its place in the archive."""
    return np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def cifar10(folder: Path) -> dict[str, Path]:
    """Returns the archive by its name: two pictures in each of five files, and two to test."""
    path = folder / "cifar-10-binary.tar.gz"
    files = {"batches.meta.txt": "\n".join([*NAMES, ""]).encode()}
    parts = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for part, name in enumerate(parts):
        rows = (2 * part, 2 * part + 1)
        pixels = (np.moveaxis(cifar_picture(n), -1, 0).tobytes() for n in rows)
        files[name] = b"".join(bytes([n % 10]) + each for n, each in zip(rows, pixels, strict=True))
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return {path.name: path}
