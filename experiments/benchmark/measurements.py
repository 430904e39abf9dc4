"""Measures training on a workload.

Peers use our model dimensions, and the same batches as our system.
"""

import copy
import dataclasses
import importlib.util
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.config import assign, default_config, flatten
from transformer.config.keys import having
from transformer.data.tokenizer import PAD_ID
from transformer.errors import UserError
from transformer.files import write_arrays
from transformer.inference.translator import Translator
from transformer.model.layers import DropoutRates
from transformer.tasks.base import Task
from ..process import environment
from .peers import PEERS
from .summary import MATMUL, STEP, column, training_numbers
from .turns import MeasuredSystem, rotate
from .workloads import Workload, make_task, shapes_of

logger = logging.getLogger(__name__)

OURS = f"{__package__}.workloads"
# For a CPU and an accelerator: FLOPs and maximum number of steps per round, and matmul widths.
# Tiny models run far below an accelerator's peak: 400 of their steps take several seconds.
ROUND_FLOPS, MAX_STEPS = (1.2e11, 2e14), (20, 400)
SIZES, PRODUCTS = (2048, 8192), 4
INSTALL = "pip install -r requirements-peers.txt"
POSITIONS, NORM_POSITIONS = ("sinusoidal", "split"), ("post", "pre")
TORCH_DEVICES = {"cpu": "cpu", "gpu": "cuda"}  # PyTorch device for each JAX platform


class Setting(NamedTuple):
    """The settings of a measurement."""

    rounds: int = 5  # in each round, all systems are measured in turn
    peers: tuple[str, ...] = ()  # names of peers to measure on the same input


def matmul(workload: Workload) -> MeasuredSystem:
    """Returns the system that multiplies large matrices, a reference for all other systems."""
    size = SIZES[jax.default_backend() != "cpu"]
    order = {"size": size, "products": PRODUCTS, "dtype": workload.config.model.dtype}
    return MeasuredSystem(f"{OURS}.multiply", order)


def measure_training(workload: Workload, setting: Setting) -> dict[str, Any]:
    """Measures the training step, the full training loop and the peers on the same batches."""
    task = make_task(workload)
    shapes = shapes_of(task.plan)
    batches = sum(shape.batches for shape in shapes)
    positions = sum(shape.batches * shape.positions for shape in shapes) / batches
    flops = task.predictor.model.flops_per_token(task.predictor.param_shapes()) * positions
    accelerated = jax.default_backend() != "cpu"
    steps = max(1, min(MAX_STEPS[accelerated], round(ROUND_FLOPS[accelerated] / flops)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = {**workload.order(), "steps": steps}
        systems = {
            MATMUL: matmul(workload),
            STEP: MeasuredSystem(f"{OURS}.step", {**ours, "folder": name}),
            "loop": MeasuredSystem(f"{OURS}.loop", {**ours, "folder": str(folder / "loop")}),
            **training_peers(setting.peers, workload, task, steps, setting.rounds, folder),
        }
        records = rotate(systems, setting.rounds, folder)
    tokens, places = (column(records, STEP, key).sum() for key in ("tokens", "positions"))
    return {
        "shapes": [[shape.rows, shape.length, shape.batches] for shape in shapes],
        "steps_per_round": steps,
        "flops_per_step": flops,
        **{key: records[STEP][key] for key in ("parameters", "program_bytes", "device_bytes")},
        "target_padding_fraction": 1 - tokens / places,
        "numbers": training_numbers(records),
        "systems": records,
    }


def measure(parts: Mapping[str, Workload], setting: Setting) -> dict[str, Any]:
    """Measures the training of workloads, keyed by part; returns the content of benchmark.json."""
    results = {}
    for name, workload in parts.items():
        logger.info(f"measuring: {name}")
        results[name] = measure_training(workload, setting)
    return {"environment": environment.describe(), "parts": results}


# -- peers


def choose_peers(text: str | None) -> list[str]:
    """Returns the peers in a comma-separated flag; None means all installed default peers."""
    missing = {
        name: [package for package in peer.packages if not importlib.util.find_spec(package)]
        for name, peer in PEERS.items()
    }
    if text is None:
        return [name for name, peer in PEERS.items() if peer.by_default and not missing[name]]
    names = text.split(",") if text else []
    for name in names:
        if name not in PEERS:
            raise UserError(f"--peers has {name!r}: choose from {','.join(PEERS)}")
        for package in missing[name]:
            raise UserError(f"--peers={name} needs {package}: {INSTALL}")
    return names


def comparable(names: Sequence[str], task: Task) -> list[str]:
    """Returns the peers of other libraries, or logs why they cannot be compared and returns []."""
    names = [name for name in names if not PEERS[name].keys]
    difference = _describe_difference(task)
    if names and difference:
        logger.info(f"without {', '.join(names)}: {difference}")
    return [] if difference else names


def _describe_difference(task: Task) -> str:
    """Returns the reason why the peers cannot run the same computation as a task, or ''."""
    config = task.config
    if type(task.predictor) is not Translator:
        return f"config.task={config.task} cannot be compared: peers translate"
    paper, values = flatten(default_config()), flatten(config)
    same = {key for key in paper if key.startswith("model.")} | {*having("work")}
    needed: dict[str, tuple] = {key: (paper[key],) for key in sorted(same - {*having("peers")})}
    needed |= {"model.positions": POSITIONS, "model.norm_position": NORM_POSITIONS}
    needed |= {"optimizer.name": ("adam", "adamw")}
    needed |= {"model.dropout_embedding": (config.model.dropout_residual,)}
    needed |= {"model.dtype": ("float32", "bfloat16")}
    values["the device"] = jax.default_backend()
    needed["the device"] = tuple(TORCH_DEVICES)
    for key, choices in needed.items():
        if values[key] not in choices:
            wanted = " or ".join(map(repr, choices))
            return f"{key}={values[key]!r} cannot be compared: it must be {wanted}"
    return ""


def training_peers(
    names: Sequence[str], workload: Workload, task: Task, steps: int, rounds: int, folder: Path
) -> dict[str, MeasuredSystem]:
    """Returns the training peers, for which the first batches of the task are saved in `folder`."""
    systems, config, ours = {}, workload.config, having("peers")
    for name in (name for name in names if PEERS[name].keys):  # our step with config overrides
        changed = copy.deepcopy(config)
        for key, value in PEERS[name].keys.items():
            assign(changed, key, value)
        order = {**workload._replace(config=changed).order(), "steps": steps}
        order["folder"] = str(folder / name)
        systems |= _start_systems([name], order)
    if not (names := comparable(names, task)):
        return systems
    path = folder / "batches.npz"
    batches = [task.plan[i] for i in range(steps * rounds)]
    write_arrays(path, _batch_arrays(batches))
    order = {
        "model": dataclasses.asdict(task.predictor.model.config),
        "rates": {name: config.model[f"dropout_{name}"] for name in DropoutRates._fields},
        "optimizer": {k: v for k, v in config.optimizer.items() if f"optimizer.{k}" in ours},
        "label_smoothing": config.train.label_smoothing,
        "device": TORCH_DEVICES[jax.default_backend()],
        "bfloat16": config.model.dtype == "bfloat16",
        **{"batches": str(path), "arrays": batches[0]._fields, "steps": steps},
    }
    return systems | _start_systems(names, order)


def _start_systems(names: Sequence[str], order: Mapping[str, Any]) -> dict[str, MeasuredSystem]:
    """Returns the peers as systems to measure, with their own options added to the order."""
    return {
        name: MeasuredSystem(PEERS[name].function, {**order, **PEERS[name].options})
        for name in names
    }


def _batch_arrays(batches: Sequence[Any]) -> dict[str, np.ndarray]:
    """Returns arrays keyed by name, without all-padding rows, which PyTorch's attention rejects."""
    arrays = {}
    for i, batch in enumerate(batches):
        rows = (batch.labels != PAD_ID).any(axis=1)
        arrays |= {f"{name}_{i}": x[rows] for name, x in batch._asdict().items()}
    return arrays
