"""The `plan` mode: predicts the memory, disk space and time that a training run needs."""

import contextlib
import dataclasses
import datetime
import logging
import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict
from rich.table import Table

from transformer import tasks
from transformer.runs.run import Run
from transformer.tasks.base import Task
from transformer.training.loop import Trainer
from transformer.training.progress import parameter_counts
from transformer.training.run import TrainingRun
from ..process.text_io import print_table
from .summary import quantity
from .workloads import BucketShape, shapes_of

logger = logging.getLogger(__name__)

TOKEN_BYTES = 4  # bytes per token in the token cache
STEPS = 20  # total number of timed steps over all batch shapes
MAX_SECONDS = 60.0  # maximum time of these steps, in seconds
MEMORY_FRACTION = 0.8  # maximum fraction of the free memory to use
MEMORY_ADVICE = (
    "lower --config.data.batch_tokens (a larger --config.optimizer.gradient_accumulation_steps "
    "keeps the size of an update), --config.tokenizer.vocab_size, --config.model.d_model, the "
    "numbers of layers or --config.data.max_tokens, or set --config.model.remat=True"
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measured costs of a training run."""

    steps: int  # total number of training steps
    ending: str  # the config setting that ends the training
    evaluations: int
    state_bytes: int  # parameters, optimizer state and averaged weights
    step_bytes: list[int]  # memory of a step for each batch shape, including the state
    compile_seconds: float  # total compilation time for all batch shapes
    step_seconds: Sequence[Sequence[float]] = ()  # for each shape; empty if the memory is too small
    evaluation_seconds: float = 0.0  # time of one validation, with untrained weights

    @property
    def needed_bytes(self) -> int:
        """The peak memory of a step over all shapes, plus a copy of the state for checkpointing."""
        return max(self.step_bytes) + self.state_bytes

    def fits(self, free: int) -> bool:
        """Returns whether the run fits into MEMORY_FRACTION of `free` bytes."""
        return self.needed_bytes <= MEMORY_FRACTION * free


def plan(run: Run) -> None:
    """Prints the predicted costs of training a config, and advice if the memory is too small.

    The corpus is prepared as for training, so a later training run finds it and the compiled
    programs in the cache. The free disk space is checked for the run's folder, which is not
    created.
    """
    free = free_memory()
    logger.info("reading the text")
    task = tasks.REGISTRY[run.config.task](run.config)
    for line in task.notes():
        logger.info(line)
    shapes = shapes_of(task.plan)
    print_plan(task, shapes, measure(task, shapes, free), run.folder, free)


# -- the measurement


def free_memory() -> int:
    """Returns the free memory in bytes of the first device, or of the host for a CPU device."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return psutil.virtual_memory().available


def measure(task: Task, shapes: list[BucketShape], free: int) -> Measured:
    """Compiles the training step for each shape, and times the steps if `free` bytes suffice."""
    with (
        tempfile.TemporaryDirectory() as name,  # a temporary folder for the run
        contextlib.closing(TrainingRun(task, task.config, Path(name))) as run,
    ):
        trainer = Trainer([run])
        state, hparams = trainer.fresh_state(), trainer.hparams
        state_bytes = sum(x.nbytes for x in jax.tree.leaves(state))
        batches = [trainer.placement.put_batch(shape.batch) for shape in shapes]
        step_bytes, start = [], monotonic()
        for shape, batch in zip(shapes, batches, strict=True):
            logger.info(f"compiling for batches of {shape.rows}x{shape.length}")
            step_bytes.append(trainer.train_step.count_bytes(state, batch, hparams))
        steps, compiling = run.total_steps, monotonic() - start
        evaluations = math.ceil(steps / run.evaluate_every)
        ending = run.ended(steps) or ""
        measured = Measured(steps, ending, evaluations, state_bytes, step_bytes, compiling)
        if not measured.fits(free):
            return measured
        logger.info(f"measuring {STEPS} steps and an evaluation")

        def step(i: int) -> float:
            nonlocal state
            start = monotonic()
            state, _ = jax.block_until_ready(trainer.train_step(state, batches[i], hparams))
            return monotonic() - start

        seconds = _time_steps(step, [shape.batches for shape in shapes])
        evaluation = _time_evaluation(task, state.ema or state.params)
        return dataclasses.replace(measured, step_seconds=seconds, evaluation_seconds=evaluation)


def _time_steps(step: Any, weights: list[int]) -> list[list[float]]:
    """Times about STEPS steps, spread over shapes by frequency; returns a list for each shape."""
    start = monotonic()
    first = [step(i) for i in range(len(weights))]  # slower, due to memory allocation
    seconds: list[list[float]] = [[] for _ in weights]
    wanted = [max(1, round(STEPS * weight / sum(weights))) for weight in weights]
    for turn in range(max(wanted)):
        for i, count in enumerate(wanted):
            if turn < count and monotonic() - start < MAX_SECONDS:
                seconds[i].append(step(i))
    return [many or [one] for many, one in zip(seconds, first, strict=True)]


def _time_evaluation(task: Task, params: Any) -> float:
    """Returns the time of a validation in seconds; translation is timed on only one batch."""
    parts = 1
    if task.is_translated:
        settings, size = ConfigDict(task.config.to_dict()), task.config.decode.batch_size
        decoded = min(len(list(task.text.pairs["validation"])), settings.evaluate.max_sentences)
        parts = math.ceil(decoded / size)
        settings.evaluate.max_sentences = size
        task = task.with_config(settings)
    seconds = 0.0
    for _ in range(2):  # the first iteration compiles
        start = monotonic()
        task.evaluate(params, "validation", final=False)
        seconds = monotonic() - start
    return parts * seconds


def mean_seconds(
    shapes: list[BucketShape], seconds: Sequence[Sequence[float]], choose: Any
) -> float:
    """Returns the mean step time over an epoch, given the step times in seconds for each shape."""
    weights = [shape.batches for shape in shapes]
    return float(np.average([choose(of_shape) for of_shape in seconds], weights=weights))


# -- the table


def print_plan(
    task: Task, shapes: list[BucketShape], measured: Measured, folder: Path, free: int
) -> None:
    """Prints the plan as a table, given the free memory in bytes and the folder of the run."""
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    table = Table("", "estimate", title=f"{task.config.name} on {device}")
    each = task.predictor.model.flops_per_token(task.predictor.param_shapes())
    flops = each * sum(s.batches * s.positions for s in shapes) / task.plan.epoch_length
    for rows in (
        text_rows(task, shapes),
        size_rows(task, measured, folder, free),
        time_rows(task.config.train, measured, shapes, flops),
    ):
        for row in rows:
            table.add_row(*row)
        table.add_section()
    print_table(table)
    if not measured.fits(free):
        print(f"the memory is too small: {MEMORY_ADVICE}", flush=True)


def text_rows(task: Task, shapes: list[BucketShape]) -> Iterator[tuple[str, str]]:
    """Yields the table rows about the text and its batches."""
    summary = task.data_summary()
    for split, counts in summary["splits"].items():
        yield f"{split}", ", ".join(f"{count:,} {name}" for name, count in counts.items())
    for side, count in task.train_tokens.items():
        yield f"tokens, {side}", f"{count:,}"
    for side, count in summary["vocabulary"].items():
        yield f"vocabulary, {side}", f"{count:,}"
    if "padding_fraction" in summary:
        yield "padding", f"{summary['padding_fraction']:.1%}"
    listed = ", ".join(f"{s.rows}x{s.length} ({s.batches:,})" for s in shapes)
    yield "batches per epoch", f"{task.plan.epoch_length:,}: {listed}"


def size_rows(task: Task, measured: Measured, folder: Path, free: int) -> Iterator[tuple[str, str]]:
    """Yields the table rows about parameters, memory and disk space."""
    counts = parameter_counts(task.predictor.param_shapes())
    for name, count in {**counts, "all": sum(counts.values())}.items():
        yield f"parameters, {name}", f"{count:,}"
    state = quantity(measured.state_bytes, "B")
    yield "memory: parameters and optimizer", state
    yield "memory: largest step, these included", quantity(max(measured.step_bytes), "B")
    verdict = "" if measured.fits(free) else ", too little"
    needed = f"{quantity(measured.needed_bytes, 'B')} of {quantity(free, 'B')} that are free"
    yield "memory needed", f"{needed}{verdict}"
    # The `keep` latest checkpoints, `keep` that end with the best, and one that is being written.
    keep = max(task.config.train.keep_last, task.config.evaluate.average_last_n)
    checkpoints = 1 + min(2 * keep, measured.evaluations)
    run, cache = checkpoints * measured.state_bytes, TOKEN_BYTES * sum(task.train_tokens.values())
    yield "disk: run", f"{quantity(run, 'B')}, up to {checkpoints} checkpoints of {state}"
    yield "disk: cache of the text", quantity(cache, "B")
    place = next(path for path in (folder, *folder.parents) if path.is_dir())
    room = shutil.disk_usage(place).free
    short = ", too little: lower --config.train.keep_last or --config.evaluate.average_last_n"
    yield "disk: free", quantity(room, "B") + (short if run + cache > room else "")


def time_rows(
    settings: ConfigDict, measured: Measured, shapes: list[BucketShape], flops: float
) -> Iterator[tuple[str, str]]:
    """Yields the table rows about operations and time, given `config.train` and FLOPs per step."""
    yield "operations per step", quantity(flops, "FLOP")
    if not measured.step_seconds:
        yield "time", "not measured, since the memory is too small"
        return
    fastest, each, slowest = (
        mean_seconds(shapes, measured.step_seconds, choose) for choose in (min, np.median, max)
    )
    yield "time: a step", f"{each:.3g} s, {quantity(flops / each, 'FLOP/s')}"
    yield "time: to compile", duration(measured.compile_seconds)
    count, one = measured.evaluations, measured.evaluation_seconds
    yield "time: an evaluation, at most", f"{duration(one)}; evaluations: {count:,}"
    epochs = measured.steps / sum(shape.batches for shape in shapes)
    end = f"{measured.steps:,} steps, {epochs:.1f} epochs ({measured.ending})"
    if settings.minutes:
        end += f", or train.minutes={settings.minutes:g}"
    # A trained model writes shorter translations than the untrained model that is timed here.
    least = measured.steps * fastest + measured.compile_seconds
    most = measured.steps * slowest + measured.compile_seconds + count * one
    limit = settings.minutes * 60 or math.inf
    yield (
        "time: to the end",
        f"{duration(min(limit, least))} to {duration(min(limit, most))}: {end}",
    )
    if settings.patience:
        yield "", f"or earlier: after {settings.patience} evaluations without a better score"


def duration(seconds: float) -> str:
    """Formats a time as seconds (4.2 s) or, from one minute on, as hours, minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return str(datetime.timedelta(seconds=round(seconds)))
