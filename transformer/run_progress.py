"""The progress of a run apart from its state."""

import dataclasses
import math

from transformer.metrics.registry import lower_is_better


@dataclasses.dataclass
class RunProgress:
    """The progress of a run apart from its state; saved with every checkpoint.

    `seconds` are all of the run's, `training_seconds` those of its steps. `line_*` is what was
    trained since the last line; `line_sums`, see `TokenMetrics.to_list`, is filled in checkpoints
    only. `text_digest` is that of the task, empty in older runs.
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
        # If the best were NaN, no score would ever be better.
        if self.best is None or math.isnan(self.best) or sign * value > sign * self.best:
            self.best, self.best_step, self.evaluations_since_best = value, step, 0
        else:
            self.evaluations_since_best += 1
