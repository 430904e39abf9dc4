"""The training loop. It knows steps, checkpoints and clocks, but no tokens, masks or BLEU."""

import functools
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.member import Member, Stopwatch
from transformer.metrics import TokenMetrics
from transformer.progress import Progress, parameter_table
from transformer.tasks.base import Task
from transformer.train_step import TrainState


class Trainer:
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
        self.task, self.config, self.say, self.probes = task, config, say, probes
        mesh = Mesh(np.array(devices or jax.devices()), ("data",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_rows = NamedSharding(mesh, PartitionSpec("data"))
        self.device_count = mesh.size
        self.member = Member(task, config, workdir)
        self.checkpoints = self.member.checkpoints
        self.total_steps = self.member.total_steps
        self.train_step = train_step or jax.jit(self.member.make_train_step(), donate_argnums=0)
        self.hparams = jax.device_put(self.member.hparams(), self.replicated)
        self._signals = StopSignals()
        # Called with (step, numbers) after each evaluation; true ends the run there.
        self.on_evaluation: Callable[[int, dict[str, float]], bool] = lambda step, numbers: False

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the run early, if one did."""
        return self._signals.received

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
        self.member.start_writing(int(state.step))
        try:
            with self._signals:
                return self._loop(state)
        finally:
            self.member.close()

    def _loop(self, state: TrainState) -> bool:
        step = int(state.step)
        batches = self.task.plan.start_at(step, self.config.data.prefetch)
        pending: list[TokenMetrics] = []
        watch = Stopwatch()
        saved_step = step
        with Progress(self.total_steps, step, self.say, self.task.unit) as progress:
            ended = False
            while not (ended or self._ended(step)):
                state, metrics = self.train_step(state, self.put(next(batches)), self.hparams)
                pending.append(metrics)
                step += 1
                due = step % self.member.evaluate_every == 0 or step == self.total_steps
                # Also before a save, so that a run which goes on from there has the same lines.
                if due or step % self.config.train.log_every == 0:
                    self._log(state, pending, step, watch, progress)
                if due:
                    ended = self._evaluate_and_save(state, step, watch, progress)
                    saved_step = step
            if saved_step != step:
                if pending:
                    self._log(state, pending, step, watch, progress)
                if self._signals.received is None:  # out of time: the last weights count as well
                    self._evaluate_and_save(state, step, watch, progress)
                else:
                    self.member.save(step, state, {})
        self.checkpoints.wait()
        if self._signals.received is not None:
            self.say(
                f"{self._signals.name}: saved step {step}; start the same command again to go on"
            )
            return False
        return True

    def _ended(self, step: int) -> bool:
        return self._signals.received is not None or self.member.ended(step)

    def _log(self, state, pending: list, step: int, watch: Stopwatch, progress) -> None:
        """Writes a line of what the devices have counted since the last one."""
        metrics, bad_run, bad_steps = jax.device_get((pending, state.bad_run, state.bad_steps))
        pending.clear()
        merged = functools.reduce(TokenMetrics.merge, metrics)
        progress.update(
            step, self.member.log(step, merged, int(bad_run), int(bad_steps), watch.lap())
        )

    def _evaluate_and_save(self, state, step, watch: Stopwatch, progress) -> bool:
        """Scores the validation set and saves; returns whether the run shall end here."""
        params = state.ema or state.params
        scores = self.task.evaluate(params, "validation", final=False)
        try:
            if self.probes:
                self.member.probe(step, params)
        finally:  # what a probe that fails has cost no training
            numbers = self.member.record(step, scores, watch.lap())
            progress.note(step, numbers)
            self.member.save(step, state, numbers)
        return self.on_evaluation(step, numbers)


class StopSignals:
    """Within it, SIGINT and SIGTERM are remembered in `received` and end nothing by themselves."""

    def __init__(self):
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The name of the signal that was received."""
        return signal.Signals(self.received).name

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number, frame) -> None:
        self.received = number


def warn_of_warmup(settings: Any, total_steps: int, say: Callable) -> None:
    """Says so where most of the run would pass while the learning rate still rises."""
    updates = math.ceil(total_steps / settings.accumulate)
    if updates < 2 * settings.warmup_steps:
        say(
            f"warning: {updates} updates are planned and the learning rate rises for "
            f"{settings.warmup_steps} of them: set "
            f"--config.optimizer.warmup_steps={max(1, updates // 10)}, or train longer"
        )
