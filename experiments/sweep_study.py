"""The store of a sweep: an Optuna study, which says what each point has come to."""

import contextlib
import itertools
import json
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from ml_collections import ConfigDict
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from experiments.settings import flatten
from experiments.sweep_errors import SweepError
from experiments.sweep_plan import Planned, group_points, plan_point
from transformer.checkpoint import SMALLER_IS_BETTER
from transformer.errors import UserError

STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.FAIL: "failed",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
KINDS = ("log", "uniform", "int")
LARGEST = 2**31  # members of a group, when points are only put into an order
SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
# What may change when a sweep goes on: how it is run and compared, and where its text lies.
FREE_KEYS = (
    *("name", "sweep.storage", "sweep.together", "sweep.largest", "sweep.trials"),
    *("sweep.baseline", "sweep.prune", "sweep.retry_failed"),
    *("data.path", "data.cache_dir", "data.tfds_dir", "data.prefetch"),
)


class Study:
    """The points of a sweep and their states, shared by all workers on one storage.

    Args:
      config: what all points start from.
      points: those of a grid; None where the search draws them from `space`.
      space: for a search, each dotted key's choices (a list) or range, see `_suggest`.
      folder: the sweep's.

    Raises:
      UserError: the storage cannot be reached, or holds a sweep of another config.
    """

    def __init__(
        self,
        config: ConfigDict,
        points: Sequence[Planned] | None,
        space: Mapping[str, Any] | None,
        folder: Path,
    ):
        self.config, self.points, self.space, self.folder = config, points, space, folder
        self.storage = config.sweep.storage or f"sqlite:///{folder / 'study.db'}"
        if space is not None:
            _check_space(space)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        smaller = config.train.best_metric in SMALLER_IS_BETTER
        with self.reached():
            self._study = optuna.create_study(
                storage=self.storage,
                study_name=f"{config.name} {_identity(folder)}",
                direction="minimize" if smaller else "maximize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
                load_if_exists=True,
            )
            self._check_same()
            known = self.states()  # all, unless a worker was killed here
            # Those of one structure follow one another, so that a worker finds them together.
            for point in itertools.chain(*group_points(points or (), True, LARGEST)):
                if point.number not in known:
                    self._study.enqueue_trial({}, user_attrs={"point": point.number})
            if config.sweep.retry_failed:
                self._list_failed_again()

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Turns a storage's failure into one line.

        Raises:
          SweepError: it failed.
        """
        try:
            yield
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
            reason = " ".join(str(error.__cause__ or error).split())[:200]
            raise SweepError(
                f"the sweep's storage {_without_password(self.storage)} cannot be reached "
                f"({reason}): what was trained is in {self.folder}; check --config.sweep.storage, "
                "and start the same command again"
            ) from None

    def waiting(self) -> list[int]:
        """Returns the numbers of the points that nobody has begun, as they will be taken."""
        return [_number(trial) for trial in self._trials(TrialState.WAITING)]

    def begun(self) -> dict[int, Trial]:
        """Returns the points that were begun and not ended, by number.

        Call it under the sweep's lock: a point of a search that has no values yet was then killed
        while it was drawn, and has failed.
        """
        begun = {}
        for frozen in self._trials(TrialState.RUNNING):
            trial = Trial(self._study, frozen._trial_id)
            if self.points is None and "values" not in frozen.user_attrs:
                self.end(trial, None, "failed", "its worker was killed while it was drawn")
            else:
                begun[_number(frozen)] = trial
        return begun

    def states(self) -> dict[int, str]:
        """Returns each point's state, by number."""
        return {_number(trial): STATES[trial.state] for trial in self._trials()}

    def values(self) -> dict[int, dict[str, Any]]:
        """Returns what each point sets, by number; of a search, those drawn so far."""
        if self.points is not None:
            return {point.number: point.values for point in self.points}
        return {_number(t): json.loads(t.user_attrs.get("values", "{}")) for t in self._trials()}

    def point(self, number: int) -> Planned:
        """Returns a point that was begun, by its number."""
        if self.points is not None:
            return self.points[number]
        return plan_point(self.config, self.values()[number], number, self.folder)

    def begin(self) -> tuple[Planned, Trial] | None:
        """Takes the next point, or None where none is left; call it under the sweep's lock.

        A point that a search draws and that cannot be has failed, and the next one is drawn.
        """
        while self.points is None:
            numbers = self.states()
            count = len(numbers)
            if count >= self.config.sweep.trials and not self._trials(TrialState.WAITING):
                return None
            # Seeded anew for each point, so that no two workers draw the same one.
            sampler = SAMPLERS[self.config.sweep.search]
            self._study.sampler = sampler(seed=self.config.sweep.seed + count)
            trial = self._study.ask()  # one that is listed again, or a new one
            values = {key: _suggest(trial, key, range_) for key, range_ in self.space.items()}
            number = trial.user_attrs.get("point", max(numbers, default=-1) + 1)
            trial.set_user_attr("point", number)
            trial.set_user_attr("values", json.dumps(values))
            try:
                return plan_point(self.config, values, number, self.folder), trial
            except UserError as error:
                self.end(trial, None, "failed", str(error))
        if not self._trials(TrialState.WAITING):
            return None
        trial = self._study.ask()
        return self.points[trial.user_attrs["point"]], trial

    def end(self, trial: Trial, value: float | None, state: str, note: str = "") -> None:
        """Tells what a point has come to: "complete" with its score, "pruned" or "failed"."""
        states = {name: state for state, name in STATES.items()}
        with self.reached():
            if note:
                trial.set_user_attr("note", note)
            self._study.tell(trial, value if state == "complete" else None, states[state])

    def tries(self, trial: Trial, step: int) -> int:
        """Returns how often workers took the point when this was its newest step."""
        at, count = trial.user_attrs.get("tries", (step, 0))
        return count if at == step else 0

    def count_try(self, trial: Trial, step: int) -> None:
        """Remembers that a worker takes the point at this step."""
        with self.reached():
            trial.set_user_attr("tries", (step, self.tries(trial, step) + 1))

    def forget_tries(self, trial: Trial) -> None:
        """Forgets them: a worker that was asked to stop was not killed by the point."""
        with self.reached():
            trial.set_user_attr("tries", (0, 0))

    def report(self, trial: Trial, value: float, step: int) -> bool:
        """Tells a score during the training; returns whether the point shall be pruned."""
        with self.reached(), warnings.catch_warnings():
            # A run that goes on from a checkpoint comes by the same steps again.
            warnings.filterwarnings("ignore", "The reported value is ignored")
            trial.report(value, step)
            return bool(self.config.sweep.prune and trial.should_prune())

    def notes(self) -> dict[int, str]:
        """Returns why points failed, by number."""
        return {_number(t): t.user_attrs.get("note", "") for t in self._trials()}

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        with self.reached():
            return self._study.get_trials(deepcopy=False, states=states or None)

    def _list_failed_again(self) -> None:
        """Lists what has failed once more: an ended trial stays as it is, and the newest counts."""
        ended = {_number(trial): trial for trial in self._trials()}
        for number, trial in ended.items():
            if trial.state == TrialState.FAIL and (self.points is not None or trial.params):
                told = {k: v for k, v in trial.user_attrs.items() if k in ("point", "values")}
                self._study.enqueue_trial(dict(trial.params), {**told, "point": number})

    def _check_same(self) -> None:
        """Raises UserError where the study was begun with other points, or another config."""
        ours = {k: v for k, v in flatten(self.config).items() if not k.startswith(FREE_KEYS)}
        points = [p.values for p in self.points] if self.points is not None else self.space
        ours = json.loads(json.dumps({**ours, "points": points}, default=list))
        theirs = self._study.user_attrs.get("config")
        if theirs is None:
            self._study.set_user_attr("config", ours)
            return
        differing = [k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)]
        if differing:
            key = min(differing)
            raise UserError(
                f"{self.folder} holds a sweep of another config: {key} was "
                f"{theirs.get(key)!r} and is {ours.get(key)!r}"[:400]
                + ". Use another --workdir, or the config of that one"
            )


def _identity(folder: Path) -> str:
    """What tells this folder's study from others in one database; made where it is missing."""
    path = folder / "study.id"
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return path.read_text()


def _without_password(storage: str) -> str:
    try:
        return make_url(storage).render_as_string(hide_password=True)
    except ArgumentError:
        return storage


def _check_space(space: Mapping[str, Any]) -> None:
    """Raises UserError where something is no list of choices and no range, see `_suggest`."""
    for key, choice in space.items():
        is_range = isinstance(choice, tuple) and len(choice) == 3 and choice[0] in KINDS
        if not (is_range and choice[1] <= choice[2]) and not (isinstance(choice, list) and choice):
            raise UserError(
                f"space() says {key}: {choice!r}: write a list of choices, or a kind "
                f"({', '.join(KINDS)}), the lowest and the highest value"
            )


def _number(trial: FrozenTrial) -> int:
    return trial.user_attrs.get("point", trial.number)


def _suggest(trial: Trial, key: str, choice: Any) -> Any:
    """Draws a value: of a list one of its members; of ("log" | "uniform" | "int", low, high) one
    between the two, the first by its logarithm."""
    if isinstance(choice, list):
        return trial.suggest_categorical(key, choice)
    kind, low, high = choice
    if kind == "int":
        return trial.suggest_int(key, low, high)
    return trial.suggest_float(key, low, high, log=kind == "log")
