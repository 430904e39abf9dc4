"""The folder of a run: its name, its lock, its config, and the links in it."""

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer import variants
from transformer.checks import check
from transformer.config import complete
from transformer.errors import UserError
from transformer.files import mismatch, read_json
from transformer.runs.sweep_folder import refuse_sweep

# May be a link to elsewhere: checkpoints are large, and all modes except training only read them.
# Training, which would write and delete there, needs a flag.
MAY_BE_LINKED, LINK_FLAG = "checkpoints", "linked_checkpoints"
TRIAL = re.compile(r"trials/\d+")  # the folder of a run within its sweep's
EVALUATIONS = "evaluations"  # folder within a run's, of all scores but the run's own results
# A run's config has these; other missing keys, which are newer than the run, get their defaults.
ESSENTIAL = {"task": str, "model": dict, "data": dict, "tokenizer": dict}


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keeps other processes from training in the folder, which is created if it is missing.

    Raises UserError if one does, or waits for its end. The system releases the lock when the
    process ends, even if it is killed; the file stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # nothing else is touched
    with open(folder / "lock", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise UserError(
                f"another process trains in {folder}: wait for its end, or use another folder"
            ) from None
        yield


def make_writable(folder: Path) -> None:
    """Creates a folder; raises OSError, before a long computation, if no file can be in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def run_folder(name: str | Path) -> Path:
    """Returns the folder that a user names; `trials/0` is `trials/000`."""
    folder = Path(name).expanduser()
    if folder.parent.name == "trials" and folder.name.isdecimal() and not folder.exists():
        folder = folder.with_name(f"{int(folder.name):03d}")
    return folder


def newest_step(folder: Path) -> int:
    """Returns the step of a run's newest checkpoint, or 0 if it has none."""
    return max((int(p.name) for p in folder.glob("checkpoints/*") if p.name.isdigit()), default=0)


def check_folder(folder: Path, linked: bool = True) -> None:
    """Raises UserError if a symbolic link leads out of a run's or a sweep's folder.

    Otherwise files elsewhere could be read or written. The folder itself may be a link, and so may
    the `checkpoints` of a run. A pipe or a device is refused, too: to open it may never end.

    Args:
      linked: whether checkpoints may be such a link.
    """
    root = folder.resolve()
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if name in files and _is_odd(path):
                raise UserError(f"{path} is a pipe or a device, which no run writes: delete it")
            in_run = place == str(root) or TRIAL.fullmatch(os.path.relpath(place, root))
            may_be_linked = name == MAY_BE_LINKED and in_run
            if not os.path.islink(path) or (may_be_linked and linked):
                continue
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(root):
                fix = f"; if it is yours, --{LINK_FLAG} trains there" if may_be_linked else ""
                raise UserError(
                    f"{folder / Path(path).relative_to(root)} is a symbolic link out of the run's "
                    f"folder, to {target}: delete it, or put what is needed in its place{fix}"
                )


def _is_odd(path: str) -> bool:
    """Whether there is something that is no regular file; what is being deleted is nothing."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def load_config(folder: Path) -> ConfigDict:
    """Returns the config that made a run; keys that are newer than the run have their default."""
    check_folder(folder)
    path = folder / "config.json"
    if not path.exists():
        refuse_sweep(folder)
        raise UserError(
            f"{folder} has no run (no config.json): train first, or name another folder"
        )
    variants.check(folder)
    fix = "restore the original"
    return parse_config(read_json(path, dict, fix), path, fix)


def parse_config(saved: dict[str, Any], path: Path, fix: str) -> ConfigDict:
    """Returns a config that was written as JSON, complete and checked.

    Args:
      path: the file that has it, which a UserError names.
      fix: the end of the error message.
    """
    try:
        if wrong := mismatch(saved, ESSENTIAL):
            raise UserError(wrong)
        config = complete(ConfigDict(saved))
        check(config)
    except (ValueError, AttributeError, UserError) as error:  # ConfigDict has names of its own
        raise UserError(f"{path} cannot be read ({error}): {fix}") from None
    return config
