"""Workloads: a config with its own text, or with random tokens of a fixed shape."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from transformer import tasks
from transformer.config import complete, load_page
from transformer.data.batches import Batch, make_batch
from transformer.data.buckets import BucketPlan, Plan
from transformer.data.files.locate import corpus_folder
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.errors import UserError
from transformer.inference.translator import Translator
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask, TranslationText, make_translator

multi30k = load_page("multi30k")

DROPOUT = 0.3  # of every kind, in the workload "tiny"
FIRST_ID = 4  # after padding, unknown, bos and eos


class Shape(NamedTuple):
    """The shape of random batches, and the tokens of the shortest sentence with its end."""

    rows: int
    length: int
    shortest: int


class Workload(NamedTuple):
    """A config to train, on its own text if `shape` is None."""

    config: ConfigDict
    shape: Shape | None = None

    def order(self) -> dict[str, Any]:
        """Returns the workload for JSON."""
        return {"config": self.config.to_dict(), "shape": self.shape}


def read_workload(order: Mapping[str, Any]) -> Workload:
    """Returns the workload of an order, see `Workload.order`."""
    shape = order["shape"] and Shape(*order["shape"])
    return Workload(complete(ConfigDict(order["config"])), shape)


class BucketShape(NamedTuple):
    """Batches of one shape: their number per epoch, and one of them."""

    rows: int
    length: int
    batches: int
    batch: Any

    @property
    def positions(self) -> int:
        """The tokens of a batch on one side, including padding."""
        return self.rows * self.length


def shapes_of(plan: Plan) -> list[BucketShape]:
    """Returns the shapes of a plan's batches, shortest first."""
    if not isinstance(plan, BucketPlan):
        batch = plan[0]
        rows, length = jax.tree.leaves(batch)[0].shape
        return [BucketShape(rows, length, plan.epoch_length, batch)]
    first: dict[int, int] = {}
    for number in range(plan.epoch_length):
        first.setdefault(plan.indices(number)[0].length, number)
        if len(first) == len(plan.buckets):
            break
    return [BucketShape(b.rows, b.length, b.batches, plan[first[b.length]]) for b in plan.buckets]


class Vocabulary(Tokenizer):
    """A tokenizer without text, which only has a vocabulary size."""

    def __init__(self, size: int):
        self.model, self.origin, self.vocab_size = b"", "", size

    def pieces(self, ids: Ids) -> list[str]:
        return list(map(str, ids))


class RandomBatches(Plan[Batch]):
    """Random batches of one shape, with sentence lengths distributed uniformly."""

    epoch_length = 1000

    def __init__(self, seed: int, vocab_size: int, shape: Shape):
        self.seed, self.vocab_size, self.shape = seed, vocab_size, shape

    def __getitem__(self, i: int) -> Batch:
        rng = np.random.default_rng((self.seed, i))
        source, target = (self._sentences(rng) for _ in range(2))
        return make_batch(source, target, self.shape.rows, self.shape.length)

    def _sentences(self, rng: np.random.Generator) -> list[np.ndarray]:
        rows, length, shortest = self.shape
        ids = rng.integers(FIRST_ID, self.vocab_size, (rows, length - 1), np.int32)
        ends = rng.integers(shortest - 1, length, rows)
        return [row[:end] for row, end in zip(ids, ends, strict=True)]


class RandomTask(TranslationTask):
    """Translation of random tokens, in batches of one shape."""

    plan: Any

    def __init__(self, config: ConfigDict, shape: Shape):
        self._shape = shape
        super().__init__(config)

    def read_text(self, folder: Path | None) -> TranslationText:
        return TranslationText({}, None)

    def make_predictor(self) -> Translator:
        vocabulary = Vocabulary(self.config.tokenizer.vocab_size)
        return make_translator(self.config, vocabulary, vocabulary)

    def make_plan(self) -> Any:
        size = self.config.tokenizer.vocab_size
        return RandomBatches(self.config.seed, size, self._shape)


def make_task(workload: Workload) -> Task:
    """Returns the task of a workload."""
    if workload.shape is None:
        return tasks.REGISTRY[workload.config.task](workload.config)
    return RandomTask(workload.config, workload.shape)


def first_sources(task: Any, count: int) -> list[str]:
    """Returns the source sentences of a translator's first validation pairs."""
    return [pair.source for pair in itertools.islice(task.text.pairs["validation"], count)]


def tiny() -> Workload:
    """Returns Transformer-Tiny (Wu et al. 2021): 256 sentences of up to 16 tokens, all dropouts."""
    config = multi30k.get_config()
    for name in ("embedding", "residual", "attention", "activation"):
        config.model[f"dropout_{name}"] = DROPOUT
    config.optimizer.clip_norm = 0.0
    return Workload(config, Shape(256, 16, 11))


def tutorial() -> Workload:
    """Returns the tutorial's translator on its batches: 64 sentences, all padded to 41 tokens."""
    return Workload(load_page("tutorial_en_de").get_config(), Shape(64, 41, 4))


def text(data: Path | None) -> Workload:
    """Returns the config for Multi30k on two cores, in this folder; the quickstart without one."""
    if data is None:
        return Workload(load_page("quickstart").get_config())
    config = load_page("multi30k_2cores").get_config()
    config.data.path = str(data)
    return Workload(config)


def text_of_peers(data: Path | None) -> Workload:
    """Returns the same with the positions and the optimizer of the peers."""
    workload = text(data)
    workload.config.model.positions = "split"
    workload.config.optimizer.name = "adam"
    return workload


def find_data(flag: Path | None) -> Path | None:
    """Returns the folder of Multi30k: that of the flag, or the fetched one; None without either."""
    folder = flag.expanduser() if flag else corpus_folder(multi30k.get_config().data)
    if any(folder.glob("train.en*")):
        return folder.absolute()
    if flag is None:
        return None
    raise UserError(
        f"--data={flag} has no train.en: name a folder with train, val and test_2016_flickr, each "
        ".en and .de, or leave --data out"
    )
