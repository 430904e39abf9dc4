"""What the training loop needs to know of a task, and nothing more."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array

from transformer.analysis.head_probe import Probe
from transformer.inference.base import Predictor
from transformer.losses import TokenSums


@runtime_checkable
class Plan(Protocol):
    """All training batches there will ever be: batch i is a function of (seed, i) alone."""

    epoch_length: int  # batches

    def __getitem__(self, i: int) -> Any: ...

    def start_at(self, i: int, prefetch: int) -> Iterator[Any]:
        """Yields batch i and all after it, `prefetch` of them made ahead in the background."""
        ...


@runtime_checkable
class Task(Protocol):
    """Data, model and scores of one kind of experiment."""

    plan: Plan  # all training batches, by number
    d_model: int  # for the Noam schedule
    predictor: Predictor  # what is trained
    unit: str  # what losses are means over and speed counts
    splits: Sequence[str]  # what the final scores are of, "validation" first

    @staticmethod
    def load(folder: Path, config: Any, warn: Callable[[str], None]) -> Predictor:
        """Returns the model of a run's folder; its checkpoints are read elsewhere.

        Raises:
          UserError: a file of it is missing or damaged, or the config describes no model.
        """
        ...

    @classmethod
    def from_folder(cls, folder: Path, config: Any, warn: Callable[[str], None]) -> "Task":
        """Returns the task of a run's folder, which scores its model but cannot train it.

        All it has are the tokenizers and the held-out text that the folder keeps: no source is
        opened, and there is neither `plan` nor `describe` nor `data_summary`.

        Raises:
          UserError: a file of it is missing or damaged, or the config describes no model.
        """
        ...

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
        """Returns the scores of a split; `final` ones may take their time.

        Those have `texts` as well, {file in the run's folder: its lines}.
        """
        ...

    def probe(self, params: Any) -> Probe:
        """Returns what the heads look at in `evaluate.probe_statistics` validation texts."""
        ...

    def evaluate_runs(self, params: Any, split: str) -> list[dict[str, Any]]:
        """Returns what `evaluate` would, not final, for each of several runs.

        Args:
          params: of all runs, stacked on a leading axis.
        """
        ...

    def held_out_batches(self, split: str) -> Iterator[Any]:
        """Yields all of a split once, in batches of few static shapes whose leaves begin alike.

        A leaf's first axis is that of the texts, or rows of text, which do not touch each other.
        """
        ...

    def held_out_sums(self, variables: Any, batch: Any) -> TokenSums:
        """Returns the unsmoothed loss of such a batch, without dropout, unweighted by class.

        Args:
          variables: what the model is applied with, see `Predictor`.
        """
        ...

    def with_config(self, config: Any) -> "Task":
        """Returns the task of a config that differs in numbers alone; they share what compiles."""
        ...

    def save_assets(self, workdir: Path) -> None:
        """Writes what a later use of the run needs beside config and checkpoints."""
        ...

    def fingerprint(self) -> str:
        """Returns the predictor's."""
        ...

    def describe(self) -> list[str]:
        """Returns lines about data and model to print before training."""
        ...

    def data_summary(self) -> dict[str, Any]:
        """Returns what there is of text and what was made of it, as JSON has it.

        `splits` {name: {what is counted: number}}; `unknown_share` of the training tokens;
        `vocabulary` {side or "all": pieces}; `batches_per_epoch`; `shapes` [[rows, tokens], ...]
        of them; and, where the task has such, `cleaning` {"read", "kept", "dropped": {reason:
        number}}, `padding_share`, `broken_lines` {file: number}, and `preview`, a few training
        texts as tokens, {side: tokens} each.
        """
        ...
