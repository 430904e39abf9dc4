"""The files of a classifier's run that keep its classes and their weights in the loss."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from transformer.errors import UserError
from transformer.storage.files import write_json
from transformer.storage.reading import Each, read_json

LABELS, WEIGHTS = "labels.json", "class_weights.json"
RESTORE = "restore the file that was written with the checkpoints"


def save(folder: Path, labels: Sequence[str], weights: Float[np.ndarray, "C"]) -> None:
    """Writes the names of the classes, in the order of their numbers, and their weights."""
    write_json(folder / LABELS, labels)
    write_json(folder / WEIGHTS, dict(zip(labels, weights.tolist(), strict=True)))


def load_labels(folder: Path) -> tuple[str, ...]:
    """Returns the names of the classes that `save` wrote."""
    path = folder / LABELS
    labels = read_json(path, [str], RESTORE)
    if len(set(labels)) < max(2, len(labels)):
        raise UserError(f"{path} does not list two classes or more by name: restore the original")
    return tuple(labels)


def load_weights(folder: Path, labels: Sequence[str]) -> Float[np.ndarray, "C"]:
    """Returns the weight of each class in the loss that a run was trained with."""
    path = folder / WEIGHTS
    weights = read_json(path, Each(float), RESTORE)
    if tuple(weights) != tuple(labels):
        raise UserError(f"{path} is not of the classes of {LABELS}: {RESTORE}")
    return np.array(list(weights.values()), np.float32)
