"""The kinds of measurement: training, decoding and start, each of one workload."""

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from configs import base
from experiments.benchmark import start
from experiments.benchmark.comparison import peer_systems
from experiments.benchmark.numbers import MATMUL, STEP, column, timed_numbers, training_numbers
from experiments.benchmark.rotation import System, rotate
from experiments.benchmark.workloads import Workload, make_task
from experiments.planning.measure import shapes_of
from transformer.errors import UserError
from transformer.keys import flatten
from transformer.tasks.base import Task

logger = logging.getLogger(__name__)

OURS = "experiments.benchmark.ours"
# Operations of a round's steps, the most steps, and the width of the products, on a CPU and
# on an accelerator. Tiny models are far from its peak, and 400 steps of them take some seconds.
ROUND_FLOPS, MAX_STEPS = (1.2e11, 2e14), (20, 400)
SIZES, PRODUCTS = (2048, 8192), 4
SENTENCES = 128
# Keys that the line of a workload names, and others than those of the model that change its work.
NAMED = [
    f"model.{name}"
    for name in ("num_encoder_layers", "num_decoder_layers", "d_model", "positions", "dtype")
]
COUNTED = (
    "optimizer.clip_norm",
    "optimizer.gradient_accumulation_steps",
    "train.ema_decay",
    "train.r_drop",
)


class Setting(NamedTuple):
    """How to measure.

    Attributes:
      rounds: in which all systems measure in turn.
      peers: names of other systems that train on the same batches.
      trace: the folder of profiler traces; None for none.
    """

    rounds: int = 5
    peers: tuple[str, ...] = ()
    trace: Path | None = None


def matmul(workload: Workload) -> System:
    """Returns the system that all others are related to."""
    size = SIZES[jax.default_backend() != "cpu"]
    order = {"size": size, "products": PRODUCTS, "dtype": workload.config.model.dtype}
    return System(f"{OURS}.multiply", order)


def measure_training(workload: Workload, setting: Setting) -> dict[str, Any]:
    """Returns what the step, the whole loop and the peers take for the same batches."""
    task = make_task(workload)
    shapes = shapes_of(task.plan)
    batches = sum(shape.batches for shape in shapes)
    positions = sum(shape.batches * shape.positions for shape in shapes) / batches
    flops = task.predictor.model.flops_per_token(task.predictor.param_shapes()) * positions
    steps = _steps(flops)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = {**workload.order(), "steps": steps, "programs": str(folder / "programs")}
        trace = str(setting.trace.absolute()) if setting.trace else None
        systems = {
            MATMUL: matmul(workload),
            STEP: System(f"{OURS}.step", {**ours, "folder": name, "trace": trace}),
            "loop": System(f"{OURS}.loop", {**ours, "folder": str(folder / "loop")}),
            **peer_systems(setting.peers, workload, task, steps, setting.rounds, folder),
        }
        found = rotate(systems, setting.rounds, folder)
    tokens, places = (column(found, STEP, key).sum() for key in ("tokens", "positions"))
    return {
        "workload": describe(workload, task),
        "shapes": [[shape.rows, shape.length, shape.batches] for shape in shapes],
        "steps_per_round": steps,
        "flops_per_step": flops,
        **{key: found[STEP][key] for key in ("parameters", "program_bytes", "device_bytes")},
        "target_padding_fraction": 1 - tokens / places,
        "numbers": training_numbers(found),
        "errors": {name: own["error"] for name, own in found.items() if "error" in own},
        "systems": found,
    }


def _steps(flops: float) -> int:
    """The steps of a round, given the operations of one."""
    accelerated = jax.default_backend() != "cpu"
    return max(1, min(MAX_STEPS[accelerated], round(ROUND_FLOPS[accelerated] / flops)))


def measure_decoding(workload: Workload, setting: Setting) -> dict[str, Any]:
    """Returns what translating takes with the weights of the seed.

    Raises:
      UserError: the task does not translate.
    """
    if workload.config.task != "translation":
        raise UserError(f"decoding is of translators: config.task={workload.config.task}")
    task = make_task(workload)
    order = {**workload.order(), "sentences": SENTENCES}
    systems = {MATMUL: matmul(workload), "decoding": System(f"{OURS}.decode", order)}
    with tempfile.TemporaryDirectory() as name:
        found = rotate(systems, setting.rounds, Path(name))
    seconds = column(found, "decoding", "seconds")
    sentences = int(column(found, "decoding", "sentences")[0])
    numbers = timed_numbers(seconds, column(found, MATMUL, "flops_per_second"))
    return {
        "workload": f"{describe(workload, task)}, beam {found['decoding']['beam']}",
        "sentences": sentences,
        "sentences_per_second": sentences / numbers["seconds"]["median"],
        "first_seconds": found["decoding"]["first_seconds"],
        "numbers": {"decoding": numbers},
        "systems": found,
    }


def measure_start(workload: Workload, setting: Setting) -> dict[str, Any]:
    """Returns the seconds to the second step, with and without compiled programs from before."""
    task = make_task(workload)  # whose text is then in the cache
    reference = matmul(workload)
    found = start.measure(workload.config, reference)
    numbers = {name: timed_numbers(*own) for name, own in found.items()}
    return {"workload": describe(workload, task), "numbers": numbers, "systems": found}


def describe(workload: Workload, task: Task) -> str:
    """Returns a line that is the same for the same work."""
    model, config = workload.config.model, workload.config
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers} layers of {model.d_model}"
    parameters = sum(x.size for x in jax.tree.leaves(task.predictor.param_shapes()))
    steps = f"{model.positions}, {model.dtype}, {parameters:,} parameters, {config.optimizer.name}"
    changed = "".join(f", {key}={value}" for key, value in _changes(config).items())
    if workload.shape:
        rows, length, shortest = workload.shape
        text = f"{rows} x {length} random tokens, sentences of {shortest} to {length}"
    else:
        shapes = sorted(shapes_of(task.plan), key=lambda shape: shape.length)
        sizes = ", ".join(f"{shape.rows} x {shape.length}" for shape in shapes)
        text = f"own text in batches of {sizes} tokens"
    return f"{config.name}: {layers}, {steps}{changed}; {text}"


def _changes(config: ConfigDict) -> dict[str, Any]:
    """The keys that change what is computed, with other values than the paper's."""
    values, usual = flatten(config), flatten(base.get_config())
    keys = [key for key in values if key.startswith("model.") and key not in NAMED]
    return {
        key.partition(".")[2]: values[key]
        for key in sorted((*keys, *COUNTED))
        if values[key] != usual[key]
    }


KINDS: Mapping[str, Callable[[Workload, Setting], dict[str, Any]]] = {
    "training": measure_training,
    "decoding": measure_decoding,
    "start": measure_start,
}


def kinds_of(config: Any) -> list[str]:
    """Returns the kinds that a config has."""
    return [kind for kind in KINDS if kind != "decoding" or config.task == "translation"]
