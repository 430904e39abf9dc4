"""A sweep worker: one process that takes, trains and scores trials."""

import contextlib
import errno
import gc
import logging
import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
from optuna.trial import Trial as Attempt

from transformer import tasks
from transformer.errors import RunError, UserError, one_line, shorten
from transformer.runs import workdir
from transformer.runs.run import Run, State, record_run
from transformer.tasks.base import text_of
from transformer.training.loop import Trainer
from transformer.training.programs import StepPrograms
from transformer.training.run import TrainingRun
from ..evaluate import run as scoring
from ..process import environment
from ..process.process import explain
from .study import STORAGE_ERRORS, Study, SweepError
from .trial_configs import PlannedTrial, is_vmapped, structure

MAX_UNEXPECTED = 3  # consecutive unexpected failures after which a worker stops
# Errors of the machine or its disk: every later trial would fail in the same way.
OF_ALL = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EPIPE),
    *(errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOLCK),
)
MEMORY = "--config.data.batch_tokens, or take a smaller model"  # what to lower if memory runs out
SHOW_EVERY = 60.0  # seconds between progress reports

Taken = list[tuple[PlannedTrial, Attempt]]  # the trials that a worker trains at once

logger = logging.getLogger(__name__)


class Worker:
    """One process that takes, trains and scores trials until none is left.

    Args:
      show: a callback for progress lines, called at most once every `SHOW_EVERY` seconds.
    """

    def __init__(self, study: Study, show: Callable[[str], object] = lambda progress: None):
        self.study, self._show, self._shown = study, show, time.monotonic()
        settings, trials = study.config.sweep, (study.trials or {}).values()
        models = [study.config.model, *(trial.config.model for trial in trials)]
        vmapped = is_vmapped(settings, models, jax.default_backend() != "cpu")
        self.max_vmapped_runs = settings.max_vmapped_runs if vmapped else 1
        self._limits: dict[str, int] = {}  # maximum trials at once, keyed by structure
        self._busy: set[int] = set()  # trials that commands with --trial are training
        self._tasks: dict[str, Any] = {}  # keyed by structure
        self._steps: dict[Any, StepPrograms] = {}  # compiled programs, keyed by structure
        self._seconds: list[float] = []  # duration of each trial finished here
        self._unexpected = 0  # unexpected failures in a row

    def work(self) -> int | None:
        """Trains trials until none is left; returns the signal that ended this early, or None."""
        states = [*self.study.states().values()]
        done = sum(state not in ("waiting", "running") for state in states)
        logger.info(f"{len(states)} trials, {done} done, up to {self.max_vmapped_runs} at once")
        while True:
            with contextlib.ExitStack() as locks:
                if not (taken := self._take(locks)):
                    if self.study.is_abandoned(self._busy):
                        continue
                    return None
                start = time.monotonic()
                try:
                    with self.study.held(attempt for _, attempt in taken):
                        stop_signal = self._train(taken)
                finally:
                    with contextlib.suppress(*STORAGE_ERRORS):
                        for _, attempt in self._open(taken):
                            self.study.let_go(attempt)
                if stop_signal is not None:
                    return stop_signal
            self._seconds += [(time.monotonic() - start) / len(taken)] * len(taken)
            if left := sum(state == "waiting" for state in self.study.states().values()):
                minutes = left * sum(self._seconds) / len(self._seconds) / 60
                progress = f"{left} trials left, about {minutes:.0f} minutes of one worker"
                logger.info(progress)
                if time.monotonic() > self._shown + SHOW_EVERY:
                    self._show(progress)
                    self._shown = time.monotonic()

    def _take(self, locks: contextlib.ExitStack) -> Taken:
        """Takes trials that can be trained at the same time: all are abandoned, or all are new."""
        taken: Taken = []
        first: bool | None = None
        for number, begun in self.study.free():
            if number in self._busy or first not in (None, begun):
                continue
            if taken and not self._fits(taken, number, begun):
                continue
            if (trial := self.study.take(number)) is None:
                continue
            try:
                locks.enter_context(workdir.locked(trial[0].folder))
            except UserError:  # a command with --trial trains it
                self._busy.add(number)
                self.study.let_go(trial[1])
                continue
            taken, first = [*taken, trial], begun
        return taken

    def _fits(self, taken: Taken, number: int, begun: bool) -> bool:
        """Returns whether a trial has the same program and the same step as the taken trials."""
        other, _ = taken[0]
        key, is_drawn = structure(other.config), self.study.trials is not None or begun
        if len(taken) >= self._limits.get(key, self.max_vmapped_runs) or not is_drawn:
            return False
        trial = self.study.trial(number)
        same = key == structure(trial.config)
        return same and workdir.newest_step(trial.folder) == workdir.newest_step(other.folder)

    def _open(self, taken: Taken) -> Taken:
        """Returns the taken trials that are still running."""
        states = self.study.states()
        return [each for each in taken if states[each[0].number] == "running"]

    def _train(self, taken: Taken) -> int | None:
        """Trains and scores trials; returns the signal that ended the training early, or None.

        An error in one trial ends only that trial: if several train at once, they resume in batches
        of half the size until the failed trial is alone. Errors that affect all trials are raised.
        """
        try:
            return self._train_runs(taken)
        except Exception as error:
            if concerns_all(error):
                raise
            line, text = explain(error, str(self.study.folder), MEMORY), traceback.format_exc()
            reason = line or f"{type(error).__name__}: {shorten(one_line(str(error)))}"
        # The error and the states in its frames are already freed; free tasks and programs, too.
        self._tasks.clear()
        self._steps.clear()
        jax.clear_caches()
        gc.collect()
        remaining = self._open(taken)
        if len(remaining) > 1:
            limit = self._limits[structure(taken[0][0].config)] = (len(remaining) + 1) // 2
            numbers = ", ".join(str(trial.number) for trial, _ in remaining)
            logger.warning(
                f"{reason}: trying {numbers} again from their checkpoints, up to {limit} at once"
            )
            return None
        for trial, attempt in remaining:
            if line is None:
                logger.warning(text)
                self._unexpected += 1
            # The trials are probably not the cause: another worker may take the last trial.
            if self._unexpected >= MAX_UNEXPECTED:
                raise SweepError(
                    f"{MAX_UNEXPECTED} trials in a row failed unexpectedly, the last {trial.name} "
                    f"({reason}): this worker stops, and that trial stays open; check this "
                    "machine, then start the same command again, with "
                    "--config.sweep.retry_failed=True to repeat those that failed"
                )
            self._fail(trial, attempt, reason)
        return None

    def _train_runs(self, taken: Taken) -> int | None:
        """Trains one run, or several runs as one compiled program; see `_train`."""
        trials = [trial for trial, _ in taken]
        for trial in trials:
            logger.info(trial.name)
        made = self._make_tasks(taken)
        runs = [TrainingRun(task, t.config, t.folder) for task, t in zip(made, trials, strict=True)]
        (first, attempt), key = taken[0], (len(runs) > 1, structure(trials[0].config))
        trainer = Trainer(runs, train_step=self._steps.get(key), snapshots=False)
        if len(runs) == 1:
            self._steps[key] = trainer.train_step
        trainer.on_failure = lambda i, reason: self._fail(*taken[i], reason)
        _prepare(trials, runs)
        pruned, training = False, runs[0]

        # Must not refer to the trainer: a reference cycle would keep its states in memory.
        def report(step: int, numbers: dict[str, float]) -> bool:
            nonlocal pruned
            unpromising = self.study.report(attempt, numbers[first.config.train.best_metric], step)
            pruned = unpromising and not training.ended(step)
            return pruned

        trainer.on_evaluation = report  # used only with a single run
        if not trainer.run():
            return trainer.stop_signal
        for i, ((trial, attempt), task) in enumerate(zip(taken, made, strict=True)):
            if i in trainer.failures:
                continue
            if pruned:
                logger.info(f"{trial.name} is pruned: below the median at this step")
                self.study.end(attempt, None, "pruned")
            else:
                self._score(trial, attempt, task)
            self._unexpected = 0
        return None

    def _make_tasks(self, taken: Taken) -> list[Any]:
        """Returns the tasks of the trials, which share as much data as possible."""
        first, _ = taken[0]
        key = structure(first.config)
        if key not in self._tasks:
            try:
                self._tasks[key] = _load_task(first, next(iter(self._tasks.values()), None))
            except UserError as error:
                shared = text_of(first.config) == text_of(self.study.config)
                if shared and not isinstance(error, RunError):  # no trial can read it
                    raise SweepError(str(error)) from error
                raise
        return [self._tasks[key].with_config(trial.config) for trial, _ in taken]

    def _score(self, trial: PlannedTrial, attempt: Attempt, task: Any) -> None:
        run = Run(trial.folder, trial.config)
        results = run.scores or scoring.score(task, run, run.folder, {})
        metric = trial.config.train.best_metric
        value = results["validation"][metric]
        if not math.isfinite(value):
            self._fail(trial, attempt, f"{metric} is {value}")
            return
        self.study.end(attempt, float(value), "complete")
        logger.info(f"{trial.name}: {metric} {value:.4g} on validation")

    def _fail(self, trial: PlannedTrial, attempt: Attempt, reason: str) -> None:
        logger.warning(f"{trial.name} failed: {reason}")
        self.study.end(attempt, None, "failed", reason)


def _load_task(trial: PlannedTrial, other: Any) -> Any:
    """Returns the task of a trial, which shares as much data as possible with the task `other`."""
    return tasks.REGISTRY[trial.config.task](trial.config, other, trial.folder)


def _prepare(trials: Sequence[PlannedTrial], runs: Sequence[TrainingRun]) -> None:
    """Creates the run of each trial in its folder, and deletes old scores.

    If one run fails, all runs are closed.
    """
    try:
        for trial, run in zip(trials, runs, strict=True):
            run.checkpoints.check_fingerprint(run.task.fingerprint(), run.task.text_digest())
            run.claim()
            run.task.save_assets(trial.folder)
            if run.state < State.TRAINED:
                run.delete_results()
                environment.record(trial.folder)
                record_run(trial.folder, data=run.task.data_summary())
    except BaseException:
        for run in runs:
            run.close()
        raise


def concerns_all(error: BaseException | None) -> bool:
    """Returns whether other trials would fail with the same error, as it or a cause of it says."""
    of_all = isinstance(error, OSError) and error.errno in OF_ALL
    if of_all or isinstance(error, (SweepError, *STORAGE_ERRORS)):
        return True
    return error is not None and concerns_all(error.__cause__ or error.__context__)
