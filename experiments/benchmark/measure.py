"""The memory and the seconds of the steps and evaluations of a training on this device."""

import contextlib
import dataclasses
import logging
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict

from transformer.data.buckets import BucketPlan, Plan
from transformer.tasks.base import Task
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun
from ..process.process import peak_memory

logger = logging.getLogger(__name__)

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
STEPS = 20  # measured, over all shapes
MAX_SECONDS = 60.0  # after which no further step is measured
MEMORY_FRACTION = 0.8  # of the free memory that a training should need at most


class BucketShape(NamedTuple):
    """Batches of one shape: how many an epoch has, and one of them."""

    rows: int
    length: int
    batches: int
    batch: Any

    @property
    def positions(self) -> int:
        """Tokens of a batch, of one side, padding included."""
        return self.rows * self.length


@dataclasses.dataclass(frozen=True)
class Measured:
    """The costs of the steps of a run."""

    steps: int  # of the whole run
    ending: str  # the setting that ends it there
    state_bytes: int  # parameters, optimizer state and averages
    step_bytes: list[int]  # of a step of each shape, the state included
    compile_seconds: float  # of the programs of all shapes
    step_seconds: list[list[float]]  # of steps of each shape; empty if the memory is too small
    evaluation_seconds: float  # of one during training, with a model that was not trained
    other_cores: float = 0.0  # that other processes used meanwhile

    @property
    def needed_bytes(self) -> int:
        """The memory of the largest step, and of the copy of the state while it is saved."""
        return max(self.step_bytes) + self.state_bytes

    def fits(self, free: int) -> bool:
        """Whether this number of bytes of free memory is enough."""
        return self.needed_bytes <= MEMORY_FRACTION * free


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


def free_memory() -> int:
    """Returns the free bytes of the first device, or of the machine if that is a CPU."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return psutil.virtual_memory().available


def process_memory() -> int:
    """Returns the most bytes that this process, libraries included, has held; 0 if not on a CPU."""
    return peak_memory() if jax.default_backend() == "cpu" else 0


def measure(task: Task, shapes: list[BucketShape], free: int) -> Measured:
    """Compiles the training step for each shape, and takes some steps if `free` bytes suffice."""
    with (
        tempfile.TemporaryDirectory() as name,  # a run has a folder, and this one leaves none
        contextlib.closing(TrainingRun(task, task.config, Path(name))) as run,
    ):
        return _measure_shape(Trainer([run]), run, shapes, free)


def _measure_shape(
    trainer: Trainer, run: TrainingRun, shapes: list[BucketShape], free: int
) -> Measured:
    state = trainer.fresh_state()
    state_bytes = sum(x.nbytes for x in jax.tree.leaves(state))
    batches = [trainer.placement.put_batch(shape.batch) for shape in shapes]
    step_bytes, start = [], time.monotonic()
    for shape, batch in zip(shapes, batches, strict=True):
        logger.info(f"compiling for batches of {shape.rows}x{shape.length}")
        step_bytes.append(trainer.train_step.count_bytes(state, batch, trainer.hparams))
    measured = Measured(
        run.total_steps,
        run.ended(run.total_steps) or "",
        state_bytes,
        step_bytes,
        time.monotonic() - start,
        [],
        0.0,
    )
    if not measured.fits(free):
        return measured
    logger.info(f"measuring {STEPS} steps and an evaluation")

    def step(i: int) -> float:
        nonlocal state
        start = time.monotonic()
        state, _ = jax.block_until_ready(trainer.train_step(state, batches[i], trainer.hparams))
        return time.monotonic() - start

    start, before = time.monotonic(), other_processes()
    seconds = _time_steps(step, [shape.batches for shape in shapes])
    evaluation = _time_evaluation(run.task, state.ema or state.params)
    busy = sum(now - before.get(number, now) for number, now in other_processes().items())
    times = {"step_seconds": seconds, "evaluation_seconds": evaluation}
    return dataclasses.replace(measured, **times, other_cores=busy / (time.monotonic() - start))


def other_processes() -> dict[int, float]:
    """Returns the seconds of a core that each other process that can be seen has had."""
    times = ((each.pid, each.info["cpu_times"]) for each in psutil.process_iter(["cpu_times"]))
    return {number: sum(cpu[:2]) for number, cpu in times if cpu and number != os.getpid()}


def _time_steps(step: Any, weights: list[int]) -> list[list[float]]:
    """The seconds of STEPS steps over shapes, by how often they occur, but one of each at least."""
    start = time.monotonic()
    first = [step(i) for i in range(len(weights))]  # slower than others: memory is fetched
    seconds: list[list[float]] = [[] for _ in weights]
    wanted = [max(1, round(STEPS * weight / sum(weights))) for weight in weights]
    for turn in range(max(wanted)):
        for i, count in enumerate(wanted):
            if turn < count and time.monotonic() - start < MAX_SECONDS:
                seconds[i].append(step(i))
    return [many or [one] for many, one in zip(seconds, first, strict=True)]


def _time_evaluation(task: Task, params: Any) -> float:
    """The seconds of an evaluation during training, by one batch of translations."""
    parts = 1
    if task.is_translated:
        settings, size = ConfigDict(task.config.to_dict()), task.config.decode.batch_size
        decoded = min(len(list(task.text.pairs["validation"])), settings.evaluate.max_sentences)
        parts = math.ceil(decoded / size)
        settings.evaluate.max_sentences = size
        task = task.with_config(settings)
    seconds = 0.0
    for _ in range(2):  # the first compiles
        start = time.monotonic()
        task.evaluate(params, "validation", final=False)
        seconds = time.monotonic() - start
    return parts * seconds


def mean_seconds(
    shapes: list[BucketShape], seconds: list[list[float]], choose: Any = np.median
) -> float:
    """Returns the seconds of a step, one number of each shape's, averaged over an epoch."""
    weights = [shape.batches for shape in shapes]
    return float(np.average([choose(of_shape) for of_shape in seconds], weights=weights))


def quantity(number: float, unit: str) -> str:
    """Returns a number with a prefix of a thousand's power, such as 1.5 GB."""
    power = 0
    while number >= 999.5 and power < len(PREFIXES) - 1:  # which three digits round up
        number, power = number / 1000, power + 1
    return f"{number:.3g} {PREFIXES[power]}{unit}"
