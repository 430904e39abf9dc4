"""The training loop. It knows steps, checkpoints and clocks, but no tokens, masks or BLEU."""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from transformer import signals
from transformer.errors import RunError, UserError
from transformer.metrics.tokens import TokenMetrics
from transformer.placement import SingleRun, VmappedRuns
from transformer.progress import Progress, parameter_table
from transformer.run import Run, Stopwatch
from transformer.signals import StoppedError, StopSignals
from transformer.train_step import TrainState


class Trainer:
    """Trains one run, or several as one program, in the same order of steps, saves and scores.

    A state is saved, then evaluated, then the evaluation is recorded with it. So a run that is
    broken off anywhere goes on from its newest checkpoint as if it had not been.

    Several runs take each step together. Each has its own folder, which is an ordinary run's, and
    is the same run, to rounding, as when it trains alone. One that ends early, or fails, stays as
    it is while the others go on.

    Args:
      runs: each keeps its own books. Several differ in numbers that are arguments of the step:
        `tasks[0].with_config` made the tasks of all, so that they share a model.
      log: prints a line.
      devices: those to use, see `placement`; all, by default.
      train_step: that of another trainer of runs of the same structure, so that it compiles once.
      snapshots: whether each evaluation also writes what the attention heads look at.

    Attributes:
      failures: why a run of several could not go on, by its number.
      on_evaluation: called with (step, numbers) after each evaluation, where one run is trained;
        true ends it there.
      on_failure: called with a run's number and the reason when one of several fails.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        log: Callable,
        devices: Sequence[Any] | None = None,
        train_step: Callable | None = None,
        snapshots: bool = True,
    ):
        self.runs, self.log, self.snapshots = runs, log, snapshots
        place = SingleRun if len(runs) == 1 else VmappedRuns
        self.placement = place(devices or jax.devices(), len(runs))
        self.train_step = train_step or self.placement.compile(runs[0].make_train_step())
        self.hparams = self.placement.put([run.hparams() for run in runs])
        self.failures: dict[int, str] = {}
        self.on_evaluation: Callable[[int, dict[str, float]], bool] = lambda step, numbers: False
        self.on_failure: Callable[[int, str], None] = lambda i, reason: None
        self._trained = list(range(len(runs)))  # the runs that took the last step
        self._pending: list[TokenMetrics] = []  # of each step since the last line, on the devices
        self._shapes: set = set()  # of the batches that the step is compiled for
        self._watch = Stopwatch()
        self._signals = StopSignals(log)

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the training early, if one did."""
        return self._signals.received

    def fresh_state(self) -> TrainState:
        """Returns the state of all runs that their seeds alone make."""
        return self.placement.put([run.fresh_state() for run in self.runs])

    def run(self) -> bool:
        """Trains from the newest step that all have saved; returns whether the end was reached.

        On SIGINT or SIGTERM all states are saved and the training ends early.

        Raises:
          RunError: the loss of the one run stays not finite.
          UserError: the disk is full, or a checkpoint does not belong to these tokenizers.
        """
        lead = self.runs[0]
        if len(self.runs) == 1:
            warn_of_warmup(lead.config.optimizer, lead.total_steps, self.log)
        step, states = self._restore()
        if step:
            self.log(f"going on from step {step}")
        elif len(self.runs) == 1:
            self.log(parameter_table(states[0].params))
        for run in self.runs:
            run.start_writing()
        plans = [run.task.plan for run in self.runs]
        try:
            with self._signals:
                batches = self.placement.batches(plans, step, lead.config.data.prefetch)
                return self._loop(self.placement.put(states), step, batches)
        finally:
            for run in self.runs:
                run.close()

    def _restore(self) -> tuple[int, list[TrainState]]:
        """The newest step that all unfinished runs have, and each run's state.

        What they have of later steps is given up.
        """
        while True:
            # One alone says itself that nothing is left of it.
            done = {i for i, run in enumerate(self.runs) if self.runs[1:] and run.finished()}
            self._trained = [i for i in range(len(self.runs)) if i not in done]
            steps = [set(self.runs[i].checkpoints.steps()) for i in self._trained or [0]]
            start = max(set.intersection(*steps), default=0)
            for i in self._trained:
                self.runs[i].checkpoints.drop_after(start)
            states = []
            for run in self.runs:
                fresh = run.fresh_state()
                restored = run.restore(fresh, self.log)
                states.append(run.start_state(fresh) if restored is None else restored)
            # A checkpoint that was damaged has been put aside.
            if all(int(states[i].step) == start for i in self._trained):
                return start, states

    def _loop(self, state: TrainState, step: int, batches: Iterator[Any]) -> bool:
        """Trains to the end or until a signal comes; returns whether the end was reached."""
        lead = self.runs[0]
        settings, queue, unsaved = lead.config.train, StepQueue(), 0.0
        self._take_up_pending()
        self._watch.lap()
        with Progress(lead.total_steps, step, self.log, lead.task.unit) as progress:
            try:
                while True:
                    due = self._due(state, step)
                    if self._pending and (due or step % settings.log_every == 0):
                        self._log(state, step, progress)
                        due = [i for i in due if i not in self.failures]
                    by_clock = 0 < settings.save_minutes * 60 <= unsaved
                    if due or by_clock:
                        self._save(state, step, self._trained if by_clock else due)
                        unsaved = 0.0
                    wanted = not due or self._evaluate(state, step, due, progress)
                    active = [i for i in self._trained if not self.runs[i].ended(step)]
                    if self.stop_signal is not None or not (wanted and active):
                        break
                    arguments = self.placement.arguments(state, next(batches), self.hparams, active)
                    self._compile(arguments, progress)
                    state, metrics = self.train_step(*arguments)
                    self._pending.append(metrics)
                    queue.wait(self._pending)
                    step, self._trained = step + 1, active
                    unsaved += self._spend(steps=1)
                    progress.step(step, self.runs[active[0]].seconds_left())
            except StoppedError:
                pass
            if self.stop_signal is not None:
                self._save(state, step, self._trained)
        for run in self.runs:
            run.checkpoints.wait()
        return self._say_end(state, step)

    def _due(self, state: TrainState, step: int) -> list[int]:
        """The runs whose state is to be saved and evaluated here."""
        due = [i for i in self._trained if self.runs[i].due(step)]
        bad = np.ravel(jax.device_get(state.consecutive_nonfinite)).tolist() if due else []
        return [i for i in due if self.runs[i].needs_evaluation(step, bad[i], self.log)]

    def _compile(self, arguments: tuple, progress: Progress) -> None:
        """Compiles the step for a batch of new shapes; a signal finds the state as it was."""
        shapes = tuple(x.shape for x in jax.tree.leaves(arguments[1]))
        if shapes not in self._shapes:
            with progress.busy("compiling"):
                self._signals.wait_for(
                    lambda: self.train_step.lower(*arguments).compile(), progress.tick
                )
            self._shapes.add(shapes)
            self._spend()

    def _log(self, state: TrainState, step: int, progress: Progress) -> None:
        """Writes a line of what the devices have counted since the last one."""
        each = self.placement.split(self._merge_pending())
        self._pending.clear()
        bad = jax.device_get((state.consecutive_nonfinite, state.nonfinite_steps))
        consecutive_nonfinite, nonfinite_steps = map(np.ravel, bad)
        self._spend(steps=0)  # for what was still under way
        shown = []
        for i in self._trained:
            try:
                shown.append(
                    self.runs[i].log(
                        step, each[i], int(consecutive_nonfinite[i]), int(nonfinite_steps[i])
                    )
                )
            except RunError as error:
                self._fail(i, error)
        self._trained = [i for i in self._trained if i not in self.failures]
        if shown:
            total = sum(values["tokens_per_second"] for values in shown)
            progress.update(step, {**_mean(shown), "tokens_per_second": total})

    def _save(self, state: TrainState, step: int, which: Sequence[int]) -> None:
        """Starts to save the states of these runs, unless they are."""
        which = [i for i in which if self.runs[i].saved_step != step]
        if which:
            states = self.placement.split(state)
            sums = self.placement.split(self._merge_pending()) if self._pending else None
            for i in which:
                self.runs[i].save(step, states[i], None if sums is None else sums[i])
            self._spend()

    def _evaluate(self, state, step: int, which: Sequence[int], progress: Progress) -> bool:
        """Scores the validation set; returns whether the run shall go on.

        An evaluation that fails, as for want of memory, leaves the step without scores.
        """
        chosen = [self.runs[i] for i in which]
        for run in chosen:
            run.begin_evaluation(step)
        self._spend()
        params = state.ema or state.params
        try:
            scores = self._try(lambda: self._scores(params), f"evaluation at step {step}", progress)
            if scores is None:
                return True
            self._snapshot(step, params, which, progress)
        except (StoppedError, UserError):
            for run in chosen:
                run.give_up_evaluation(step)
            raise
        numbers = [self.runs[i].record(step, scores[i]) for i in which]
        progress.note(step, _mean(numbers))
        self._spend()
        return not self.on_evaluation(step, numbers[0])

    def _try(self, work: Callable[[], Any], what: str, progress: Progress) -> Any:
        """Returns what `work` does; None, after a line with the reason, where it fails.

        Raises:
          StoppedError: a signal came.
          UserError: `work` does.
        """
        try:
            with progress.busy(what):
                return self._signals.wait_for(work, progress.tick)
        except (StoppedError, UserError):
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            self.log(f"{what} failed, and training goes on: {type(error).__name__}: {reason}")
            return None
        finally:
            self._spend()

    def _spend(self, steps: int | None = None) -> float:
        """Counts the time since the last call, of training where steps were; returns it."""
        seconds = self._watch.lap()
        for i in self._trained:
            self.runs[i].spend(seconds, steps)
        return seconds

    def _take_up_pending(self) -> None:
        """Goes on with the sums of a line that was not yet written when the runs were saved."""
        pending = [run.pending() for run in self.runs]
        if found := [sums for sums in pending if sums]:
            nothing = jax.tree.map(np.zeros_like, found[0])
            self._pending = [self.placement.join([sums or nothing for sums in pending])]

    def _merge_pending(self) -> TokenMetrics:
        """The sums since the last line, on the host. One after another: so they round alike."""
        self._pending = [functools.reduce(TokenMetrics.merge, jax.device_get(self._pending))]
        return self._pending[0]

    def _say_end(self, state: TrainState, step: int) -> bool:
        if self.stop_signal is not None:
            self._signals.wait_for_answer()
            saved = f"saved step {step}" if step else "nothing was trained yet"
            self.log(
                f"{signals.name(self.stop_signal)}: {saved}; start the same command again to go on"
            )
            return False
        nonfinite_steps = np.ravel(jax.device_get(state.nonfinite_steps))
        for i, run in enumerate(self.runs):
            if i not in self.failures:
                own = f"{run.workdir.name}: " if len(self.runs) > 1 else ""
                self.log(own + run.ending(run.saved_step, int(nonfinite_steps[i])))
        return True

    def _scores(self, params: Any) -> Sequence[dict[str, Any]]:
        """The validation scores of each run."""
        task = self.runs[0].task
        if len(self.runs) == 1:
            return [task.evaluate(params, "validation", final=False)]
        return task.evaluate_runs(params, "validation")

    def _snapshot(self, step: int, params: Any, which: Sequence[int], progress: Progress) -> None:
        """Writes what the attention heads look at, where that is wanted."""
        if not self.snapshots:
            return
        each = self.placement.split(params)
        for i in which:
            task = self.runs[i].task
            found = self._try(
                lambda task=task, i=i: task.snapshot(each[i]), f"snapshot at step {step}", progress
            )
            if found is not None:
                self.runs[i].write_snapshot(step, found)

    def _fail(self, i: int, error: RunError) -> None:
        """Notes that a run cannot go on; where it is the only one, nothing can."""
        if len(self.runs) == 1:
            raise error
        self.failures[i] = str(error)
        self.on_failure(i, str(error))
        self.log(f"{self.runs[i].workdir.name}: {error}")


class StepQueue:
    """Lets the host run ahead of the devices by many short steps, and by no long one.

    A signal has to wait for all that are under way.
    """

    MAX_ACTIVE = 32
    SHORT, LONG = 0.05, 1.0  # seconds

    def __init__(self):
        self._ahead = 1

    def wait(self, results: Sequence[Any]) -> None:
        """Waits for an earlier step, by the results of the steps up to the last one."""
        if len(results) > self._ahead:
            start = time.monotonic()
            jax.block_until_ready(results[-1 - self._ahead])
            seconds = time.monotonic() - start
            if seconds > self.SHORT:
                self._ahead = 0 if seconds > self.LONG else 1
            else:
                self._ahead = min(self.MAX_ACTIVE, 2 * self._ahead or 1)


def warn_of_warmup(settings: ConfigDict, total_steps: int, log: Callable) -> None:
    """Says so where most of the run would pass while the learning rate still rises."""
    updates = math.ceil(total_steps / settings.gradient_accumulation_steps)
    if updates < 2 * settings.warmup_steps:
        log(
            f"warning: {updates} updates are planned and the learning rate rises for "
            f"{settings.warmup_steps} of them: set "
            f"--config.optimizer.warmup_steps={max(1, updates // 10)}, or train longer"
        )


def _mean(numbers: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in numbers])) for name in numbers[0]}
