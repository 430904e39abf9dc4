"""The bookkeeping of one training run: its progress, its files, and when it ends."""

import contextlib
import dataclasses
import functools
import logging
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from transformer.analysis.snapshots import Snapshot
from transformer.errors import RunError, UserError
from transformer.metrics.tokens import from_list, summarize
from transformer.model.stack import stacked_modules
from transformer.optim import OptimizerConfig
from transformer.optim.optimizers import make_optimizer
from transformer.optim.parameters import rules_of
from transformer.optim.schedules import learning_rate
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.logs import MetricsWriter, snapshot_files, write_snapshot
from transformer.runs.run import CHECKPOINTS, Run, RunProgress, record_run, total_steps
from transformer.tasks.base import Task
from transformer.training.start import start_from, start_with_vectors
from transformer.training.step import TrainState, TrainStep, init_state, make_train_step

logger = logging.getLogger(__name__)

MIN_FACTOR, MAX_PEAK = 0.05, 0.1  # usual limits: minimum for noam, maximum for others


class TrainingRun(Run):
    """The bookkeeping of one training run, which trains alone or vmapped with other runs.

    Args:
      workdir: the absolute path of the run's folder.
      writes: whether this process may change the folder.

    Attributes:
      total_steps: maximum number of steps, unless `train.minutes` or `train.patience` ends the run.
    """

    def __init__(self, task: Task, config: ConfigDict, workdir: Path, writes: bool = True):
        super().__init__(workdir, config)
        self.task, self.epoch_length = task, task.plan.epoch_length
        self.rules = rules_of(config.train, lambda: task.predictor.param_shapes())
        settings = OptimizerConfig(**config.optimizer)
        stacked = stacked_modules(config.model)
        self.optimizer = make_optimizer(settings, stacked, self.rules.factor)
        self.total_steps = total_steps(config.train, self.epoch_length)
        self.evaluate_every = config.train.evaluate_every or self.epoch_length
        self.checkpoints = Checkpoints(
            workdir / CHECKPOINTS,
            max(config.train.keep_last, config.evaluate.average_last_n),
            config.train.best_metric,
            read_only=not writes,
        )
        self.progress = RunProgress(task.fingerprint(), text_digest=task.text_digest())
        self.saved_step = 0  # step of the newest checkpoint, from which the run would resume
        self._files = contextlib.ExitStack()
        self._writer: MetricsWriter  # set by `start_writing`

    def make_train_step(self) -> TrainStep:
        """Returns the pure training step; runs of the same structure share the compiled step."""
        settings = self.config.optimizer
        return make_train_step(
            self.task.loss,
            self.optimizer,
            settings.schedule,
            self.task.d_model,
            settings.gradient_accumulation_steps,
            self.rules,
        )

    def hparams(self) -> dict[str, Any]:
        """Returns the hyperparameters of this run that are arguments of its training step."""
        settings = self.config.optimizer
        numbers = {
            "learning_rate": settings.learning_rate,
            "warmup_steps": settings.warmup_steps,
            "total_steps": self._count_updates(self.total_steps),
            "decay_fraction": settings.decay_fraction,
            "weight_decay": settings.weight_decay,
            "ema_decay": self.config.train.ema_decay,
            **self.task.hparams(),
        }
        arrays = {name: np.float32(value) for name, value in numbers.items()}
        counts = {"seed": np.uint32(self.config.seed), "batches": np.int32(self.total_steps)}
        return {**counts, **arrays}

    def fresh_state(self, params: Any = None) -> TrainState:
        """Returns a state at step 0; if `params` is None, the parameters are newly initialised."""
        if params is None:
            params = self.task.draw_params(jax.random.key(self.config.seed))
        return init_state(params, self.optimizer, bool(self.config.train.ema_decay), self.rules)

    def state_shapes(self) -> TrainState:
        """Returns the shapes and dtypes of a training state."""
        return jax.eval_shape(self.fresh_state, self.task.predictor.param_shapes())

    @functools.cached_property
    def start(self) -> tuple[Any, dict[str, Any]] | None:
        """Parameters from another run or from word vectors, with their record, or else None.

        Invalid settings raise UserError, so the command reads this before it writes any file.
        """
        train, predictor = self.config.train, self.task.predictor
        if not (train.init_from or train.source_vectors or train.target_vectors):
            return None
        begin = start_from if train.init_from else start_with_vectors
        return begin(self, predictor, self.fresh_state().params)

    def restore(self) -> TrainState:
        """Returns the newest checkpoint's state, and restores the progress saved with it.

        If there is no checkpoint, returns an initial state, which may contain the weights of
        another run or word vectors.
        """
        fresh, text_digest = self.fresh_state(), self.progress.text_digest
        restored = self.checkpoints.restore_newest(fresh, self.progress.fingerprint, text_digest)
        if restored is not None:
            state, saved = restored
            self.progress = RunProgress(**{**saved, "text_digest": text_digest})
            self.saved_step = int(state.step)
            return state
        if (start := self.start) is None:
            return fresh
        params, record = start
        del self.start  # frees the cached parameters
        if jax.process_index() == 0:
            record_run(self.folder, **record)
        return self.fresh_state(params)

    def start_writing(self) -> None:
        """Opens the metrics files for the steps after the newest checkpoint.

        Deletes lines and snapshots of later steps and of an unfinished evaluation at that step.
        The training line of that step is also deleted if the checkpoint has the sums for it.
        """
        step = self.saved_step
        evaluated = self.checkpoints.evaluated(step)
        logged = not self.progress.line_sums
        writer = MetricsWriter(self.folder, step, evaluated, logged)
        self._writer = self._files.enter_context(contextlib.closing(writer))
        for path in snapshot_files(self.folder):
            if int(path.stem) >= step + evaluated:
                path.unlink()

    def close(self) -> None:
        """Closes the metrics files, and waits for pending checkpoints."""
        self._files.close()
        self.checkpoints.close()

    def ended(self, step: int) -> str | None:
        """Returns the setting that ends the run after `step` steps, or None if it continues."""
        return self.progress.find_limit(step, self.config.train, self.total_steps)

    def ending(self, step: int, nonfinite_steps: int) -> str:
        """Returns a log line with the reason for the end, the best score and the skipped steps."""
        reason = self.ended(step)
        line = f"training ended at step {step:,}: {reason or 'it was pruned'}"
        if self.progress.best is not None:
            metric, best = self.config.train.best_metric, self.progress.best
            line += f"; best {metric} {best:.4g} at step {self.progress.best_step:,}"
        if nonfinite_steps:
            line += f"; {nonfinite_steps:,} steps were skipped: loss or gradient was not finite"
        return line

    def warn(self) -> None:
        """Warns about an unusual learning rate, a long warm-up, or unused weight decay."""
        settings = self.config.optimizer
        rate, is_factor = settings.learning_rate, settings.schedule == "noam"
        if rate < MIN_FACTOR if is_factor else rate > MAX_PEAK and settings.name != "adafactor":
            meaning = "a factor, usually 1" if is_factor else f"the peak, usually below {MAX_PEAK}"
            logger.warning(
                f"warning: config.optimizer.learning_rate={rate:g} is {meaning}, with "
                f"optimizer.schedule={settings.schedule}"
            )
        if settings.weight_decay and settings.name == "adam":
            logger.warning(
                f"warning: optimizer.weight_decay={settings.weight_decay:g} has no effect with "
                "optimizer.name=adam: set config.optimizer.name=adamw"
            )
        updates, warmup = self._count_updates(self.total_steps), settings.warmup_steps
        if updates < 2 * warmup:
            logger.warning(
                f"warning: {updates} updates are planned and the learning rate rises for "
                f"{warmup} of them: set config.optimizer.warmup_steps={max(1, updates // 10)}, or "
                "train longer"
            )

    def log(self, step: int, consecutive_nonfinite: int, nonfinite_steps: int) -> dict[str, float]:
        """Logs the means over all batches since the last log line, and returns the metrics."""
        if consecutive_nonfinite >= self.config.train.max_nonfinite_steps:
            last = self.checkpoints.steps()[-1:] or ["none"]
            raise RunError(
                f"loss or gradient was not finite in {consecutive_nonfinite} steps in a row, "
                f"up to step {step}: lower config.optimizer.learning_rate or set "
                f"config.optimizer.clip_norm; the last good checkpoint is step {last[0]}"
            )
        progress, sums = self.progress, from_list(self.progress.line_sums)
        tokens = float(sums.weight)
        progress.tokens += tokens
        schedule = self.config.optimizer.schedule
        updates = self._count_updates(step)
        rate = learning_rate(schedule, updates, self.hparams(), self.task.d_model)
        values = {
            **summarize(sums),
            "learning_rate": float(rate),
            "tokens_per_second": tokens / max(progress.line_seconds, 1e-9),
            "seconds": progress.seconds,
            "nonfinite_steps": float(nonfinite_steps),
        }
        self._writer.write(step, "train", values)
        values["seconds_per_step"] = progress.line_seconds / max(1, progress.line_steps)
        progress.line_seconds, progress.line_steps, progress.line_sums = 0.0, 0, []
        return values

    def save(self, step: int, state: TrainState) -> None:
        """Starts to save a checkpoint, including the metrics summed since the last log line."""
        self.checkpoints.save(step, state, dataclasses.asdict(self.progress))

    def due(self, step: int) -> bool:
        """Returns whether the state after `step` steps should be saved and evaluated."""
        is_due = step > 0 and (step % self.evaluate_every == 0 or self.ended(step) is not None)
        return is_due and not self.checkpoints.evaluated(step)

    def _count_updates(self, steps: int) -> int:
        """Returns the number of optimizer updates for the given number of batches."""
        return math.ceil(steps / self.config.optimizer.gradient_accumulation_steps)

    def write_snapshot(self, step: int, snapshot: Snapshot) -> None:
        """Writes the attention snapshot after `step` steps, unless the snapshot is empty."""
        if not snapshot.arrays:
            return
        write_snapshot(self.folder, step, snapshot.arrays)
        self._writer.write(step, "heads", snapshot.numbers)

    def record(self, step: int, scores: dict[str, Any]) -> dict[str, int | float]:
        """Writes scores to the metrics files and the checkpoint; returns the numeric scores."""
        numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        metric = self.config.train.best_metric
        if metric not in numbers:
            raise UserError(
                f"train.best_metric='{metric}' is not measured: choose one of "
                f"{', '.join(sorted(numbers))}"
            )
        self.progress.record(step, metric, numbers)
        self._writer.write(step, "validation", {**numbers, "seconds": self.progress.seconds})
        self.checkpoints.record_evaluation(step, numbers, dataclasses.asdict(self.progress))
        return numbers
