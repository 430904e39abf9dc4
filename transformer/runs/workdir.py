"""The folder of a run or a sweep: its path, lock, config and symbolic links."""

import contextlib
import itertools
import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer import variants
from transformer.checks import check
from transformer.config import complete, flatten
from transformer.errors import UserError
from transformer.files import mismatch, parse_json, read_file, read_json
from transformer.metrics.registry import rank
from transformer.runs.upgrades import upgrade

# A subfolder that may be a link out of the run's folder: checkpoints are large, and only training
# modifies them. Training with linked checkpoints therefore requires a flag.
MAY_BE_LINKED, LINK_FLAG = "checkpoints", "linked_checkpoints"
EVALUATIONS = "evaluations"  # subfolder for all scores except the run's own results
# Required keys of a run's config. Other missing keys are newer than the run and get defaults.
ESSENTIAL = {"task": str, "model": dict, "data": dict, "tokenizer": dict}
SAVED = {"format?": int}  # shape of a config before its upgrade
STORED = Path(__file__).parents[1] / "stored"  # trained runs that are a part of the package
COMMAND = "sweep.json"  # file with the command of a sweep, see `experiments.sweep.trial_configs`


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Locks a folder for training, and creates it if it is missing.

    If another process is training there, raises UserError, or waits for the lock if `wait` is set.
    The system releases the lock when a process ends, even if it is killed; the lock file stays.
    """
    import portalocker  # only training needs it

    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(portalocker.Lock(folder / "lock", timeout=math.inf if wait else 0))
        except portalocker.AlreadyLocked:
            raise UserError(
                f"another process writes to {folder}: wait for its end, or use another folder"
            ) from None
        except portalocker.LockException as error:
            why = error.__cause__ or error
            raise UserError(f"{folder} has no locks ({why}): use another file system") from None
        yield


def run_folder(name: str | Path) -> Path:
    """Returns the path of a folder given by the user; `trials/0` is expanded to `trials/000`."""
    folder = Path(name).expanduser()
    if folder.parent.name == "trials" and folder.name.isdecimal() and not folder.exists():
        folder = folder.with_name(f"{int(folder.name):03d}")
    return folder


def stored_run(name: str | Path) -> Path | None:
    """Returns the folder of the package's trained run with this name, or None.

    The user's own folder of this name comes first.
    """
    stored = STORED / name
    is_stored = Path(name).name == str(name) and stored.is_dir()
    return stored if is_stored and not Path(name).exists() else None


def newest_step(folder: Path) -> int:
    """Returns the step of a run's newest checkpoint, or 0 if it has none."""
    return max((int(p.name) for p in folder.glob("checkpoints/*") if p.name.isdigit()), default=0)


def check_folder(folder: Path, linked: bool = True) -> None:
    """Raises UserError if a symbolic link leads out of a run's or a sweep's folder.

    Such a link could cause files elsewhere to be read or written. The folder itself may be a link,
    and so may a run's `checkpoints`. Pipes and devices are rejected, since opening them may block.

    Args:
      linked: whether `checkpoints` may be a link out of the folder.
    """
    if folder.is_file():
        raise UserError(f"{folder} is a file: name a folder")
    root = folder.resolve()
    walk = os.walk(root)  # ignores files that another process deletes at the same time
    for path in (Path(place, name) for place, *names in walk for name in itertools.chain(*names)):
        if path.is_fifo() or path.is_char_device():
            raise UserError(f"{path} is a pipe or a device, which no run writes: delete it")
        may_be_linked, target = path.name == MAY_BE_LINKED, Path(os.path.realpath(path))
        if not (may_be_linked and linked) and not target.is_relative_to(root):
            fix = f"; if it is yours, --{LINK_FLAG} trains there" if may_be_linked else ""
            raise UserError(
                f"{path} is a symbolic link out of the run's folder, to {target}: delete it, or "
                f"put what is needed in its place{fix}"
            )


def load_config(folder: Path) -> ConfigDict:
    """Loads the config of a run, with default values for keys that are newer than the run."""
    check_folder(folder)
    path = folder / "config.json"
    if not path.exists():
        refuse_sweep(folder)
        raise UserError(
            f"{folder} has no run (no config.json): train first, or name another folder"
        )
    fix = "restore the original"
    saved = upgrade(read_json(path, SAVED, fix), folder)
    variants.check(folder)
    return parse_config(saved, path, fix)


def parse_config(saved: dict[str, Any], path: Path, fix: str) -> ConfigDict:
    """Completes and validates a config that was saved as JSON, after its upgrade.

    Args:
      path: the file of the config, for the error message.
      fix: the suggested fix at the end of the error message.
    """
    try:
        if wrong := mismatch(saved, ESSENTIAL):
            raise UserError(wrong)
        config = complete(ConfigDict(saved))
        check(config)
    except (ValueError, AttributeError, UserError) as error:  # including ConfigDict's own errors
        raise UserError(f"{path} cannot be read ({error}): {fix}") from None
    return config


# -- the folder of a sweep instead of a run


class Trial(NamedTuple):
    """A trial of a sweep, with its settings and score, in a folder named after its trial number."""

    folder: Path
    settings: dict[str, Any]
    score: float | None

    @property
    def name(self) -> str:
        """The trial's path within the sweep's folder, followed by its settings."""
        values = ", ".join(f"{key.split('.')[-1]}={value}" for key, value in self.settings.items())
        return f"trials/{self.folder.name} ({values or 'as configured'})"


def find_trials(folder: Path) -> list[Trial]:
    """Returns a sweep's trials, from the best validation score to the worst, or [] for a run.

    Trials without a readable config are skipped.
    """
    configs: dict[Path, dict[str, Any]] = {}
    for path in sorted(folder.glob("trials/*/config.json")):
        if config := _read_object(path, {**SAVED, "train": dict}):
            configs[path.parent] = flatten(ConfigDict(upgrade(config, path.parent)))
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    differing = [key for key in keys if len({repr(c.get(key)) for c in configs.values()}) > 1]
    trials = []
    for place, config in configs.items():
        scores = _read_object(place / "results.json", {"validation": dict}).get("validation", {})
        numbers = {name: float(x) for name, x in scores.items() if isinstance(x, int | float)}
        metric = config.get("train.best_metric", "")
        settings = {key: config.get(key) for key in differing}
        trial = Trial(place, settings, numbers.get(metric))
        trials.append(([-x for x in rank(numbers, metric)], place.name, trial))
    return [trial for *_, trial in sorted(trials)]


def is_sweep(folder: Path) -> bool:
    """Returns whether a folder contains a sweep with at least one trial."""
    return not (folder / "config.json").exists() and any(folder.glob("trials/*/config.json"))


def refuse_sweep(folder: Path) -> None:
    """Raises UserError, which names the best trial, if the folder contains a sweep, not a run."""
    command = _read_object(folder / COMMAND, {"command": str}).get("command")
    trials = find_trials(folder)
    if not trials and not command:
        return
    name = "none of its trials has begun"
    if trials:
        best = shlex.quote(str(trials[0].folder))
        name = f"name one of its trials, such as {best}, the best on validation"
    again = f". To resume the sweep, type: {command}" if command else ""
    raise UserError(f"{folder} holds a sweep, not a run: {name}{again}")


def _read_object(path: Path, shape: Any) -> dict[str, Any]:
    """Returns the object in a JSON file, or {} if the file is missing or does not match `shape`."""
    try:
        content, wrong = parse_json(read_file(path), shape)
    except OSError:
        return {}
    return {} if wrong else content
