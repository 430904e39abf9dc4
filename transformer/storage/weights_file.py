"""The weights that a run uses, in one file: `weights.safetensors`.

Inference reads nothing else, however many checkpoints the weights are the mean of. Names are those
of the parameters, such as "encoder_layers_0/feed_forward/inner/kernel", and kernels are
[inputs, features]. Many programs can read this format; it holds no code.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from transformer.storage.checkpoint_files import DamageError, check_leaves, named_leaves
from transformer.storage.files import write_bytes
from transformer.storage.reading import OddFileError, read_file

WEIGHTS = "weights.safetensors"


def write(folder: Path, weights: Any) -> str:
    """Writes a tree of weights into a run's folder; returns the file's digest."""
    data = safetensors.numpy.save(
        {name: np.asarray(x) for name, x in named_leaves(weights).items()}
    )
    write_bytes(folder / WEIGHTS, data)
    return hashlib.sha256(data).hexdigest()


def is_written(folder: Path, digest: str, size: int) -> bool:
    """Whether the file is there and undamaged."""
    path = folder / WEIGHTS
    if not path.is_file() or path.stat().st_size != size:
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == digest


def read(folder: Path, digest: str, size: int) -> dict[str, np.ndarray]:
    """Returns the weights by name.

    Args:
      digest: that of `write`.
      size: of the file, in bytes.

    Raises:
      DamageError: the file is missing or damaged, or the weights are not finite.
    """
    path = folder / WEIGHTS
    try:
        data = read_file(path, size)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DamageError(f"{WEIGHTS} is missing") from None
    except OddFileError as error:
        raise DamageError(f"{WEIGHTS} is not what was written: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamageError(f"{WEIGHTS} is not what was written")
    try:
        arrays = safetensors.numpy.load(data)
    except SafetensorError as error:  # of a file from elsewhere, with its own digest
        raise DamageError(f"{WEIGHTS} cannot be read ({error})") from None
    for name, x in arrays.items():
        if not np.isfinite(x).all():
            raise DamageError(f"{name} is not finite")
    return arrays


def check_model(arrays: Mapping[str, np.ndarray], template: Any, path: Path) -> None:
    """Raises UserError if weights by name are not those of the model.

    Args:
      template: shapes and dtypes of the model's.
    """
    found = {name: {"shape": x.shape, "dtype": str(x.dtype)} for name, x in arrays.items()}
    check_leaves(found, named_leaves(template), f"the weights in {path}")
