"""The `plan` mode: predicts the memory, disk space and time that a training run needs."""

import contextlib
import dataclasses
import datetime
import json
import logging
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
from ..process.modes import Options
from ..process.text_io import open_output, print_table
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


def plan(run: Run, options: Options) -> None:
    """Prints the predicted costs of training a config; with --output, also writes them as JSON.

    The corpus is prepared as for training, so a later training run finds it and the compiled
    programs in the cache. The free disk space is checked for the run's folder, which is not
    created.
    """
    with open_output(options.output) if options.output else contextlib.nullcontext() as file:
        free = free_memory()
        logger.info("reading the text")
        task = tasks.REGISTRY[run.config.task](run.config)
        for line in task.notes():
            logger.info(line)
        estimates = estimate(task, run.folder, free)
        if file:
            file.write(json.dumps(estimates, indent=2, ensure_ascii=False) + "\n")
    print_plan(estimates)


def estimate(task: Task, folder: Path, free: int) -> dict[str, Any]:
    """Returns the plan as a dict for JSON: text, shapes, parameters, FLOPs, memory, disk and time.

    Units are bytes, seconds and floating-point operations. If the run does not fit into `free`
    bytes of memory, `time` is None and `advice` lists the settings to change.
    """
    shapes, config = shapes_of(task.plan), task.config
    measured = measure(task, shapes, free)
    params = task.predictor.param_shapes()
    positions = sum(shape.batches * shape.positions for shape in shapes)
    each, counts = task.predictor.model.flops_per_token(params), parameter_counts(params)
    summary, tokens = task.data_summary(), task.train_tokens
    every = config.train.evaluate_every or task.plan.epoch_length
    evaluations = math.ceil(measured.steps / every)
    # The `keep` latest checkpoints, `keep` that end with the best, and one that is being written.
    keep = max(config.train.keep_last, config.evaluate.average_last_n)
    checkpoints = 1 + min(2 * keep, evaluations)
    place = next(path for path in (folder, *folder.parents) if path.is_dir())
    time = _run_time(measured, config.train, shapes, evaluations) if measured.step_seconds else None
    return {
        "name": config.name,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "text": {
            **{key: summary.get(key) for key in ("splits", "vocabulary", "padding_fraction")},
            **{"tokens": tokens, "positions": positions},
            "batches_per_epoch": task.plan.epoch_length,
        },
        "shapes": [{"rows": s.rows, "length": s.length, "batches": s.batches} for s in shapes],
        "parameters": {**counts, "all": sum(counts.values())},
        "flops": {"per_token": each, "per_step": each * positions / task.plan.epoch_length},
        "memory": {
            "state": measured.state_bytes,
            "step": max(measured.step_bytes),
            "needed": measured.needed_bytes,
            "free": free,
            "fits": measured.fits(free),
        },
        "disk": {
            "checkpoint": measured.state_bytes,
            "checkpoints": checkpoints,
            "run": checkpoints * measured.state_bytes,
            "cache": TOKEN_BYTES * sum(tokens.values()),
            "free": shutil.disk_usage(place).free,
        },
        "time": time,
        "advice": None if measured.fits(free) else MEMORY_ADVICE,
    }


def _run_time(
    measured: Measured, settings: ConfigDict, shapes: list[BucketShape], evaluations: int
) -> dict[str, Any]:
    steps, seconds = measured.steps, measured.step_seconds
    epoch_length = sum(shape.batches for shape in shapes)
    evaluated = evaluations * measured.evaluation_seconds
    fastest, slowest = (mean_seconds(shapes, seconds, choose) for choose in (min, max))
    limit = settings.minutes * 60 or math.inf
    return {
        "steps": steps,
        "epochs": steps / epoch_length,
        "ending": measured.ending,
        "patience": settings.patience,
        "minutes": settings.minutes,
        "seconds_per_step": mean_seconds(shapes, seconds),
        "compile": measured.compile_seconds,
        "evaluation": measured.evaluation_seconds,
        "evaluations": evaluations,
        # A trained model writes shorter translations than the untrained model that is timed here.
        "least": min(limit, steps * fastest + measured.compile_seconds),
        "most": min(limit, steps * slowest + measured.compile_seconds + evaluated),
    }


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
        measured = Measured(steps, run.ended(steps) or "", state_bytes, step_bytes, compiling)
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
    shapes: list[BucketShape], seconds: Sequence[Sequence[float]], choose: Any = np.median
) -> float:
    """Returns the mean step time over an epoch, given the step times in seconds for each shape."""
    weights = [shape.batches for shape in shapes]
    return float(np.average([choose(of_shape) for of_shape in seconds], weights=weights))


# -- the table


def print_plan(estimates: Mapping[str, Any]) -> None:
    """Prints the result of `estimate` as a table, and advice if the memory is too small."""
    table = Table("", "estimate", title=f"{estimates['name']} on {estimates['device']}")
    for section in (_text_rows, _size_rows, _time_rows):
        for name, value in section(estimates):
            table.add_row(name, value)
        table.add_section()
    print_table(table)
    if estimates["advice"]:
        print(f"the memory is too small: {estimates['advice']}", flush=True)


def _text_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    text = estimates["text"]
    for split, counts in text["splits"].items():
        yield f"{split}", ", ".join(f"{count:,} {name}" for name, count in counts.items())
    for side, count in text["tokens"].items():
        yield f"tokens, {side}", f"{count:,}"
    for side, count in text["vocabulary"].items():
        yield f"vocabulary, {side}", f"{count:,}"
    if text["padding_fraction"] is not None:
        yield "padding", f"{text['padding_fraction']:.1%}"
    shapes = ", ".join(f"{s['rows']}x{s['length']} ({s['batches']:,})" for s in estimates["shapes"])
    yield "batches per epoch", f"{text['batches_per_epoch']:,}: {shapes}"


def _size_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, count in estimates["parameters"].items():
        yield f"parameters, {name}", f"{count:,}"
    yield "operations per step", quantity(estimates["flops"]["per_step"], "FLOP")
    memory = estimates["memory"]
    yield "memory: parameters and optimizer", quantity(memory["state"], "B")
    yield "memory: largest step, these included", quantity(memory["step"], "B")
    needed, free = (quantity(memory[name], "B") for name in ("needed", "free"))
    verdict = "" if memory["fits"] else ", too little"
    yield "memory needed", f"{needed} of {free} that are free{verdict}"
    disk = estimates["disk"]
    run, each = quantity(disk["run"], "B"), quantity(disk["checkpoint"], "B")
    yield "disk: run", f"{run}, up to {disk['checkpoints']} checkpoints of {each}"
    yield "disk: cache of the text", quantity(disk["cache"], "B")
    short = ", too little: lower --config.train.keep_last or --config.evaluate.average_last_n"
    few = disk["run"] + disk["cache"] > disk["free"]
    yield "disk: free", quantity(disk["free"], "B") + (short if few else "")


def _time_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    time = estimates["time"]
    if time is None:
        yield "time", "not measured, since the memory is too small"
        return
    each = time["seconds_per_step"]
    speed = quantity(estimates["flops"]["per_step"] / each, "FLOP/s")
    yield "time: a step", f"{each:.3g} s, {speed}"
    yield "time: to compile", duration(time["compile"])
    evaluation, count = duration(time["evaluation"]), time["evaluations"]
    yield "time: an evaluation, at most", f"{evaluation}; evaluations: {count:,}"
    end = f"{time['steps']:,} steps, {time['epochs']:.1f} epochs ({time['ending']})"
    if time["minutes"]:
        end += f", or train.minutes={time['minutes']:g}"
    least, most = duration(time["least"]), duration(time["most"])
    yield "time: to the end", f"{least} to {most}: {end}"
    if time["patience"]:
        yield "", f"or earlier: after {time['patience']} evaluations without a better score"


def duration(seconds: float) -> str:
    """Formats a time as seconds (4.2 s) or, from one minute on, as hours, minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return str(datetime.timedelta(seconds=round(seconds)))
