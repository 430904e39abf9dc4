"""The points that are left of a sweep, as a worker takes them: a lock on each that it trains."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from optuna.trial import Trial

from experiments.sweeps import errors
from experiments.sweeps.plan import Planned, structure
from experiments.sweeps.study import Study
from transformer import workdir
from transformer.errors import UserError

Taken = list[tuple[Planned, Trial]]  # what a worker trains at once
MOST_KILLS = 5  # of workers, at one step of a trial, before it has failed


class Queue:
    """What one worker may take; call it under the sweep's lock.

    Args:
      study: of the sweep.
      largest: points to take at once, at most.
      fail: called with a point that cannot be trained, its trial and the reason.
    """

    def __init__(
        self,
        study: Study,
        largest: int,
        fail: Callable[[Planned, Trial, str], None],
    ):
        self.study, self.largest, self._fail = study, largest, fail
        self._limits: dict[str, int] = {}  # by structure

    def limit(self, point: Planned, size: int) -> None:
        """Takes no more than so many points at once that are alike this one."""
        self._limits[structure(point.config)] = size

    def take(self, locks: contextlib.ExitStack) -> Taken:
        """Points of one structure whose folders are locked: abandoned ones first, then new.

        Last come those whose workers were killed again and again at one step, as the system does
        when memory runs out: they must not keep a worker from the others.
        """
        taken = self._take_begun(locks, range(2)) or self._take_new(locks)
        taken = taken or self._take_begun(locks, range(2, MOST_KILLS))
        for point, trial in taken:
            self.study.count_try(trial, workdir.newest_step(point.folder))
        return taken

    def _take_begun(self, locks: contextlib.ExitStack, tries: range) -> Taken:
        """Points that were begun, and so often begun again at the same step."""
        taken: Taken = []
        for number, trial in self.study.begun().items():
            point = self.study.point(number)
            count = self.study.tries(trial, workdir.newest_step(point.folder))
            if count not in tries and count < MOST_KILLS:
                continue
            # Another worker may have ended it since it was read.
            if (
                self._fits(taken, point)
                and self._lock(locks, point, trial)
                and self.study.states()[number] == "running"
            ):
                if count < MOST_KILLS:
                    taken.append((point, trial))
                else:
                    self._fail(point, trial, f"its worker was killed {count} times at one step")
        return taken

    def _take_new(self, locks: contextlib.ExitStack) -> Taken:
        """Points that nobody has begun; of a search, one."""
        taken: Taken = []
        while self.study.points is not None or not taken:
            if self.study.points is not None:
                waiting = self.study.waiting()
                if not waiting or not self._fits(taken, self.study.point(waiting[0])):
                    break
            new = self.study.begin()
            if new is None:
                break
            if self._lock(locks, *new):  # otherwise --point trains it, and it stays begun
                taken.append(new)
        return taken

    def _lock(self, locks: contextlib.ExitStack, point: Planned, trial: Trial) -> bool:
        """Locks a point's folder; where that can never be, the point has failed."""
        try:
            return _try_lock(locks, point.folder)
        except OSError as error:
            if errors.concerns_all(error):
                raise
            self._fail(point, trial, errors.reason(error))
            return False

    def _fits(self, taken: Taken, point: Planned) -> bool:
        """Whether a point can train with those taken: alike, and as far."""
        key = structure(point.config)
        if len(taken) >= self._limits.get(key, self.largest):
            return False
        other = taken[0][0] if taken else point
        same = key == structure(other.config)
        return same and workdir.newest_step(point.folder) == workdir.newest_step(other.folder)


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
