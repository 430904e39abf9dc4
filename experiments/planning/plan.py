"""The mode `plan`: the memory, disk and time that a training takes, before it is started."""

import contextlib
import json
import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from experiments import environment
from experiments.options import Options
from experiments.planning.measure import (
    MEMORY_FRACTION,
    Measured,
    Shape,
    free_memory,
    mean_seconds,
    measure,
    process_memory,
    shapes_of,
)
from experiments.planning.table import print_plan
from experiments.text_io import open_output
from transformer import tasks
from transformer.data.documents.batches import TextPlan
from transformer.data.labelled.encode import LabelledPlan
from transformer.data.parallel.batches import BatchPlan
from transformer.progress import parameter_counts
from transformer.tasks.base import Task

logger = logging.getLogger(__name__)

TOKEN_BYTES = 4  # of the cache


def plan(config: ConfigDict, folder: Path, options: Options) -> None:
    """Prints what training a config takes; with --output, also writes it as JSON.

    The text is prepared as training would prepare it, so a later training finds it in the cache,
    and the compiled programs too.

    Args:
      folder: of the run to come, whose disk is looked at; it is not created.

    Raises:
      UserError: the text or the config cannot be used, see `Task`.
    """
    with contextlib.ExitStack() as stack:
        file = options.output and stack.enter_context(open_output(options.output))
        free = free_memory()
        logger.info("reading the text")
        task = tasks.REGISTRY[config.task](config)
        for line in task.describe():
            logger.info(line)
        found = estimate(task, config, folder, free)
        if file:
            file.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    print_plan(found)


def estimate(task: Task, config: ConfigDict, folder: Path, free: int) -> dict[str, Any]:
    """Returns the plan as JSON has it: text, shapes, parameters, flops, memory, disk and time.

    Bytes, seconds and floating-point operations are plain numbers. If the memory is too small,
    `time` is None and `advice` says what to change. `faster` is a key that shortens the steps of
    such a model on such a device, or None.

    Args:
      free: bytes of memory.
    """
    shapes = shapes_of(task.plan)
    measured = measure(task, config, shapes, free)
    params = task.predictor.param_shapes()
    positions = sum(shape.batches * shape.positions for shape in shapes)
    each, counts = task.predictor.model.flops_per_token(params), parameter_counts(params)
    summary, tokens = task.data_summary(), _tokens(task)
    largest = max(range(len(shapes)), key=lambda i: measured.step_bytes[i])
    limit = _largest_batch(measured, shapes[largest], largest, free)
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
        "shapes": [
            {
                "rows": shape.rows,
                "length": shape.length,
                "batches": shape.batches,
                "bytes": measured.step_bytes[i],
                "seconds": measured.step_seconds[i] if measured.step_seconds else None,
            }
            for i, shape in enumerate(shapes)
        ],
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
        "disk": _disk(measured, config, task.plan.epoch_length, sum(tokens.values()), folder),
        "time": _time(measured, config, shapes) if measured.step_seconds else None,
        "advice": None if measured.fits(free) else _advice(config, shapes[largest], limit),
        "faster": _faster(config.model) if environment.has_amx() else None,
    }


def _tokens(task: Task) -> Mapping[str, int]:
    """The training tokens of each side, without begin and end of sentences."""
    match task.plan:
        case BatchPlan() as plan:
            sides = {"source": plan.source, "target": plan.target}
        case LabelledPlan() as plan:
            sides = {"text": plan.texts.store}
        case TextPlan() as plan:
            sides = {"text": plan.text.store}
        case _:
            sides = {}
    return {name: len(store.tokens) for name, store in sides.items()}


def _largest_batch(measured: Measured, shape: Shape, number: int, free: int) -> int:
    """The largest power of two of tokens in a batch whose step fits, by proportion; 0 for none."""
    batch = measured.step_bytes[number] - measured.state_bytes
    room = MEMORY_FRACTION * free - 2 * measured.state_bytes
    tokens = room * shape.positions / max(1, batch)
    return 2 ** int(math.log2(tokens)) if tokens >= 1 else 0


def _advice(config: ConfigDict, shape: Shape, tokens: int) -> str:
    """Advice if the memory is too small for a shape, but enough for this number of tokens."""
    multiple = 1 if config.task == "language_model" else config.data.batch_multiple
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


def _faster(model: ConfigDict) -> str | None:
    """The key that makes a CPU with AMX use it, if it does not."""
    measured = model.architecture == "transformer"
    if not measured or model.matmul_dtype or model.dtype == "bfloat16":
        return None
    return "config.model.matmul_dtype=bfloat16"


def _evaluations(measured: Measured, config: ConfigDict, epoch_length: int) -> int:
    return math.ceil(measured.steps / (config.train.evaluate_every or epoch_length))


def _disk(
    measured: Measured, config: ConfigDict, epoch_length: int, tokens: int, folder: Path
) -> dict[str, Any]:
    keep = max(config.train.keep_last, config.evaluate.average_last_n)
    # The last `keep`, as many up to the best one, and the one that is being written.
    most = 1 + min(2 * keep, _evaluations(measured, config, epoch_length))
    place = next(path for path in (folder, *folder.parents) if path.is_dir())
    return {
        "checkpoint": measured.state_bytes,
        "checkpoints": most,
        "run": most * measured.state_bytes,
        "cache": TOKEN_BYTES * tokens,
        "free": shutil.disk_usage(place).free,
    }


def _time(measured: Measured, config: ConfigDict, shapes: list[Shape]) -> dict[str, Any]:
    steps, seconds = measured.steps, measured.step_seconds
    epoch_length = sum(shape.batches for shape in shapes)
    evaluations = _evaluations(measured, config, epoch_length)
    evaluated = evaluations * measured.evaluation_seconds
    fastest, slowest = (mean_seconds(shapes, seconds, choose) for choose in (min, max))
    limit = config.train.minutes * 60 or math.inf
    return {
        "steps": steps,
        "epochs": steps / epoch_length,
        "ending": measured.ending,
        "patience": config.train.patience,
        "minutes": config.train.minutes,
        "seconds_per_step": mean_seconds(shapes, seconds),
        "compile": measured.compile_seconds,
        "evaluation": measured.evaluation_seconds,
        "evaluations": evaluations,
        # Translations of a trained model are shorter than those of the evaluation here.
        "least": min(limit, steps * fastest + measured.compile_seconds),
        "most": min(limit, steps * slowest + measured.compile_seconds + evaluated),
    }
