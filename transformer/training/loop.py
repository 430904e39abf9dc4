"""The task-independent training loop: steps, checkpoints and evaluations."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from transformer import signals
from transformer.errors import RunError, UserError
from transformer.metrics.tokens import add, from_list, to_list
from transformer.model.losses import TokenSums
from transformer.signals import StoppedError
from transformer.training.group import Group
from transformer.training.placement import SingleRun, VmappedRuns, wait_for_earlier
from transformer.training.programs import StepPrograms, look_ahead
from transformer.training.progress import Progress, mean_of, parameter_counts
from transformer.training.run import TrainingRun
from transformer.training.step import TrainState

DECIDE_EVERY = 10  # maximum steps after which several processes decide together

logger = logging.getLogger(__name__)


class Trainer:
    """Trains a single run, or several vmapped runs in one compiled program.

    A state is saved before it is evaluated, and its checkpoint then also records the scores. So an
    interrupted run resumes from its newest checkpoint, and the final result is the same.

    Vmapped runs take each step together. Each run has its own folder and, up to rounding, the
    same result as if it were trained alone. The state of a run that ends early or fails is frozen
    while the other runs continue.

    Args:
      runs: the runs to train. Vmapped runs share a model, and differ only in values that are
        arguments of the step. Their tasks are created from one task by `with_config`.
      devices: the devices to use, by default all of them.
      train_step: the compiled step of runs with the same structure; reusing it avoids a second
        compilation.
      snapshots: whether each evaluation of a single run also writes an attention snapshot.
      group: the processes that train the run; each process creates its own trainer.

    Attributes:
      failures: the error messages of failed vmapped runs, keyed by the index of the run.
      on_evaluation: called with (step, numbers) after each evaluation of a single run; if it
        returns True, the run ends.
      on_failure: called with (index of the run, error message) when a vmapped run fails.
    """

    def __init__(
        self,
        runs: Sequence[TrainingRun],
        devices: Sequence[Any] | None = None,
        train_step: StepPrograms | None = None,
        snapshots: bool = True,
        group: Group | None = None,
    ):
        lead, place = runs[0], VmappedRuns if runs[1:] else SingleRun
        self.runs, self.snapshots, self.group = runs, snapshots, group or Group()
        self.placement = place(devices or jax.devices(), len(runs), lead.config.train.mesh)
        self.train_step = train_step or self.placement.compile(
            lead.make_train_step(), lead.state_shapes
        )
        self.hparams = self.placement.put([run.hparams() for run in runs])
        self.failures: dict[int, str] = {}
        self.on_evaluation: Callable[[int, dict[str, float]], bool] = lambda step, numbers: False
        self.on_failure: Callable[[int, str], None] = lambda i, reason: None
        self._active = list(range(len(runs)))  # indices of the runs that take the next step
        self._pending: list[TokenSums] = []  # device arrays: metrics since the last log line
        self._unsaved = 0.0  # training time in seconds since the last save
        self._progress: Progress  # set at the first step

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the training early, or None if there was none."""
        return self.group.signals.received

    def fresh_state(self) -> TrainState:
        """Returns the initial states of all runs; each is determined by the run's seed."""
        return self.placement.put([run.fresh_state() for run in self.runs])

    def run(self) -> bool:
        """Trains from the newest checkpoints, and returns whether the training was completed.

        On SIGINT or SIGTERM, all states are saved and the training stops early.
        """
        lead, plans = self.runs[0], [run.task.plan for run in self.runs]
        if len(self.runs) == 1:
            lead.warn()
        like, ahead = self.placement.like(lead.state_shapes()), lead.config.data.prefetch

        def prepare(batch: Any) -> Future[Any]:
            return self.train_step.prepare(batch, lambda: self._arguments(like, batch))

        if ahead:  # the first program compiles while the states are initialised or restored
            newest = max(lead.checkpoints.steps(), default=0)
            prepare(next(self.placement.batches(plans, newest, ahead=0)))
        step, states = self._restore()
        if step:
            logger.info(f"resuming from step {step}")
        elif len(self.runs) == 1:
            logger.info(f"{sum(parameter_counts(states[0].params).values()):,} parameters")
        for run in self.runs if self.group.leads else ():
            run.start_writing()
        try:
            with self.group.signals:
                batches = self.placement.batches(plans, step, ahead)
                count = max(run.total_steps for run in self.runs) - step
                state = self.placement.put(states)
                del states  # `put` has copied the states of vmapped runs
                return self._loop(state, step, look_ahead(batches, ahead, count, prepare))
        finally:
            self.group.rest()
            for run in self.runs:
                run.close()

    def _arguments(self, state: Any, batch: Any) -> tuple:
        return self.placement.arguments(state, batch, self.hparams, self._active)

    def _restore(self) -> tuple[int, list[TrainState]]:
        """Returns the step from which unfinished runs resume, and the states of all runs."""
        states = []
        for run in self.runs:
            state = self.group.first(run.restore)
            self.group.compare({"the checkpoint of step": str(run.saved_step)})
            # The states of vmapped runs are stacked on the host, and need no device memory here.
            states.append(jax.device_get(state) if self.runs[1:] else state)
        # A finished single run is not excluded, since the loop reports its end.
        if self.runs[1:]:
            self._active = [i for i, run in enumerate(self.runs) if not run.ended_by()]
        steps = {self.runs[i].saved_step for i in self._active or [0]}
        if len(steps) > 1:
            raise UserError(
                f"{len(self._active)} runs cannot train together from the steps "
                f"{', '.join(map(str, sorted(steps)))}: train those of one step"
            )
        return steps.pop(), states

    def _loop(
        self, state: TrainState, step: int, coming: Iterator[tuple[Any, Future[Any]]]
    ) -> bool:
        """Trains until the runs end or a signal arrives; returns whether training was completed."""
        lead = self.runs[0]
        self._since = time.monotonic()  # start of the time that `_spend` has not counted yet
        limit = (lead.config.train.minutes or math.inf) * 60 - lead.progress.seconds
        with Progress(lead.total_steps, step, lead.task.unit, limit) as self._progress:
            try:
                while self._decide(state, step):
                    batch, ready = next(coming)
                    self.group.begin(self._await, ready)
                    state, sums = self.train_step(*self._arguments(state, batch))
                    self._pending.append(sums)
                    wait_for_earlier(self._pending)
                    step += 1
                    self._spend(steps=1)
                    self.group.alive()
                    self._progress.step(step)
            except StoppedError:
                self._save(state, step, self._active)
        self.group.agree(lambda: [run.checkpoints.wait() for run in self.runs])
        self.group.signals.received = self.group.agree(lambda: self.stop_signal) or self.stop_signal
        if self.stop_signal is not None:
            saved = f"saved step {step}" if step else "nothing was trained yet"
            logger.info(
                f"{signals.name(self.stop_signal)}: {saved}; start the same command again to resume"
            )
            return False
        skipped = self._skipped_steps(state)
        for i, run in enumerate(self.runs):
            if i not in self.failures:
                name = f"{run.folder.name}: " if len(self.runs) > 1 else ""
                logger.info(name + run.ending(run.saved_step, skipped[i][1]))
        return True

    def _decide(self, state: TrainState, step: int) -> bool:
        """Logs, saves and evaluates when scheduled; returns whether any run has steps remaining."""
        lead, settings = self.runs[0], self.runs[0].config.train
        every = DECIDE_EVERY, settings.log_every, lead.evaluate_every, lead.total_steps
        if self.group.count > 1 and all(step % number for number in every):
            return True
        due, to_save, others = self.group.agree_or_stop(self._plan, state, step)
        if not self.group.leads:
            self._pending.clear()  # the leader has logged them
        if to_save:
            self._save(state, step, to_save)
        if due:
            params = self.placement.whole(state.ema or state.params)
            others = sorted(others + self.group.agree_or_stop(self._evaluate, params, step, due))
        self._active = others
        return bool(others)

    def _plan(self, state: TrainState, step: int) -> tuple[list[int], list[int], list[int]]:
        """Writes a log line when scheduled, and returns the indices of three groups of runs.

        The groups are the runs to evaluate, the runs to save, and the remaining unfinished runs.
        """
        settings = self.runs[0].config.train
        pending = self._pending or any(self.runs[i].progress.line_sums for i in self._active)
        if pending and (step % settings.log_every == 0 or self._due(step)):
            self._log(state, step)
        due = self._due(step)  # computed again, since `_log` has counted the time of pending steps
        by_clock = 0 < settings.save_minutes * 60 <= self._unsaved
        if due or by_clock:
            self._unsaved = 0.0
        ended = [i for i in self._active if step and self.runs[i].ended(step)]
        others = [i for i in self._active if i not in (*due, *ended)]
        return due, self._active if by_clock else due, others

    def _due(self, step: int) -> list[int]:
        """Returns the indices of the runs to save and evaluate at this step."""
        return [i for i in self._active if self.runs[i].due(step)]

    def _skipped_steps(self, state: TrainState) -> list[list[int]]:
        """Returns the numbers of nonfinite steps, [consecutive, total], for each run."""
        counts = jax.device_get((state.consecutive_nonfinite, state.nonfinite_steps))
        return np.reshape(counts, (2, -1)).T.tolist()

    def _await(self, ready: Future[Any]) -> None:
        """Waits until the next batch's program is compiled; raises StoppedError on a signal."""
        if not ready.done():
            self._work("compiling", ready.result)
        ready.result()

    def _log(self, state: TrainState, step: int) -> None:
        """Logs the metrics that the devices have accumulated since the last log line."""
        self._add_pending()
        skipped, shown = self._skipped_steps(state), []
        self._spend(steps=0)  # includes the time of pending steps
        for i in self._active:
            try:
                shown.append(self.runs[i].log(step, *skipped[i]))
            except RunError as error:
                if len(self.runs) == 1:
                    raise
                self.failures[i] = str(error)
                self.on_failure(i, str(error))
                logger.warning(f"{self.runs[i].folder.name}: {error}")
        self._active = [i for i in self._active if i not in self.failures]
        if shown:
            total = sum(values["tokens_per_second"] for values in shown)
            self._progress.update(step, {**mean_of(shown), "tokens_per_second": total})

    def _add_pending(self) -> None:
        """Adds the pending metrics to each run's sums, in batch order for reproducible rounding."""
        steps = [self.placement.split(sums) for sums in jax.device_get(self._pending)]
        self._pending.clear()
        for i, run in enumerate(self.runs if steps else ()):
            before = [from_list(run.progress.line_sums)] if run.progress.line_sums else []
            run.progress.line_sums = to_list(add(before + [step[i] for step in steps]))

    def _save(self, state: TrainState, step: int, which: Sequence[int]) -> None:
        """Starts to save the states of the given runs, unless they are saved already."""
        which = [i for i in which if self.runs[i].saved_step != step]
        if not which:
            return
        states = self.placement.split(self.placement.on_one_process(state))
        self._add_pending()
        self.group.agree(lambda: [self.runs[i].save(step, states[i]) for i in which])
        for i in which:
            self.runs[i].saved_step = step
        self._spend()

    def _evaluate(self, params: Any, step: int, due: Sequence[int]) -> list[int]:
        """Scores the `due` runs on the validation set, and returns the runs that continue."""
        chosen = [self.runs[i] for i in due]
        for run in chosen:
            run.checkpoints.wait()
        self._spend()
        task = chosen[0].task
        scores = self._work(f"evaluation at step {step}", self.placement.evaluate, task, params)
        if self.snapshots and len(self.runs) == 1:
            snapshot = self._work(f"snapshot at step {step}", task.snapshot, params)
            chosen[0].write_snapshot(step, snapshot)
        numbers = [self.runs[i].record(step, scores[i]) for i in due]
        self._progress.note(step, mean_of(numbers))
        stops = self.on_evaluation(step, numbers[0])
        # `ended` uses the recorded time, so a run that reaches its limit now takes one more step.
        going = [i for i in due if not stops and not self.runs[i].ended(step)]
        self._spend()
        return going

    def _work(self, what: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Calls `work` in another thread, to handle signals at once, and returns its result."""
        try:
            with self._progress.busy(what):
                return self.group.signals.wait_for(lambda: work(*arguments), self._progress.tick)
        finally:
            self._spend()

    def _spend(self, steps: int | None = None) -> None:
        """Adds the time since the last call to active runs, as training time if `steps` is set."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if steps is not None:
            self._unsaved += seconds
        for progress in (self.runs[i].progress for i in self._active):
            progress.seconds += seconds
            if steps is not None:
                progress.training_seconds += seconds
                progress.line_seconds += seconds
                progress.line_steps += steps
