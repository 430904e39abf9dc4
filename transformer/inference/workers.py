"""Batches that are searched at the same time, one per core."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from transformer.inference.base import Variables
from transformer.inference.devices import devices_of

MIN_ROWS, MAX_ROWS = 4, 32  # sentences of a batch on a CPU: fewer or more take longer each

Item = TypeVar("Item")
Result = TypeVar("Result")


def share(variables: Variables, most: int) -> tuple[int, int]:
    """Returns how many batches are best searched at the same time, and the sentences of each.

    A step of a search has few rows, and many operations that XLA does not divide over cores: on two
    cores, two searches take hardly longer than one; and what they write should fit into a cache. An
    accelerator has a single queue, and programs of several devices must start in the same order on
    each of them, so there it is one batch.

    Args:
      most: sentences of all batches together.
    """
    devices = devices_of(variables)
    if len(devices) > 1 or devices.pop().platform != "cpu":
        return 1, most
    workers = max(1, min(len(os.sched_getaffinity(0)), most // MIN_ROWS))
    return workers, max(1, min(most // workers, MAX_ROWS))


def each(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yields the results for all items, in their order, computed by `workers` threads."""
    items = list(items)
    if min(workers, len(items)) < 2:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
