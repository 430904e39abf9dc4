"""A function over many items, on all cores if they are many."""

import collections
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

ALONE = 5  # items that this process does before it starts others, which takes a second
MAX_PROCESSES = 16


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], processes: int | None = None
) -> Iterator[Result]:
    """Yields the result of each item, in their order, whatever the number of processes.

    Few items are ahead of the one that is yielded, so that little memory is taken. If a process
    ends early, such as one killed for its memory, this one does the rest.

    Args:
      function: pure, and one that can be pickled.
      processes: by default as many as there are cores.
    """
    items = iter(items)
    yield from map(function, itertools.islice(items, ALONE))
    processes = min(os.cpu_count() or 1, MAX_PROCESSES) if processes is None else processes
    first = next(items, None)
    if first is None:
        return
    items = itertools.chain([first], items)
    if processes == 1:
        yield from map(function, items)
        return
    # Not forked: a thread of jax may hold a lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_follow_parent)
    try:
        waiting: collections.deque[tuple[Item, Future[Result] | None]] = collections.deque()
        for item in items:
            waiting.append((item, _submit(pool, function, item)))
            if len(waiting) > 2 * processes:
                yield _result(function, *waiting.popleft())
        while waiting:
            yield _result(function, *waiting.popleft())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, function: Callable[[Item], Result], item: Item
) -> Future[Result] | None:
    try:
        return pool.submit(function, item)
    except BrokenProcessPool:
        return None


def _result(
    function: Callable[[Item], Result], item: Item, future: Future[Result] | None
) -> Result:
    try:
        return function(item) if future is None else future.result()
    except BrokenProcessPool:
        return function(item)


def _follow_parent() -> None:
    """Leaves Ctrl-C to the parent, and ends with it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only started processes call this"

    def follow():
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
