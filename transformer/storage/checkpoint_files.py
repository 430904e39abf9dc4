"""The files of one checkpoint: arrays with digests, so that damaged ones are never used."""

import contextlib
import hashlib
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.errors import UserError
from transformer.storage.files import SEAL, sync, write_json
from transformer.storage.reading import OddFileError, open_file, parse_json, read_file

RECORD, EVALUATION = "checkpoint.json", "evaluation.json"
# Folders of a checkpoint: weights are separate, so that inference reads nothing else.
PARAMS, EMA, STATE = "params", "ema", "state"
PARTIAL = ".partial"  # suffix of folders that are being written or deleted
MAX_BYTES, SLACK = 8, 2**24  # of a file: for each number of all arrays, and besides
PAUSES = (0.1, 0.4, 1.0)  # seconds before another try

# Orbax logs each file it opens, and prints the errors that it also raises.
logging.getLogger("absl").setLevel(logging.CRITICAL)


class DamageError(Exception):
    """A file of a checkpoint is damaged, or its weights are not finite.

    Attributes:
      step: of the checkpoint, where several are read.
    """

    step: int | None = None


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns a tree's leaves by their path, such as "params/encoder/kernel"."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def check_leaves(found: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """Raises UserError if arrays are not those of the model.

    Args:
      found: the shape and dtype of each, by name, as a checkpoint records them.
      expected: arrays, or their shapes and dtypes.
      what: has them.
    """
    there = {name: (tuple(leaf["shape"]), leaf["dtype"]) for name, leaf in found.items()}
    here = {name: (tuple(x.shape), str(x.dtype)) for name, x in expected.items()}
    unlike = [x for x in sorted(there.keys() | here.keys()) if there.get(x) != here.get(x)]
    if not unlike:
        return
    if all(name.startswith("opt_state/") for name in unlike):
        raise UserError(
            f"{what} have the optimizer's state of another version of this code, which cannot be "
            "resumed: start another run from their weights with config.train.init_from"
        )
    says = [f"{each.get(unlike[0], ('absent',))[0]}" for each in (there, here)]
    raise UserError(
        f"{what} are not of the model of its config.json: {unlike[0]} is {says[0]}, not {says[1]}: "
        "restore the original"
    )


def write(folder: Path, state: Any, progress: Mapping[str, Any]) -> None:
    """Writes a checkpoint, which gets its name only when it is complete on disk.

    Args:
      state: a tree of arrays, which must not change meanwhile.
      progress: JSON.

    Raises:
      OSError: the write failed; nothing is left.
    """
    arrays = {name: np.asarray(x) for name, x in named_leaves(state).items()}
    partial = folder.with_name(folder.name + PARTIAL)
    try:
        record = {"progress": dict(progress), "leaves": _write_arrays(partial, arrays)}
        record["files"] = {
            str(path.relative_to(partial)): _digest(path.read_bytes())
            for path in sorted(partial.rglob("*"))
            if path.is_file()
        }
        write_json(partial / RECORD, record)
        for path in (partial, *partial.rglob("*")):
            sync(path)
        partial.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def delete(folder: Path) -> None:
    """Deletes a checkpoint; after a kill, there is no partial checkpoint under its name."""
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    folder.rename(partial)
    shutil.rmtree(partial)


def read_record(folder: Path) -> dict[str, Any]:
    """Returns a checkpoint's record: `progress`, `leaves` by name and `files` by path.

    Raises:
      DamageError: it is missing or damaged.
      UserError: the system cannot read it, for a reason other than its content.
    """
    record = patiently(lambda: read_sealed(folder / RECORD), folder)
    if not all(isinstance(record.get(key), dict) for key in ("progress", "leaves", "files")):
        raise DamageError(f"{RECORD} does not describe a checkpoint")
    return record


def weights_of(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the folder of the weights that evaluation uses, and their entries in the record."""
    leaves = record["leaves"]
    group = EMA if any(_group(name) == EMA for name in leaves) else PARAMS
    return group, {name: leaf for name, leaf in leaves.items() if _group(name) == group}


def read_leaves(folder: Path, record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns some of a checkpoint's arrays as NumPy arrays; others are not read.

    Args:
      record: see `read_record`.

    Raises:
      DamageError: one is missing or damaged, or is a weight that is not finite.
      UserError: the system cannot read them, for a reason other than their content.
    """
    groups: dict[str, dict[str, Any]] = {}
    for name in names:
        groups.setdefault(_group(name), {})[name] = record["leaves"][name]

    def read():
        arrays = {}
        for group, leaves in groups.items():
            _check_files(folder, group, record)
            arrays |= _read_group(folder / group, leaves)
        return arrays

    return patiently(read, folder)


def write_evaluation(folder: Path, content: Mapping[str, Any]) -> None:
    """Writes the evaluation of a checkpoint, JSON, into its folder."""
    write_json(folder / EVALUATION, content)


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """Returns the evaluation of a checkpoint, or None if it was not evaluated.

    Raises:
      DamageError: it is damaged.
      UserError: the system cannot read it, for a reason other than its content.
    """
    path = folder / EVALUATION
    return patiently(lambda: read_sealed(path) if path.exists() else None, folder)


def read_sealed(path: Path) -> dict[str, Any]:
    """Returns the JSON object that `write_json` wrote.

    Raises:
      DamageError: it is missing or damaged.
    """
    try:
        data = read_file(path)
        content, wrong = parse_json(data, dict)
    except (FileNotFoundError, NotADirectoryError):
        raise DamageError(f"{path.name} is missing") from None
    except (OddFileError, IsADirectoryError) as error:
        raise DamageError(f"{path.name} cannot be read: {error.strerror}") from None
    if wrong or f'"{SEAL}"'.encode() not in data:
        raise DamageError(f"{path.name} is not what was written")
    return content


def patiently(read: Callable[[], Any], folder: Path, but: type[Exception] = DamageError) -> Any:
    """Returns the result of `read()`; tries again if it fails, since the trouble may be temporary.

    Args:
      folder: the folder that is read, for the message.
      but: an error of `read` that is not temporary, and is raised at once.

    Raises:
      UserError: it still fails.
    """
    for pause in (*PAUSES, None):
        try:
            return read()
        except but:
            raise
        except Exception as error:
            if pause is None:
                raise UserError(
                    f"{folder} cannot be read now ({first_line(error)}); it is left as it is: "
                    "start the same command again when that is over"
                ) from error
            time.sleep(pause)
    raise AssertionError


def first_line(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"


def _group(name: str) -> str:
    """The folder of a leaf."""
    first = name.split("/")[0]
    return first if first in (PARAMS, EMA) else STATE


def _write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Writes arrays into a folder for each group; returns their entries in the record."""
    import orbax.checkpoint as ocp  # which takes a fifth of a second

    for group in (PARAMS, EMA, STATE):
        if own := {name: x for name, x in arrays.items() if _group(name) == group}:
            with _checkpointer() as checkpointer:
                checkpointer.save(folder / group, args=ocp.args.PyTreeSave(own), force=True)
    return {
        name: {"shape": list(x.shape), "dtype": str(x.dtype), "digest": _digest_array(x)}
        for name, x in arrays.items()
    }


def _read_group(folder: Path, leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    import orbax.checkpoint as ocp

    kinds = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in leaves}
    shapes = {
        name: jax.ShapeDtypeStruct(leaf["shape"], leaf["dtype"]) for name, leaf in leaves.items()
    }
    options = ocp.args.PyTreeRestore(item=shapes, restore_args=kinds, partial_restore=True)
    with _checkpointer() as checkpointer:
        arrays = checkpointer.restore(folder, args=options)
    for name, leaf in leaves.items():
        x = arrays[name]
        if (list(x.shape), str(x.dtype)) != (leaf["shape"], leaf["dtype"]):
            raise DamageError(f"{name} has another shape than was written")
        if _digest_array(x) != leaf["digest"]:
            raise DamageError(f"{name} is not what was written")
        if _group(name) != STATE and not np.isfinite(x).all():
            raise DamageError(f"{name} is not finite")
    return arrays


def _check_files(folder: Path, group: str, record: Mapping[str, Any]) -> None:
    """Raises DamageError if a file of the group is missing or damaged.

    Orbax must not read damaged files: it may then allocate any amount of memory.
    """
    numbers = sum(math.prod(leaf["shape"]) for leaf in record["leaves"].values())
    for name, digest in record["files"].items():
        if name.split("/")[0] == group:
            if ".." in name.split("/"):
                raise DamageError(f"{name} is outside of the checkpoint")
            try:
                with open_file(folder / name, SLACK + MAX_BYTES * numbers) as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise DamageError(f"{name} is missing") from None
            except OddFileError:
                found = ""
            if found != digest:
                raise DamageError(f"{name} is not what was written")


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp

    return contextlib.closing(ocp.Checkpointer(ocp.PyTreeCheckpointHandler()))


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_array(x: np.ndarray) -> str:
    return _digest(np.ascontiguousarray(x).reshape(-1).view(np.uint8))
