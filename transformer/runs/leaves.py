"""The arrays of a checkpoint by name, with checks of the arrays and their files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError
from transformer.files import DamageError, open_file

# Folders of a checkpoint: weights are separate, so that inference reads nothing else.
PARAMS, EMA, STATE = "params", "ema", "state"


def describe_leaves(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the shape and dtype of arrays by name, as JSON data."""
    return {name: {"shape": list(x.shape), "dtype": str(x.dtype)} for name, x in arrays.items()}


def check_leaves(saved: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """Raises UserError if saved arrays, see `describe_leaves`, do not match the model's."""
    unlike = [x for x in sorted(saved.keys() | expected.keys()) if saved.get(x) != expected.get(x)]
    if not unlike:
        return
    there, here = (
        tuple(each[unlike[0]]["shape"]) if unlike[0] in each else "absent"
        for each in (saved, expected)
    )
    raise UserError(
        f"{what} are not of the model of its config.json, or of another version of this code: "
        f"{unlike[0]} is {there}, not {here}: restore the original"
    )


def by_group(leaves: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns leaves grouped by the folder that holds them."""
    groups: dict[str, dict[str, Any]] = {}
    for name, x in leaves.items():
        first = name.split("/")[0]
        groups.setdefault(first if first in (PARAMS, EMA) else STATE, {})[name] = x
    return groups


def check_files(folder: Path, group: str, digests: Mapping[str, str]) -> None:
    """Raises DamageError if a file of the group is missing or was changed after writing."""
    for name, digest in digests.items():
        if name.startswith(f"{group}/"):
            try:
                unchanged = hash_file(folder / name) == digest
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise DamageError(f"{name} is missing") from None
            if not unchanged:
                raise DamageError(f"{name} is not what was written")


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
