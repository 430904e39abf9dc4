"""The programs of a training, compiled before the batches come that need them."""

import collections
import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import jax

from transformer import signals

T = TypeVar("T")
FIRST = 2  # steps of a start that should come soon
CACHE_HIT = "/jax/compilation_cache/cache_hits"  # jax's name of the event


class JittedStep:
    """The training step as programs: a gradient per shape of batches, and one update for all.

    The update has some operations for each parameter, and with Muon takes longer to compile than
    the gradient. It reuses the memory of the state.

    Args:
      gradient, update: see `TrainStep`, of all runs; `update` may take more arguments.
      sharding: of gradients and sums.
    """

    def __init__(self, gradient: Callable, update: Callable, sharding: Any):
        self.gradient = jax.jit(gradient, out_shardings=sharding)
        self.update = jax.jit(update, donate_argnums=0)
        self._sharding, self._updating = sharding, threading.Lock()

    def __call__(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        return _take(self.gradient, self.update, state, batch, hparams, *others)

    def lower(self, state: Any, batch: Any, hparams: Any, *others: Any) -> "LoweredStep":
        """Returns the step for arguments of such shapes."""
        gradient = self.gradient.lower(state.params, state.step, batch, hparams)
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding),
            gradient.out_info,
        )
        update = self.update.lower(state, *like, hparams, *others)
        kept = _size((state.opt_state, state.ema))
        return LoweredStep(gradient, update, self._updating, kept)


class LoweredStep(NamedTuple):
    """A step that is not compiled yet.

    Attributes:
      updating: held while the update is compiled, which all shapes of batches share.
      kept: bytes of the state that the gradient does not take.
    """

    gradient: Any
    update: Any
    updating: threading.Lock
    kept: int

    def compile(self) -> "CompiledStep":
        """Returns the compiled step."""
        gradient = self.gradient.compile()
        with self.updating:
            return CompiledStep(gradient, self.update.compile(), self.kept)


class CompiledStep(NamedTuple):
    """A step for one shape of batches; attributes as in `LoweredStep`."""

    gradient: Any
    update: Any
    kept: int

    def __call__(self, state: Any, batch: Any, hparams: Any, *others: Any) -> tuple[Any, Any]:
        return _take(self.gradient, self.update, state, batch, hparams, *others)

    def count_bytes(self) -> int:
        """Returns the bytes of memory that the step needs, its arguments included."""
        return max(_count_bytes(self.gradient) + self.kept, _count_bytes(self.update))


def _take(gradient: Callable, update: Callable, state, batch, hparams, *others) -> tuple[Any, Any]:
    # The update frees the gradient's memory, since nothing else refers to it.
    return update(state, *gradient(state.params, state.step, batch, hparams), hparams, *others)


def _count_bytes(program: Any) -> int:
    """The bytes that a compiled program needs, its arguments included."""
    stats = program.memory_analysis()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes)


def _size(tree: Any) -> int:
    """The bytes of a tree's arrays, or of arrays of such shapes."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


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
        self._slots = max(1, (os.cpu_count() or 1) // 2)
        self._compiling = threading.Semaphore(self._slots)
        self._missed = False  # whether a program was not in the cache on disk

    def ahead(self, taken: int, most: int) -> int:
        """Returns for how many coming batches programs should be prepared, at most `most`.

        If one thread compiles, and so far all programs came from the cache on disk, it is one until
        `FIRST` steps were taken: to read more would only delay these.

        Args:
          taken: steps of this start so far.
        """
        hurry = taken < FIRST and self._slots == 1 and not self._missed
        return min(most, 1) if hurry else most

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
            with self._compiling, cache_hits() as hits:
                lowered.compile()
        except BaseException as error:  # whoever needs the program shall know
            ready.set_exception(error)
        else:
            self._missed |= not hits
            ready.set_result(None)


@contextlib.contextmanager
def cache_hits() -> Iterator[list[str]]:
    """Yields a list, longer by one for each program that this thread reads from disk."""
    hits, reader = [], threading.get_ident()

    def listen(event: str, **_: str | int) -> None:
        if event == CACHE_HIT and threading.get_ident() == reader:
            hits.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        yield hits
    finally:
        jax.monitoring.unregister_event_listener(listen)


def shapes_of(batch: Any) -> Hashable:
    """Returns the shapes of a batch's arrays."""
    return tuple(x.shape for x in jax.tree.leaves(batch))


def look_ahead(
    batches: Iterator[Any], ahead: Callable[[int], int], count: int, prepare: Callable[[Any], T]
) -> Iterator[tuple[Any, T]]:
    """Yields each batch with what `prepare` returns of it.

    Args:
      ahead: returns how many batches are prepared before the turn of the first of them, given the
        number of those that had their turn.
      count: batches that are needed; no later one is prepared before its turn.
    """
    coming: collections.deque[tuple[Any, T]] = collections.deque()
    for i in itertools.count():
        while not coming or (len(coming) <= ahead(i) and i + len(coming) < count):
            batch = next(batches)
            coming.append((batch, prepare(batch)))
        yield coming.popleft()


def _like(x: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """What a program knows of an array; the array itself may be overwritten by a step."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    sharding = x.sharding if x.committed else None
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=x.weak_type)
