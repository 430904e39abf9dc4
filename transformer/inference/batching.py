"""Batches of texts for inference: static shapes, devices, and the memory of a search."""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.errors import RunError

MIN_LENGTH = 16  # tokens; static lengths are this times powers of two
MAX_NUMBERS = 2**26  # float32 outputs of a batch: 256 MiB
MIN_ROWS, MAX_ROWS = 4, 32  # sentences of a batch on a CPU; outside this range, each takes longer
GIB = 2**30

Item = TypeVar("Item")
Result = TypeVar("Result")


def length_groups(
    indices: Sequence[int], lengths: Sequence[int], size: int, longest: int
) -> Iterator[tuple[list[int], int]]:
    """Yields groups of at most `size` texts, and the static length that fits each group.

    Args:
      indices: numbers of the texts to group, from zero.
      lengths: number of tokens of every text.
      longest: the maximum static length, except for longer texts.
    """
    by_length: dict[int, list[int]] = {}
    for i in sorted(indices, key=lambda i: lengths[i]):
        by_length.setdefault(static_length(lengths[i], longest), []).append(i)
    for length, members in by_length.items():
        for start in range(0, len(members), size):
            yield members[start : start + size], length


def static_lengths(longest: int) -> Iterator[int]:
    """Yields the static lengths for texts of up to `longest` tokens, in ascending order."""
    length = MIN_LENGTH
    while length < longest:
        yield length
        length *= 2
    yield longest


def static_length(length: int, longest: int) -> int:
    """Returns the smallest static length of a text of `length` tokens; see `static_lengths`."""
    return next(static for static in static_lengths(max(longest, length)) if static >= length)


def static_rows(count: int, most: int) -> int:
    """Returns the number of rows in batches for `count` texts: a power of two, or `most`.

    So a single text needs one row instead of a whole batch, and there are few shapes.
    """
    return min(1 << max(0, count - 1).bit_length(), most)


def rows_at_once(size: int, numbers: int) -> int:
    """Returns the row count after splitting a batch into equal parts of up to MAX_NUMBERS.

    Args:
      size: number of rows of the whole batch.
      numbers: output numbers per row. A single row may have more than MAX_NUMBERS.
    """
    return math.ceil(size / math.ceil(size * numbers / MAX_NUMBERS))


def compile_ahead(run: Callable[[int], object], longest: int, first: int = 1) -> None:
    """Calls `run` with each static length from `first` on, in ascending order.

    It stops at a length that is too large for the device; a text of that length raises an error.
    """
    with contextlib.suppress(RunError):
        for length in static_lengths(longest):
            if length >= first:
                run(length)


# -- devices


def devices_of(variables: Mapping[str, Any]) -> set[Any]:
    """Returns the devices that programs with these variables run on."""
    leaves = (leaf for leaf in jax.tree.leaves(variables) if isinstance(leaf, jax.Array))
    return {device for leaf in leaves for device in leaf.devices()} or {jax.local_devices()[0]}


def on_all_devices(tree: Any) -> Any:
    """Returns the arrays, replicated on every device if there are several."""
    devices = jax.local_devices()
    return tree if len(devices) == 1 else jax.device_put(tree, _over(devices, PartitionSpec()))


def divide(variables: Mapping[str, Any], batch: Any) -> Any:
    """Returns a batch with its rows divided among the devices that each hold all variables.

    The batch stays undivided if there is one device, or if the number of devices does not divide
    the rows: then every device computes all rows.
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
    return jax.device_put(batch, _over(devices, PartitionSpec("data")))


def _over(devices: Sequence[Any], spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("data",)), spec)


def by_rows(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a function of (variables, batch) that divides the batch among devices."""
    return lambda variables, batch: program(variables, divide(variables, batch))


# -- concurrent searches


def share(variables: Mapping[str, Any], most: int) -> tuple[int, int]:
    """Returns the best number of concurrent searches, and the number of sentences in each.

    A step of a search has few rows, and many operations that XLA does not parallelise: on two
    cores, two searches hardly take longer than one; and their caches should fit into that of the
    CPU. An accelerator has a single queue, and programs on several devices must start in the same
    order on each of them, so there it is one batch.

    Args:
      most: number of sentences in all batches together.
    """
    devices = devices_of(variables)
    if len(devices) > 1 or devices.pop().platform != "cpu":
        return 1, most
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, min(cores or 1, most // MIN_ROWS))  # macOS reports only all cores
    return workers, max(1, min(most // workers, MAX_ROWS))


def each(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yields the results for all items, in order, computed by `workers` threads."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)


def check_search(cache: Any, rows: int, beam_size: int, steps: int, vocab_size: int) -> None:
    """Raises RunError if a search exceeds the device memory, by a lower bound.

    Args:
      cache: the model's cache for all hypotheses; only its shapes are read.
      rows: number of sentences in a search.
      beam_size: hypotheses per sentence.
      steps: maximum tokens of a translation.
    """
    numbers = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    # Memory holds two copies of the cache, logits and log-probabilities, and the unfinished and
    # finished hypotheses with the candidates for both.
    needed = 2 * numbers + rows * beam_size * (8 * vocab_size + 16 * steps)
    if needed > (memory := device_memory()):
        raise RunError(
            f"config.decode.batch_size and config.decode.beam_size={beam_size}: "
            f"{rows} sentences at once need {needed / GIB:,.1f} GiB or more, and this "
            f"device has {memory / GIB:,.1f}: lower one of them"
        )


def device_memory() -> int:
    """Returns the bytes of memory of the first device, or of the machine for a CPU."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
