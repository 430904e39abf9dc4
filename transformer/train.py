"""The training loop. It knows steps, checkpoints and clocks, but no tokens, masks or BLEU."""

import abc
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer import signals
from transformer.errors import RunError, UserError
from transformer.member import Member, Stopwatch
from transformer.metrics import TokenMetrics
from transformer.progress import Progress, parameter_table
from transformer.signals import StoppedError, StopSignals
from transformer.tasks.base import Task
from transformer.train_step import TrainState


class Loop(abc.ABC):
    """The order of steps, lines, saves and evaluations, of one run or of several as one.

    A state is saved, then evaluated, then the evaluation is recorded with it. So a run that is
    broken off anywhere goes on from its newest checkpoint as if it had not been.

    Args:
      members: the runs; each keeps its own books.
      say: prints a line.
    """

    train_step: Callable

    def __init__(self, members: Sequence[Member], say: Callable):
        self.members, self.say = members, say
        self.failures: dict[int, str] = {}
        self._trained = list(range(len(members)))  # the members that took the last step
        self._pending: list[TokenMetrics] = []  # of each step since the last line, on the devices
        self._shapes: set = set()  # of the batches that the step is compiled for
        self._watch = Stopwatch()
        self._signals = StopSignals(say)

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the run early, if one did."""
        return self._signals.received

    def _loop(self, state: TrainState, step: int, batches: Iterator[Any]) -> bool:
        """Trains to the end or until a signal comes; returns whether the end was reached."""
        lead = self.members[0]
        settings, queue, unsaved = lead.config.train, StepQueue(), 0.0
        self._take_up_pending()
        self._watch.lap()
        with Progress(lead.total_steps, step, self.say, lead.task.unit) as progress:
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
                    active = [i for i in self._trained if not self.members[i].ended(step)]
                    if self.stop_signal is not None or not (wanted and active):
                        break
                    arguments = self._arguments(state, next(batches), active)
                    self._compile(arguments, progress)
                    state, metrics = self.train_step(*arguments)
                    self._pending.append(metrics)
                    queue.wait(self._pending)
                    step, self._trained = step + 1, active
                    unsaved += self._spend(steps=1)
                    progress.step(step, self.members[active[0]].seconds_left())
            except StoppedError:
                pass
            if self.stop_signal is not None:
                self._save(state, step, self._trained)
        for member in self.members:
            member.checkpoints.wait()
        return self._say_end(state, step)

    def _due(self, state: TrainState, step: int) -> list[int]:
        """The members whose state is to be saved and evaluated here."""
        due = [i for i in self._trained if self.members[i].due(step)]
        bad = np.ravel(jax.device_get(state.bad_run)).tolist() if due else []
        return [i for i in due if self.members[i].needs_evaluation(step, bad[i], self.say)]

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
        each = self._split(self._merge_pending())
        self._pending.clear()
        bad = jax.device_get((state.bad_run, state.bad_steps))
        bad_run, bad_steps = map(np.ravel, bad)
        self._spend(steps=0)  # for what was still under way
        shown = []
        for i in self._trained:
            try:
                shown.append(self.members[i].log(step, each[i], int(bad_run[i]), int(bad_steps[i])))
            except RunError as error:
                self._fail(i, error)
        self._trained = [i for i in self._trained if i not in self.failures]
        if shown:
            total = sum(values["tokens_per_second"] for values in shown)
            progress.update(step, {**_mean(shown), "tokens_per_second": total})

    def _save(self, state: TrainState, step: int, which: Sequence[int]) -> None:
        """Starts to save the states of these members, unless they are."""
        which = [i for i in which if self.members[i].saved_step != step]
        if which:
            states = self._split(state)
            sums = self._split(self._merge_pending()) if self._pending else None
            for i in which:
                self.members[i].save(step, states[i], sums and sums[i])
            self._spend()

    def _evaluate(self, state, step: int, which: Sequence[int], progress: Progress) -> bool:
        """Scores the validation set; returns whether the run shall go on.

        An evaluation that fails, as for want of memory, leaves the step without scores.
        """
        members = [self.members[i] for i in which]
        for member in members:
            member.begin_evaluation(step)
        self._spend()
        params = state.ema or state.params
        try:
            scores = self._try(lambda: self._scores(params), f"evaluation at step {step}", progress)
            if scores is None:
                return True
            self._probe(step, params, progress)
        except (StoppedError, UserError):
            for member in members:
                member.give_up_evaluation(step)
            raise
        numbers = [self.members[i].record(step, scores[i]) for i in which]
        progress.note(step, _mean(numbers))
        self._spend()
        return self._goes_on(step, numbers[0])

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
            self.say(f"{what} failed, and training goes on: {type(error).__name__}: {reason}")
            return None
        finally:
            self._spend()

    def _spend(self, steps: int | None = None) -> float:
        """Counts the time since the last call, of training where steps were; returns it."""
        seconds = self._watch.lap()
        for i in self._trained:
            self.members[i].spend(seconds, steps)
        return seconds

    def _take_up_pending(self) -> None:
        """Goes on with the sums of a line that was not yet written when the runs were saved."""
        pending = [member.pending() for member in self.members]
        if found := [sums for sums in pending if sums]:
            nothing = jax.tree.map(np.zeros_like, found[0])
            self._pending = [self._join([sums or nothing for sums in pending])]

    def _merge_pending(self) -> TokenMetrics:
        """The sums since the last line, on the host. One after another: so they round alike."""
        self._pending = [functools.reduce(TokenMetrics.merge, jax.device_get(self._pending))]
        return self._pending[0]

    def _say_end(self, state: TrainState, step: int) -> bool:
        if self.stop_signal is not None:
            self._signals.wait_for_answer()
            saved = f"saved step {step}" if step else "nothing was trained yet"
            self.say(
                f"{signals.name(self.stop_signal)}: {saved}; start the same command again to go on"
            )
            return False
        bad_steps = np.ravel(jax.device_get(state.bad_steps))
        for i, member in enumerate(self.members):
            if i not in self.failures:
                own = f"{member.workdir.name}: " if len(self.members) > 1 else ""
                self.say(own + member.ending(member.saved_step, int(bad_steps[i])))
        return True

    def _probe(self, step: int, params: Any, progress: Progress) -> None:
        """Writes what the attention heads look at, where that is wanted."""
        return None

    def _goes_on(self, step: int, numbers: dict[str, float]) -> bool:
        """Returns whether these scores let the run go on."""
        return True

    @abc.abstractmethod
    def _arguments(self, state: TrainState, batch: Any, active: Sequence[int]) -> tuple:
        """What the step takes: the state and the batch are the first two."""

    @abc.abstractmethod
    def _scores(self, params: Any) -> Sequence[dict[str, Any]]:
        """The validation scores of each member."""

    @abc.abstractmethod
    def _split(self, tree: Any) -> Sequence[Any]:
        """Each member's part of a tree."""

    @abc.abstractmethod
    def _join(self, trees: Sequence[Any]) -> Any:
        """The tree of all members whose parts these are, on the host."""

    @abc.abstractmethod
    def _fail(self, i: int, error: RunError) -> None:
        """Notes that a member cannot go on."""


class Trainer(Loop):
    """One run: its state, data and folder.

    Args:
      task: what is learned.
      config: the whole experiment.
      workdir: the run's folder, absolute.
      say: prints a line.
      devices: the batch is divided among them; all, by default.
      train_step: that of another trainer of the same structure, so that it compiles once.
      probes: whether each evaluation also writes what the attention heads look at.
    """

    def __init__(
        self,
        task: Task,
        config: Any,
        workdir: Path,
        say: Callable,
        devices=None,
        train_step: Callable | None = None,
        probes: bool = True,
    ):
        self.task, self.config, self.probes = task, config, probes
        mesh = Mesh(np.array(devices or jax.devices()), ("data",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_rows = NamedSharding(mesh, PartitionSpec("data"))
        self.device_count = mesh.size
        self.member = Member(task, config, workdir)
        super().__init__([self.member], say)
        self.checkpoints = self.member.checkpoints
        self.total_steps = self.member.total_steps
        self.train_step = train_step or jax.jit(self.member.make_train_step(), donate_argnums=0)
        self.hparams = jax.device_put(self.member.hparams(), self.replicated)
        # Called with (step, numbers) after each evaluation; true ends the run there.
        self.on_evaluation: Callable[[int, dict[str, float]], bool] = lambda step, numbers: False

    def fresh_state(self) -> TrainState:
        """Returns the state before the first step, a function of the seed."""
        return jax.device_put(self.member.fresh_state(), self.replicated)

    def put(self, batch: Any) -> Any:
        """Returns the batch on the devices, rows divided, with empty rows where they lack."""

        def pad(x):
            lacking = -len(x) % self.device_count
            return np.pad(x, [(0, lacking)] + [(0, 0)] * (x.ndim - 1)) if lacking else x

        return jax.device_put(jax.tree.map(pad, batch), self.by_rows)

    def run(self) -> bool:
        """Trains from the newest checkpoint to the end; returns whether the end was reached.

        On SIGINT or SIGTERM the state is saved and the run ends early.

        Raises:
          UserError: the loss stays not finite, the disk is full, or a checkpoint does not belong
            to these tokenizers.
        """
        state = self.fresh_state()
        warn_of_warmup(self.config.optimizer, self.total_steps, self.say)
        restored = self.member.restore(state, self.say)
        if restored is not None:
            state = restored
            self.say(f"going on from step {int(state.step)}")
        else:
            self.say(parameter_table(state.params))
        self.member.start_writing()
        step = int(state.step)
        try:
            with self._signals:
                batches = self.task.plan.start_at(step, self.config.data.prefetch)
                return self._loop(state, step, batches)
        finally:
            self.member.close()

    def _arguments(self, state: TrainState, batch: Any, active: Sequence[int]) -> tuple:
        return state, self.put(batch), self.hparams

    def _scores(self, params: Any) -> Sequence[dict[str, Any]]:
        return [self.task.evaluate(params, "validation", final=False)]

    def _probe(self, step: int, params: Any, progress: Progress) -> None:
        if not self.probes:
            return
        found = self._try(lambda: self.task.probe(params), f"probe at step {step}", progress)
        if found is not None:
            self.member.write_probe(step, found)

    def _goes_on(self, step: int, numbers: dict[str, float]) -> bool:
        return not self.on_evaluation(step, numbers)

    def _split(self, tree: Any) -> Sequence[Any]:
        return [tree]

    def _join(self, trees: Sequence[Any]) -> Any:
        return trees[0]

    def _fail(self, i: int, error: RunError) -> None:
        raise error


class StepQueue:
    """Lets the host run ahead of the devices by many short steps, and by no long one.

    A signal has to wait for all that are under way.
    """

    MOST = 32
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
                self._ahead = min(self.MOST, 2 * self._ahead or 1)


def warn_of_warmup(settings: Any, total_steps: int, say: Callable) -> None:
    """Says so where most of the run would pass while the learning rate still rises."""
    updates = math.ceil(total_steps / settings.accumulate)
    if updates < 2 * settings.warmup_steps:
        say(
            f"warning: {updates} updates are planned and the learning rate rises for "
            f"{settings.warmup_steps} of them: set "
            f"--config.optimizer.warmup_steps={max(1, updates // 10)}, or train longer"
        )


def _mean(numbers: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in numbers])) for name in numbers[0]}
