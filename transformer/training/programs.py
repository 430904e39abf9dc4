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
FIRST = 2  # steps of a start, which the programs of later ones would delay


class StepPrograms:
    """The training step as programs: a gradient per shape of batches, and one update for all.

    The update has some operations for each parameter, and with Muon takes longer to compile than
    the gradient. It reuses the memory of the state.

    Tracing is Python, so one thread traces at a time; half of the processors compile meanwhile.

    Args:
      gradient, update: see `TrainStep`, of all runs; `update` may take more arguments.
      sharding: of gradients and sums.
      updated: of states and metrics; None for that of the states which are updated.
    """

    def __init__(self, gradient: Callable, update: Callable, sharding: Any, updated: Any = None):
        self.gradient = jax.jit(gradient, out_shardings=sharding)
        self.update = jax.jit(update, out_shardings=updated, donate_argnums=0)
        self._sharding = sharding
        self._ready: dict[Hashable, Future[None]] = {}
        self._tracing, self._updating = threading.Lock(), threading.Lock()
        self._compiling = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))

    def __call__(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        # The update frees the gradient's memory, since nothing else refers to it.
        gradient_and_sums = self.gradient(state.params, state.step, batch, hparams)
        return self.update(state, *gradient_and_sums, hparams, *others)

    def prepare(self, batch: Any, arguments: Callable[[], tuple]) -> Future[None]:
        """Starts to compile for batches of such shapes, unless one was prepared before.

        Args:
          arguments: returns those of a step with the batch: arrays, or their shapes.

        Returns:
          What ends when the programs are there; it raises what the compiler raises.
        """
        shapes = tuple(x.shape for x in jax.tree.leaves(batch))
        if shapes not in self._ready:
            self._ready[shapes] = ready = Future()
            like = jax.tree.map(_shape_like, arguments())
            signals.call_aside(lambda: self._compile_for(ready, like))
        return self._ready[shapes]

    def _compile_for(self, ready: Future[None], arguments: tuple) -> None:
        try:
            self.compile(*arguments)
        except BaseException as error:  # whoever needs the program shall know
            ready.set_exception(error)
        else:
            ready.set_result(None)

    def compile(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        """Returns the compiled gradient and update; steps with such arguments find them."""
        with self._tracing:
            gradient = self.gradient.lower(state.params, state.step, batch, hparams)
            like = jax.tree.map(
                lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
                gradient.out_info,
                jax.tree.broadcast(self._sharding, gradient.out_info),
            )
            update = self.update.lower(state, *like, hparams, *others)
        with self._compiling:
            compiled = gradient.compile()
            with self._updating:  # which all shapes of batches share
                return compiled, update.compile()

    def count_bytes(self, state: Any, *arguments: Any) -> int:
        """Returns the bytes of memory that such a step needs, its arguments included."""
        gradient, update = map(_count_bytes, self.compile(state, *arguments))
        rest = jax.tree.leaves((state.opt_state, state.ema))  # which the gradient does not take
        return max(gradient + sum(x.size * x.dtype.itemsize for x in rest), update)


def _count_bytes(program: Any) -> int:
    """The bytes that a compiled program needs, its arguments included."""
    stats = program.memory_analysis()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes)


def look_ahead(
    batches: Iterator[Any], ahead: int, count: int, prepare: Callable[[Any], T]
) -> Iterator[tuple[Any, T]]:
    """Yields each batch with what `prepare` returns of it.

    Args:
      ahead: how many batches are prepared before the turn of the first of them; at most one until
        `FIRST` batches had their turn.
      count: batches that are needed; no later one is prepared before its turn.
    """
    coming: collections.deque[tuple[Any, T]] = collections.deque()
    for i in itertools.count():
        most = ahead if i >= FIRST else min(ahead, 1)
        while not coming or (len(coming) <= most and i + len(coming) < count):
            batch = next(batches)
            coming.append((batch, prepare(batch)))
        yield coming.popleft()


def _shape_like(x: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """What a program knows of an array; the array itself may be overwritten by a step."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    sharding = x.sharding if x.committed else None
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=x.weak_type)
