"""The progress of a run apart from its state, and the settings that limit it."""

import dataclasses
import math

from ml_collections import ConfigDict

from transformer.metrics.registry import lower_is_better


@dataclasses.dataclass
class RunProgress:
    """The progress of a run apart from its state; saved with every checkpoint.

    `seconds` are all of the run's, `training_seconds` those of its steps. `line_*` are of the steps
    since the last line; `line_sums`, see `TokenMetrics.to_list`, is filled in checkpoints only.
    `text_digest` is that of the task, empty in older runs.
    """

    fingerprint: str
    seconds: float = 0.0
    training_seconds: float = 0.0
    tokens: float = 0.0
    best: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    line_seconds: float = 0.0
    line_steps: int = 0
    line_sums: list[float] = dataclasses.field(default_factory=list)
    text_digest: str = ""

    def record(self, step: int, metric: str, value: float) -> None:
        """Records an evaluation."""
        sign = -1.0 if lower_is_better(metric) else 1.0
        # Any score is better than NaN, which no score is greater than.
        beats_nan = self.best is not None and math.isnan(self.best) and not math.isnan(value)
        if self.best is None or beats_nan or sign * value > sign * self.best:
            self.best, self.best_step, self.evaluations_since_best = value, step, 0
        else:
            self.evaluations_since_best += 1

    def find_limit(self, step: int, settings: ConfigDict, last_step: int) -> str | None:
        """Returns the setting that ends a run after `step` steps, or None if none does.

        Args:
          settings: `config.train`.
          last_step: see `total_steps`.
        """
        if step >= last_step:
            by_epochs = last_step < settings.steps
            return (
                f"train.{f'epochs={settings.epochs}' if by_epochs else f'steps={settings.steps}'}"
            )
        if 0 < settings.patience <= self.evaluations_since_best:
            return f"train.patience={settings.patience} evaluations without a better one"
        if 0 < settings.minutes * 60 <= self.seconds:
            return f"train.minutes={settings.minutes}"
        return None


def total_steps(settings: ConfigDict, epoch_length: int) -> int:
    """Returns the number of steps of a run, given `config.train` and the batches in an epoch."""
    if not settings.epochs:
        return settings.steps
    # Without the rounding, 0.07 epochs of 100 batches are 8 steps.
    return min(settings.steps, math.ceil(round(settings.epochs * epoch_length, 6)))
