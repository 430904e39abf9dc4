"""The Optuna study of a sweep, which stores the state of each trial."""

import contextlib
import copy
import itertools
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from ml_collections import ConfigDict
from optuna.trial import FrozenTrial, TrialState
from optuna.trial import Trial as Attempt

from experiments.sweep.listing import fixed_keys, list_differences, number_trials, settings
from experiments.sweep.plan import (
    PlannedTrial,
    check_signed,
    group_trials,
    plan_trial,
    set_key,
)
from experiments.sweep.storage import identity, reached, read_identity, storage_of
from transformer.errors import UserError
from transformer.metrics.registry import find

STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.FAIL: "failed",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
KINDS = ("log", "uniform", "int")
MAX_GROUP = 2**31  # trials of a group, when trials are only put into an order
SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}

logger = logging.getLogger(__name__)


class Study:
    """The trials of a sweep and their states, shared by all workers on one storage.

    Args:
      config: what all trials start from.
      trials: those of a grid; None where the search draws them from `space`.
      space: for a search, each dotted key's choices (a list) or range, see `_suggest`.
      folder: the sweep's.

    Attributes:
      trials: of a grid, by number; what another worker adds to the sweep comes in later. None for
        a search.

    Raises:
      UserError: the storage cannot be reached, or holds a sweep of another config.
    """

    def __init__(
        self,
        config: ConfigDict,
        trials: Sequence[PlannedTrial] | None,
        space: Mapping[str, Any] | None,
        folder: Path,
    ):
        self.config, self.space, self.folder = config, space, folder
        self.trials: dict[int, PlannedTrial] | None = None
        self._left_out: dict[int, dict[str, Any]] = {}
        self.storage = storage_of(config, folder)
        if space is not None:
            _check_space(space, config)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        higher = find(config.train.best_metric).higher_is_better
        with self.reached():
            self._study = optuna.create_study(
                storage=self.storage,
                study_name=identity(folder, config.name),
                direction="maximize" if higher else "minimize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
                load_if_exists=True,
            )
            self._check_same()
            if trials is not None:
                self._list(trials)
            if config.sweep.retry_failed:
                self._list_failed_again()

    def reached(self) -> contextlib.AbstractContextManager[None]:
        """Turns a storage's failure into one line, a `SweepError`."""
        return reached(self.storage, self.folder)

    def waiting(self) -> list[int]:
        """Returns the numbers of the trials that nobody has begun, as they will be taken."""
        return [_number(attempt) for attempt in self._attempts(TrialState.WAITING)]

    def left_out(self) -> dict[int, dict[str, Any]]:
        """Returns what the trials set that were listed once and are not now, by number."""
        return self._left_out

    def begun(self) -> dict[int, Attempt]:
        """Returns the trials that were begun and not ended, by number.

        Call it under the sweep's lock: a trial of a search that has no values yet was then killed
        while it was drawn, and has failed.
        """
        begun = {}
        for frozen in self._attempts(TrialState.RUNNING):
            attempt = Attempt(self._study, frozen._trial_id)
            if self.trials is None and "values" not in frozen.user_attrs:
                self.end(attempt, None, "failed", "its worker was killed while it was drawn")
            else:
                begun[_number(frozen)] = attempt
        return begun

    def states(self) -> dict[int, str]:
        """Returns each trial's state, by number."""
        return {_number(attempt): STATES[attempt.state] for attempt in self._attempts()}

    def values(self) -> dict[int, dict[str, Any]]:
        """Returns what each trial sets, by number; of a search, those drawn so far."""
        if self.trials is not None:
            return {number: trial.values for number, trial in self.trials.items()}
        return {_number(t): json.loads(t.user_attrs.get("values", "{}")) for t in self._attempts()}

    def trial(self, number: int) -> PlannedTrial:
        """Returns a trial that was begun, by its number."""
        if self.trials is not None:
            return self.trials[number]
        return plan_trial(self.config, self.values()[number], number, self.folder)

    def begin(self) -> tuple[PlannedTrial, Attempt] | None:
        """Takes the next trial, or None where none is left; call it under the sweep's lock.

        A trial that a search draws and that cannot be has failed, and the next one is drawn.
        """
        while self.trials is None:
            numbers = self.states()
            count = len(numbers)
            if count >= self.config.sweep.trials and not self._attempts(TrialState.WAITING):
                return None
            # Seeded again for each trial, so that no two workers draw the same one.
            sampler = SAMPLERS[self.config.sweep.search]
            self._study.sampler = sampler(seed=self.config.sweep.seed + count)
            attempt = self._study.ask()  # one that is listed again, or a new one
            space = self.space or {}
            values = {key: _suggest(attempt, key, range_) for key, range_ in space.items()}
            number = attempt.user_attrs.get("trial", max(numbers, default=-1) + 1)
            attempt.set_user_attr("trial", number)
            attempt.set_user_attr("values", json.dumps(values))
            try:
                return plan_trial(self.config, values, number, self.folder), attempt
            except UserError as error:
                logger.warning(f"trial {number} failed: {error}")
                self.end(attempt, None, "failed", str(error))
        # Not `ask`, which would also take those that are left out.
        for frozen in self._attempts(TrialState.WAITING):
            if self._study._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING):
                return self.trials[_number(frozen)], Attempt(self._study, frozen._trial_id)
        return None

    def end(self, attempt: Attempt, value: float | None, state: str, note: str = "") -> None:
        """Tells what a trial has come to: "complete" with its score, "pruned" or "failed"."""
        states = {name: state for state, name in STATES.items()}
        with self.reached():
            if note:
                attempt.set_user_attr("note", note)
            self._study.tell(attempt, value if state == "complete" else None, states[state])

    def tries(self, attempt: Attempt, step: int) -> int:
        """Returns how often workers took the trial when this was its newest step."""
        at, count = attempt.user_attrs.get("tries", (step, 0))
        return count if at == step else 0

    def count_try(self, attempt: Attempt, step: int) -> None:
        """Remembers that a worker takes the trial at this step."""
        with self.reached():
            attempt.set_user_attr("tries", (step, self.tries(attempt, step) + 1))

    def forget_tries(self, attempt: Attempt) -> None:
        """Forgets them: a worker that ends by itself was not killed by the trial."""
        with self.reached():
            attempt.set_user_attr("tries", (0, 0))

    def report(self, attempt: Attempt, value: float, step: int) -> bool:
        """Tells a score during the training; returns whether the trial shall be pruned."""
        with self.reached(), warnings.catch_warnings():
            # A run that resumes from a checkpoint reports the same steps again.
            warnings.filterwarnings("ignore", "The reported value is ignored")
            attempt.report(value, step)
            return bool(self.config.sweep.prune and attempt.should_prune())

    def notes(self) -> dict[int, str]:
        """Returns why trials failed, by number."""
        return {_number(t): t.user_attrs.get("note", "") for t in self._attempts()}

    def _attempts(self, *states: TrialState) -> list[FrozenTrial]:
        """Those of the trials of this sweep, in the order of their listing."""
        with self.reached():
            found = self._study.get_trials(deepcopy=False, states=states or None)
        if self.trials is None:
            return found
        for attempt in found:
            number = _number(attempt)
            if number not in self.trials and number not in self._left_out:
                # Another worker has added it: its list is a newer one.
                values = json.loads(attempt.user_attrs["values"])
                self.trials[number] = plan_trial(self.config, values, number, self.folder)
        return [attempt for attempt in found if _number(attempt) in self.trials]

    def _list(self, trials: Sequence[PlannedTrial]) -> None:
        """Numbers the trials, and lists those that are new."""
        listed = self._attempts()
        known = {t.user_attrs["settings"]: _number(t) for t in listed}
        self.trials = number_trials(self.config, trials, known)
        self._left_out = {
            number: json.loads(attempt.user_attrs["values"])
            for attempt in listed
            if (number := _number(attempt)) not in self.trials
        }
        new = [trial for number, trial in self.trials.items() if number not in known.values()]
        # Those of one structure follow one another, so that a worker finds them together.
        for trial in itertools.chain(*group_trials(new, MAX_GROUP)):
            told = {
                "trial": trial.number,
                "values": json.dumps(trial.values),
                "settings": settings(self.config, trial),
            }
            self._study.enqueue_trial({}, told)

    def _list_failed_again(self) -> None:
        """Lists what has failed once more: an ended trial stays as it is, and the newest counts."""
        ended = {_number(attempt): attempt for attempt in self._attempts()}
        for number, attempt in ended.items():
            if attempt.state == TrialState.FAIL and (self.trials is not None or attempt.params):
                kept = ("trial", "values", "settings")
                told = {key: value for key, value in attempt.user_attrs.items() if key in kept}
                self._study.enqueue_trial(dict(attempt.params), {**told, "trial": number})

    def _check_same(self) -> None:
        """Raises UserError where the study was begun with another config, or another space."""
        spaces = {f"space() {key}": choice for key, choice in (self.space or {}).items()}
        ours = json.loads(json.dumps({**fixed_keys(self.config), **spaces}, default=list))
        theirs = self._study.user_attrs.get("config")
        if theirs is None:
            self._study.set_user_attr("config", ours)
            return
        if differing := list_differences(theirs, ours):
            raise UserError(
                f"{self.folder} holds a sweep of another config: {differing}. Use another "
                "--workdir, or the config of that one"
            )


def find_trials(
    config: ConfigDict, trials: Sequence[PlannedTrial], folder: Path
) -> dict[int, PlannedTrial]:
    """Returns the trials by number, as the study of the folder counts them if there is one.

    Raises:
      SweepError: the storage cannot be reached.
    """
    known = {}
    if name := read_identity(folder):
        storage = storage_of(config, folder)
        with reached(storage, folder), contextlib.suppress(KeyError):  # it has no such study
            study = optuna.load_study(study_name=name, storage=storage)
            known = {t.user_attrs["settings"]: _number(t) for t in study.get_trials(deepcopy=False)}
    return number_trials(config, trials, known)


def _check_space(space: Mapping[str, Any], config: ConfigDict) -> None:
    """Raises UserError if a key or a choice of it does not exist, a range is none, or the scores
    of its choices are not comparable."""
    tried = copy.deepcopy(config)
    for key, choice in space.items():
        is_range = isinstance(choice, tuple) and len(choice) == 3 and choice[0] in KINDS
        if not (is_range and choice[1] <= choice[2]) and not (isinstance(choice, list) and choice):
            raise UserError(
                f"space() says {key}: {choice!r}: write a list of choices, or a kind "
                f"({', '.join(KINDS)}), the lowest and the highest value"
            )
        if is_range and choice[0] == "log" and choice[1] <= 0:
            raise UserError(f"space() says {key}: {choice!r}: a logarithmic range begins above 0")
        drawn = [choice[1] if choice[0] == "int" else float(choice[1])] if is_range else choice
        for value in drawn:
            set_key(tried, key, value)
        check_signed(config.task, key, choice[1:] if is_range else choice)


def _number(attempt: FrozenTrial) -> int:
    return attempt.user_attrs.get("trial", attempt.number)


def _suggest(attempt: Attempt, key: str, choice: Any) -> Any:
    """Draws a value: of a list one of its elements; of ("log" | "uniform" | "int", low, high) one
    between the two, the first by its logarithm."""
    if isinstance(choice, list):
        return attempt.suggest_categorical(key, choice)
    kind, low, high = choice
    if kind == "int":
        return attempt.suggest_int(key, low, high)
    return attempt.suggest_float(key, low, high, log=kind == "log")
