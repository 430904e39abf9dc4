"""Benchmark workloads, and the systems of this library that train on them.

A workload is a config with its own corpus, or with random tokens of a fixed shape. A system is a
function that takes an `order`, which describes a workload, and `turn` (see `turns`).
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from transformer import tasks
from transformer.config import complete
from transformer.data.batches import Batch, make_batch
from transformer.data.buckets import WHOLE, BucketPlan, Part, Plan, Stream
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.inference.base import source_mask
from transformer.inference.translator import Translator
from transformer.model.vision.inputs import PictureText
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask, TranslationText, make_translator
from transformer.training.loop import Trainer
from transformer.training.placement import prefetch, wait_for_earlier
from transformer.training.run import TrainingRun
from ..process.process import keep_program_memory
from .turns import Turn

FIRST_ID = 4  # after padding, unknown, bos and eos
FOREVER = 10**6  # steps


class Shape(NamedTuple):
    """The shape of random batches, and the minimum length of a sentence, including EOS."""

    rows: int
    length: int
    shortest: int


class Workload(NamedTuple):
    """A config to train on random tokens of `shape`, or on its own corpus if `shape` is None."""

    config: ConfigDict
    shape: Shape | None = None

    def order(self) -> dict[str, Any]:
        """Returns the workload as a dict for JSON."""
        return {"config": self.config.to_dict(), "shape": self.shape}


def read_workload(order: Mapping[str, Any]) -> Workload:
    """Returns the workload from the result of `Workload.order`."""
    shape = order["shape"] and Shape(*order["shape"])
    return Workload(complete(ConfigDict(order["config"])), shape)


class BucketShape(NamedTuple):
    """A batch shape, with the number of such batches per epoch and an example batch."""

    rows: int
    length: int
    batches: int
    batch: Any

    @property
    def positions(self) -> int:
        """The number of tokens in a batch on one side, including padding."""
        return self.rows * self.length


def shapes_of(plan: Plan) -> list[BucketShape]:
    """Returns the batch shapes of a plan, shortest first."""
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
    """A dummy tokenizer that has only a vocabulary size."""

    def __init__(self, size: int):
        self.model, self.origin, self.vocab_size = b"", "", size

    def pieces(self, ids: Ids) -> list[str]:
        return list(map(str, ids))


class RandomBatches(Plan[Batch]):
    """Random batches of one shape with uniformly distributed sentence lengths."""

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
    """A translation task on random tokens, in batches of one shape."""

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


# -- the measured systems


def multiply(order: Mapping[str, Any], turn: Turn) -> NoReturn:
    """Runs `products` successive matmuls of width `size` in one compiled program."""
    size, products = order["size"], order["products"]
    x = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    weights = (x / size**0.5).astype(order["dtype"])  # scaled to keep the magnitude of products
    x = x.astype(order["dtype"])

    @jax.jit
    def chain(x, weights):  # no closure: constants would be compiled in
        return jax.lax.fori_loop(0, products, lambda _, x: x @ weights, x)

    jax.block_until_ready(chain(x, weights))
    turn({"size": size})
    while True:
        start = time.monotonic()
        jax.block_until_ready(chain(x, weights))
        turn({"flops_per_second": products * 2 * size**3 / (time.monotonic() - start)})


def step(order: Mapping[str, Any], turn: Turn) -> None:
    """Times `steps` training steps per turn, on batches that are already on the device."""
    task, trainer = _start_trainer(order)
    steps, state, put = order["steps"], trainer.fresh_state(), trainer.placement.put_batch
    first = [put(shape.batch) for shape in shapes_of(task.plan)]
    start = time.monotonic()
    program_bytes = [trainer.train_step.count_bytes(state, b, trainer.hparams) for b in first]
    compiled = time.monotonic() - start

    def take(batches: Sequence[Any]) -> list[Any]:
        nonlocal state
        metrics = []
        for batch in batches:
            state, sums = trainer.train_step(state, batch, trainer.hparams)
            metrics.append(sums)
            wait_for_earlier(metrics)
        return jax.block_until_ready(metrics)

    take(first)
    take(first)
    each = task.predictor.model.flops_per_token(state.params)
    turn(
        {
            "compile_seconds": compiled,
            "program_bytes": max(program_bytes),
            "device_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "parameters": sum(x.size for x in jax.tree.leaves(state.params)),
        }
    )
    for number in itertools.count():
        batches = [task.plan[i] for i in range(number * steps, (number + 1) * steps)]
        positions = sum(map(_target_positions, batches))  # tokens on one side
        batches = [put(batch) for batch in batches]
        start = time.monotonic()
        metrics = take(batches)
        seconds = time.monotonic() - start
        tokens = sum(float(sums.weight) for sums in metrics)
        work = {"steps": steps, "tokens": tokens, "positions": positions, "flops": each * positions}
        turn({"seconds": seconds, **work})


def _target_positions(batch: Any) -> int:
    source = getattr(batch, "source", None)
    sees = isinstance(source, PictureText)
    return source_mask(source).size if sees else jax.tree.leaves(batch)[0].size


def _start_trainer(order: Mapping[str, Any]) -> tuple[Task, Trainer]:
    """Returns the task and the trainer for an order; also sets up memory as for training."""
    keep_program_memory()
    workload = read_workload(order)
    config = workload.config
    config.train.update({"steps": FOREVER, "epochs": 0.0, "minutes": 0.0, "save_minutes": 0.0})
    config.train.update({"evaluate_every": FOREVER, "log_every": order["steps"]})
    task = make_task(workload)
    return task, Trainer([TrainingRun(task, config, Path(order["folder"]) / "run")])


class _AskedPlan(Plan):
    """A plan that yields one batch per shape, and then `steps` batches whenever `turn` returns."""

    def __init__(self, plan: Plan, steps: int, turn: Turn, prefetch: int):
        self._plan, self._steps, self._turn, self._prefetch = plan, steps, turn, prefetch
        self.epoch_length = plan.epoch_length

    def __getitem__(self, i: int) -> Any:
        return self._plan[i]

    def start_at(self, i: int, stream: Stream, part: Part = WHOLE) -> Iterator[Any]:
        """Yields the batches, and measures the time in which `steps` training steps complete."""
        yield from (shape.batch for shape in shapes_of(self._plan))
        batches = self._plan.start_at(i, lambda *order: prefetch(self._prefetch, *order), part)
        jax.block_until_ready(jax.live_arrays())
        self._turn({})
        while True:
            start = time.monotonic()
            yield from itertools.islice(batches, self._steps)
            jax.block_until_ready(jax.live_arrays())  # waits for the state of the last step
            self._turn({"seconds": time.monotonic() - start})


def loop(order: Mapping[str, Any], turn: Turn) -> None:
    """Runs the full training loop, which logs metrics every `steps` steps."""
    task, trainer = _start_trainer(order)
    data = trainer.runs[0].config.data
    task.plan = _AskedPlan(task.plan, order["steps"], turn, data.prefetch)
    data.prefetch = 0  # since the plan itself prefetches
    trainer.run()
