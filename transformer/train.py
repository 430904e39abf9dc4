"""The training loop. It knows steps, checkpoints and clocks, but no tokens, masks or BLEU."""

import dataclasses
import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer import optim
from transformer.checkpoint import SMALLER_IS_BETTER, Checkpoints
from transformer.errors import UserError
from transformer.metrics import MetricsWriter, TokenMetrics, summarize
from transformer.progress import Progress, parameter_table
from transformer.tasks.base import Task
from transformer.train_step import TrainState, init_state, make_train_step


@dataclasses.dataclass
class RunProgress:
    """What the loop remembers beside the state; saved with every checkpoint."""

    fingerprint: str
    seconds: float = 0.0
    tokens: float = 0.0
    best: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0

    def record(self, step: int, metric: str, value: float) -> None:
        """Notes an evaluation."""
        sign = -1.0 if metric in SMALLER_IS_BETTER else 1.0
        # A best that is not a number would never be beaten.
        if self.best is None or math.isnan(self.best) or sign * value > sign * self.best:
            self.best, self.best_step, self.evaluations_since_best = value, step, 0
        else:
            self.evaluations_since_best += 1


class Trainer:
    """One run: its state, data and folder.

    Args:
      task: what is learned.
      config: the whole experiment.
      workdir: the run's folder, absolute.
      say: prints a line.
      devices: the batch is divided among them; all, by default.
    """

    def __init__(self, task: Task, config: Any, workdir: Path, say: Callable, devices=None):
        self.task, self.config, self.workdir, self.say = task, config, workdir, say
        mesh = Mesh(np.array(devices or jax.devices()), ("data",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_rows = NamedSharding(mesh, PartitionSpec("data"))
        self.device_count = mesh.size
        _check_train(config)
        settings = config.optimizer
        self.optimizer = optim.make_optimizer(
            settings.name,
            settings.beta1,
            settings.beta2,
            settings.epsilon,
            settings.clip_norm,
            settings.accumulate,
        )
        self.total_steps = _total_steps(config.train, task.plan.epoch_length)
        self.train_step = jax.jit(
            make_train_step(
                task.loss,
                self.optimizer,
                settings.schedule,
                task.d_model,
                config.seed,
                settings.accumulate,
            ),
            donate_argnums=0,
        )
        self.hparams = jax.device_put(
            {
                "learning_rate": settings.learning_rate,
                "warmup_steps": float(settings.warmup_steps),
                "total_steps": float(self.total_steps // settings.accumulate),
                "weight_decay": settings.weight_decay,
                "ema_decay": config.train.ema_decay,
                **task.hparams(),
            },
            self.replicated,
        )
        self.checkpoints = Checkpoints(
            workdir / "checkpoints",
            max(config.train.keep_last, config.evaluate.average),
            config.train.best_metric,
        )
        self._stop_signal: int | None = None

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the run early, if one did."""
        return self._stop_signal

    def fresh_state(self) -> TrainState:
        """Returns the state before the first step, a function of the seed."""
        params = self.task.init_params(jax.random.key(self.config.seed))
        state = init_state(params, self.optimizer, bool(self.config.train.ema_decay))
        return jax.device_put(state, self.replicated)

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
        memory = RunProgress(self.task.fingerprint())
        updates = self.total_steps // self.config.optimizer.accumulate
        if updates < 2 * self.config.optimizer.warmup_steps:
            self.say(
                f"warning: {updates} updates are planned and the learning rate rises for "
                f"{self.config.optimizer.warmup_steps} of them: set "
                f"--config.optimizer.warmup_steps={max(1, updates // 10)}, or train longer"
            )
        restored = self.checkpoints.restore_newest(state, self.say, memory.fingerprint)
        if restored:
            state, saved = restored
            memory = RunProgress(**saved)
            self.say(f"going on from step {int(state.step)}")
        else:
            self.say(parameter_table(state.params))
        previous = {
            number: signal.signal(number, self._remember_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        writer = MetricsWriter(self.workdir, int(state.step))
        try:
            return self._loop(state, memory, writer)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            writer.close()
            self.checkpoints.close()

    def _loop(self, state: TrainState, memory: RunProgress, writer: MetricsWriter) -> bool:
        settings = self.config.train
        step = int(state.step)
        every = settings.evaluate_every or self.task.plan.epoch_length
        batches = self.task.plan.start_at(step, self.config.data.prefetch)
        pending: list[TokenMetrics] = []
        log = _LogInterval(memory)
        saved_step = step
        with Progress(self.total_steps, step, self.say) as progress:
            while not self._ended(step, memory):
                state, metrics = self.train_step(state, self.put(next(batches)), self.hparams)
                pending.append(metrics)
                step += 1
                due = step % every == 0 or step == self.total_steps
                # Also before a save, so that a run which goes on from there has the same lines.
                if due or step % settings.log_every == 0:
                    self._log(state, pending, step, log, writer, progress)
                if due:
                    self._evaluate_and_save(state, step, memory, writer, progress, log)
                    saved_step = step
            if saved_step != step:
                if pending:
                    self._log(state, pending, step, log, writer, progress)
                if self._stop_signal is None:  # out of time: the last weights count as well
                    self._evaluate_and_save(state, step, memory, writer, progress, log)
                else:
                    self._save(state, step, memory, {})
        self.checkpoints.wait()
        if self._stop_signal is not None:
            name = signal.Signals(self._stop_signal).name
            self.say(f"{name}: saved step {step}; start the same command again to go on")
            return False
        return True

    def finished(self, step: int) -> bool:
        """Returns whether a run scored at `step` has nothing left to do under this config."""
        newest = self.checkpoints.steps()[-1:]
        restored = self.checkpoints.read_progress(newest[0]) if newest else None
        return restored is not None and self._ended(max(step, newest[0]), RunProgress(**restored))

    def _ended(self, step: int, memory: RunProgress) -> bool:
        settings = self.config.train
        out_of_patience = 0 < settings.patience <= memory.evaluations_since_best
        out_of_time = 0 < settings.minutes * 60 <= memory.seconds
        return (
            step >= self.total_steps
            or out_of_patience
            or out_of_time
            or self._stop_signal is not None
        )

    def _log(self, state, pending: list, step: int, log: "_LogInterval", writer, progress) -> None:
        """Writes a line of what the devices have counted since the last one."""
        values = self._log_values(state, pending, log, step)
        pending.clear()
        writer.write(step, "train", values)
        progress.update(step, values)

    def _log_values(self, state, pending, log: "_LogInterval", step: int) -> dict[str, float]:
        metrics, bad_run, bad_steps = jax.device_get((pending, state.bad_run, state.bad_steps))
        if bad_run >= self.config.train.max_bad_steps:
            last = self.checkpoints.steps()[-1:] or ["none"]
            raise UserError(
                f"loss or gradient was not finite in {int(bad_run)} steps in a row, up to step "
                f"{step}: lower --config.optimizer.learning_rate or set "
                f"--config.optimizer.clip_norm; the last good checkpoint is step {last[0]}"
            )
        merged = metrics[0]
        for other in metrics[1:]:
            merged = merged.merge(other)
        tokens = float(merged.nll.count)
        seconds = log.clock(tokens)
        update = (step - 1) // self.config.optimizer.accumulate + 1
        rate = optim.learning_rate(
            self.config.optimizer.schedule, update, self.hparams, self.task.d_model
        )
        return {
            **summarize(merged),
            "learning_rate": float(rate),
            "tokens_per_second": tokens / seconds,
            "seconds": log.memory.seconds,
            "bad_steps": float(bad_steps),
        }

    def _evaluate_and_save(self, state, step, memory, writer, progress, log) -> None:
        params = state.ema or state.params
        scores = self.task.evaluate(params, "validation", final=False)
        log.clock()
        numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        metric = self.config.train.best_metric
        if metric not in numbers:
            raise UserError(
                f"train.best_metric='{metric}' is not measured: choose one of "
                f"{', '.join(sorted(numbers))}"
            )
        memory.record(step, metric, numbers[metric])
        writer.write(step, "validation", {**numbers, "seconds": memory.seconds})
        progress.note(step, numbers)
        self._save(state, step, memory, numbers)

    def _save(self, state, step, memory: RunProgress, metrics) -> None:
        saved = self.checkpoints.steps()
        if saved and int(state.bad_run) >= step - saved[-1]:
            return  # nothing was learned since the last one
        self.checkpoints.save(step, state, metrics, dataclasses.asdict(memory))

    def _remember_signal(self, number, frame) -> None:
        self._stop_signal = number


class _LogInterval:
    """Measures time between log lines and adds it to the run's, over all restarts."""

    def __init__(self, memory: RunProgress):
        self.memory = memory
        self._last = time.monotonic()

    def clock(self, tokens: float = 0.0) -> float:
        """Returns the seconds since the last call."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.memory.seconds += seconds
        self.memory.tokens += tokens
        return max(seconds, 1e-9)


def _total_steps(settings: Any, epoch_length: int) -> int:
    by_epochs = math.ceil(settings.epochs * epoch_length) if settings.epochs else settings.steps
    return min(settings.steps, by_epochs)


def _check_train(config: Any) -> None:
    if config.optimizer.schedule not in optim.SCHEDULES:
        raise UserError(
            f"optimizer.schedule='{config.optimizer.schedule}' is unknown: choose one of "
            f"{', '.join(optim.SCHEDULES)}"
        )
    for key in ("steps", "log_every", "keep_last", "max_bad_steps"):
        if config.train[key] < 1:
            raise UserError(f"train.{key}={config.train[key]} must be at least 1")
    for group, key in (("train", "label_smoothing"), ("train", "ema_decay")):
        if not 0.0 <= config[group][key] < 1.0:
            raise UserError(f"{group}.{key}={config[group][key]} must be in [0, 1)")


def write_json(path: Path, value: Any) -> None:
    """Writes a file that is either whole or not there."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
