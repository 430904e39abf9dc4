"""A run's folder: its config, its lock and the trained model in it."""

import contextlib
import dataclasses
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ml_collections import ConfigDict

from transformer import tasks, variants
from transformer.checks import check
from transformer.config import complete, flatten
from transformer.config.keys import FREE, having
from transformer.errors import UserError
from transformer.files import mismatch, read_json, write_json
from transformer.inference.base import Predictor, Variables
from transformer.inference.batching import on_all_devices
from transformer.runs import weights
from transformer.runs.json_files import read_results
from transformer.runs.sweep_folder import refuse_sweep

# May be a link to elsewhere: checkpoints are large, and all modes except training only read them.
# Training, which would write and delete there, needs a flag.
MAY_BE_LINKED, LINK_FLAG = "checkpoints", "linked_checkpoints"
TRIAL = re.compile(r"trials/\d+")  # the folder of a run within its sweep's
EVALUATIONS = "evaluations"  # folder within a run's, of all scores but the run's own results
# A run's config has these; other missing keys, which are newer than the run, get their defaults.
ESSENTIAL = {"task": str, "model": dict, "data": dict, "tokenizer": dict}
STALE_SECONDS = 3600  # a file that is half written is no longer being written

PredictorT = TypeVar("PredictorT", bound=Predictor)


@dataclasses.dataclass(frozen=True)
class TrainedRun(Generic[PredictorT]):
    """The trained model of a run's folder.

    Attributes:
      predictor: the model in use.
      variables: the variables to apply it with, `{"params": ...}`.
      steps: the steps of the checkpoints whose mean the parameters are, or of the only one.
      progress: the progress of the run, see `RunProgress`; empty if unknown.
    """

    predictor: PredictorT
    variables: Variables
    steps: Sequence[int] = ()
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)


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


def refuse_results(folder: Path) -> None:
    """Raises UserError if a run without checkpoints has results, which would pass for new ones."""
    if names := [name for name in ("results.json", "weights.json") if (folder / name).exists()]:
        raise UserError(
            f"{folder} has {names[0]} but no checkpoints, so its training cannot be resumed: "
            f"restore {folder / 'checkpoints'}, use another folder, or delete "
            f"{' and '.join(names)} there to train from the beginning"
        )


def claim(folder: Path, config: ConfigDict) -> None:
    """Writes the config to the folder, which makes it a run's folder."""
    check_same_run(folder, config, training=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*.partial"):  # of `files.whole_file`
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            path.unlink()
    variants.save(folder, config.to_dict())
    write_json(folder / "config.json", config.to_dict())


def check_same_run(folder: Path, config: ConfigDict, training: bool = False) -> None:
    """Raises UserError if the folder has a run of another config, or a link out of it.

    Args:
      training: whether the paths of the text and how the model is computed must be the same, too.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder")
    check_folder(folder)
    if not (folder / "config.json").exists():
        return
    theirs, ours = (_comparable(each, training) for each in (load_config(folder), config))
    differing = [
        f"{key} (there {theirs[key]!r}, here {ours[key]!r})"
        for key in sorted(ours)
        if theirs[key] != ours[key]
    ]
    if differing:
        cause = ""
        if config.recipe != "none" and {*having("recipe")}.issuperset(
            key.split()[0] for key in differing
        ):
            cause = f"config.recipe={config.recipe} counts the text: is it that of the run? "
        raise UserError(
            f"{folder} holds a run of another config: {'; '.join(differing)}. {cause}Use another "
            "folder, or name this one alone, without a config, to use the config that is there"
            + (f"; config.train.init_from={folder} starts from its weights" if training else "")
        )


def _comparable(config: ConfigDict, training: bool) -> dict[str, Any]:
    """The values of a config that must be a run's own, see `check_same_run`."""
    free = {*having(*FREE)} if training else {*having(*FREE, "implementation", "path")}

    values = {key: value for key, value in flatten(config).items() if key not in free}
    values["data.corpora"] = [
        {key: value for key, value in corpus.items() if f"data.{key}" not in free}
        for corpus in values["data.corpora"]
    ]
    return values


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


def other_settings(folder: Path, config: ConfigDict) -> dict[str, Any]:
    """Returns {dotted key: value} of the scoring settings that differ from the run's, sorted."""
    theirs, ours = flatten(load_config(folder)), flatten(config)
    return {
        key: ours[key]
        for key in sorted(ours)
        if key.startswith(("decode.", "evaluate.")) and ours[key] != theirs[key]
    }


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


def load_trained(folder: Path, config: ConfigDict, steps: Sequence[int] = ()) -> TrainedRun[Any]:
    """Returns a run's model with its weights.

    Args:
      steps: the steps of the checkpoints to use, in place of the run's own choice.
    """
    folder = folder.absolute()  # Orbax needs an absolute path
    check_same_run(folder, config)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name that of a run")
    predictor = tasks.REGISTRY[config.task].load(folder, config)
    params, used, progress = weights.load(
        folder, config, predictor.param_shapes, predictor.fingerprint(), steps
    )
    return TrainedRun(predictor, {"params": on_all_devices(params)}, used, progress)


def load_results(folder: Path) -> dict[str, Any] | None:
    """Returns the scores of a finished run, or None if it has none yet."""
    return read_results(folder / "results.json")


def known_results(folder: Path) -> dict[str, Any]:
    """Returns the scores of a run that has been scored, see `load_results`."""
    results = load_results(folder)
    assert results is not None, f"{folder} is not scored"
    return results


def is_scored(folder: Path, step: int) -> bool:
    """Returns whether `results.json` holds the scores of a run that has come to `step`."""
    results = load_results(folder)
    return results is not None and results["step"] == step


def is_finished(folder: Path, step: int) -> bool:
    """Returns whether a run that was trained to `step` is scored and has its report."""
    return is_scored(folder, step) and (folder / "report.html").exists()
