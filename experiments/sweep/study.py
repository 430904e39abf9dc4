"""The Optuna study of a sweep: the states of trials, and the leases with which workers take trials.

A worker takes a trial with a lease, which expires unless it is renewed: if a worker dies, a worker
on any machine can take the trial after `LEASE` seconds. A lease is set by one database statement,
so two workers never hold the same lease. The clocks of all machines must agree to within seconds.
"""

import contextlib
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from ml_collections import ConfigDict
from optuna.trial import FrozenTrial, TrialState
from optuna.trial import Trial as Attempt
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from transformer.errors import UserError
from transformer.files import read_json, write_json
from transformer.metrics.registry import find
from . import trial_configs
from .trial_configs import PlannedTrial, plan_trial, trial_folder

LEASE, BEAT = 30.0, 5.0  # duration of a lease, and time between renewals, in seconds
PATIENCE = 60.0  # seconds to wait for an unavailable database
FREE_LEASE = 0.0  # a lease is the Unix time in seconds until which a worker holds a trial
STATES = {state: state.name.lower() for state in TrialState} | {TrialState.FAIL: "failed"}
SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
PRUNER = optuna.pruners.MedianPruner(n_startup_trials=3)
ATTRIBUTES = sqlalchemy.table(  # Optuna's table; values are JSON
    "trial_user_attributes", *map(sqlalchemy.column, ("trial_id", "key", "value_json"))
)

STORAGE_ERRORS = SQLAlchemyError, optuna.exceptions.StorageInternalError

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class SweepError(UserError):
    """An error that affects all trials of a sweep."""


class Study:
    """The trials of a sweep and their states, which all workers share through one storage.

    Args:
      config: the base config of all trials.
      trials: the trials of a grid, or None if a search samples them from `space`.
      space: for a search, a list of choices or a range (see `_suggest`) for each dotted key.
      folder: the sweep's folder.

    Attributes:
      trials: the trials of a grid, keyed by number, or None for a search.
    """

    def __init__(
        self,
        config: ConfigDict,
        trials: Sequence[PlannedTrial] | None,
        space: Mapping[str, Any] | None,
        folder: Path,
    ):
        self.config, self.space, self.folder = config, space or {}, folder
        self._address = config.sweep.storage or f"sqlite:///{folder / 'study.db'}"
        self.trials: dict[int, PlannedTrial] | None = None
        self._leases: dict[int, float] = {}  # leases of this worker, keyed by attempt number
        trial_configs.check_space(self.space, config)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self.storage_errors():
            # If the sweep has started, its database may restart; otherwise, the URL may be wrong.
            patience = PATIENCE if (folder / "study.id").exists() else 0.0
            self._ask(lambda: self._open_study(trials), patience)

    def _open_study(self, trials: Sequence[PlannedTrial] | None) -> None:
        """Connects to the storage, and adds missing trials."""
        higher = find(self.config.train.best_metric).higher_is_better
        try:  # pre-ping reconnects if the database was restarted
            self._storage = optuna.storages.RDBStorage(self._address, {"pool_pre_ping": True})
        except (ValueError, TypeError, ImportError) as error:  # bad port, option or driver
            raise ArgumentError(str(error)) from None
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=identity(self.folder, self.config.name),
            direction="maximize" if higher else "minimize",
            pruner=PRUNER,
            load_if_exists=True,
        )
        spaces = {f"space() {key}": choice for key, choice in self.space.items()}
        ours = trial_configs.fixed_keys(self.config) | json.loads(json.dumps(spaces))
        theirs = self._study.user_attrs.get("config")
        if theirs is None:
            self._study.set_user_attr("config", ours)
        elif differing := trial_configs.list_differences(theirs, ours):
            raise UserError(
                f"{self.folder} holds a sweep of another config: {differing}. Use another "
                "--workdir, or the config of that one"
            )
        frozen = self._study.get_trials(deepcopy=False)
        if trials is not None:
            numbers = {each.user_attrs["settings"]: each.user_attrs["trial"] for each in frozen}
            self.trials = {}
            for trial in trials:  # new trials get the next free numbers
                new = max((*numbers.values(), *self.trials), default=-1) + 1
                number = numbers.get(trial.settings, new)
                place = trial_folder(self.folder, number)
                self.trials[number] = trial._replace(number=number, folder=place)
                if trial.settings not in numbers:
                    self._enqueue(trial=number, settings=trial.settings)
        else:
            listed = {each.user_attrs["trial"] for each in frozen}
            for number in sorted(set(range(self.config.sweep.trials)) - listed):
                self._enqueue(trial=number)
        for each in self._newest().values() if self.config.sweep.retry_failed else ():
            if each.state == TrialState.FAIL:
                names = each.user_attrs.keys() & {"trial", "settings"}
                self._enqueue(each.params, **{name: each.user_attrs[name] for name in names})

    @contextlib.contextmanager
    def storage_errors(self) -> Iterator[None]:
        """Turns a failure of the storage into a one-line `SweepError`."""
        try:
            yield
        except STORAGE_ERRORS as error:
            reason = " ".join(str(error.__cause__ or error).split())[:200]
            address = re.sub("(//[^:@/]*):.*@", r"\1:***@", self._address)  # hide the password
            raise SweepError(
                f"the sweep's storage {address} cannot be reached ({reason}): what was trained is "
                f"in {self.folder}; check --config.sweep.storage, and start the same command again"
            ) from None

    def _ask(self, work: Callable[[], Answer], patience: float | None = None) -> Answer:
        """Returns the result of `work`; if the storage is unavailable, waits and retries.

        `work` must be idempotent: it is retried even if it succeeded but its response was lost.
        """
        end = time.monotonic() + (PATIENCE if patience is None else patience)
        while True:
            try:
                return work()
            except STORAGE_ERRORS as error:
                if isinstance(error, ArgumentError) or time.monotonic() > end:
                    raise
                logger.warning("the sweep's storage is away: waiting for it")
                time.sleep(5.0)

    def states(self) -> dict[int, str]:
        """Returns the state of each trial, keyed by number."""
        return {number: STATES[frozen.state] for number, frozen in self._newest().items()}

    def notes(self) -> dict[int, str]:
        """Returns the failure reason of each trial ('' if there is none), keyed by trial number."""
        return {n: frozen.user_attrs.get("note", "") for n, frozen in self._newest().items()}

    def values(self) -> dict[int, dict[str, Any]]:
        """Returns the values of each trial, keyed by number; for a search, only sampled values."""
        if self.trials is not None:
            return {number: trial.values for number, trial in self.trials.items()}
        return {
            number: {key: frozen.params[key] for key in self.space if key in frozen.params}
            for number, frozen in self._newest().items()
        }

    def trial(self, number: int) -> PlannedTrial:
        """Returns the started trial with this number."""
        if self.trials is not None:
            return self.trials[number]
        return plan_trial(self.config, self.values()[number], number, self.folder)

    def free(self) -> list[tuple[int, bool]]:
        """Returns (number, whether it was started) for each trial that no worker holds.

        Previously started trials come last, so that a trial that crashes its worker, for example by
        exhausting memory, does not block the others.
        """
        now = time.time()
        begun = [
            (number, each.state != TrialState.WAITING)
            for number, each in self._open().items()
            if each.user_attrs["lease"] < now
        ]
        return sorted(begun, key=lambda each: each[1])

    def take(self, number: int) -> tuple[PlannedTrial, Attempt] | None:
        """Takes a trial for `LEASE` seconds, which `held` extends.

        Returns None if another worker took the trial first, or if it is invalid (and now failed).
        """
        frozen = self._newest()[number]
        now, old = time.time(), frozen.user_attrs["lease"]
        if old >= now or not self._swap(frozen._trial_id, old, now + LEASE):
            return None
        study = self._study
        if self.trials is None:  # seeded per trial, so that no two workers sample the same values
            sampler = SAMPLERS[self.config.sweep.search](seed=self.config.sweep.seed + number)
            settings = {"storage": self._storage, "sampler": sampler, "pruner": PRUNER}
            name = study.study_name
            study = self._ask(lambda: optuna.load_study(study_name=name, **settings))
            self._ask(lambda: study.get_trials(deepcopy=False))  # loads trials for the sampler
        if frozen.state == TrialState.WAITING:
            running = frozen._trial_id, TrialState.RUNNING
            self._ask(lambda: self._storage.set_trial_state_values(*running))
        attempt = self._ask(lambda: Attempt(study, frozen._trial_id))
        for key, choice in self.space.items():
            self._ask(lambda key=key, choice=choice: _suggest(attempt, key, choice))
        try:
            return self.trial(number), attempt
        except UserError as error:
            logger.warning(f"trial {number} failed: {error}")
            self.end(attempt, None, "failed", str(error))
            return None

    @contextlib.contextmanager
    def held(self, attempts: Iterable[Attempt]) -> Iterator[None]:
        """Renews the leases of this worker's trials until the context ends."""
        done, numbers = threading.Event(), [attempt._trial_id for attempt in attempts]

        def renew() -> None:
            while not done.wait(BEAT):
                for number in numbers:
                    with contextlib.suppress(*STORAGE_ERRORS):  # retried at the next renewal
                        self._swap(number, self._leases[number], time.time() + LEASE)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def let_go(self, attempt: Attempt) -> None:
        """Frees the trial of a worker that ends normally, so that it does not seem abandoned."""
        self._ask(lambda: attempt.set_user_attr("lease", FREE_LEASE))

    def is_abandoned(self, busy: Collection[int]) -> bool:
        """Waits for other workers; returns True if a lease expires, or False if all are renewed.

        Trials in `busy` are ignored.
        """

        def leases() -> dict[int, float]:
            return {
                n: each.user_attrs["lease"] for n, each in self._open().items() if n not in busy
            }

        if before := leases():
            numbers = ", ".join(map(str, sorted(before)))
            logger.info(f"waiting up to {LEASE:.0f} s: do the workers of trials {numbers} live?")
        while same := [each for n, each in leases().items() if before.get(n) == each]:
            if min(same) < time.time():
                return True
            time.sleep(0.2)
        return False

    def end(self, attempt: Attempt, value: float | None, state: str, note: str = "") -> None:
        """Records the outcome of a trial: "complete" with its score, "pruned" or "failed"."""
        states = {name: state for state, name in STATES.items()}
        score = value if state == "complete" else None
        if note:
            self._ask(lambda: attempt.set_user_attr("note", note))
        self._ask(lambda: self._study.tell(attempt, score, states[state], skip_if_finished=True))

    def report(self, attempt: Attempt, value: float, step: int) -> bool:
        """Records a score during training; returns whether the trial should be pruned."""
        self._ask(lambda: attempt.report(value, step))
        return bool(self.config.sweep.prune and self._ask(attempt.should_prune))

    def _swap(self, number: int, old: float, new: float) -> bool:
        """Compares and swaps the lease of an attempt; returns whether this succeeded."""
        fits = {"trial_id": number, "key": "lease", "value_json": json.dumps(old)}
        change = sqlalchemy.update(ATTRIBUTES).filter_by(**fits).values(value_json=json.dumps(new))

        def swap() -> bool:
            with self._storage.engine.begin() as connection:
                return connection.execute(change).rowcount == 1

        if changed := self._ask(swap):
            self._leases[number] = new
        return changed

    def _newest(self) -> dict[int, FrozenTrial]:
        """Returns the newest attempt for each trial of this sweep, keyed by trial number."""
        attempts = self._ask(lambda: self._study.get_trials(deepcopy=False))
        newest = {each.user_attrs["trial"]: each for each in attempts}  # in the order of creation
        if self.trials is not None:
            return {n: frozen for n, frozen in newest.items() if n in self.trials}
        # A search may now have fewer trials than before.
        count, new = self.config.sweep.trials, TrialState.WAITING
        return {n: frozen for n, frozen in newest.items() if frozen.state != new or n < count}

    def _open(self) -> dict[int, FrozenTrial]:
        """Returns the unfinished trials, keyed by number."""
        return {n: frozen for n, frozen in self._newest().items() if not frozen.state.is_finished()}

    def _enqueue(self, params: dict[str, Any] | None = None, **attributes: Any) -> None:
        self._study.enqueue_trial(dict(params or {}), {**attributes, "lease": FREE_LEASE})


def identity(folder: Path, name: str) -> str:
    """Returns the name of this folder's study in the database; creates a name if there is none."""
    path, fix = folder / "study.id", "restore the original, or use another folder"
    if not path.exists():
        write_json(path, {"name": f"{name} {uuid.uuid4().hex}"})
    return read_json(path, {"name": str}, fix)["name"]


def _suggest(attempt: Attempt, key: str, choice: Any) -> None:
    """Samples a value from a list or a range (kind, low, high), unless it was sampled before."""
    if isinstance(choice, list):
        attempt.suggest_categorical(key, choice)
    elif choice[0] == "int":
        attempt.suggest_int(key, *choice[1:])
    else:
        attempt.suggest_float(key, *choice[1:], log=choice[0] == "log")
