"""The single thread that runs the models and processes requests one at a time.

Items of a request that have the same group are batched. Programs are compiled while no request is
waiting.
"""

import contextlib
import logging
import queue
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from prometheus_client import Gauge, Histogram

from transformer.errors import one_line
from transformer.operations import Program
from .routes import RequestPlan, Served

logger = logging.getLogger(__name__)

MAX_WAITING = 256  # maximum number of requests in the queue
WAITING = Gauge("transformer_queue_requests", "Requests that wait.")
SIZES = Histogram(
    "transformer_batch_texts",
    "Texts that were computed together.",
    ["operation"],
    buckets=(1, 2, 4, 8, 16, 32),
)
COMMON_TOKENS = 64  # programs for longer texts are compiled after the server is ready


class Programs:
    """The programs of all runs. The server is ready when the common programs are compiled."""

    def __init__(self, runs: Sequence[Served]):
        routes = [route for run in runs for route in run.routes.values()]
        programs = (program for route in routes for program in route.programs())
        self._programs: list[Program] = sorted(programs, key=lambda program: program[0])
        self._common = sum(length <= COMMON_TOKENS for length, _ in self._programs)
        self._compiled = 0

    @property
    def remain(self) -> bool:
        return self._compiled < len(self._programs)

    def state(self) -> dict[str, Any]:
        """Returns the response to `GET /health`."""
        return {
            "status": "ready" if self._compiled >= self._common else "starting",
            "compiled": self._compiled,
            "programs": len(self._programs),
        }

    def compile_next(self) -> None:
        """Compiles the next program, or logs an error if this fails."""
        length, compile_program = self._programs[self._compiled]
        try:
            compile_program()
        except Exception as error:  # too large for the device; such requests fail, too
            logger.warning(f"texts of {length} tokens: {one_line(str(error))}")
        self._compiled += 1
        if self._compiled == self._common:
            logger.info("ready")


class Worker:
    """The request queue, and the main loop of the model thread."""

    def __init__(self, programs: Programs):
        self.programs = programs
        self._requests: queue.Queue[tuple[Any, RequestPlan, Future[Any]] | None] = queue.Queue()
        WAITING.set_function(lambda: self.waiting)

    @property
    def waiting(self) -> int:
        """The number of queued requests that are not yet done."""
        return sum(not future.done() for _, _, future in filter(None, list(self._requests.queue)))

    def submit(self, route: Any, plan: RequestPlan) -> Future[list[Any]]:
        """Queues a plan and returns a future for the results; cancellation skips remaining items.

        Raises queue.Full if `MAX_WAITING` requests are waiting.
        """
        if self.waiting >= MAX_WAITING:
            raise queue.Full
        future: Future[list[Any]] = Future()
        self._requests.put((route, plan, future))
        return future

    def close(self) -> None:
        """Ends the loop after all waiting requests."""
        self._requests.put(None)

    def run(self) -> None:
        """Processes requests and compiles programs until `close` is called."""
        while True:
            try:
                request = self._requests.get(block=not self.programs.remain)
            except queue.Empty:
                self.programs.compile_next()
                continue
            if request is None:
                return
            *_, future = request
            with contextlib.suppress(InvalidStateError):  # the client has disconnected
                try:
                    future.set_result(self._compute(*request))
                except Exception as error:
                    future.set_exception(error)

    def _compute(self, route: Any, plan: RequestPlan, future: Future[list[Any]]) -> list[Any]:
        """Returns the results of a plan's items; some are None if the future is cancelled."""
        results: list[Any] = [None] * len(plan.items)
        for group in dict.fromkeys(plan.groups):
            numbers = [i for i, each in enumerate(plan.groups) if each == group]
            while numbers and not future.cancelled():
                batch, numbers = numbers[: route.max_batch], numbers[route.max_batch :]
                SIZES.labels(route.name).observe(len(batch))
                computed = route.compute(group, [plan.items[i] for i in batch])
                for i, result in zip(batch, computed, strict=True):
                    results[i] = result
        return results
