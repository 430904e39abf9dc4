"""The processes that train one model together, of which the first leads.

All take the same steps. The leader alone logs, evaluates and writes, and decides what comes next.
The others learn this from the key-value store of JAX's coordination service, which needs no device.
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
POLL = 1.0  # seconds of one question to the store, during which Python handles no signal
KEPT = 1000  # answers that stay in the store; no process is so far behind
PREPARATION = 86_400.0  # seconds in which a process reads its text
FAREWELL = 5.0  # seconds in which the others learn of an error
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # XLA's name of the error
AGAIN = "start the same command again on all"


class Group:
    """The processes of a training, seen by one of them; by default it is alone.

    Args:
      deadline: seconds that one of them waits for the others, between two evaluations.

    Attributes:
      leads: whether this process logs, evaluates, writes and decides.
      signals: those that came to this process; the training's, once all have agreed to stop.
    """

    def __init__(self, index: int = 0, count: int = 1, deadline: float = math.inf):
        self.index, self.count, self.deadline = index, count, deadline
        self.leads, self.signals = index == 0, StopSignals()
        self._talks = self._meetings = 0  # so far, the same on all
        self._alive = math.inf  # time of the last progress, while it is expected
        self._programs: list[Future[None]] = []  # that all have begun to use

    @property
    def _store(self) -> Any:
        from jax._src import distributed  # no public module has the store

        return distributed.global_state.client

    def agree(self, decide: Callable[..., T], *arguments: Any) -> T:
        """Returns on each process what `decide` returns on the leader: a value that JSON has.

        Its errors are errors of all.
        """
        if self.count == 1:
            return decide(*arguments)
        self._talks += 1
        name, before = f"talk/{self._talks}", self._alive
        self._alive = math.inf
        try:
            return self._lead(name, decide, *arguments) if self.leads else self._follow(name)
        finally:
            self._alive = max(before, time.monotonic())

    def _lead(self, name: str, decide: Callable[..., T], *arguments: Any) -> T:
        if errors := [word["error"] for word in self._words() if "error" in word]:
            raise UserError(errors[0])
        value = decide(*arguments)
        self._store.key_value_set(name, json.dumps({"value": value}))
        self._store.key_value_delete(f"talk/{self._talks - KEPT}")
        return value

    def _follow(self, name: str) -> Any:
        while True:
            try:
                said = json.loads(self._store.blocking_key_value_get(name, int(1000 * POLL)))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" in str(error):
                    continue
                raise
            if "error" in said:
                raise UserError(said["error"])
            return said["value"]

    def agree_or_stop(self, decide: Callable[..., T], *arguments: Any) -> T:
        """Agrees, and raises StoppedError on all if a signal came to one, which all then have."""

        def answer() -> tuple[Any, int | None]:
            result = None
            with contextlib.suppress(StoppedError):
                result = decide(*arguments)
            others = [word["signal"] for word in self._words()]
            return result, self.signals.received or max(others, default=None)

        if self.signals.received is not None and not self.leads:
            self._tell({"signal": self.signals.received})
        result, number = self.agree(answer)
        if number is not None:  # otherwise one that has come meanwhile stays
            self.signals.received = number
            raise StoppedError
        return result

    def _tell(self, word: Mapping[str, Any]) -> None:
        """Tells the leader that this process has a `signal` or an `error`."""
        self._store.key_value_set(f"word/{self.index}", json.dumps(word), allow_overwrite=True)

    def _words(self) -> list[dict[str, Any]]:
        """What the others have told the leader."""
        words = self._store.key_value_dir_get("word/") if self.count > 1 else ()
        return [json.loads(word) for _, word in words]

    def _meet(self, seconds: float = 0.0) -> None:
        """Waits until all have come here; raises UserError on all if one has told of an error.

        Args:
          seconds: after which a process is lost that has not come; by default the deadline.
        """
        if self.count > 1:
            self._meetings += 1
            milliseconds = int(1000 * (seconds or self.deadline))
            self._store.wait_at_barrier(f"meeting/{self._meetings}", milliseconds)
            self.agree(lambda: None)

    def compare(self, about: Mapping[str, str]) -> None:
        """Raises UserError on all processes if one has other values than the leader.

        Args:
          about: what must be equal, by the words that a message uses.
        """
        leaders = self.agree(dict, about)
        if name := next((n for n, value in about.items() if leaders.get(n) != value), ""):
            values = f"{name} {about[name]}, and process 0 {leaders.get(name)}"
            fix = "give all the same code, flags, text and folder"
            self._tell({"error": f"process {self.index} has {values}: {fix}"})
        self._meet()

    def first(self, make: Callable[[], T]) -> T:
        """Returns what `make()` returns here; the others find the files that the leader's wrote."""
        results: list[T] = []
        self.agree(lambda: results.append(make()))
        if not self.leads:
            try:
                results.append(make())
            except UserError as error:
                self._tell({"error": f"process {self.index}: {error}"})
        self._meet(PREPARATION)
        return results[0]

    def begin(self, wait: Callable[[Future[None]], None], ready: Future[None]) -> None:
        """Calls `wait(ready)` for a program, which several processes begin to use together.

        On CPUs a sum fails if one is 30 seconds late. A signal raises StoppedError on all.
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
        """Says that a step has ended; by the next call the deadline must not be over."""
        self._alive = time.monotonic()

    def rest(self) -> None:
        """Says that no step is under way."""
        self._alive = math.inf

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Within it, an error of one process ends all, and a lost process is a LostError."""
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
        """Sends an error to the others, waits a little until they have it, and disconnects."""
        word = json.dumps({"error": one_line(error)})
        talks = [f"talk/{self._talks}", f"talk/{self._talks + 1}"]  # the first may be answered
        for name in talks if self.leads else [f"word/{self.index}"]:
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                self._store.key_value_set(name, word)
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._store.wait_at_barrier("end", int(1000 * FAREWELL))
            jax.distributed.shutdown()  # jax aborts a process whose leader ends first

    def watch(self) -> None:
        """Ends this process when the deadline is over, in a thread for which no end waits."""
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
        """Ends the connection, once all have come here; the leader goes on alone."""
        if self.count > 1:
            self._meet()
            jax.distributed.shutdown()
            self.count = 1
