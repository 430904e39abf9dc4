"""The storage of a sweep's study: its name, and a check of the connection."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import optuna
from ml_collections import ConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from experiments.sweep.errors import SweepError
from transformer.storage.files import write_json
from transformer.storage.reading import read_json


def identity(folder: Path, name: str) -> str:
    """What tells this folder's study from others in one database; made where it is missing."""
    if not (told := read_identity(folder)):
        told = f"{name} {uuid.uuid4().hex}"
        write_json(folder / "study.id", {"name": told})
    return told


def read_identity(folder: Path) -> str:
    """What `identity` has made; empty where it has not."""
    path, fix = folder / "study.id", "restore the original, or use another folder"
    return read_json(path, {"name": str}, fix)["name"] if path.exists() else ""


def storage_of(config: ConfigDict, folder: Path) -> str:
    """The address of the database."""
    return config.sweep.storage or f"sqlite:///{folder / 'study.db'}"


@contextlib.contextmanager
def reached(storage: str, folder: Path) -> Iterator[None]:
    """Turns a storage's failure into one line.

    Raises:
      SweepError: it failed.
    """
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise SweepError(
            f"the sweep's storage {_without_password(storage)} cannot be reached "
            f"({reason}): what was trained is in {folder}; check --config.sweep.storage, "
            "and start the same command again"
        ) from None


def _without_password(storage: str) -> str:
    try:
        return make_url(storage).render_as_string(hide_password=True)
    except ArgumentError:
        return storage
