"""The workloads of a benchmark: a config with its own text, or with tokens of a fixed shape."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from configs import multi30k, tutorial_en_de
from experiments.studies.accelerator.synthetic import SyntheticTask, random_ids
from transformer import tasks
from transformer.data.parallel.batches import Batch, make_batch
from transformer.data.plan import Plan
from transformer.keys import complete
from transformer.tasks.base import Task

DROPOUT = 0.3  # of all kinds, in the workload "tiny"


class Shape(NamedTuple):
    """Batches of random tokens: their rows and tokens, and the tokens of the shortest sentence.

    The numbers of tokens include the end of a sentence.
    """

    rows: int
    length: int
    shortest: int


class Workload(NamedTuple):
    """What is trained: a config, on its own text if `shape` is None."""

    config: ConfigDict
    shape: Shape | None = None

    def order(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return {"config": self.config.to_dict(), "shape": self.shape}


def read_workload(order: Mapping[str, Any]) -> Workload:
    """Returns the workload of an order."""
    shape = order["shape"] and Shape(*order["shape"])
    return Workload(complete(ConfigDict(order["config"])), shape)


class RandomBatches(Plan[Batch]):
    """Batches of one shape, whose sentences are of all lengths equally often."""

    epoch_length = 1000

    def __init__(self, config: ConfigDict, shape: Shape):
        self.config, self.shape = config, shape

    def __getitem__(self, i: int) -> Batch:
        rng = np.random.default_rng((self.config.seed, i))
        rows, length, shortest = self.shape
        source, target = (self._sentences(rng, rows, length, shortest) for _ in range(2))
        return make_batch(source, target, rows, length)

    def _sentences(self, rng: np.random.Generator, rows: int, length: int, shortest: int) -> list:
        ids = random_ids(rng, rows, length - 1, self.config.tokenizer.vocab_size)
        ends = rng.integers(shortest - 1, length, rows)
        return [row[:end] for row, end in zip(ids, ends, strict=True)]


class RandomTask(SyntheticTask):
    """The training of a translator on batches of one shape."""

    def __init__(self, config: ConfigDict, shape: Shape):
        self._shape = shape
        super().__init__(config, [shape.length])

    def make_plan(self) -> RandomBatches:
        return RandomBatches(self.config, self._shape)


def make_task(workload: Workload) -> Task:
    """Returns the task of a workload.

    Raises:
      UserError: the text or the config cannot be used.
    """
    if workload.shape is None:
        return tasks.REGISTRY[workload.config.task](workload.config)
    return RandomTask(workload.config, workload.shape)


def tiny() -> Workload:
    """Transformer-Tiny (Wu et al. 2021): 256 sentences of up to 16 tokens, all dropouts on."""
    config = multi30k.get_config()
    for name in ("embedding", "residual", "attention", "activation"):
        config.model[f"dropout_{name}"] = DROPOUT
    config.optimizer.clip_norm = 0.0
    return Workload(config, Shape(256, 16, 11))


def tutorial() -> Workload:
    """The tutorial's translator on its batches: 64 sentences, all padded to 41 tokens."""
    return Workload(tutorial_en_de.get_config(), Shape(64, 41, 4))
