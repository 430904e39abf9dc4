"""What the training loop needs to know of a task, and nothing more."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array

from transformer.data.pipeline import BatchPlan
from transformer.losses import TokenSums


@runtime_checkable
class Task(Protocol):
    """Data, model and scores of one kind of experiment."""

    plan: BatchPlan  # all training batches, by number
    d_model: int  # for the Noam schedule

    def init_params(self, key: Array) -> Any:
        """Returns fresh float32 parameters."""
        ...

    def hparams(self) -> dict[str, float]:
        """Returns the task's numbers that one compiled step takes as arguments."""
        ...

    def loss(self, params: Any, batch: Any, hparams: dict, key: jax.Array) -> TokenSums:
        """Returns the training loss of a batch as sums over its tokens, dropout switched on."""
        ...

    def evaluate(self, params: Any, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores of "validation" or "test"; `final` ones may take their time."""
        ...

    def evaluate_members(self, params: Any, hparams: dict, split: str) -> list[dict[str, Any]]:
        """Returns what `evaluate` would, not final, for each member of a population.

        Args:
          params, hparams: of all members, stacked on a leading axis.
        """
        ...

    def with_config(self, config: Any, heads_vary: bool = False) -> "Task":
        """Returns the task of a config that differs in numbers alone; they share what compiles.

        Args:
          heads_vary: whether the number of heads is one of these, an argument of the step.
        """
        ...

    def save_assets(self, workdir: Path) -> None:
        """Writes what a later use of the run needs beside config and checkpoints."""
        ...

    def fingerprint(self) -> str:
        """Returns what a checkpoint must agree with: the tokenizers' digests."""
        ...

    def describe(self) -> list[str]:
        """Returns lines about data and model to print before training."""
        ...
