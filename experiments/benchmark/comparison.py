"""What the peers are asked: the sizes and numbers of our model, and its batches as a file."""

import copy
import dataclasses
import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.benchmark.peers import PEERS
from experiments.benchmark.rotation import System
from experiments.benchmark.workloads import Workload
from experiments.studies.peers import check
from transformer.data.parallel.batches import Batch
from transformer.data.tokenizer import PAD_ID
from transformer.errors import UserError
from transformer.keys import assign
from transformer.model.layers import DropoutRates
from transformer.storage.files import write_arrays
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask

logger = logging.getLogger(__name__)

INSTALL = "pip install -r requirements-peers.txt"


def installed() -> list[str]:
    """Returns the peers that are measured by default, if their packages are there."""
    there = {name for peer in PEERS.values() for name in peer.packages}
    there = {name for name in there if importlib.util.find_spec(name)}
    return [
        name for name, peer in PEERS.items() if peer.by_default and there.issuperset(peer.packages)
    ]


def choose(text: str | None) -> list[str]:
    """Returns the peers of a flag, names with commas between; those installed if it is None.

    Raises:
      UserError: a name is unknown, or a package of it is missing.
    """
    if text is None:
        if not (there := installed()):
            logger.info(f"no peers are measured; to install them: {INSTALL}")
        return there
    names = text.split(",") if text else []
    for name in names:
        if name not in PEERS:
            raise UserError(f"--peers has {name!r}: choose from {','.join(PEERS)}")
        for package in PEERS[name].packages:
            if importlib.util.find_spec(package) is None:
                raise UserError(f"--peers={name} needs {package}: {INSTALL}")
    return names


def check_comparable(workload: Workload, task: Task) -> None:
    """Raises UserError if the peers do not compute what this workload does."""
    config = workload.config
    if not isinstance(task, TranslationTask):
        raise UserError(f"config.task={config.task} cannot be compared: peers are translators")
    check(task.predictor.model.config)
    model, optimizer = config.model, config.optimizer
    wanted = {
        "the device": (jax.default_backend(), "cpu"),
        "model.dropout_embedding": (model.dropout_embedding, model.dropout_residual),
        "model.dropout_layer": (model.dropout_layer, 0.0),
        "model.dropout_word": (model.dropout_word, 0.0),
        "model.dtype": (model.dtype, "float32"),
        "model.matmul_dtype": (model.matmul_dtype or "float32", "float32"),
        "optimizer.name": (optimizer.name, "adamw" if optimizer.name == "adamw" else "adam"),
        "optimizer.gradient_accumulation_steps": (optimizer.gradient_accumulation_steps, 1),
        "train.r_drop": (config.train.r_drop, 0.0),
        "train.freeze": (config.train.freeze, ""),
    }
    for key, (value, needed) in wanted.items():
        if value != needed:
            raise UserError(f"{key}={value!r} cannot be compared: it must be {needed!r}")


def peer_systems(
    names: Sequence[str], workload: Workload, task: Any, steps: int, rounds: int, folder: Path
) -> dict[str, System]:
    """Returns the systems of some peers, which train on the first batches of a task.

    If others do not compute what the workload does, they are left out, and a line says why.

    Args:
      steps: of a round.
      folder: gets the file of batches.
    """
    own = [name for name in names if PEERS[name].keys]
    systems = {name: _own_system(name, workload, steps, folder) for name in own}
    names = [name for name in names if name not in own]
    if not names:
        return systems
    try:
        check_comparable(workload, task)
    except UserError as error:
        logger.info(f"without {', '.join(names)}: {error}")
        return systems
    path, config = folder / "batches.npz", workload.config
    write_arrays(path, _arrays([task.plan[i] for i in range(steps * rounds)]))
    rates = {name: config.model[f"dropout_{name}"] for name in DropoutRates._fields}
    keys = ("name", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm")
    order = {
        "model": dataclasses.asdict(task.predictor.model.config),
        "rates": rates,
        "optimizer": {key: config.optimizer[key] for key in keys},
        "label_smoothing": config.train.label_smoothing,
        "batches": str(path),
        "arrays": Batch._fields,
        "steps": steps,
    }
    return systems | {
        name: System(
            PEERS[name].function, order | {"keep_memory": PEERS[name].keeps_memory}, optional=True
        )
        for name in names
    }


def _own_system(name: str, workload: Workload, steps: int, folder: Path) -> System:
    """Our step with other keys."""
    config = copy.deepcopy(workload.config)
    for key, value in PEERS[name].keys.items():
        assign(config, key, value)
    order = {**workload._replace(config=config).order(), "steps": steps}
    return System(PEERS[name].function, {**order, "folder": str(folder / name)}, optional=True)


def _arrays(batches: Sequence[Batch]) -> dict[str, np.ndarray]:
    """The arrays of batches by name; without rows of padding alone, which attention cannot read."""
    found = {}
    for i, batch in enumerate(batches):
        rows = (np.asarray(batch.source) != PAD_ID).any(axis=1)
        found |= {f"{name}_{i}": np.asarray(x)[rows] for name, x in batch._asdict().items()}
    return found
