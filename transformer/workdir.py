"""A run's folder: the config that made it, and what a finished run left there."""

import contextlib
import dataclasses
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ml_collections import ConfigDict

from transformer import tasks
from transformer.config import check, complete, flatten
from transformer.errors import UserError
from transformer.inference.base import Predictor, Variables
from transformer.records import read_results
from transformer.storage import weights
from transformer.storage.files import write_json
from transformer.storage.reading import read_json
from transformer.trials import refuse_sweep

# What may change when a run goes on: how long, how it is scored and where its text lies.
FREE_KEYS = (
    "name",
    "decode.",
    "sweep.",
    "evaluate.",
    "data.path",
    "data.cache_dir",
    "data.prefetch",
    "data.tfds_dir",
    "train.steps",
    "train.epochs",
    "train.minutes",
    "train.log_every",
    "train.evaluate_every",
    "train.save_minutes",
    "train.keep_last",
    "train.patience",
    "train.max_nonfinite_steps",
)


# Keys that name a place, which a stranger's folder may not choose; see `experiments.safety`.
PLACES = re.compile(
    r"data\.(path|cache_dir|tfds_dir|\w+_source|\w+_target)|sweep\.storage|tokenizer\.\w*model"
)
# What may lie elsewhere: checkpoints are large, and it is read alone by all modes but training.
MAY_BE_LINKED = "checkpoints"
ESSENTIAL = ("task", "model", "data", "tokenizer")  # without them a config is not a run's


PredictorT = TypeVar("PredictorT", bound=Predictor)


@dataclasses.dataclass(frozen=True)
class TrainedRun(Generic[PredictorT]):
    """What a run's folder gives to whoever uses its model.

    Attributes:
      predictor: the model in use.
      variables: what it is applied with, `{"params": ...}`.
      steps: of the checkpoints that the parameters are the mean of, or the only one.
      progress: how far the run had come, see `transformer.run.RunProgress`; empty if the folder
        does not say.
    """

    predictor: PredictorT
    variables: Variables
    steps: Sequence[int] = ()
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps all other processes from training in the folder, which is made where it is missing.

    The system lets go of the lock when the process ends, however it ends; the file stays.

    Raises:
      UserError: another process trains there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process trains in {folder}: wait for its end, or use another --workdir"
            ) from None
        yield


def make_writable(folder: Path) -> None:
    """Makes a folder where it is missing; raises OSError where no file can be made in it.

    So a mode that computes for long can fail before it does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def newest_step(folder: Path) -> int:
    """Returns the step of a run's newest checkpoint, or 0 where it has none."""
    return max((int(p.name) for p in folder.glob("checkpoints/*") if p.name.isdigit()), default=0)


def claim(folder: Path, config: ConfigDict) -> None:
    """Makes the folder a run of this config.

    Raises:
      UserError: see `check_same_run`.
    """
    check_same_run(folder, config, training=True)
    folder.mkdir(parents=True, exist_ok=True)
    _drop_partial_files(folder)
    write_json(folder / "config.json", config.to_dict())


def _drop_partial_files(folder: Path) -> None:
    """Deletes what processes that are dead began to write; see `files.whole_file`."""
    for place, folders, names in os.walk(folder):
        if place == str(folder) and "checkpoints" in folders:
            folders.remove("checkpoints")
        for name in names:
            found = re.fullmatch(r".+\.([0-9]+)\.partial", name)
            if found and not _is_alive(int(found[1])):
                Path(place, name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Whether another process of this machine has this number."""
    if process == os.getpid():  # which has not begun to write
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def check_same_run(folder: Path, config: ConfigDict, training: bool = False) -> None:
    """Checks that the folder holds a run of this config, or none yet, and nothing that leads out.

    Args:
      training: whether where the text lies must be the same as well.

    Raises:
      UserError: it is a file, or holds a run of another config, whose differing keys are named,
        or a link to elsewhere.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--workdir {folder} is a file: name a folder")
    check_links(folder)
    if not (folder / "config.json").exists():
        return
    theirs, ours = flatten(load_config(folder)), flatten(config)
    differing = [
        f"{key} (there {theirs[key]!r}, here {ours[key]!r})"
        for key in sorted(ours)
        if theirs[key] != ours[key]
        and not key.startswith(FREE_KEYS)
        and (training or not PLACES.fullmatch(key))
    ]
    if differing:
        raise UserError(
            f"{folder} holds a run of another config: {'; '.join(differing)}. Use another "
            "--workdir, or name it alone, without --config, to use the config that is there"
        )


def check_links(folder: Path) -> None:
    """Raises UserError where a symbolic link leads out of a run's folder.

    What is read or written there would be somewhere else. The folder itself may be a link, and so
    may its `checkpoints`.
    """
    root = folder.resolve()
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place, name)
            if not path.is_symlink() or (name == MAY_BE_LINKED and place == str(root)):
                continue
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(root):
                raise UserError(
                    f"{folder / path.relative_to(root)} is a symbolic link out of the run's "
                    f"folder, to {target}: delete it, or put what is needed in its place"
                )


def other_settings(folder: Path, config: ConfigDict) -> dict[str, Any]:
    """Returns {dotted key: value} of what scoring would do otherwise than the run did, sorted."""
    theirs, ours = flatten(load_config(folder)), flatten(config)
    return {
        key: ours[key]
        for key in sorted(ours)
        if key.startswith(("decode.", "evaluate.")) and ours[key] != theirs[key]
    }


def load_config(folder: Path) -> ConfigDict:
    """Returns the config that made a run; keys that are newer than the run have their default.

    Raises:
      UserError: the folder is no run, or its config cannot be read, or a link leads out of it.
    """
    check_links(folder)
    path = folder / "config.json"
    if not path.exists():
        refuse_sweep(folder)
        raise UserError(f"{folder} holds no run (no config.json): train first, or check --workdir")
    fix = "restore the original"
    saved = read_json(path, dict, fix)
    try:
        config = complete(ConfigDict(saved))
        check(config)
    except (ValueError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}): {fix}") from None
    # Keys that it lacks have defaults, but a run's config has each of these.
    if missing := [name for name in ESSENTIAL if name not in saved]:
        raise UserError(f"{path} cannot be read ({missing[0]} is missing): {fix}")
    return config


def load_trained(
    folder: Path, config: ConfigDict, warn: Callable[[str], None], steps: Sequence[int] = ()
) -> TrainedRun[Any]:
    """Returns a run's model with its weights.

    Args:
      steps: of the checkpoints to use, in place of those that the run has chosen.

    Raises:
      UserError: tokenizer or checkpoint is missing, or config, tokenizer and checkpoint do not
        belong together.
    """
    folder = folder.absolute()  # as Orbax needs it
    check_same_run(folder, config)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: check --workdir")
    predictor = tasks.REGISTRY[config.task].load(folder, config, warn)
    if not (folder / "checkpoints").is_dir():
        raise UserError(
            f"{folder} has no checkpoint yet (no folder checkpoints): train until one is saved, or "
            "check --workdir"
        )
    params, used, progress = weights.load(
        folder, config, predictor.param_shapes(), predictor.fingerprint(), warn, steps
    )
    return TrainedRun(predictor, {"params": params}, used, progress)


def load_results(folder: Path) -> dict[str, Any] | None:
    """Returns the scores of a finished run, or None where it has none yet.

    Raises:
      UserError: the file is damaged.
    """
    return read_results(folder / "results.json")


def known_results(folder: Path) -> dict[str, Any]:
    """Returns the scores of a run that is known to be scored, see `load_results`."""
    results = load_results(folder)
    assert results is not None, f"{folder} is not scored"
    return results


def is_scored(folder: Path, step: int) -> bool:
    """Returns whether `results.json` holds the scores of a run that has come to `step`."""
    results = load_results(folder)
    return results is not None and results["step"] == step


def is_finished(folder: Path, step: int) -> bool:
    """Returns whether nothing is left to do for a run that was trained to `step`."""
    return is_scored(folder, step) and (folder / "report.html").exists()
