"""Access to a run's folder and to the stage of its training and evaluation.

Reading a damaged JSON file in the folder raises UserError with a suggested fix.
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ml_collections import ConfigDict

from transformer import tasks, variants
from transformer.bridges.marian_import import ORIGIN
from transformer.config import flatten
from transformer.config.keys import FREE, having
from transformer.errors import UserError, shorten
from transformer.files import hash_file, read_json, write_json
from transformer.inference.base import Predictor, Variables, on_all_devices
from transformer.inference.confidence import FILE as CONFIDENCE
from transformer.metrics.registry import rank
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.upgrades import numbered
from transformer.runs.weights import CHOICE, Weights
from transformer.runs.workdir import check_folder, load_config, newest_step

CHECKPOINTS, RESULTS, REPORT = "checkpoints", "results.json", "report.html"
RUN = "run.json"  # data recorded before training, see `read_run`
SCORES = "scores.npz"  # for each metric, the statistics of each text of the test set
FILE_DIGESTS = "files"  # key in the results: digests of the scored texts, keyed by file name
# Required keys, which files from other programs may lack; modified files have an invalid seal.
RESULTS_SHAPE = {"step": int, "averaged_steps": [int], "parameters": int, "wall_seconds": float}
RUN_SHAPE = {"data?": dict, "environment?": dict, "init_from?": dict, "vectors?": dict}

PredictorT = TypeVar("PredictorT", bound=Predictor)


class State(enum.IntEnum):
    """The stage of a run."""

    NEW = enum.auto()  # there is no checkpoint
    STARTED = enum.auto()  # training, or the evaluation of the newest checkpoint, is unfinished
    TRAINED = enum.auto()  # training has ended at a limit set in the config
    SCORED = enum.auto()  # the newest checkpoint has also been scored
    REPORTED = enum.auto()  # a report has also been written
    IMPORTED = enum.auto()  # the model was imported from another project


@dataclasses.dataclass
class RunProgress:
    """The progress of a run besides its training state, saved with every checkpoint.

    `seconds` is the total time, and `training_seconds` is the time of training steps. The `line_*`
    fields cover the steps since the last log line; `line_sums` (see `metrics.tokens.to_list`) is
    filled before a save. `best` and `best_loss` are the metric and the loss of the best evaluation,
    `last` is the newest metric value, and `lowest_loss` is the lowest loss so far. `text_digest` is
    the digest of the training data, or '' for imported models.
    """

    fingerprint: str
    seconds: float = 0.0
    training_seconds: float = 0.0
    tokens: float = 0.0
    best: float | None = None
    best_loss: float = math.inf
    best_step: int = 0
    last: float | None = None
    lowest_loss: float = math.inf
    evaluations_since_best: int = 0
    line_seconds: float = 0.0
    line_steps: int = 0
    line_sums: list[float] = dataclasses.field(default_factory=list)
    text_digest: str = ""

    def record(self, step: int, metric: str, numbers: Mapping[str, float]) -> None:
        """Records an evaluation; zero or unchanged scores use no patience if the loss improves."""
        value, loss = numbers[metric], numbers.get("loss", math.nan)
        best = rank({"loss": self.best_loss, metric: self.best or 0.0}, metric)
        if self.best is None or rank(numbers, metric) > best:
            self.best, self.best_loss, self.best_step = value, loss, step
            self.evaluations_since_best = 0
        elif value not in (0, self.last) or not loss < self.lowest_loss:
            self.evaluations_since_best += 1
        self.last, self.lowest_loss = value, min(self.lowest_loss, loss)

    def find_limit(self, step: int, settings: ConfigDict, last_step: int) -> str | None:
        """Returns the setting that ends a run after `step` steps, or None if the run continues.

        Args:
          settings: the run's `config.train`.
          last_step: the result of `total_steps`.
        """
        if step >= last_step:
            key = "epochs" if last_step < settings.steps else "steps"
            return f"train.{key}={settings[key]}"
        if 0 < settings.patience <= self.evaluations_since_best:
            return f"train.patience={settings.patience} evaluations without a better one"
        if 0 < settings.minutes * 60 <= self.seconds:
            return f"train.minutes={settings.minutes}"
        return None


def total_steps(settings: ConfigDict, epoch_length: int) -> int:
    """Returns the maximum number of steps, given `config.train` and the batches per epoch."""
    if not settings.epochs:
        return settings.steps
    # Without rounding, 0.07 epochs of 100 batches would be 8 steps.
    return min(settings.steps, math.ceil(round(settings.epochs * epoch_length, 6)))


@dataclasses.dataclass(frozen=True)
class TrainedRun(Generic[PredictorT]):
    """A trained model, loaded from a run's folder.

    Attributes:
      predictor: the model without its parameters.
      variables: the model's variables, `{"params": ...}`.
      steps: steps of the checkpoints over which the parameters are averaged, often a single step.
      progress: the progress of the run (see `RunProgress`), or {} if it is unknown.
    """

    predictor: PredictorT
    variables: Variables
    steps: Sequence[int] = ()
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Run:
    """A run's folder, and the config with which the run is trained or used.

    Attributes:
      config: by default the folder's config; commands may override inference and evaluation keys.
      epoch_length: number of batches per epoch, or None to read it from the folder.
    """

    epoch_length: int | None = None

    def __init__(self, folder: Path, config: ConfigDict | None = None):
        self.folder = folder
        if config is not None:
            self.config = config

    @functools.cached_property
    def config(self) -> ConfigDict:
        return load_config(self.folder)

    @property
    def is_imported(self) -> bool:
        """Whether the model was imported from another project, rather than trained here."""
        return (self.folder / ORIGIN).is_dir()

    @property
    def step(self) -> int:
        """The step of the newest checkpoint, or 0 if there is none."""
        return newest_step(self.folder)

    @property
    def results(self) -> dict[str, Any] | None:
        """The content of `results.json`, or None if the run has not been scored."""
        return read_results(self.folder / RESULTS)

    @property
    def scores(self) -> dict[str, Any] | None:
        """The results if they belong to the newest checkpoint or no checkpoint is left, else None.

        Older results are possible, since a run may be scored before its training has ended.
        """
        results = self.results
        return results if results and self.step in (0, results["step"]) else None

    @property
    def state(self) -> State:
        """The current stage of the run."""
        if self.is_imported:
            return State.IMPORTED
        if self.step and self.ended_by() is None:
            return State.STARTED
        if self.scores is None:
            return State.TRAINED if self.step else State.NEW
        return State.REPORTED if (self.folder / REPORT).exists() else State.SCORED

    def ended_by(self) -> str | None:
        """Returns the setting that ended the training, or None if training must continue.

        Training also continues if the newest checkpoint has not been evaluated.
        """
        step, settings, length = self.step, self.config.train, self.epoch_length
        record = Checkpoints(self.folder.absolute() / CHECKPOINTS, read_only=True).record(step)
        if "scores" not in record:
            return None
        if length is None:  # if it is not recorded, all epochs count as completed
            length = read_run(self.folder).get("data", {}).get("batches_per_epoch", 0)
        progress = RunProgress(**record["progress"])
        return progress.find_limit(step, settings, total_steps(settings, length))

    def refuse_results(self) -> None:
        """Raises UserError if the folder has old results, which may be mistaken for new ones."""
        if names := [name for name in (RESULTS, CHOICE) if (self.folder / name).exists()]:
            raise UserError(
                f"{self.folder} has {names[0]} but no checkpoints, so its training cannot be "
                f"resumed: restore {self.folder / CHECKPOINTS}, use another folder, or delete "
                f"{' and '.join(names)} there to train from the beginning"
            )

    def delete_results(self) -> None:
        """Deletes what further training makes obsolete: scores, calibration, chosen weights."""
        for name in (RESULTS, CHOICE, CONFIDENCE):
            (self.folder / name).unlink(missing_ok=True)

    def claim(self) -> None:
        """Makes the folder a run's folder by writing the config to it."""
        self.check_same(training=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        variants.save(self.folder, self.config.to_dict())
        write_json(self.folder / "config.json", numbered(self.config.to_dict()))

    def check_same(self, training: bool = False) -> None:
        """Raises UserError if the folder has a run of another config, or a link that leads outside.

        Args:
          training: whether data paths and implementation settings must also match.
        """
        folder = self.folder
        check_folder(folder)
        if not (folder / "config.json").exists():
            return
        theirs, ours = (run._comparable(training) for run in (Run(folder), self))
        differing = [
            f"{key} (there {theirs[key]!r}, here {ours[key]!r})"
            for key in sorted(ours)
            if theirs[key] != ours[key]
        ]
        if differing:
            raise UserError(
                f"{folder} holds a run of another config: {'; '.join(differing)}. Use another "
                "folder, or name this one alone, without a config, to use the config that is there"
                + (f"; config.train.init_from={folder} starts from its weights" if training else "")
            )

    def _comparable(self, training: bool) -> dict[str, Any]:
        """Returns the config values that must match the folder's config; see `check_same`."""
        free = {*having(*FREE)} if training else {*having(*FREE, "implementation", "path")}
        values = {key: value for key, value in flatten(self.config).items() if key not in free}
        values["data.corpora"] = [
            {key: value for key, value in corpus.items() if f"data.{key}" not in free}
            for corpus in values["data.corpora"]
        ]
        return values

    def other_settings(self) -> dict[str, Any]:
        """Returns the scoring settings that differ from the folder's, as {dotted key: value}."""
        theirs, ours = flatten(load_config(self.folder)), flatten(self.config)
        return {
            key: ours[key]
            for key in sorted(ours)
            if key.startswith(("decode.", "evaluate.")) and ours[key] != theirs[key]
        }

    def load_trained(self, steps: Sequence[int] = ()) -> TrainedRun[Any]:
        """Loads the trained model and its weights.

        Args:
          steps: steps of the checkpoints to average instead of using the saved choice of weights.
        """
        folder = self.folder.absolute()  # Orbax needs an absolute path
        self.check_same()
        predictor = tasks.REGISTRY[self.config.task].without_text(self.config).load(folder)
        params, used, progress = Weights(folder, self.config).load(
            predictor.param_shapes, predictor.fingerprint(), steps
        )
        return TrainedRun(predictor, {"params": on_all_devices(params)}, used, progress)


# -- the JSON files of a run


def read_results(path: Path) -> dict[str, Any] | None:
    """Returns a run's scores, or None if the run has not been scored.

    Scores of texts given by the user have only the split "test", and an entry `input` with the
    names and the digest of the text files.
    """
    fix = "delete it; the mode evaluate writes it again"
    return read_json(path, RESULTS_SHAPE, fix) if path.exists() else None


def known_results(folder: Path) -> dict[str, Any]:
    """Returns the scores of a run that must have been scored; see `read_results`."""
    results = read_results(folder / RESULTS)
    assert results is not None, f"{folder} is not scored"
    return results


def damaged_text(place: Path, results: Mapping[str, Any]) -> str:
    """Returns the name of a text file that changed after it was scored, or '' if none did."""
    for name, digest in results.get(FILE_DIGESTS, {}).items():
        if (place / name).exists() and hash_file(place / name) != digest:
            return name
    return ""


def read_run(folder: Path) -> dict[str, Any]:
    """Returns the data that a run recorded before training, or {} if the folder has no record.

    `data` contains the statistics of the training data; see `Task.data_summary`. `environment`
    describes the run's last start; see `environment.record`. `init_from` describes the run that the
    weights come from: its `folder` and the `steps` of the checkpoints. It also has the numbers of
    all `parameters`, of `loaded` and of `frozen` ones; the names of `new` ones; and the numbers of
    `carried` and `new` rows of each of the `tables` whose tokens differ. `vectors` describes the
    word vectors of each side: the `file`, its `sha256`, and the `tokens` found in it.
    """
    path, fix = folder / RUN, "restore it, or delete it; then reports lack text and environment"
    return read_json(path, RUN_SHAPE, fix) if path.exists() else {}


def record_run(folder: Path, **parts: Any) -> None:
    """Updates the given entries of the record that `read_run` returns."""
    write_json(folder / RUN, {**read_run(folder), **parts})


def start_line(start: Mapping[str, Any]) -> str:
    """Returns a log line about weights from another run, given the entry `init_from`."""
    parts = [
        f"starts from {start['folder']}, weights of step "
        f"{', '.join(f'{step:,}' for step in start['steps'])}: {start['loaded']:,} of "
        f"{start['parameters']:,} parameters loaded, {start['frozen']:,} frozen"
    ]
    parts += [
        f"{name}: {rows['carried']:,} rows by piece, {rows['new']:,} new"
        for name, rows in start["tables"].items()
    ]
    if start["new"]:
        parts.append(f"new: {shorten(', '.join(start['new']))}")
    return "; ".join(parts)
