"""A sweep: many runs that differ in a few keys, trained by any number of workers, and the answer.

Every worker is the same command on the same --workdir. The study (`sweep_study.Study`) says which
points are taken and which are done; a lock on each point's folder, which the system lets go when
a process dies, says who is still alive.
"""

import contextlib
import gc
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict
from optuna.trial import Trial

from experiments import environment, run
from experiments.report import page
from experiments.sweeps import errors
from experiments.sweeps.plan import (
    Planned,
    group_points,
    plan_points,
    state_bytes,
    structure,
)
from experiments.sweeps.queue import Queue, Taken, waiting_for
from experiments.sweeps.study import Study, find_points
from experiments.sweeps.summary import numbers_of, started_by, summarise
from transformer import tasks, workdir
from transformer.errors import RunError, UserError
from transformer.run import Run
from transformer.storage.files import write_text
from transformer.train import Trainer
from transformer.trials import write_command

Say = Callable[[str], None]


def sweep(
    config: ConfigDict,
    points: Sequence[Mapping[str, Any]] | None,
    space: Mapping[str, Any] | None,
    folder: Path,
    only: int | None,
    say: Say,
) -> int | None:
    """Trains the points of a sweep that nobody has trained, then writes the answer.

    Args:
      config: what all points start from.
      points: dotted keys and values of each point; used by `sweep.search` "grid".
      space: what a search draws from, see `sweep_study`.
      only: the number of the one point to train; None for all.
      say: prints a line.

    Returns:
      The signal that ended it early, or None.

    Raises:
      UserError: a point is not valid (nothing is trained then), the storage cannot be reached, or
        the folder holds another sweep.
    """
    grid = config.sweep.search == "grid"
    if (points if grid else space) is None:
        needed = "sweep(), which yields its points" if grid else "space(), which it draws from"
        raise UserError(f"config.sweep.search='{config.sweep.search}' needs the config's {needed}")
    planned = plan_points(config, points, folder) if grid else None
    if only is not None:
        return _train_only(config, planned, folder, only, say)
    folder.mkdir(parents=True, exist_ok=True)
    with waiting_for(folder):
        study = Study(config, planned, space, folder)
        write_command(folder, started_by())
    if study.points is not None and config.sweep.baseline not in study.points:
        raise UserError(
            f"config.sweep.baseline={config.sweep.baseline} is not a trial: this sweep has "
            f"{numbers_of(study.points)}"
        )
    worker = _Worker(study, folder, say)
    if study.points is not None:
        worker.print_plan(list(study.points.values()))
    if (stopped_by := worker.work()) is not None:
        return stopped_by
    with waiting_for(folder):
        summarise(study, folder, say)
    return None


def _train_only(
    config: ConfigDict,
    planned: Sequence[Planned] | None,
    folder: Path,
    only: int,
    say: Say,
) -> int | None:
    """Trains one point of a grid; the sweep finds it done when it comes to it."""
    if planned is None:
        raise UserError("--point needs config.sweep.search='grid': a search draws its points")
    points = find_points(config, planned, folder)
    if only not in points:
        raise UserError(f"--point={only} is not there: this sweep has {numbers_of(points)}")
    say(points[only].name)
    return run.train(points[only].config, points[only].folder)


class _Worker:
    """One process that takes points, trains and scores them until none is left."""

    def __init__(self, study: Study, folder: Path, say: Say):
        self.study, self.folder, self.say = study, folder, say
        settings = study.config.sweep
        on_accelerator = jax.default_backend() != "cpu"
        # Pruning compares a member with those before it, so they have to come in turn.
        self.together = not settings.prune and (
            settings.together == "vmap" or (settings.together == "auto" and on_accelerator)
        )
        self.largest = settings.largest if self.together else 1
        self._queue = Queue(study, self.largest, self._fail)
        self._tasks: dict[str, Any] = {}  # by structure
        self._steps: dict[str, Callable] = {}  # compiled, by structure
        self._seconds: list[float] = []  # of each point done here

    def print_plan(self, planned: Sequence[Planned]) -> None:
        """Says what will be trained; how long it takes only where runs of its kind are done."""
        most = self.largest if self.together else len(planned)
        groups = group_points(planned, most)
        states = self.study.states()
        done = sum(states.get(point.number) not in ("waiting", "running") for point in planned)
        how = "together, as one program" if self.together else "in turn, through one compiled step"
        noun = "group" if len(groups) == 1 else "groups"
        self.say(f"{len(planned)} points in {len(groups)} {noun} of one structure, {done} done")
        for group in groups:
            names = ", ".join(str(point.number) for point in group)
            members = len(group) if self.together else 1
            megabytes = members * state_bytes(group[0].config) / 1e6
            memory = f"up to {megabytes:,.0f} MB of parameters and optimizer"
            time_left = self._time_left(group, states)
            self.say(f"  points {names}: {how if len(group) > 1 else 'alone'}, {memory}{time_left}")

    def _time_left(self, group: Sequence[Planned], states: Mapping[int, str]) -> str:
        """What the points of a group that are left will take, by those of it that are done.

        Empty where none is. It is also of those that train together: each run's seconds are then
        the whole program's, and how many shared it nobody wrote down.
        """
        left = sum(states.get(point.number) in ("waiting", "running") for point in group)
        if self.together or not left:
            return ""
        done = [point for point in group if states.get(point.number) == "complete"]
        seconds = []
        for point in done:
            # A damaged file says nothing of time; the answer refuses it.
            with contextlib.suppress(UserError):
                seconds.append((workdir.load_results(point.folder) or {}).get("wall_seconds"))
        seconds = [number for number in seconds if number]
        if not seconds:
            return ""
        minutes = left * sum(seconds) / len(seconds) / 60
        return f"; {left} left, about {minutes:.0f} minutes of one worker"

    def work(self) -> int | None:
        """Takes points until none is left; returns the signal that ended it early, if one did."""
        while True:
            with contextlib.ExitStack() as locks:
                with waiting_for(self.folder):
                    taken = self._queue.take(locks)
                if not taken:
                    return None
                start = time.monotonic()
                if (stopped_by := self._train(taken)) is not None:
                    for _, trial in taken:
                        self.study.forget_tries(trial)
                    return stopped_by
                self._seconds += [(time.monotonic() - start) / len(taken)] * len(taken)
                self._say_time_left()

    def _train(self, taken: Taken, again: bool = False) -> int | None:
        """Trains, scores and tells the study; returns the signal that ended it, if one did.

        An error of one point ends that point alone: those that train together are divided until
        it is found, and go on from what they saved.

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
        taken = [(point, trial) for point, trial in taken if states[point.number] == "running"]
        if len(taken) > 1:
            return self._divide(taken, reason, out_of_memory)
        for point, trial in taken:
            if out_of_memory and not again:
                self.say(f"{point.name}: {reason}; trying once more, alone in memory")
                return self._train(taken, again=True)
            if not mistake and not out_of_memory:
                file = self.folder / "errors" / f"{point.number:03d}.txt"
                file.parent.mkdir(exist_ok=True)
                write_text(file, told)
                reason += f"; see {file}"
            self._fail(point, trial, reason)
        return None

    def _divide(self, taken: Taken, reason: str, out_of_memory: bool) -> int | None:
        """Trains the one half, then the other."""
        size = (len(taken) + 1) // 2
        if out_of_memory:
            self._queue.limit(taken[0][0], size)
        halves = taken[:size], taken[size:]
        names = [", ".join(str(point.number) for point, _ in half) for half in halves]
        self.say(f"{reason}: training {names[0]} and {names[1]} apart, from what was saved")
        for half in halves:
            if (stopped_by := self._train(half)) is not None:
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
        for point, _ in taken:
            self.say(point.name)
        try:
            made = self._make_tasks([point for point, _ in taken])
        except RunError as error:
            for point, trial in taken:
                self._fail(point, trial, str(error))
            return None
        except UserError as error:  # the text is not there, or cannot be read
            raise errors.SweepError(str(error)) from error
        if len(taken) == 1:
            return self._train_one(*taken[0], made[0])
        return self._train_together(taken, made)

    def _train_together(self, taken: Taken, made: list[Any]) -> int | None:
        points = [point for point, _ in taken]
        runs = [
            Run(task, point.config, point.folder) for task, point in zip(made, points, strict=True)
        ]
        trainer = Trainer(runs, self.say, probes=False)
        trainer.on_failure = lambda i, reason: self._fail(*taken[i], reason)
        _prepare(points, runs)
        if not trainer.run():
            return trainer.stop_signal
        for i, ((point, trial), task) in enumerate(zip(taken, made, strict=True)):
            if i not in trainer.failures:
                self._score(point, trial, task)
        return None

    def _train_one(self, point: Planned, trial: Trial, task: Any) -> int | None:
        key = structure(point.config)
        step = self._steps.get(key)
        trainer = Trainer(
            [Run(task, point.config, point.folder)], self.say, train_step=step, probes=False
        )
        self._steps[key] = trainer.train_step
        _prepare([point], trainer.runs)
        pruned, total_steps = False, trainer.runs[0].total_steps

        # It must not name the trainer: in a cycle its states would stay beside the next trial's.
        def report(step: int, numbers: dict[str, float]) -> bool:
            nonlocal pruned
            hopeless = self.study.report(trial, numbers[point.config.train.best_metric], step)
            pruned = hopeless and step < total_steps
            return pruned

        trainer.on_evaluation = report
        try:
            if not trainer.run():
                return trainer.stop_signal
        except RunError as error:
            self._fail(point, trial, str(error))
            return None
        if pruned:
            self.say(f"{point.name} is pruned: the others stood better at this step")
            self.study.end(trial, None, "pruned")
        else:
            self._score(point, trial, task)
        return None

    def _make_tasks(self, points: list[Planned]) -> list[Any]:
        """The points' tasks; those of one structure share text, model and compiled programs."""
        config = points[0].config
        key = structure(config)
        if key not in self._tasks:
            first = next(iter(self._tasks.values()), None)
            make = tasks.REGISTRY[config.task]
            self._tasks[key] = make(config, self.say, first)
        lead = self._tasks[key]
        return [lead.with_config(point.config) for point in points]

    def _score(self, point: Planned, trial: Trial, task: Any) -> None:
        if workdir.is_scored(point.folder, workdir.newest_step(point.folder)):
            results = workdir.load_results(point.folder)
        else:
            results = run.score(task, point.config, point.folder)
        value = results["validation"][point.config.train.best_metric]
        if not math.isfinite(value):
            self._fail(point, trial, f"{point.config.train.best_metric} is {value}")
            return
        self.study.end(trial, float(value), "complete")
        self.say(f"{point.name}: {point.config.train.best_metric} {value:.4g} on validation")

    def _fail(self, point: Planned, trial: Trial, reason: str) -> None:
        self.say(f"{point.name} failed: {reason}")
        self.study.end(trial, None, "failed", reason)

    def _say_time_left(self) -> None:
        left = len(self.study.waiting())
        if left:
            minutes = left * sum(self._seconds) / len(self._seconds) / 60
            self.say(f"{left} points left, about {minutes:.0f} minutes of one worker")


def _prepare(points: Sequence[Planned], runs: Sequence[Run]) -> None:
    """Makes each point's folder a run of its config; where one cannot be, all are closed."""
    try:
        for point, run in zip(points, runs, strict=True):
            _prepare_one(point, run)
    except BaseException:
        for run in runs:
            run.close()
        raise


def _prepare_one(point: Planned, run: Run) -> None:
    """Makes the point's folder a run of its config, whose old scores do not count."""
    run.checkpoints.check_fingerprint(run.task.fingerprint())
    workdir.claim(point.folder, point.config)
    run.task.save_assets(point.folder)
    if not run.finished():
        (point.folder / "results.json").unlink(missing_ok=True)
        environment.record(point.folder)
        page.record_data(run.task, point.folder)
