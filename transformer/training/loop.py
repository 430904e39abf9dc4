"""The training loop: steps, checkpoints and time, independent of the task."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from transformer import signals
from transformer.data.buckets import Plan
from transformer.errors import RunError, UserError
from transformer.metrics.tokens import add, from_list
from transformer.model.losses import TokenSums
from transformer.signals import StoppedError, StopSignals
from transformer.training.placement import SingleRun, StepQueue, VmappedRuns
from transformer.training.processes import Processes
from transformer.training.programs import StepPrograms, look_ahead
from transformer.training.progress import Progress, Stopwatch, mean_of, parameter_table
from transformer.training.run import TrainingRun
from transformer.training.step import TrainState

logger = logging.getLogger(__name__)


class Trainer:
    """Trains one run, or several as one program, with the same order of steps, saves and scores.

    A state is saved, then evaluated, then the evaluation is recorded with it. So a run that is
    interrupted anywhere resumes from its newest checkpoint with the same result.

    Several runs take each step together. Each has its own folder, an ordinary run's folder, and has
    the same result, up to rounding, as if it trained alone. A run that ends early or fails does not
    change while the others continue.

    Args:
      runs: each does its own bookkeeping. Several differ only in numbers that are arguments of the
        step, and share a model: `tasks[0].with_config` made the tasks of all.
      devices: those to use; all, by default.
      train_step: that of another trainer whose runs have the same structure, so that it compiles
        once.
      snapshots: whether each evaluation also writes an attention snapshot.
      processes: those that train the run, which all make such a trainer.

    Attributes:
      failures: the reason why a run of several failed, by the run's number.
      on_start: called with the parameters of a single run before its first step.
      on_evaluation: called with (step, numbers) after each evaluation of a single run; if it
        returns true, the run ends.
      on_failure: called with a run's number and the reason when one of several fails.
    """

    def __init__(
        self,
        runs: Sequence[TrainingRun],
        devices: Sequence[Any] | None = None,
        train_step: StepPrograms | None = None,
        snapshots: bool = True,
        processes: Processes | None = None,
    ):
        self.runs, self.snapshots = runs, snapshots
        self.processes = processes or Processes()
        place = SingleRun if len(runs) == 1 else VmappedRuns
        lead = runs[0]
        self.placement = place(devices or jax.devices(), len(runs), lead.config.train.mesh)
        self.train_step = train_step or self.placement.compile(
            lead.make_train_step(), lead.state_shapes
        )
        self.hparams = self.placement.put([run.hparams() for run in runs])
        self.failures: dict[int, str] = {}
        self.on_start: Callable[[Any], None] | None = None
        self.on_evaluation: Callable[[int, dict[str, float]], bool] = lambda step, numbers: False
        self.on_failure: Callable[[int, str], None] = lambda i, reason: None
        self._trained = list(range(len(runs)))  # the runs that took the last step
        self._pending: list[TokenSums] = []  # of each step since the last line, on the devices
        self._watch, self._unsaved = Stopwatch(), 0.0  # seconds of training since the last save
        self._programs: list[Future[None]] = []  # that all processes have waited for
        self._signals = StopSignals()

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the training early, if one did."""
        return self._signals.received

    def fresh_state(self) -> TrainState:
        """Returns the state of all runs that their seeds alone make."""
        return self.placement.put([run.fresh_state() for run in self.runs])

    def run(self) -> bool:
        """Trains from the newest checkpoints; returns whether the end was reached.

        On SIGINT or SIGTERM all states are saved and the training ends early.
        """
        lead = self.runs[0]
        if len(self.runs) == 1:
            lead.warn()
        plans = [run.task.plan for run in self.runs]
        if lead.config.data.prefetch:
            self._prepare_first(plans)
        step, states = self._restore()
        if step:
            logger.info(f"resuming from step {step}{lead.describe_rate(step)}")
        elif len(self.runs) == 1:
            logger.info(parameter_table(states[0].params))
        for run in self.runs if self.processes.leads else ():
            run.start_writing()
        try:
            with self._signals:
                batches = self.placement.batches(plans, step, lead.config.data.prefetch)
                state = self.placement.put(states)
                del states  # those of several runs were copied
                return self._loop(state, step, batches)
        finally:
            self.processes.rest()
            for run in self.runs:
                run.close()

    def _prepare_first(self, plans: Sequence[Plan]) -> None:
        """Starts to compile for the first batch while the states are made or read."""
        lead = self.runs[0]
        like = self.placement.like(lead.state_shapes())
        newest = max(lead.checkpoints.steps(), default=0)
        self._prepare(like, next(self.placement.batches(plans, newest, ahead=0)))

    def _prepare(self, state: Any, batch: Any) -> Future[None]:
        """Starts to compile the step for such a batch."""
        return self.train_step.prepare(batch, lambda: self._arguments(state, batch, self._trained))

    def _arguments(self, state: Any, batch: Any, active: Sequence[int]) -> tuple:
        return self.placement.arguments(state, batch, self.hparams, active)

    def _restore(self) -> tuple[int, list[TrainState]]:
        """The step from which the unfinished runs go on, and each run's state."""
        states = []
        for run in self.runs:
            state = self.processes.first(run.restore)
            self.processes.compare({"the checkpoint of step": str(run.saved_step)})
            # Several are stacked on the host, and need no place on a device until then.
            states.append(jax.device_get(state) if self.runs[1:] else state)
        # A damaged checkpoint has been moved away. A single run that is finished reports so itself.
        done = {i for i, run in enumerate(self.runs) if self.runs[1:] and run.ended_by()}
        self._trained = [i for i in range(len(self.runs)) if i not in done]
        steps = {self.runs[i].saved_step for i in self._trained or [0]}
        if len(steps) > 1:
            raise UserError(
                f"{len(self._trained)} runs cannot train together from the steps "
                f"{', '.join(map(str, sorted(steps)))}: train those of one step"
            )
        return steps.pop(), states

    def _loop(self, state: TrainState, step: int, batches: Iterator[Any]) -> bool:
        """Trains to the end or until a signal comes; returns whether the end was reached."""
        lead, queue = self.runs[0], StepQueue()
        agree = functools.partial(self.processes.agree_or_stop, self._signals)
        coming = look_ahead(
            batches,
            lambda taken: self.train_step.ahead(taken, lead.config.data.prefetch),
            max(run.total_steps for run in self.runs) - step,
            lambda batch: self._prepare(state, batch),
        )
        self._take_up_pending()
        self._watch.lap()
        with Progress(lead.total_steps, step, lead.task.unit) as progress:
            try:
                if not step and (start := self.on_start):
                    first = "evaluation of the first weights"
                    params = self.placement.whole(state.params)
                    agree(self._try, lambda: start(params), first, progress)
                active = self._trained
                while True:
                    if self.processes.count == 1 or lead.may_decide(step):
                        due, to_save, over = agree(self._plan, state, step, progress)
                        if not self.processes.leads:
                            self._pending.clear()  # the leader's has been written
                        if to_save:
                            self._save(state, step, to_save)
                        whole = self.placement.whole(state.ema or state.params) if due else None
                        active = agree(self._finish, whole, step, due, over, progress)
                        del whole  # which may be a copy
                    if not active:
                        break
                    batch, ready = next(coming)
                    self._await(ready, progress)
                    state, sums = self.train_step(*self._arguments(state, batch, active))
                    self._pending.append(sums)
                    queue.wait(self._pending)
                    step, self._trained = step + 1, active
                    self._spend(steps=1)
                    self.processes.alive()
                    progress.step(step, self.runs[active[0]].seconds_left())
            except StoppedError:
                pass
            number = self.processes.agree(lambda: self.stop_signal)  # since the last step, too
            if number is not None:
                self._signals.received = number
                self._save(state, step, self._trained)
        self.processes.agree(lambda: [run.checkpoints.wait() for run in self.runs])
        return self._say_end(state, step)

    def _plan(
        self, state: TrainState, step: int, progress: Progress
    ) -> tuple[list[int], list[int], list[int]]:
        """Writes a line if its time has come; returns the runs to evaluate, to save and to end."""
        settings, due = self.runs[0].config.train, self._due(state, step)
        if self._pending and (due or step % settings.log_every == 0):
            self._log(state, step, progress)
            # The steps in flight took time, which may be limited.
            due = [i for i in due or self._due(state, step) if i not in self.failures]
        over = [i for i in self._trained if step and self.runs[i].ended(step)]
        by_clock = 0 < settings.save_minutes * 60 <= self._unsaved
        if due or by_clock:
            self._unsaved = 0.0
        return due, self._trained if by_clock else due, over

    def _finish(
        self, params: Any, step: int, due: list[int], over: list[int], progress: Progress
    ) -> list[int]:
        """Evaluates the runs that are due; returns those that take the next step."""
        wanted = not due or self._evaluate(params, step, due, progress)
        # By the time that was recorded: if it is up only since then, a step is due.
        over = over + [i for i in due if self.runs[i].ended(step)]
        if due:
            self._spend()
        return [i for i in self._trained if wanted and i not in over]

    def _due(self, state: TrainState, step: int) -> list[int]:
        """The runs whose state is to be saved and evaluated here."""
        due = [i for i in self._trained if self.runs[i].due(step)]
        bad = np.ravel(jax.device_get(state.consecutive_nonfinite)).tolist() if due else []
        return [i for i in due if self.runs[i].needs_evaluation(step, bad[i])]

    def _await(self, ready: Future[None], progress: Progress) -> None:
        """Waits for the program of the next batch; a signal leaves the state unchanged.

        Several processes begin to use it together: on CPUs a sum fails if one is 30 seconds late.
        """

        def wait() -> None:
            if not ready.done():
                with progress.busy("compiling"):
                    self._signals.wait_for(ready.result, progress.tick)
                self._spend()
            ready.result()

        if self.processes.count == 1:
            wait()
        elif ready not in self._programs:
            self.processes.rest()
            if not self.processes.leads:
                ready.result()
            self.processes.agree_or_stop(self._signals, wait)
            self.processes.meet()
            self.processes.alive()
            self._programs.append(ready)

    def _log(self, state: TrainState, step: int, progress: Progress) -> None:
        """Writes a line with the metrics that the devices have summed since the last one."""
        each = self.placement.split(self._merge_pending())
        self._pending.clear()
        bad = jax.device_get((state.consecutive_nonfinite, state.nonfinite_steps))
        consecutive_nonfinite, nonfinite_steps = map(np.ravel, bad)
        self._spend(steps=0)  # for the steps in flight
        shown = []
        for i in self._trained:
            try:
                shown.append(
                    self.runs[i].log(
                        step, each[i], int(consecutive_nonfinite[i]), int(nonfinite_steps[i])
                    )
                )
            except RunError as error:
                if len(self.runs) == 1:
                    raise
                self.failures[i] = str(error)
                self.on_failure(i, str(error))
                logger.warning(f"{self.runs[i].folder.name}: {error}")
        self._trained = [i for i in self._trained if i not in self.failures]
        if shown:
            total = sum(values["tokens_per_second"] for values in shown)
            progress.update(step, {**mean_of(shown), "tokens_per_second": total})

    def _save(self, state: TrainState, step: int, which: Sequence[int]) -> None:
        """Starts to save the states of these runs, unless they are saved already."""
        which = [i for i in which if self.runs[i].saved_step != step]
        if not which:
            return
        states = self.placement.split(self.placement.on_one_process(state))
        sums = self.placement.split(self._merge_pending()) if self._pending else None

        def save() -> None:
            for i in which:
                self.runs[i].save(step, states[i], None if sums is None else sums[i])

        self.processes.agree(save)
        for i in which:
            self.runs[i].saved_step = step
        self._spend()

    def _evaluate(self, params: Any, step: int, which: Sequence[int], progress: Progress) -> bool:
        """Scores the validation set; returns whether the run should continue.

        An evaluation that fails, for example out of memory, leaves the step without scores.
        """
        chosen = [self.runs[i] for i in which]
        for run in chosen:
            run.checkpoints.wait()
            run.count_attempts(step, 1)
        self._spend()
        before = chosen[0].progress.seconds
        try:
            scores = self._try(lambda: self._scores(params), f"evaluation at step {step}", progress)
            if scores is None:
                return True
            if 0 < chosen[0].config.train.minutes * 6 < chosen[0].progress.seconds - before:
                logger.warning(
                    "warning: the evaluation took more than a tenth of config.train.minutes: lower "
                    "config.evaluate.max_sentences, or raise config.train.evaluate_every"
                )
            self._snapshot(step, params, which, progress)
            numbers = [self.runs[i].record(step, scores[i]) for i in which]
        except (StoppedError, UserError, OSError):  # no fault of the evaluation
            for run in chosen:
                with contextlib.suppress(OSError):
                    run.count_attempts(step, -1)
            raise
        progress.note(step, mean_of(numbers))
        return not self.on_evaluation(step, numbers[0])

    def _try(self, work: Callable[[], Any], what: str, progress: Progress) -> Any:
        """Returns the result of `work`; if it fails otherwise than by a user's mistake, None."""
        try:
            with progress.busy(what):
                return self._signals.wait_for(work, progress.tick)
        except (StoppedError, UserError):
            raise
        except Exception as error:
            why = f"{type(error).__name__}: " + (str(error).strip().splitlines() or [""])[0][:200]
            logger.warning(f"{what} failed, and training continues: {why}")
            return None
        finally:
            self._spend()

    def _spend(self, steps: int | None = None) -> None:
        """Counts the time since the last call, as training time if there were steps."""
        seconds = self._watch.lap()
        if steps is not None:
            self._unsaved += seconds
        for i in self._trained:
            self.runs[i].spend(seconds, steps)

    def _take_up_pending(self) -> None:
        """Continues the sums of a line that was not yet written when the runs were saved."""
        pending = [run.progress.line_sums for run in self.runs]
        if length := max(map(len, pending)):
            sums = [from_list(numbers or [0.0] * length) for numbers in pending]
            self._pending = [self.placement.join(sums)]

    def _merge_pending(self) -> TokenSums:
        """The sums since the last line, on the host, added in batch order for equal rounding."""
        self._pending = [add(jax.device_get(self._pending))]
        return self._pending[0]

    def _say_end(self, state: TrainState, step: int) -> bool:
        if self.stop_signal is not None:
            self._signals.wait_for_answer()
            saved = f"saved step {step}" if step else "nothing was trained yet"
            logger.info(
                f"{signals.name(self.stop_signal)}: {saved}; start the same command again to resume"
            )
            return False
        nonfinite_steps = np.ravel(jax.device_get(state.nonfinite_steps))
        for i, run in enumerate(self.runs):
            if i not in self.failures:
                name = f"{run.folder.name}: " if len(self.runs) > 1 else ""
                logger.info(name + run.ending(run.saved_step, int(nonfinite_steps[i])))
        return True

    def _scores(self, params: Any) -> Sequence[dict[str, Any]]:
        """The validation scores of each run."""
        task = self.runs[0].task
        if len(self.runs) == 1:
            return [task.evaluate(params, "validation", final=False)]
        return task.evaluate_runs(params, "validation")[: len(self.runs)]

    def _snapshot(self, step: int, params: Any, which: Sequence[int], progress: Progress) -> None:
        """Writes the attention snapshots, if requested."""
        if not self.snapshots:
            return
        each = self.placement.split(params)
        for i in which:
            task = self.runs[i].task
            snapshot = self._try(
                lambda task=task, i=i: task.snapshot(each[i]), f"snapshot at step {step}", progress
            )
            if snapshot is not None:
                self.runs[i].write_snapshot(step, snapshot)
