"""One run's books: what it remembers beside its state, where it writes, when it ends."""

import dataclasses
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer import optim
from transformer.checkpoint import SMALLER_IS_BETTER, Checkpoints
from transformer.errors import RunError, UserError
from transformer.files import write_arrays
from transformer.metrics import MetricsWriter, TokenMetrics, summarize
from transformer.model.stack import stacked_modules
from transformer.tasks.base import Task
from transformer.train_step import TrainState, init_state, make_train_step

PROBES = "probes"  # folder within a run's


@dataclasses.dataclass
class RunProgress:
    """What the loop remembers beside the state; saved with every checkpoint.

    `seconds` are all of the run's, `training_seconds` those without evaluations and saves.
    """

    fingerprint: str
    seconds: float = 0.0
    training_seconds: float = 0.0
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


class Member:
    """The books of one run, whether it trains alone or in a population.

    Args:
      task: what is learned.
      config: the whole experiment.
      workdir: the run's folder, absolute.

    Attributes:
      total_steps: at which the run ends, unless time or patience end it before.
      progress: see `RunProgress`.
    """

    def __init__(self, task: Task, config: Any, workdir: Path):
        _check_train(config)
        self.task, self.config, self.workdir = task, config, workdir
        settings = config.optimizer
        self.optimizer = optim.make_optimizer(
            settings.name,
            settings.beta1,
            settings.beta2,
            settings.epsilon,
            settings.clip_norm,
            settings.accumulate,
            stacked_modules(config.model),
        )
        self.total_steps = total_steps(config.train, task.plan.epoch_length)
        self.evaluate_every = config.train.evaluate_every or task.plan.epoch_length
        self.checkpoints = Checkpoints(
            workdir / "checkpoints",
            max(config.train.keep_last, config.evaluate.average),
            config.train.best_metric,
        )
        self.progress = RunProgress(task.fingerprint())
        self._writer: MetricsWriter | None = None

    def make_train_step(self) -> Callable:
        """Returns the pure training step; members of one structure may share it, compiled."""
        settings = self.config.optimizer
        return make_train_step(
            self.task.loss,
            self.optimizer,
            settings.schedule,
            self.task.d_model,
            settings.accumulate,
        )

    def hparams(self) -> dict[str, Any]:
        """Returns the numbers of this run that its training step takes as arguments."""
        settings = self.config.optimizer
        numbers = {
            "learning_rate": settings.learning_rate,
            "warmup_steps": settings.warmup_steps,
            "total_steps": math.ceil(self.total_steps / settings.accumulate),
            "weight_decay": settings.weight_decay,
            "ema_decay": self.config.train.ema_decay,
            **self.task.hparams(),
        }
        arrays = {name: np.float32(value) for name, value in numbers.items()}
        counts = {"seed": np.uint32(self.config.seed), "batches": np.int32(self.total_steps)}
        return {**counts, **arrays}

    def fresh_state(self) -> TrainState:
        """Returns the state before the first step, a function of the seed."""
        params = self.task.init_params(jax.random.key(self.config.seed))
        return init_state(params, self.optimizer, bool(self.config.train.ema_decay))

    def restore(self, template: TrainState, say: Callable) -> TrainState | None:
        """Returns the newest checkpoint's state, and remembers what was saved beside it.

        Raises:
          UserError: see `Checkpoints.restore_newest`.
        """
        restored = self.checkpoints.restore_newest(template, say, self.progress.fingerprint)
        if restored is None:
            return None
        state, saved = restored
        self.progress = RunProgress(**saved)
        return state

    def start_writing(self, step: int) -> None:
        """Opens the run's metrics for lines after `step`; probes of later steps go as well."""
        self._writer = MetricsWriter(self.workdir, step)
        for path in probe_files(self.workdir):
            if int(path.stem) > step:
                path.unlink()

    def close(self) -> None:
        """Ends all writing, when it is done."""
        if self._writer:
            self._writer.close()
        self.checkpoints.close()

    def finished(self, step: int = 0) -> bool:
        """Returns whether what is saved, or at least `step` steps, leave nothing to do."""
        newest = self.checkpoints.steps()[-1:]
        saved = self.checkpoints.read_progress(newest[0]) if newest else None
        if saved is None:
            return False
        return self.ended(max(step, newest[0]), RunProgress(**saved))

    def ended(self, step: int, progress: RunProgress | None = None) -> bool:
        """Returns whether nothing is left to do after `step` steps.

        Args:
          progress: in place of this run's own.
        """
        settings, progress = self.config.train, progress or self.progress
        out_of_patience = 0 < settings.patience <= progress.evaluations_since_best
        out_of_time = 0 < settings.minutes * 60 <= progress.seconds
        return step >= self.total_steps or out_of_patience or out_of_time

    def log(
        self, step: int, metrics: TokenMetrics, bad_run: int, bad_steps: int, seconds: float
    ) -> dict[str, float]:
        """Writes a line of what was trained since the last one; returns its numbers.

        Args:
          metrics: of all batches since then.
          bad_run, bad_steps: of the state.
          seconds: since then.

        Raises:
          RunError: too many steps in a row were not finite.
        """
        if bad_run >= self.config.train.max_bad_steps:
            last = self.checkpoints.steps()[-1:] or ["none"]
            raise RunError(
                f"loss or gradient was not finite in {int(bad_run)} steps in a row, up to step "
                f"{step}: lower --config.optimizer.learning_rate or set "
                f"--config.optimizer.clip_norm; the last good checkpoint is step {last[0]}"
            )
        tokens = float(metrics.nll.count)
        self.progress.seconds += seconds
        self.progress.training_seconds += seconds
        self.progress.tokens += tokens
        update = (step - 1) // self.config.optimizer.accumulate + 1
        rate = optim.learning_rate(
            self.config.optimizer.schedule, update, self.hparams(), self.task.d_model
        )
        values = {
            **summarize(metrics),
            "learning_rate": float(rate),
            "tokens_per_second": tokens / max(seconds, 1e-9),
            "seconds": self.progress.seconds,
            "bad_steps": float(bad_steps),
        }
        self._writer.write(step, "train", values)
        return values

    def record(self, step: int, scores: dict[str, Any], seconds: float) -> dict[str, float]:
        """Writes a line of an evaluation that took so long; returns its numbers.

        Raises:
          UserError: `train.best_metric` is not among them.
        """
        numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        metric = self.config.train.best_metric
        if metric not in numbers:
            raise UserError(
                f"train.best_metric='{metric}' is not measured: choose one of "
                f"{', '.join(sorted(numbers))}"
            )
        self.progress.seconds += seconds
        self.progress.record(step, metric, numbers[metric])
        self._writer.write(step, "validation", {**numbers, "seconds": self.progress.seconds})
        return numbers

    def probe(self, step: int, params: Any) -> None:
        """Writes what the attention heads look at after `step` steps, where the task has such."""
        found = self.task.probe(params)
        if not found.arrays:
            return
        folder = self.workdir / PROBES
        folder.mkdir(exist_ok=True)
        write_arrays(folder / f"{step:08d}.npz", {"step": np.array(step), **found.arrays})
        self._writer.write(step, "heads", found.numbers)

    def save(self, step: int, state: TrainState, numbers: dict[str, float]) -> None:
        """Starts to save a checkpoint, with the numbers of an evaluation at this step if any."""
        saved = self.checkpoints.steps()
        if saved and int(state.bad_run) >= step - saved[-1]:
            return  # nothing was learned since the last one
        progress = dataclasses.asdict(self.progress)
        self.checkpoints.save(step, state, progress)
        if numbers:
            self.checkpoints.record_evaluation(step, numbers, progress)


class Stopwatch:
    """Measures laps, in seconds."""

    def __init__(self):
        self._last = time.monotonic()

    def lap(self) -> float:
        """Returns the seconds since the last call."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


def total_steps(settings: Any, epoch_length: int) -> int:
    """Returns the steps of a run by `config.train` and the batches in an epoch."""
    by_epochs = math.ceil(settings.epochs * epoch_length) if settings.epochs else settings.steps
    return min(settings.steps, by_epochs)


def probe_files(folder: Path) -> list[Path]:
    """Returns the probes of a run's folder by their steps, and none of the files beside them."""
    named = [path for path in folder.glob(f"{PROBES}/*.npz") if re.fullmatch(r"\d{8,}", path.stem)]
    return sorted(named, key=lambda path: int(path.stem))


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
