"""What the peers are asked: the sizes and numbers of our model, and its batches or sentences."""

import copy
import dataclasses
import importlib.util
import logging
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.bridges.ctranslate2 import make_spec
from transformer.config import assign, default_config, flatten
from transformer.config.keys import having
from transformer.data.tokenizer import PAD_ID
from transformer.errors import UserError
from transformer.files import write_arrays
from transformer.inference.translator import Translator
from transformer.model.layers import DropoutRates
from transformer.tasks.base import Task
from .peers import PEERS
from .turns import MeasuredSystem
from .workloads import Workload

logger = logging.getLogger(__name__)

INSTALL = "pip install -r requirements-peers.txt"
POSITIONS, NORM_POSITIONS = ("sinusoidal", "split"), ("post", "pre")
TORCH_DEVICES = {"cpu": "cpu", "gpu": "cuda"}  # by the platform of JAX


def choose(text: str | None) -> list[str]:
    """Returns the peers of a flag, names with commas between; those installed if it is None."""
    missing = {
        name: [package for package in peer.packages if not importlib.util.find_spec(package)]
        for name, peer in PEERS.items()
    }
    if text is None:
        names = [name for name, peer in PEERS.items() if peer.by_default and not missing[name]]
        if not names:
            logger.info(f"no peers are measured; to install them: {INSTALL}")
        return names
    names = text.split(",") if text else []
    for name in names:
        if name not in PEERS:
            raise UserError(f"--peers has {name!r}: choose from {','.join(PEERS)}")
        for package in missing[name]:
            raise UserError(f"--peers={name} needs {package}: {INSTALL}")
    return names


def comparable(names: Sequence[str], kind: str, task: Task) -> list[str]:
    """Returns the peers of a kind, if they compute what a config does; if not, a line says why."""
    names = [name for name in names if PEERS[name].kind == kind and not PEERS[name].keys]
    difference = _describe_difference(task, kind == "training")
    if names and difference:
        logger.info(f"without {', '.join(names)}: {difference}")
    return [] if difference else names


def _describe_difference(task: Task, trains: bool) -> str:
    """What the peers do not compute as a config does, or ''."""
    config = task.config
    if type(task.predictor) is not Translator:
        return f"config.task={config.task} cannot be compared: peers translate"
    paper, values = flatten(default_config()), flatten(config)
    same = {key for key in paper if key.startswith("model.")} - {*having("peers")}
    dropouts = {f"model.dropout_{name}" for name in DropoutRates._fields}
    same = same | {*having("work")} - {*having("peers")} if trains else same - dropouts
    needed: dict[str, tuple] = {key: (paper[key],) for key in sorted(same)}
    needed |= {"model.positions": POSITIONS, "model.norm_position": NORM_POSITIONS}
    if trains:
        needed |= {"optimizer.name": ("adam", "adamw")}
        needed |= {"model.dropout_embedding": (config.model.dropout_residual,)}
        needed |= {"model.dtype": ("float32", "bfloat16")}
    values["the device"] = jax.default_backend()
    needed["the device"] = tuple(TORCH_DEVICES) if trains else ("cpu",)
    for key, choices in needed.items():
        if values[key] not in choices:
            wanted = " or ".join(map(repr, choices))
            return f"{key}={values[key]!r} cannot be compared: it must be {wanted}"
    return ""


def training_peers(
    names: Sequence[str], workload: Workload, task: Task, steps: int, rounds: int, folder: Path
) -> dict[str, MeasuredSystem]:
    """Returns the systems of peers that train on a task's first batches, written into a folder."""
    systems, config, ours = {}, workload.config, having("peers")
    for name in (name for name in names if PEERS[name].keys):  # our step with other keys
        changed = copy.deepcopy(config)
        for key, value in PEERS[name].keys.items():
            assign(changed, key, value)
        order = {**workload._replace(config=changed).order(), "steps": steps}
        order["folder"] = str(folder / name)
        systems |= _start_systems([name], order)
    if not (names := comparable(names, "training", task)):
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


def decoding_peers(
    names: Sequence[str], workload: Workload, task: Any, lines: Sequence[str], folder: Path
) -> dict[str, MeasuredSystem]:
    """Returns the systems of peers that translate lines with our weights, written into a folder.

    Each of their translations has as many tokens as ours may have on average.
    """
    config, decode = workload.config, workload.config.decode
    if not (names := comparable(names, "decoding", task)):
        return {}
    predictor, params = task.predictor, task.draw_params(jax.random.key(config.seed))
    model = predictor.model.config
    sizes = model.source_vocab_size, model.target_vocab_size
    numbers = ([str(i) for i in range(size)] for size in sizes)  # its tokens are ours
    make_spec(model, params, *numbers).save(str(folder))
    sentences = predictor.source_tokenizer.encode(lines)
    limits = (int(decode.max_ratio * (len(ids) + 1) + decode.max_extra) for ids in sentences)
    order = {
        **{"folder": str(folder), "sentences": sentences},
        "tokens": round(statistics.mean(min(each, predictor.max_length) for each in limits)),
        **{"beam": decode.beam_size, "batch": decode.batch_size},
    }
    return _start_systems(names, order)


def _start_systems(names: Sequence[str], order: Mapping[str, Any]) -> dict[str, MeasuredSystem]:
    """The systems of peers, which may fail, that get this order with their own options."""
    return {
        name: MeasuredSystem(PEERS[name].function, {**order, **PEERS[name].options}, optional=True)
        for name in names
    }


def _batch_arrays(batches: Sequence[Any]) -> dict[str, np.ndarray]:
    """The arrays of batches by name; without rows of padding alone, which attention cannot read."""
    arrays = {}
    for i, batch in enumerate(batches):
        rows = (batch.labels != PAD_ID).any(axis=1)
        arrays |= {f"{name}_{i}": x[rows] for name, x in batch._asdict().items()}
    return arrays
