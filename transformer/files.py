"""Atomic file writes that survive a power loss, and validation of JSON files.

A `shape` is a schema for JSON values: a type, where `float` allows any number and `int` excludes
booleans; a tuple of alternative schemas; `[shape]` for a list; `Each(shape)` for an object whose
values all match this schema; or {key: shape} for an object with at least these keys. A key that
ends in "?" is optional.
"""

import contextlib
import errno
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import socket
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from transformer.errors import UserError

# The wheel installs the folders `experiments` and `configs` inside this package.
INSTALLED = importlib.util.find_spec(f"{__package__}.experiments") is not None
LAUNCH = "transformer-jax" if INSTALLED else "python launch.py"
SEAL = "sha256"  # key in a JSON file for the digest of all other keys
MAX_FILE = 2**26  # default maximum bytes of a file that is read into memory
MAX_LINE = 2**30  # maximum bytes of a JSON line, such as a document
DAMAGE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError)
DAMAGE += (zipfile.BadZipFile, zlib.error)
MAX_NUMBER = 2**63
# Suffix of unfinished files and folders, after the process id: a hash of the host name.
PARTIAL = f"{hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]}.partial"


def import_sibling(name: str) -> ModuleType:
    """Imports a module from `experiments` or `configs`; the library has no other such imports."""
    return importlib.import_module(f"{__package__}.{name}" if INSTALLED else name)


@contextlib.contextmanager
def whole_file(path: Path, binary: bool = False) -> Iterator[Any]:
    """Opens a temporary file for writing, and renames it once it is complete on disk.

    If writing fails, the previous file is kept, the temporary file is deleted, and the error
    contains the file name. If two processes write the same file, the last rename wins.

    Args:
      binary: whether to write bytes instead of UTF-8 text, whose line breaks are not converted.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.{PARTIAL}")
    options: dict[str, Any] = {} if binary else {"newline": "", "encoding": "utf-8"}
    try:
        with partial.open("wb" if binary else "w", **options) as file:
            yield file
            file.flush()
            # Without fsync, the new name may reach the disk before the content.
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # the error for a full disk has no file name
        raise


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder, which is deleted unless the caller renames it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    delete_leftovers(path)
    prefix = f"{path.name}.{os.getpid()}."
    with tempfile.TemporaryDirectory(f".{PARTIAL}", prefix, path.parent) as place:
        folder = Path(place, path.name)
        folder.mkdir()
        try:
            yield folder
        except OSError as error:  # report the path instead of the temporary folder
            name = str(error.filename2 or error.filename or path)
            error.filename, error.filename2 = name.replace(str(folder), str(path)), None
            raise


def delete_leftovers(path: Path) -> None:
    """Deletes unfinished files and folders that killed processes left on this machine."""
    import psutil  # on Windows, `os.kill(process, 0)` would send Ctrl-C

    partial = re.compile(rf"{re.escape(path.name)}\.(\d{{1,9}})\.(\w+\.)?{re.escape(PARTIAL)}")
    for match in filter(None, map(partial.fullmatch, os.listdir(path.parent))):
        if not psutil.pid_exists(int(match[1])):
            leftover = path.with_name(match[0])
            (shutil.rmtree if leftover.is_dir() else os.unlink)(leftover)


@contextlib.contextmanager
def naming(place: str | Path) -> Iterator[None]:
    """Adds a file name to an OSError that has none, such as the error for a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Writes bytes to a file atomically; see `whole_file`."""
    with whole_file(path, binary=True) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes text to a UTF-8 file atomically; see `whole_file`."""
    write_bytes(path, text.encode())


def seal_of(content: Mapping[str, Any]) -> str:
    """Returns the digest of a JSON object, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically; objects get a digest (`SEAL`) that is verified on reading."""
    if isinstance(value, Mapping):
        value = {**value, SEAL: seal_of(value)}
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes an npz file atomically; equal arrays result in identical files."""
    import numpy as np  # takes 0.14 s, too long for --help

    with whole_file(path, binary=True) as file:
        np.savez_compressed(file, **arrays)


def sync(path: Path) -> None:
    """Flushes a file or a folder to disk; does nothing on Windows, which opens no folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Each(NamedTuple):
    """The schema of an object with arbitrary keys, in which all values match `shape`."""

    shape: Any


class OddFileError(OSError):
    """A file is not a regular file, or is too large."""


class DamageError(Exception):
    """A file differs from the content that was written to it."""


def open_file(path: Path, limit: int | None = None) -> io.BufferedReader:
    """Opens a file for reading; raises OddFileError for a pipe or a device, which may block.

    Args:
      limit: maximum bytes of the file, or OddFileError is raised; None for no limit.
    """
    if path.is_fifo() or path.is_char_device():
        raise OddFileError(errno.EFBIG, "it is a pipe or a device", str(path))
    if limit is not None and (size := path.stat().st_size) > limit:
        raise OddFileError(errno.EFBIG, f"it has {size:,} bytes", str(path))
    return path.open("rb")


def read_file(path: Path, limit: int = MAX_FILE) -> bytes:
    """Returns the content of a regular file; see `open_file`."""
    with open_file(path, limit) as file:
        return file.read()


def open_input(path: Path, limit: int | None, fix: str) -> io.BufferedReader:
    """Opens a file with `open_file`, or raises a UserError whose message ends with `fix`."""
    try:
        return open_file(path, limit)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {fix}") from None
    except (IsADirectoryError, OddFileError) as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {fix}") from None


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a regular file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_file(path: Path, fix: str) -> str:
    """Returns a regular file's SHA-256, or raises a UserError whose message ends with `fix`."""
    with open_input(path, None, fix) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(path: Path, target: Path, fix: str, digest: str = "") -> str:
    """Copies a regular file atomically, and returns its SHA-256.

    Raises a UserError whose message ends with `fix` if the file is missing or its digest differs.
    """
    copied = digest_file(path, fix)
    if digest not in ("", copied):
        raise UserError(f"{path} is not what was written: {fix}")
    with open_file(path) as file, whole_file(target, binary=True) as copy:
        shutil.copyfileobj(file, copy)
    return copied


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[Any]:
    """Yields the arrays of an npz file, keyed by name; each array is read on access.

    Raises ValueError if an array is missing or damaged, or does not fit in memory.
    """
    import numpy as np

    try:
        with open_file(path) as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
            yield arrays
    except (*DAMAGE, MemoryError) as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0][:80]) from error


def read_json(path: Path, shape: Any, fix: str) -> Any:
    """Returns the content of a UTF-8 JSON file, which must match the schema `shape`.

    Raises a UserError if the file is missing or damaged, or does not match the schema. The message
    ends with `fix`, such as "restore the original".
    """
    with open_input(path, MAX_FILE, fix) as file:
        value, wrong = parse_json(file.read(), shape)
    if wrong:
        raise UserError(f"{path} cannot be read ({wrong}): {fix}")
    return value


def read_json_lines(
    path: Path, shape: Any, fix: str, digest: Any = None
) -> Iterator[tuple[int, Any]]:
    """Yields (one-based line number, value) for each line of a UTF-8 JSON Lines file.

    Raises the same errors as `read_json`; the messages include the line number.

    Args:
      digest: a `hashlib` hash object that is updated with each line.
    """
    with open_input(path, None, fix) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            if digest:
                digest.update(line)
            value, wrong = parse_json(line, shape)
            if wrong:
                raise UserError(f"{path}, line {number}, cannot be read ({wrong}): {fix}")
            yield number, value


def read_sealed(path: Path, shape: Any) -> dict[str, Any]:
    """Reads a JSON object that `write_json` has written; raises DamageError for other content."""
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DamageError(f"{path.name} is missing") from None
    except (OddFileError, IsADirectoryError) as error:
        raise DamageError(f"{path.name} cannot be read: {error.strerror}") from None
    content, wrong = parse_json(data, shape)
    if wrong or f'"{SEAL}"'.encode() not in data:
        raise DamageError(f"{path.name} is not what was written")
    return content


def parse_json(data: bytes, shape: Any) -> tuple[Any, str | None]:
    """Returns the parsed value without its seal, and an error message, or None if it is valid.

    Objects without a seal are valid, since other programs write them, and users may remove a seal.
    """
    try:
        value = json.loads(data.decode("utf-8"))
        if isinstance(value, dict) and SEAL in value and value.pop(SEAL) != seal_of(value):
            return None, f"it is not what was written; to use it as it is, remove its {SEAL!r}"
    except UnicodeDecodeError as error:
        return None, f"byte {error.start + 1} is not UTF-8"
    except RecursionError:
        return None, "it is nested too deep"
    except ValueError as error:
        return None, str(error)
    return value, mismatch(value, shape)


def mismatch(value: Any, shape: Any, place: str = "") -> str | None:
    """Returns a description of the first mismatch between a value and a schema, or None.

    Args:
      place: the dotted path of keys that leads to the value.
    """
    if isinstance(shape, tuple) and not isinstance(shape, Each):
        wrong = [mismatch(value, choice, place) for choice in shape]
        return None if None in wrong else wrong[0]
    kind = {dict: dict, list: list, Each: dict}.get(type(shape), shape)
    if not _has_type(value, kind):
        is_plain = isinstance(value, str | int | float)
        shown = ascii(value)[:40] if is_plain else type(value).__name__
        return f"{place or 'the whole'} is {shown} instead of {kind.__name__}"
    inner: list[tuple[Any, Any, Any]] = []
    prefix = f"{place}." if place else ""
    if isinstance(shape, dict):
        for name, part in shape.items():
            key = name.removesuffix("?")
            if key in value:
                inner.append((key, value[key], part))
            elif key == name:
                return f"{prefix}{key} is missing"
    elif isinstance(shape, Each):
        inner = [("a key", key, str) for key in value]  # keys may have lone surrogates
        inner += [(ascii(key)[1:-1][:30], each, shape.shape) for key, each in value.items()]
    elif isinstance(shape, list):
        inner = [(i, each, shape[0]) for i, each in enumerate(value)]
    wrong = (mismatch(each, part, f"{prefix}{key}") for key, each, part in inner)
    return next(filter(None, wrong), None)


def _has_type(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return kind is str and not any("\ud800" <= each <= "\udfff" for each in value)
    if isinstance(value, int):
        return kind in (int, float) and abs(value) < MAX_NUMBER
    return isinstance(value, kind)
