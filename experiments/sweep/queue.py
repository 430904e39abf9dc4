"""The queue of a sweep's remaining trials: a worker locks each trial that it trains."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from optuna.trial import Trial as Attempt

from experiments.sweep import errors
from experiments.sweep.plan import PlannedTrial, structure
from experiments.sweep.study import Study
from transformer import workdir
from transformer.errors import UserError

Taken = list[tuple[PlannedTrial, Attempt]]  # what a worker trains at once
MAX_KILLS = 5  # of workers, at one step of a trial, before it has failed


class Queue:
    """What one worker may take; call it under the sweep's lock.

    Args:
      study: of the sweep.
      largest: trials to take at once, at most.
      fail: called with a trial that cannot be trained, its trial and the reason.
    """

    def __init__(
        self,
        study: Study,
        largest: int,
        fail: Callable[[PlannedTrial, Attempt, str], None],
    ):
        self.study, self.largest, self._fail = study, largest, fail
        self._limits: dict[str, int] = {}  # by structure

    def limit(self, trial: PlannedTrial, size: int) -> None:
        """Limits the number of trials taken at once that share this one's program."""
        self._limits[structure(trial.config)] = size

    def take(self, locks: contextlib.ExitStack) -> Taken:
        """Trials of one structure whose folders are locked: abandoned ones first, then new.

        Last come those whose workers were killed again and again at one step, as the system does
        when memory runs out: they must not keep a worker from the others.
        """
        taken = self._take_begun(locks, range(2)) or self._take_new(locks)
        taken = taken or self._take_begun(locks, range(2, MAX_KILLS))
        for trial, attempt in taken:
            self.study.count_try(attempt, workdir.newest_step(trial.folder))
        return taken

    def _take_begun(self, locks: contextlib.ExitStack, tries: range) -> Taken:
        """Trials that were begun, and so often begun again at the same step."""
        taken: Taken = []
        for number, attempt in self.study.begun().items():
            trial = self.study.trial(number)
            count = self.study.tries(attempt, workdir.newest_step(trial.folder))
            if count not in tries and count < MAX_KILLS:
                continue
            # Another worker may have ended it since it was read.
            if (
                self._fits(taken, trial)
                and self._lock(locks, trial, attempt)
                and self.study.states()[number] == "running"
            ):
                if count < MAX_KILLS:
                    taken.append((trial, attempt))
                else:
                    self._fail(trial, attempt, f"its worker was killed {count} times at one step")
        return taken

    def _take_new(self, locks: contextlib.ExitStack) -> Taken:
        """Trials that nobody has begun; of a search, one."""
        taken: Taken = []
        while self.study.trials is not None or not taken:
            if self.study.trials is not None:
                waiting = self.study.waiting()
                if not waiting or not self._fits(taken, self.study.trial(waiting[0])):
                    break
            new = self.study.begin()
            if new is None:
                break
            if self._lock(locks, *new):  # otherwise --trial trains it, and it stays begun
                taken.append(new)
        return taken

    def _lock(self, locks: contextlib.ExitStack, trial: PlannedTrial, attempt: Attempt) -> bool:
        """Locks a trial's folder; where that can never be, the trial has failed."""
        try:
            return _try_lock(locks, trial.folder)
        except OSError as error:
            if errors.concerns_all(error):
                raise
            self._fail(trial, attempt, errors.reason(error))
            return False

    def _fits(self, taken: Taken, trial: PlannedTrial) -> bool:
        """Whether a trial can train with those taken: of the same program, at the same step."""
        key = structure(trial.config)
        if len(taken) >= self._limits.get(key, self.largest):
            return False
        other = taken[0][0] if taken else trial
        same = key == structure(other.config)
        return same and workdir.newest_step(trial.folder) == workdir.newest_step(other.folder)


@contextlib.contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Holds the sweep's lock, after whoever has it."""
    while True:
        with contextlib.ExitStack() as stack:
            if _try_lock(stack, folder):
                yield
                return
        time.sleep(0.1)


def _try_lock(locks: contextlib.ExitStack, folder: Path) -> bool:
    """Locks a run's folder for as long as `locks` is open; returns whether that was possible."""
    try:
        locks.enter_context(workdir.locked(folder))
    except UserError:
        return False
    return True
