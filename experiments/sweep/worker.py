"""A worker of a sweep: one process that takes trials, trains and scores them."""

import contextlib
import gc
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from optuna.trial import Trial as Attempt

from experiments import environment, run
from experiments.report import page
from experiments.sweep import errors
from experiments.sweep.plan import (
    PlannedTrial,
    group_trials,
    is_vmapped,
    state_bytes,
    structure,
)
from experiments.sweep.queue import Queue, Taken, waiting_for
from experiments.sweep.study import Study
from transformer import tasks, workdir
from transformer.errors import RunError, UserError
from transformer.run import Run
from transformer.storage.files import write_text
from transformer.tasks.numbers import text_of
from transformer.train import Trainer

MAX_UNEXPECTED = 3  # trials in a row that fail unexpectedly, before their worker stops

logger = logging.getLogger(__name__)


class Worker:
    """One process that takes trials, trains and scores them until none is left."""

    def __init__(self, study: Study, folder: Path):
        self.study, self.folder = study, folder
        settings = study.config.sweep
        trials = (study.trials or {}).values()
        models = [study.config.model, *(trial.config.model for trial in trials)]
        self.vmapped = is_vmapped(settings, models, jax.default_backend() != "cpu")
        self.max_vmapped_runs = settings.max_vmapped_runs if self.vmapped else 1
        self._queue = Queue(study, self.max_vmapped_runs, self._fail)
        self._tasks: dict[str, Any] = {}  # by structure
        self._steps: dict[str, Callable] = {}  # compiled, by structure
        self._seconds: list[float] = []  # of each trial done here
        self._unexpected = 0  # failures in a row, see `_count_unexpected`

    def print_plan(self, planned: Sequence[PlannedTrial]) -> None:
        """Says what will be trained; how long it takes only where runs of its kind are done."""
        largest = self.max_vmapped_runs if self.vmapped else len(planned)
        groups = group_trials(planned, largest)
        states = self.study.states()
        done = sum(states.get(trial.number) not in ("waiting", "running") for trial in planned)
        how = "vmapped, as one program" if self.vmapped else "sequential, with one compiled step"
        noun = "group" if len(groups) == 1 else "groups"
        logger.info(f"{len(planned)} trials in {len(groups)} {noun} of one structure, {done} done")
        for group in groups:
            names = ", ".join(str(trial.number) for trial in group)
            runs = len(group) if self.vmapped else 1
            megabytes = runs * state_bytes(group[0].config) / 1e6
            memory = f"up to {megabytes:,.0f} MB of parameters and optimizer"
            time_left = self._time_left(group, states)
            logger.info(
                f"  trials {names}: {how if len(group) > 1 else 'alone'}, {memory}{time_left}"
            )

    def _time_left(self, group: Sequence[PlannedTrial], states: Mapping[int, str]) -> str:
        """What the trials of a group that are left will take, by those of it that are done.

        Empty where none is. It is also of those that train together: each run's seconds are then
        the whole program's, and how many shared it nobody wrote down.
        """
        left = sum(states.get(trial.number) in ("waiting", "running") for trial in group)
        if self.vmapped or not left:
            return ""
        done = [trial for trial in group if states.get(trial.number) == "complete"]
        seconds = []
        for trial in done:
            # A damaged file says nothing of time; the summary refuses it.
            with contextlib.suppress(UserError):
                seconds.append((workdir.load_results(trial.folder) or {}).get("wall_seconds"))
        seconds = [number for number in seconds if number]
        if not seconds:
            return ""
        minutes = left * sum(seconds) / len(seconds) / 60
        return f"; {left} left, about {minutes:.0f} minutes of one worker"

    def work(self) -> int | None:
        """Takes trials until none is left; returns the signal that ended it early, if one did."""
        while True:
            with contextlib.ExitStack() as locks:
                with waiting_for(self.folder):
                    taken = self._queue.take(locks)
                if not taken:
                    return None
                start = time.monotonic()
                try:
                    stopped_by = self._train(taken)
                except (Exception, KeyboardInterrupt):
                    with contextlib.suppress(UserError):  # of a storage that cannot be reached
                        self._forget_tries(taken)
                    raise
                if stopped_by is not None:
                    self._forget_tries(taken)
                    return stopped_by
                self._seconds += [(time.monotonic() - start) / len(taken)] * len(taken)
                self._say_time_left()

    def _forget_tries(self, taken: Taken) -> None:
        """Forgets that this worker took the trials that it leaves open, see `Study`."""
        states = self.study.states()
        for trial, attempt in taken:
            if states[trial.number] == "running":
                self.study.forget_tries(attempt)

    def _train(self, taken: Taken, again: bool = False) -> int | None:
        """Trains, scores and tells the study; returns the signal that ended it, if one did.

        An error of one trial ends that trial alone: those that train together are divided until
        it is found, and resume from their checkpoints.

        Args:
          again: whether what memory held before was let go for this attempt.

        Raises:
          Exception: it concerns the whole sweep.
        """
        try:
            return self._train_all(taken)
        except Exception as error:
            if errors.concerns_all(error):
                raise
            reason, told = errors.reason(error), traceback.format_exc()
            mistake = isinstance(error, UserError)
            out_of_memory = errors.is_out_of_memory(error)
        # Here the error, whose frames hold the states, is gone.
        self._release()
        states = self.study.states()
        taken = [(trial, attempt) for trial, attempt in taken if states[trial.number] == "running"]
        if len(taken) > 1:
            return self._divide(taken, reason, out_of_memory)
        for trial, attempt in taken:
            if out_of_memory and not again:
                logger.warning(f"{trial.name}: {reason}; trying once more, alone in memory")
                return self._train(taken, again=True)
            if not mistake and not out_of_memory:
                file = self.folder / "errors" / f"{trial.number:03d}.txt"
                file.parent.mkdir(exist_ok=True)
                write_text(file, told)
                reason += f"; see {file}"
                self._count_unexpected(trial, attempt, reason)
            self._fail(trial, attempt, reason)
        return None

    def _count_unexpected(self, trial: PlannedTrial, attempt: Attempt, reason: str) -> None:
        """Counts a failure that may be the machine's, as of a broken GPU or a missing disk.

        Raises:
          SweepError: it is the last of MAX_UNEXPECTED in a row, which are hardly the trials' fault;
            this one stays open for another worker.
        """
        self._unexpected += 1
        if self._unexpected < MAX_UNEXPECTED:
            return
        self.study.forget_tries(attempt)
        raise errors.SweepError(
            f"{MAX_UNEXPECTED} trials in a row failed unexpectedly, the last {trial.name} "
            f"({reason}): this worker stops, and that trial stays open; check this machine, then "
            "start the same command again, with --config.sweep.retry_failed=True to repeat those "
            "that failed"
        )

    def _divide(self, taken: Taken, reason: str, out_of_memory: bool) -> int | None:
        """Trains those of each step, or if all are at one step the one half, then the other."""
        size = (len(taken) + 1) // 2
        if out_of_memory:
            self._queue.limit(taken[0][0], size)
        by_step: dict[int, Taken] = {}
        for trial, attempt in taken:
            by_step.setdefault(workdir.newest_step(trial.folder), []).append((trial, attempt))
        parts = [*by_step.values()] if len(by_step) > 1 else [taken[:size], taken[size:]]
        names = [", ".join(str(trial.number) for trial, _ in part) for part in parts]
        logger.warning(
            f"{reason}: training {' and '.join(names)} separately, from their checkpoints"
        )
        for part in parts:
            if (stopped_by := self._train(part)) is not None:
                return stopped_by
        return None

    def _release(self) -> None:
        """Lets go of tasks and compiled programs, and so of all that they hold in memory."""
        self._tasks.clear()
        self._steps.clear()
        jax.clear_caches()
        gc.collect()

    def _train_all(self, taken: Taken) -> int | None:
        """Trains, scores and tells the study, see `_train`."""
        for trial, _ in taken:
            logger.info(trial.name)
        try:
            made = self._make_tasks([trial for trial, _ in taken])
        except RunError as error:
            for trial, attempt in taken:
                self._fail(trial, attempt, str(error))
            return None
        except UserError as error:  # the text is not there, or cannot be read
            if errors.concerns_all(error) or not self._has_own_text(taken[0][0]):
                raise errors.SweepError(str(error)) from error
            # One text after another is missing if a disk is.
            self._count_unexpected(*taken[-1], str(error))
            for trial, attempt in taken:
                self._fail(trial, attempt, str(error))
            return None
        if len(taken) == 1:
            return self._train_one(*taken[0], made[0])
        return self._train_vmapped(taken, made)

    def _has_own_text(self, trial: PlannedTrial) -> bool:
        """Whether a trial reads another text than the config of the sweep says, or otherwise."""
        return text_of(trial.config) != text_of(self.study.config)

    def _train_vmapped(self, taken: Taken, made: list[Any]) -> int | None:
        trials = [trial for trial, _ in taken]
        runs = [
            Run(task, trial.config, trial.folder) for task, trial in zip(made, trials, strict=True)
        ]
        trainer = Trainer(runs, snapshots=False)
        trainer.on_failure = lambda i, reason: self._fail(*taken[i], reason)
        _prepare(trials, runs)
        if not trainer.run():
            return trainer.stop_signal
        for i, ((trial, attempt), task) in enumerate(zip(taken, made, strict=True)):
            if i not in trainer.failures:
                self._score(trial, attempt, task)
                self._unexpected = 0
        return None

    def _train_one(self, trial: PlannedTrial, attempt: Attempt, task: Any) -> int | None:
        key = structure(trial.config)
        step = self._steps.get(key)
        trainer = Trainer([Run(task, trial.config, trial.folder)], train_step=step, snapshots=False)
        self._steps[key] = trainer.train_step
        _prepare([trial], trainer.runs)
        pruned, [training] = False, trainer.runs

        # It must not name the trainer: in a cycle its states would stay for the next trial.
        def report(step: int, numbers: dict[str, float]) -> bool:
            nonlocal pruned
            unpromising = self.study.report(attempt, numbers[trial.config.train.best_metric], step)
            pruned = unpromising and not training.ended(step)
            return pruned

        trainer.on_evaluation = report
        try:
            if not trainer.run():
                return trainer.stop_signal
        except RunError as error:
            self._fail(trial, attempt, str(error))
            return None
        if pruned:
            logger.info(f"{trial.name} is pruned: below the median at this step")
            self.study.end(attempt, None, "pruned")
        else:
            self._score(trial, attempt, task)
        self._unexpected = 0
        return None

    def _make_tasks(self, trials: list[PlannedTrial]) -> list[Any]:
        """The trials' tasks; those of one structure share text, model and compiled programs."""
        config = trials[0].config
        key = structure(config)
        if key not in self._tasks:
            first = next(iter(self._tasks.values()), None)
            make = tasks.REGISTRY[config.task]
            self._tasks[key] = make(config, first, trials[0].folder)
        lead = self._tasks[key]
        return [lead.with_config(trial.config) for trial in trials]

    def _score(self, trial: PlannedTrial, attempt: Attempt, task: Any) -> None:
        if workdir.is_scored(trial.folder, workdir.newest_step(trial.folder)):
            results = workdir.known_results(trial.folder)
        else:
            results = run.score(task, trial.config, trial.folder)
        value = results["validation"][trial.config.train.best_metric]
        if not math.isfinite(value):
            self._fail(trial, attempt, f"{trial.config.train.best_metric} is {value}")
            return
        self.study.end(attempt, float(value), "complete")
        logger.info(f"{trial.name}: {trial.config.train.best_metric} {value:.4g} on validation")

    def _fail(self, trial: PlannedTrial, attempt: Attempt, reason: str) -> None:
        logger.warning(f"{trial.name} failed: {reason}")
        self.study.end(attempt, None, "failed", reason)

    def _say_time_left(self) -> None:
        left = len(self.study.waiting())
        if left:
            minutes = left * sum(self._seconds) / len(self._seconds) / 60
            logger.info(f"{left} trials left, about {minutes:.0f} minutes of one worker")


def _prepare(trials: Sequence[PlannedTrial], runs: Sequence[Run]) -> None:
    """Makes each trial's folder a run of its config; where one cannot be, all are closed."""
    try:
        for trial, run in zip(trials, runs, strict=True):
            _prepare_one(trial, run)
    except BaseException:
        for run in runs:
            run.close()
        raise


def _prepare_one(trial: PlannedTrial, run: Run) -> None:
    """Makes the trial's folder a run of its config, whose old scores do not count."""
    run.checkpoints.check_fingerprint(run.task.fingerprint(), run.task.text_digest())
    workdir.claim(trial.folder, trial.config)
    run.task.save_assets(trial.folder)
    if not run.finished():
        for name in ("results.json", "weights.json"):
            (trial.folder / name).unlink(missing_ok=True)
        environment.record(trial.folder)
        page.record_data(run.task, trial.folder)
