"""The programs of a training, compiled before the batches come that need them."""

import collections
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from transformer import signals

T = TypeVar("T")


class Programs:
    """Compiles a training step for batches of new shapes in other threads.

    Tracing is Python, so one thread traces at a time; half of the processors compile meanwhile.

    Args:
      function: jitted; it keeps its programs, so that calls with these arguments find them.
      arguments: returns its arguments, given a state and a batch.
    """

    def __init__(self, function: Callable, arguments: Callable[[Any, Any], tuple]):
        self._function, self._arguments = function, arguments
        self._ready: dict[Hashable, Future[None]] = {}
        self._tracing = threading.Lock()
        self._compiling = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))

    def prepare(self, state: Any, batch: Any) -> Future[None]:
        """Starts to compile for batches of such shapes, unless one was prepared before.

        Args:
          state: arrays, or their shapes.

        Returns:
          What ends when the program is there; it raises what the compiler raises.
        """
        shapes = shapes_of(batch)
        if shapes not in self._ready:
            self._ready[shapes] = ready = Future()
            like = jax.tree.map(_like, self._arguments(state, batch))
            signals.call_aside(lambda: self._compile(like, ready))
        return self._ready[shapes]

    def _compile(self, arguments: tuple, ready: Future[None]) -> None:
        try:
            with self._tracing:
                lowered = self._function.lower(*arguments)
            with self._compiling:
                lowered.compile()
        except BaseException as error:  # whoever needs the program shall know
            ready.set_exception(error)
        else:
            ready.set_result(None)


def shapes_of(batch: Any) -> Hashable:
    """Returns the shapes of a batch's arrays."""
    return tuple(x.shape for x in jax.tree.leaves(batch))


def look_ahead(
    batches: Iterator[Any], ahead: int, count: int, prepare: Callable[[Any], T]
) -> Iterator[tuple[Any, T]]:
    """Yields each batch with what `prepare` returns of it.

    Args:
      ahead: batches that are prepared before the turn of the first of them.
      count: batches that are needed; no later one is prepared before its turn.
    """
    coming: collections.deque[tuple[Any, T]] = collections.deque()
    for i in itertools.count():
        while not coming or (len(coming) <= ahead and i + len(coming) < count):
            batch = next(batches)
            coming.append((batch, prepare(batch)))
        yield coming.popleft()


def _like(x: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """What a program knows of an array; the array itself may be overwritten by a step."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    sharding = x.sharding if x.committed else None
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=x.weak_type)
