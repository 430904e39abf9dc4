"""The programs of the training step, which are compiled before a batch needs them."""

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
FIRST = 2  # number of initial batches that are not delayed by compiling for later batches


class StepPrograms:
    """The compiled training step: one gradient program per batch shape, and one update program.

    The update has several operations per parameter; with Muon it takes longer to compile than the
    gradient. The update donates the state's buffers.

    Tracing runs Python, so only one thread traces at a time. Compiling uses half of the processors.

    Args:
      gradient, update: functions as in `TrainStep`, for all runs; `update` may take more arguments.
      sharding: the sharding of gradients and sums.
      updated: the sharding of states and metrics, or None to keep the sharding of the input states.
    """

    def __init__(self, gradient: Callable, update: Callable, sharding: Any, updated: Any = None):
        self.gradient = jax.jit(gradient, out_shardings=sharding)
        self.update = jax.jit(update, out_shardings=updated, donate_argnums=0)
        self._ready: dict[Hashable, Future[Any]] = {}
        self._tracing, self._updating = threading.Lock(), threading.Lock()
        self._compiling = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))

    def __call__(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        # No local variable refers to the gradient, so the update can free its memory.
        gradient_and_sums = self.gradient(state.params, state.step, batch, hparams)
        return self.update(state, *gradient_and_sums, hparams, *others)

    def prepare(self, batch: Any, arguments: Callable[[], tuple]) -> Future[Any]:
        """Starts to compile the programs for this batch shape, unless an earlier call has done so.

        The future completes when the programs are compiled, or raises the compiler's error.

        Args:
          arguments: a function that returns the step's arguments, as arrays or as shapes.
        """
        shapes = tuple(x.shape for x in jax.tree.leaves(batch))
        if shapes not in self._ready:
            like = arguments()
            self._ready[shapes] = signals.call_aside(lambda: self.compile(*like))
        return self._ready[shapes]

    def compile(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        """Returns the compiled gradient and update programs for arguments of these shapes."""
        with self._tracing:
            gradient = self.gradient.lower(state.params, state.step, batch, hparams)
            update = self.update.lower(state, *gradient.out_info, hparams, *others)
        with self._compiling:
            compiled = gradient.compile()
            with self._updating:  # all batch shapes share the update
                return compiled, update.compile()

    def count_bytes(self, state: Any, *arguments: Any) -> int:
        """Returns the memory usage of a step in bytes, including the given arguments."""
        gradient, update = map(_count_bytes, self.compile(state, *arguments))
        rest = jax.tree.leaves((state.opt_state, state.ema))  # not passed to `gradient`
        return max(gradient + sum(x.size * x.dtype.itemsize for x in rest), update)


def _count_bytes(program: Any) -> int:
    """Returns the memory usage of a compiled program in bytes, including its arguments."""
    stats = program.memory_analysis()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes)


def look_ahead(
    batches: Iterator[Any], ahead: int, count: int, prepare: Callable[[Any], T]
) -> Iterator[tuple[Any, T]]:
    """Yields each batch and the result of `prepare(batch)`.

    Args:
      ahead: number of batches to prepare ahead of the current batch; it is limited to one until
        `FIRST` batches have been yielded.
      count: number of batches needed; later batches are prepared only when they are yielded.
    """
    coming: collections.deque[tuple[Any, T]] = collections.deque()
    for i in itertools.count():
        most = ahead if i >= FIRST else min(ahead, 1)
        while not coming or (len(coming) <= most and i + len(coming) < count):
            batch = next(batches)
            coming.append((batch, prepare(batch)))
        yield coming.popleft()
