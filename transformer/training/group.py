"""Coordination of the processes that train one model together, led by process 0.

All processes take the same steps. Only the leader logs, evaluates, writes files and decides. The
others read its decisions from JAX's coordination service, a key-value store that uses no devices.
"""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from transformer import signals
from transformer.errors import LostError, UserError, one_line, shorten
from transformer.signals import StoppedError, StopSignals

T = TypeVar("T")
POLL = 1.0  # timeout of a store query in seconds, during which Python handles no signals
KEPT = 1000  # number of decisions kept in the store, more than a process can lag behind
PREPARATION = 86_400.0  # maximum time in seconds for a process to prepare its data
FAREWELL = 5.0  # maximum time in seconds to wait until all processes have received an error
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # XLA's status code for this error
AGAIN = "start the same command again on all hosts"


class Group:
    """The processes of a training run, as seen from one of them; by default, a single process.

    Args:
      deadline: maximum time in seconds that a process waits for others between two evaluations.

    Attributes:
      leads: whether this process is the leader, which logs, evaluates, writes and decides.
      signals: the stop signal of this process, or the common one after all have agreed to stop.
    """

    def __init__(self, index: int = 0, count: int = 1, deadline: float = math.inf):
        self.index, self.count, self.deadline = index, count, deadline
        self.leads, self.signals = index == 0, StopSignals()
        self._talks = self._meetings = 0  # counters that are equal in all processes
        self._alive = math.inf  # time of the last progress; inf while the watchdog is paused
        self._programs: list[Future[Any]] = []  # programs that all processes have started to use

    @property
    def _store(self) -> Any:
        from jax._src import distributed  # no public module exposes the store

        return distributed.global_state.client

    def agree(self, decide: Callable[..., T], *arguments: Any) -> T:
        """Calls `decide` in the leader, and returns the result, a JSON value, in all processes.

        An error in the leader is raised in all processes.
        """
        if self.count == 1:
            return decide(*arguments)
        self._talks += 1
        name, before = f"talk/{self._talks}", self._alive
        self._alive = math.inf
        try:
            while not self.leads:
                try:
                    said = json.loads(self._store.blocking_key_value_get(name, int(1000 * POLL)))
                except jax.errors.JaxRuntimeError as error:
                    if "DEADLINE_EXCEEDED" in str(error):
                        continue
                    raise
                if "error" in said:
                    raise UserError(said["error"])
                return said["value"]
            if errors := [word["error"] for word in self._words() if "error" in word]:
                raise UserError(errors[0])
            value = decide(*arguments)
            self._store.key_value_set(name, json.dumps({"value": value}))
            self._store.key_value_delete(f"talk/{self._talks - KEPT}")
            return value
        finally:
            self._alive = max(before, time.monotonic())

    def agree_or_stop(self, decide: Callable[..., T], *arguments: Any) -> T:
        """Calls `agree`; raises StoppedError in all processes if any has received a signal."""

        def answer() -> tuple[Any, int | None]:
            result = None
            with contextlib.suppress(StoppedError):
                result = decide(*arguments)
            others = [word["signal"] for word in self._words()]
            return result, self.signals.received or max(others, default=None)

        if self.signals.received is not None and not self.leads:
            self._tell({"signal": self.signals.received})
        result, number = self.agree(answer)
        if number is not None:  # if None, keep a signal that was received meanwhile
            self.signals.received = number
            raise StoppedError
        return result

    def _tell(self, word: Mapping[str, Any]) -> None:
        """Sends this process's `signal` or `error` to the leader."""
        self._store.key_value_set(f"word/{self.index}", json.dumps(word), allow_overwrite=True)

    def _words(self) -> list[dict[str, Any]]:
        """Returns the messages that the other processes sent to the leader."""
        words = self._store.key_value_dir_get("word/") if self.count > 1 else ()
        return [json.loads(word) for _, word in words]

    def _meet(self, seconds: float = 0.0) -> None:
        """Waits for all processes; raises UserError in all of them if one has reported an error.

        Args:
          seconds: the time after which a missing process counts as lost; 0 means `deadline`.
        """
        if self.count > 1:
            self._meetings += 1
            milliseconds = int(1000 * (seconds or self.deadline))
            self._store.wait_at_barrier(f"meeting/{self._meetings}", milliseconds)
            self.agree(lambda: None)

    def compare(self, about: Mapping[str, str]) -> None:
        """Raises UserError in all processes if the values of any process differ from the leader's.

        Args:
          about: the values that must be equal, keyed by their names in error messages.
        """
        leaders = self.agree(dict, about)
        if name := next((n for n, value in about.items() if leaders.get(n) != value), ""):
            values = f"{name} {about[name]}, and process 0 {leaders.get(name)}"
            fix = "give all the same code, flags, text and folder"
            self._tell({"error": f"process {self.index} has {values}: {fix}"})
        self._meet()

    def first(self, make: Callable[[], T]) -> T:
        """Returns the result of `make()`; process 0 calls it first, because it may write files."""
        results: list[T] = []
        self.agree(lambda: results.append(make()))
        if not self.leads:
            try:
                results.append(make())
            except UserError as error:
                self._tell({"error": f"process {self.index}: {error}"})
        self._meet(PREPARATION)
        return results[0]

    def begin(self, wait: Callable[[Future[Any]], None], ready: Future[Any]) -> None:
        """Calls `wait(ready)` for a program, and waits until all processes are ready to use it.

        On CPUs, an all-reduce fails if a process is 30 seconds late. A signal stops all processes.
        """
        if self.count == 1:
            wait(ready)
        elif ready not in self._programs:
            self.rest()
            if not self.leads:
                ready.result()
            self.agree_or_stop(wait, ready)
            self._meet()
            self.alive()
            self._programs.append(ready)

    def alive(self) -> None:
        """Resets the watchdog after a step; the next call must follow within `deadline` seconds."""
        self._alive = time.monotonic()

    def rest(self) -> None:
        """Pauses the watchdog while no step is in progress."""
        self._alive = math.inf

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Passes errors in the context on to all processes; raises LostError if one is lost."""
        try:
            yield
        except BaseException as error:
            if self.count == 1:
                raise
            self.rest()
            line = str(error)
            if not isinstance(error, UserError):
                line = f"process {self.index} failed: {type(error).__name__}: {line}"
            self._part_with(line)
            of_jax = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
            if not of_jax or OUT_OF_MEMORY in str(error):
                raise
            why = shorten(one_line(str(error)))
            raise LostError(f"another process is lost ({why}): {AGAIN}") from error

    def _part_with(self, error: str) -> None:
        """Sends an error to the other processes, waits for them briefly, and disconnects."""
        word = json.dumps({"error": one_line(error)})
        talks = [f"talk/{self._talks}", f"talk/{self._talks + 1}"]  # the first may already be set
        for name in talks if self.leads else [f"word/{self.index}"]:
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._store.key_value_set(name, word)
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._store.wait_at_barrier("end", int(1000 * FAREWELL))
            jax.distributed.shutdown()  # JAX aborts the others if the leader exits first

    def watch(self) -> None:
        """Starts a daemon thread that ends this process if no step finishes by the deadline."""
        signals.call_aside(self._watch)

    def _watch(self) -> None:
        while True:
            time.sleep(min(POLL, self.deadline / 4))
            if time.monotonic() - self._alive > self.deadline:
                print(
                    f"error: no step has ended for {self.deadline:g} seconds "
                    f"(config.train.deadline), so another process is stuck or lost: {AGAIN}",
                    file=sys.stderr,
                )
                signals.end(LostError.code)

    def part(self) -> None:
        """Waits for all processes and disconnects them; the leader continues alone."""
        if self.count > 1:
            self._meet()
            jax.distributed.shutdown()
            self.count = 1
