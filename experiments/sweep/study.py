"""The Optuna study of a sweep: the state of each trial, and the leases by which workers take them.

A worker takes a trial by its lease, which runs out unless it is renewed: the trial of a worker that
dies is free again after `LEASE` seconds, on whatever machine. A lease changes in one statement of
the database, so no two workers have the same one. The clocks of machines must agree to seconds.
"""

import contextlib
import itertools
import json
import logging
import re
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import optuna
import sqlalchemy
from ml_collections import ConfigDict
from optuna.trial import FrozenTrial, TrialState
from optuna.trial import Trial as Attempt
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from transformer.errors import UserError
from transformer.files import read_json, write_json
from transformer.metrics.registry import find
from transformer.runs.workdir import newest_step
from . import trial_configs
from .trial_configs import PlannedTrial, plan_trial, trial_folder

LEASE, BEAT = 30.0, 5.0  # seconds until a lease runs out, and until it is renewed
PATIENCE = 60.0  # seconds in which a database that goes away may come back
MAX_KILLS = 5  # of workers, at one step of a trial, before it has failed
STATES = {state: state.name.lower() for state in TrialState} | {TrialState.FAIL: "failed"}
SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
PRUNER = optuna.pruners.MedianPruner(n_startup_trials=3)
ATTRIBUTES = sqlalchemy.table(  # Optuna's, with values as JSON
    "trial_user_attributes", *map(sqlalchemy.column, ("trial_id", "key", "value_json"))
)

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class SweepError(UserError):
    """What is wrong concerns all trials of a sweep."""


class Lease(NamedTuple):
    """A worker's hold of a trial."""

    until: float  # seconds since 1970
    step: int  # the newest of the trial when it was taken
    kills: int  # workers that took it at this step and did not let it go


FREE_LEASE = Lease(0.0, 0, 0)


class Study:
    """The trials of a sweep and their states, shared by all workers on one storage.

    Args:
      config: what all trials start from.
      trials: those of a grid; None if the search draws them from `space`.
      space: for a search, each dotted key's choices (a list) or range, see `_suggest`.
      folder: the sweep's.

    Attributes:
      trials: of a grid, by number; None for a search.
      left_out: numbers of the trials of a grid that were listed once and are not now.
    """

    def __init__(
        self,
        config: ConfigDict,
        trials: Sequence[PlannedTrial] | None,
        space: Mapping[str, Any] | None,
        folder: Path,
    ):
        self.config, self.space, self.folder = config, space or {}, folder
        self._address = _address(config.sweep, folder)
        self.trials: dict[int, PlannedTrial] | None = None
        self.left_out: list[int] = []
        self._leases: dict[int, Lease] = {}  # that this worker took, by the number of the attempt
        trial_configs.check_space(self.space, config)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # The database of a sweep that began may be away for a while; of another it is misnamed.
        self.ask(lambda: self._open_study(trials), waits=(folder / "study.id").exists())

    def _open_study(self, trials: Sequence[PlannedTrial] | None) -> None:
        """Connects to the storage, and lists the trials that it lacks."""
        higher = find(self.config.train.best_metric).higher_is_better
        self._storage = _open_storage(self._address)
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=identity(self.folder, self.config.name),
            direction="maximize" if higher else "minimize",
            pruner=PRUNER,
            load_if_exists=True,
        )
        self._check_same()
        if trials is not None:
            known = _known(self._study)
            self.trials = trial_configs.number_trials(trials, known)
            self.left_out = [number for number in known.values() if number not in self.trials]
            new = [t for number, t in self.trials.items() if number not in known.values()]
            # Those of one structure follow one another, so that a worker finds them together.
            for trial in itertools.chain(*trial_configs.group_trials(new)):
                self._enqueue(trial=trial.number, settings=trial.settings)
        else:
            listed = set(map(_number, self._study.get_trials(deepcopy=False)))
            for number in sorted(set(range(self.config.sweep.trials)) - listed):
                self._enqueue(trial=number)
        for frozen in self._newest().values() if self.config.sweep.retry_failed else ():
            if frozen.state == TrialState.FAIL:
                names = frozen.user_attrs.keys() & {"trial", "settings"}
                attributes = {name: frozen.user_attrs[name] for name in names}
                self._enqueue(frozen.params, **attributes)

    def reached(self) -> contextlib.AbstractContextManager[None]:
        """Turns a storage's failure into one line, a `SweepError`."""
        return _reached(self._address, self.folder)

    def ask(self, work: Callable[[], Answer], waits: bool = True) -> Answer:
        """Returns what the storage answers; if it goes away, waits until it is back.

        Args:
          work: may be done twice: that an answer was lost does not say that nothing was done.
          waits: otherwise an error of the storage is raised at once.
        """
        begin, said = time.monotonic(), False
        while True:
            try:
                with self.reached():
                    return work()
            except SweepError as error:
                never = isinstance(error.__context__, ImportError | ArgumentError)
                if never or not waits or time.monotonic() > begin + PATIENCE:
                    raise
                if not said:
                    logger.warning(f"the sweep's storage is away: waiting up to {PATIENCE:.0f} s")
                said = True
                time.sleep(1.0)

    def states(self) -> dict[int, str]:
        """Returns each trial's state, by number."""
        return {number: STATES[frozen.state] for number, frozen in self._newest().items()}

    def notes(self) -> dict[int, str]:
        """Returns why trials failed, by number."""
        return {n: frozen.user_attrs.get("note", "") for n, frozen in self._newest().items()}

    def values(self) -> dict[int, dict[str, Any]]:
        """Returns what each trial sets, by number; of a search, what is drawn so far."""
        if self.trials is not None:
            return {number: trial.values for number, trial in self.trials.items()}
        return {
            number: {key: frozen.params[key] for key in self.space if key in frozen.params}
            for number, frozen in self._newest().items()
        }

    def trial(self, number: int) -> PlannedTrial:
        """Returns a trial that was begun, by its number."""
        if self.trials is not None:
            return self.trials[number]
        return plan_trial(self.config, self.values()[number], number, self.folder)

    def free(self) -> list[tuple[int, int]]:
        """Returns the number and the rank of each trial that no worker has, the next one first.

        Abandoned ones come before new ones. Last come those that kill their workers again and again
        at one step, as when memory runs out: they must not keep a worker from the others.
        """
        ranks = {}
        for number, frozen in self._open().items():
            if _lease(frozen).until < time.time():
                begun = 0 if self._kills(frozen) < 2 else 2
                ranks[number] = 1 if frozen.state == TrialState.WAITING else begun
        return sorted(ranks.items(), key=lambda each: each[1])

    def take(self, number: int) -> tuple[PlannedTrial, Attempt] | None:
        """Takes a trial, which `LEASE` seconds later is free again, see `held`.

        None if another worker was quicker, or the trial cannot be: then it has failed.
        """
        frozen = self._newest()[number]
        step, kills = newest_step(trial_folder(self.folder, number)), self._kills(frozen)
        now, old = time.time(), _lease(frozen)
        new = Lease(now + LEASE, step, kills + 1)
        if old.until >= now or not self._swap(frozen._trial_id, old, new):
            return None
        study = self._study
        if self.trials is None:  # seeded for each trial, so that no two workers draw the same one
            sampler = SAMPLERS[self.config.sweep.search](seed=self.config.sweep.seed + number)
            settings = {"storage": self._storage, "sampler": sampler, "pruner": PRUNER}
            name = study.study_name
            study = self.ask(lambda: optuna.load_study(study_name=name, **settings))
            self.ask(lambda: study.get_trials(deepcopy=False))  # without which it knows no trial
        if frozen.state == TrialState.WAITING:
            running = frozen._trial_id, TrialState.RUNNING
            self.ask(lambda: self._storage.set_trial_state_values(*running))
        attempt = self.ask(lambda: Attempt(study, frozen._trial_id))
        if kills >= MAX_KILLS:
            self.end(attempt, None, "failed", f"its worker was killed {kills} times at one step")
            return None
        for key, choice in self.space.items():
            self.ask(lambda key=key, choice=choice: _suggest(attempt, key, choice))
        try:
            return self.trial(number), attempt
        except UserError as error:
            logger.warning(f"trial {number} failed: {error}")
            self.end(attempt, None, "failed", str(error))
            return None

    @contextlib.contextmanager
    def held(self, attempts: Iterable[Attempt]) -> Iterator[None]:
        """Renews the leases of trials that this worker has, meanwhile."""
        done, numbers = threading.Event(), [attempt._trial_id for attempt in attempts]

        def renew() -> None:
            while not done.wait(BEAT):
                for number in numbers:
                    with contextlib.suppress(SweepError):  # until the next time
                        old = self._leases[number]
                        self._swap(number, old, old._replace(until=time.time() + LEASE))

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def let_go(self, attempt: Attempt) -> None:
        """Frees a trial: a worker that ends by itself was not killed by it."""
        self.ask(lambda: attempt.set_user_attr("lease", FREE_LEASE))

    def is_abandoned(self, busy: Collection[int]) -> bool:
        """Waits for the other workers: True once a lease runs out, False if all of them live.

        Trials that are `busy` are not waited for.
        """

        def leases() -> dict[int, Lease]:
            return {n: _lease(frozen) for n, frozen in self._open().items() if n not in busy}

        if before := leases():
            numbers = ", ".join(map(str, sorted(before)))
            logger.info(f"waiting up to {LEASE:.0f} s: do the workers of trials {numbers} live?")
        while same := [each for n, each in leases().items() if before.get(n) == each]:
            if min(same).until < time.time():
                return True
            time.sleep(0.2)
        return False

    def end(self, attempt: Attempt, value: float | None, state: str, note: str = "") -> None:
        """Tells what a trial has come to: "complete" with its score, "pruned" or "failed"."""
        states = {name: state for state, name in STATES.items()}
        score = value if state == "complete" else None
        if note:
            self.ask(lambda: attempt.set_user_attr("note", note))
        self.ask(lambda: self._study.tell(attempt, score, states[state], skip_if_finished=True))

    def report(self, attempt: Attempt, value: float, step: int) -> bool:
        """Tells a score during the training; returns whether the trial shall be pruned."""
        with warnings.catch_warnings():
            # A run that resumes from a checkpoint reports the same steps again.
            warnings.filterwarnings("ignore", "The reported value is ignored")
            self.ask(lambda: attempt.report(value, step))
            return bool(self.config.sweep.prune and self.ask(attempt.should_prune))

    def _kills(self, frozen: FrozenTrial) -> int:
        """How many workers were killed since the trial came to its newest step."""
        lease, folder = _lease(frozen), trial_folder(self.folder, _number(frozen))
        return lease.kills if lease.step == newest_step(folder) else 0

    def _swap(self, number: int, old: Lease, new: Lease) -> bool:
        """Changes the lease of an attempt unless somebody else did; returns whether it is so."""
        fits = {"trial_id": number, "key": "lease", "value_json": json.dumps(old)}
        change = sqlalchemy.update(ATTRIBUTES).filter_by(**fits).values(value_json=json.dumps(new))

        def swap() -> bool:
            with self._storage.engine.begin() as connection:
                return connection.execute(change).rowcount == 1

        if changed := self.ask(swap):
            self._leases[number] = new
        return changed

    def _newest(self) -> dict[int, FrozenTrial]:
        """The newest attempt at each trial of this sweep, by number."""
        attempts = self.ask(lambda: self._study.get_trials(deepcopy=False))
        newest = {_number(frozen): frozen for frozen in attempts}  # in the order of their listing
        if self.trials is not None:
            return {n: frozen for n, frozen in newest.items() if n in self.trials}
        # Of a search there may be fewer trials than before.
        count, new = self.config.sweep.trials, TrialState.WAITING
        return {n: frozen for n, frozen in newest.items() if frozen.state != new or n < count}

    def _open(self) -> dict[int, FrozenTrial]:
        """The trials that have not ended."""
        return {n: frozen for n, frozen in self._newest().items() if not frozen.state.is_finished()}

    def _enqueue(self, params: dict[str, Any] | None = None, **attributes: Any) -> None:
        self._study.enqueue_trial(dict(params or {}), {**attributes, "lease": FREE_LEASE})

    def _check_same(self) -> None:
        """Raises UserError if the study was begun with another config, or another space."""
        spaces = {f"space() {key}": choice for key, choice in self.space.items()}
        ours = json.loads(
            json.dumps({**trial_configs.fixed_keys(self.config), **spaces}, default=list)
        )
        theirs = self._study.user_attrs.get("config")
        if theirs is None:
            self._study.set_user_attr("config", ours)
        elif differing := trial_configs.list_differences(theirs, ours):
            raise UserError(
                f"{self.folder} holds a sweep of another config: {differing}. Use another "
                "--workdir, or the config of that one"
            )


def find_trials(
    config: ConfigDict, trials: Sequence[PlannedTrial], folder: Path
) -> dict[int, PlannedTrial]:
    """Returns the trials by number, as the study of the folder counts them if there is one."""
    known = {}
    if (folder / "study.id").exists():
        address = _address(config.sweep, folder)
        with _reached(address, folder), contextlib.suppress(KeyError):  # it has no such study
            name, storage = identity(folder, config.name), _open_storage(address)
            known = _known(optuna.load_study(study_name=name, storage=storage))
    return trial_configs.number_trials(trials, known)


def identity(folder: Path, name: str) -> str:
    """Returns the name by which a database knows this folder's study; made if it is missing."""
    path, fix = folder / "study.id", "restore the original, or use another folder"
    if not path.exists():
        write_json(path, {"name": f"{name} {uuid.uuid4().hex}"})
    return read_json(path, {"name": str}, fix)["name"]


def _address(settings: ConfigDict, folder: Path) -> str:
    return settings.storage or f"sqlite:///{folder / 'study.db'}"


def _open_storage(address: str) -> optuna.storages.RDBStorage:
    """The storage; raises ArgumentError or ImportError if its address can never work."""
    kwargs = {"pool_pre_ping": True}  # a connection may be older than the database
    try:
        return optuna.storages.RDBStorage(address, kwargs)
    except (ValueError, TypeError) as error:  # of a port or an option
        raise ArgumentError(str(error)) from None


@contextlib.contextmanager
def _reached(address: str, folder: Path) -> Iterator[None]:
    """Turns a storage's failure into one line, a `SweepError`."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        address = re.sub("(//[^:@/]*):.*@", r"\1:***@", address)  # the password
        raise SweepError(
            f"the sweep's storage {address} cannot be reached ({reason}): what was trained is in "
            f"{folder}; check --config.sweep.storage, and start the same command again"
        ) from None


def _known(study: optuna.Study) -> dict[str, int]:
    """The numbers of the trials of a grid by their settings."""
    frozen = study.get_trials(deepcopy=False)
    return {each.user_attrs["settings"]: _number(each) for each in frozen}


def _number(frozen: FrozenTrial) -> int:
    return frozen.user_attrs["trial"]


def _lease(frozen: FrozenTrial) -> Lease:
    return Lease(*frozen.user_attrs["lease"])


def _suggest(attempt: Attempt, key: str, choice: Any) -> None:
    """Draws a value of a list, or of a range (kind, low, high); one drawn before stays."""
    if isinstance(choice, list):
        attempt.suggest_categorical(key, choice)
    elif choice[0] == "int":
        attempt.suggest_int(key, *choice[1:])
    else:
        attempt.suggest_float(key, *choice[1:], log=choice[0] == "log")
