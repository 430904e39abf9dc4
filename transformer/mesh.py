"""The device mesh for model and data parallelism, and the sharding of arrays over it."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.errors import UserError

AXES = ("data", "fsdp", "tensor")
# Parameter name pattern -> axis that is sharded over `tensor`: attention heads, feed-forward inner
# features, or the vocabulary (Shoeybi et al. 2019, "Megatron-LM", section 3).
DIVIDED = (
    (r"(query|key|value|inner|gate)/(kernel|bias)$", -1),
    (r"(self|cross)_attention/output/kernel$|outer/kernel$", -2),
    (r"embedding\w*/table$", -2),
)


def mesh_sizes(sizes: str) -> dict[str, int]:
    """Returns the number of devices along each axis that `train.mesh` names, or {} for `auto`.

    Raises:
      UserError: `train.mesh` is neither `auto` nor a list of axis sizes.
    """
    if sizes == "auto":
        return {}
    pairs = re.findall(rf"({'|'.join(AXES)})=([1-9]\d{{0,5}})(?:,|$)", sizes)
    if ",".join(f"{axis}={size}" for axis, size in pairs) != sizes or len(dict(pairs)) < len(pairs):
        raise UserError(
            f"config.train.mesh={sizes} is no mesh: use auto, or sizes of {', '.join(AXES)}, such "
            "as data=4,tensor=2"
        )
    return {axis: int(size) for axis, size in pairs}


def make_mesh(devices: Sequence[Any], sizes: str) -> Mesh:
    """Returns the device mesh for `train.mesh`; by default, `data` uses all remaining devices.

    Raises:
      UserError: the product of the axis sizes is not the number of devices.
    """
    asked = mesh_sizes(sizes)
    others = math.prod(size for axis, size in asked.items() if axis != "data")
    shape = {"data": max(1, len(devices) // others), "fsdp": 1, "tensor": 1} | asked
    if math.prod(shape.values()) != len(devices):
        raise UserError(
            f"config.train.mesh={sizes} does not divide the {len(devices)} devices here: choose "
            f"sizes whose product is {len(devices)}, or auto"
        )
    return Mesh(np.reshape(devices, list(shape.values())), AXES)


def layout(mesh: Mesh, tree: Any, fsdp: bool = True) -> Any:
    """Returns the sharding of each array in a training state, parameter tree or gradient.

    Args:
      fsdp: whether to shard arrays over the axis `fsdp`, instead of replicating them over it.
    """

    def place(path, array) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axes: list[str | None] = [None] * array.ndim

        def divide(by: str, choices: Iterable[int]) -> None:
            size = mesh.shape[by]
            fits = [i for i in choices if axes[i] is None and array.shape[i] % size == 0]
            if fits and size > 1:
                axes[max(fits, key=lambda i: (array.shape[i], i))] = by

        if name.startswith("opt_state/"):  # the names of arrays differ between optimizers
            divide("tensor", range(array.ndim))
        elif axis := next((axis for names, axis in DIVIDED if re.search(names, name)), None):
            divide("tensor", [array.ndim + axis])
        if fsdp:
            divide("fsdp", range(array.ndim))
        return NamedSharding(mesh, PartitionSpec(*axes))

    return jax.tree.map_with_path(place, tree)
