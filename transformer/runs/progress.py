"""The progress of a run apart from its state, and the settings that limit it."""

import dataclasses
import math
from collections.abc import Mapping

from ml_collections import ConfigDict

from transformer.metrics.registry import rank


@dataclasses.dataclass
class RunProgress:
    """The progress of a run apart from its state; saved with every checkpoint.

    `seconds` are all of the run's, `training_seconds` those of its steps. `line_*` are of the steps
    since the last line; `line_sums`, see `metrics.tokens.to_list`, is filled in checkpoints only.
    `best` and `best_loss` are of the best evaluation, `last` and `lowest_loss` of all.
    `text_digest` is that of the task, empty in older runs.
    """

    fingerprint: str
    seconds: float = 0.0
    training_seconds: float = 0.0
    tokens: float = 0.0
    best: float | None = None
    best_loss: float = math.inf
    best_step: int = 0
    last: float | None = None
    lowest_loss: float = math.inf
    evaluations_since_best: int = 0
    line_seconds: float = 0.0
    line_steps: int = 0
    line_sums: list[float] = dataclasses.field(default_factory=list)
    text_digest: str = ""

    def record(self, step: int, metric: str, numbers: Mapping[str, float]) -> None:
        """Records an evaluation; while the loss falls, an equal or zero score costs no patience."""
        value, loss = numbers[metric], numbers.get("loss", math.nan)
        best = rank({"loss": self.best_loss, metric: self.best or 0.0}, metric)
        if self.best is None or rank(numbers, metric) > best:
            self.best, self.best_loss, self.best_step = value, loss, step
            self.evaluations_since_best = 0
        elif value not in (0, self.last) or not loss < self.lowest_loss:
            self.evaluations_since_best += 1
        self.last, self.lowest_loss = value, min(self.lowest_loss, loss)

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
