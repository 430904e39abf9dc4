"""Atomic writes of files, which also survive a power loss."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SEAL = "sha256"  # key of a JSON object in a file: the digest of all others


@contextlib.contextmanager
def whole_file(path: Path, binary: bool = False) -> Iterator[Any]:
    """Opens a file for writing that gets its name only when it is complete on disk.

    If writing fails, the previous file stays and nothing else is left, and the error names the
    file. If two processes write the same file, one of them wins.

    Args:
      binary: bytes; otherwise UTF-8 text without conversion of line breaks.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    options: dict[str, Any] = (
        {"mode": "wb"} if binary else {"mode": "w", "newline": "", "encoding": "utf-8"}
    )
    try:
        with partial.open(**options) as file:
            yield file
            file.flush()
            # Without it, the new name may reach the disk before the content.
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # a full disk names none
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file, see `whole_file`."""
    with whole_file(path, binary=True) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file, see `whole_file`."""
    with whole_file(path) as file:
        file.write(text)


def seal_of(content: Mapping[str, Any]) -> str:
    """Returns the digest of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, see `whole_file`; an object gets its `SEAL`, which readers check."""
    if isinstance(value, Mapping):
        value = {**value, SEAL: seal_of(value)}
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file, see `whole_file`; equal arrays make equal files."""
    with whole_file(path, binary=True) as file:
        np.savez_compressed(file, **dict[str, Any](arrays))


def sync(path: Path) -> None:
    """Waits until a file or a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
