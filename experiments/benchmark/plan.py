"""The mode `plan`: the memory, disk and time that a training takes, before it is started."""

import contextlib
import datetime
import json
import logging
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict
from rich.table import Table

from transformer import tasks
from transformer.runs.run import Run
from transformer.tasks.base import DOCUMENTS, PAIRS, Task
from transformer.training.progress import parameter_counts
from ..process import environment
from ..process.options import Options
from ..process.text_io import open_output, print_table
from .measure import (
    MEMORY_FRACTION,
    BucketShape,
    Measured,
    free_memory,
    mean_seconds,
    measure,
    process_memory,
    quantity,
    shapes_of,
)

logger = logging.getLogger(__name__)

TOKEN_BYTES = 4  # of the cache
PATIENCE = 3 * 3600  # seconds
MIN_OTHER_CORES = 0.2  # whose use by others is told


def plan(run: Run, options: Options) -> None:
    """Prints what training a config takes; with --output, also writes it as JSON.

    The text is prepared as training would prepare it, so a later training finds it in the cache,
    and the compiled programs too.

    Of the folder of the run to come, the disk is looked at; it is not created.
    """
    with contextlib.ExitStack() as stack:
        file = options.output and stack.enter_context(open_output(options.output))
        free = free_memory()
        logger.info("reading the text")
        task = tasks.REGISTRY[run.config.task](run.config)
        for line in task.describe():
            logger.info(line)
        estimates = estimate(task, run.folder, free)
        if file:
            file.write(json.dumps(estimates, indent=2, ensure_ascii=False) + "\n")
    print_plan(estimates)


def estimate(task: Task, folder: Path, free: int) -> dict[str, Any]:
    """Returns the plan as JSON has it: text, shapes, parameters, flops, memory, disk and time.

    Bytes, seconds and floating-point operations are plain numbers. If the `free` bytes of memory
    are too few, `time` is None and `advice` says what to change. `faster` is a key that shortens
    the steps of such a model on such a device, or None. `shorter` is a config for those who have
    less than `PATIENCE`, or None.
    """
    shapes, config = shapes_of(task.plan), task.config
    measured = measure(task, shapes, free)
    params = task.predictor.param_shapes()
    positions = sum(shape.batches * shape.positions for shape in shapes)
    each, counts = task.predictor.model.flops_per_token(params), parameter_counts(params)
    summary, tokens = task.data_summary(), task.train_tokens
    largest = max(range(len(shapes)), key=lambda i: measured.step_bytes[i])
    limit = _largest_batch(measured, shapes[largest], largest, free)
    every = config.train.evaluate_every or task.plan.epoch_length
    evaluations = math.ceil(measured.steps / every)
    # The last ones that are kept, as many up to the best, and the one that is being written.
    keep = max(config.train.keep_last, config.evaluate.average_last_n)
    checkpoints = 1 + min(2 * keep, evaluations)
    time = _run_time(measured, config.train, shapes, evaluations) if measured.step_seconds else None
    has_row = config.recipe == "size" and task.reads == PAIRS
    is_long = has_row and time is not None and time["least"] > PATIENCE
    return {
        "name": config.name,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "text": {
            "splits": summary["splits"],
            "vocabulary": summary["vocabulary"],
            "tokens": tokens,
            "positions": positions,
            "padding_fraction": summary.get("padding_fraction"),
            "batches_per_epoch": task.plan.epoch_length,
        },
        "shapes": _measure_shapes(shapes, measured),
        "parameters": {**counts, "all": sum(counts.values())},
        "flops": {
            "per_token": each,
            "per_step": each * positions / task.plan.epoch_length,
            "per_epoch": each * positions,
        },
        "memory": {
            "state": measured.state_bytes,
            "step": measured.step_bytes[largest],
            "saving": measured.state_bytes,
            "process": process_memory(),
            "needed": max(measured.needed_bytes, process_memory()),
            "free": free,
            "fits": measured.fits(free),
            "largest_batch_tokens": limit,
        },
        "disk": _disk_bytes(measured.state_bytes, checkpoints, sum(tokens.values()), folder),
        "time": time,
        "advice": None if measured.fits(free) else _memory_advice(task, shapes[largest], limit),
        "faster": _faster_settings(config.model) if environment.has_amx() else None,
        "shorter": "configs/own_text.py:hour" if is_long else None,
    }


def _measure_shapes(shapes: list[BucketShape], measured: Measured) -> list[dict[str, Any]]:
    return [
        {
            "rows": shape.rows,
            "length": shape.length,
            "batches": shape.batches,
            "bytes": measured.step_bytes[i],
            "seconds": measured.step_seconds[i] if measured.step_seconds else None,
        }
        for i, shape in enumerate(shapes)
    ]


def _largest_batch(measured: Measured, shape: BucketShape, number: int, free: int) -> int:
    """The largest power of two of tokens in a batch whose step fits, by proportion; 0 for none."""
    batch = measured.step_bytes[number] - measured.state_bytes
    room = MEMORY_FRACTION * free - 2 * measured.state_bytes
    tokens = room * shape.positions / max(1, batch)
    return 2 ** int(math.log2(tokens)) if tokens >= 1 else 0


def _memory_advice(task: Task, shape: BucketShape, tokens: int) -> str:
    """Advice if the memory is too small for a shape, but enough for this number of tokens."""
    config = task.config
    multiple = 1 if task.reads == DOCUMENTS else config.data.batch_multiple
    if multiple * shape.length <= tokens < shape.positions:  # the smallest batch of this shape fits
        parts = config.optimizer.gradient_accumulation_steps * math.ceil(shape.positions / tokens)
        return (
            f"set --config.data.batch_tokens={tokens}, and for updates of the same size "
            f"--config.optimizer.gradient_accumulation_steps={parts}"
        )
    return (
        "lower --config.tokenizer.vocab_size, --config.model.d_model, the numbers of layers or "
        "--config.data.max_tokens, or set --config.model.remat=True"
    )


def _faster_settings(model: ConfigDict) -> str | None:
    """The key that makes a CPU with AMX use it, if it does not."""
    measured = model.architecture == "transformer"
    if not measured or model.matmul_dtype or model.dtype == "bfloat16":
        return None
    return "config.model.matmul_dtype=bfloat16"


def _disk_bytes(checkpoint: int, checkpoints: int, tokens: int, folder: Path) -> dict[str, Any]:
    place = next(path for path in (folder, *folder.parents) if path.is_dir())
    return {
        "checkpoint": checkpoint,
        "checkpoints": checkpoints,
        "run": checkpoints * checkpoint,
        "cache": TOKEN_BYTES * tokens,
        "free": shutil.disk_usage(place).free,
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
        "other_cores": measured.other_cores,
        # Translations of a trained model are shorter than those of the evaluation here.
        "least": min(limit, steps * fastest + measured.compile_seconds),
        "most": min(limit, steps * slowest + measured.compile_seconds + evaluated),
    }


# -- the table


def print_plan(estimates: Mapping[str, Any]) -> None:
    """Prints a plan, see `estimate`, with what to change."""
    table = Table("", "estimate", title=f"{estimates['name']} on {estimates['device']}")
    for section in (_text_rows, _model_rows, _memory_rows, _disk_rows, _time_rows):
        for name, value in section(estimates):
            table.add_row(name, value)
        table.add_section()
    print_table(table)
    if estimates["advice"]:
        print(f"the memory is too small: {estimates['advice']}", flush=True)
    if estimates["faster"]:
        line = f"this CPU has AMX, with which --{estimates['faster']} shortened steps by a third"
        print(f"{line} (docs/performance.md)", flush=True)
    if estimates["shorter"]:
        line = f"with less time, --config={estimates['shorter']} trains a small model for an hour"
        print(f"{line} (docs/own_text.md#with-an-hour)", flush=True)


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


def _model_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, count in estimates["parameters"].items():
        yield f"parameters, {name}", f"{count:,}"
    flops = estimates["flops"]
    yield "operations per step", quantity(flops["per_step"], "FLOP")
    yield "operations per epoch", quantity(flops["per_epoch"], "FLOP")


def _memory_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory = estimates["memory"]
    yield "memory: parameters and optimizer", quantity(memory["state"], "B")
    yield "memory: largest step, these included", quantity(memory["step"], "B")
    yield "memory: copy while saving", quantity(memory["saving"], "B")
    if memory["process"]:
        yield "memory: all of this plan's process", quantity(memory["process"], "B")
    needed, free = (quantity(memory[name], "B") for name in ("needed", "free"))
    verdict = "" if memory["fits"] else ", too little"
    yield "memory needed", f"{needed} of {free} that are free{verdict}"
    if memory["largest_batch_tokens"]:
        yield "largest batch_tokens, about", f"{memory['largest_batch_tokens']:,}"


def _disk_rows(estimates: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
    if time["other_cores"] >= MIN_OTHER_CORES:
        cores = f"other processes used {time['other_cores']:.1f} cores: plan again without them"
        yield "time: too long here", cores
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
    """Returns seconds as text: 4.2 s, or hours, minutes and seconds from a minute on."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return str(datetime.timedelta(seconds=round(seconds)))
