"""The devices that hold a model, and batches whose rows they divide."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def devices_of(variables: Mapping[str, Any]) -> set[Any]:
    """Returns the devices that programs with these variables run on."""
    leaves = (leaf for leaf in jax.tree.leaves(variables) if isinstance(leaf, jax.Array))
    return {device for leaf in leaves for device in leaf.devices()} or {jax.devices()[0]}


def on_all_devices(tree: Any) -> Any:
    """Returns the arrays, whole on every device if there are several."""
    devices = jax.devices()
    if len(devices) == 1:
        return tree
    return jax.device_put(tree, NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec()))


def divide(variables: Mapping[str, Any], batch: Any) -> Any:
    """Returns a batch with its rows divided among the devices that each hold all variables.

    It is left as it is if there is one device, or if their number does not divide the rows: then
    every device computes all of them.
    """
    shardings = {x.sharding for x in jax.tree.leaves(variables) if isinstance(x, jax.Array)}
    if len(shardings) != 1:
        return batch
    [sharding] = shardings
    if not isinstance(sharding, NamedSharding) or not sharding.is_fully_replicated:
        return batch
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    if len(devices) == 1 or len(jax.tree.leaves(batch)[0]) % len(devices):
        return batch
    return jax.device_put(
        batch, NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))
    )


def by_rows(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns the function of (variables, batch), applied to batches that devices divide."""
    return lambda variables, batch: program(variables, divide(variables, batch))
