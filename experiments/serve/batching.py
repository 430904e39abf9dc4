"""Batches texts of waiting requests, in the single thread that runs the models.

Items with the same operation and group are computed in one call, with one item of each request in
turn, so that long requests do not delay short ones. Programs are compiled while no request waits.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

from prometheus_client import Gauge, Histogram

from transformer.errors import one_line
from transformer.operations import Program
from .routes import RequestPlan, Served

logger = logging.getLogger(__name__)

MAX_WAITING = 256  # maximum requests in the queue
WAITING = Gauge("transformer_queue_requests", "Requests that wait.")
SIZES = Histogram(
    "transformer_batch_texts",
    "Texts that were computed together.",
    ["operation"],
    buckets=(1, 2, 4, 8, 16, 32),
)
COMMON_TOKENS = 64  # programs for longer texts are compiled after the server is ready


class Programs:
    """The programs of all runs; those for up to `COMMON_TOKENS` tokens make the server ready."""

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
        """Returns the answer to `GET /health`."""
        return {
            "status": "ready" if self._compiled >= self._common else "starting",
            "compiled": self._compiled,
            "programs": len(self._programs),
        }

    def compile_next(self) -> None:
        """Compiles the next program; logs a failure."""
        length, compile_program = self._programs[self._compiled]
        try:
            compile_program()
        except Exception as error:  # too large for the device, and so are requests of this length
            logger.warning(f"texts of {length} tokens: {one_line(str(error))}")
        self._compiled += 1
        if self._compiled == self._common:
            logger.info("ready")


class _Item(NamedTuple):
    """An item of a request; ranks count up in a request, and the lowest rank is computed first."""

    rank: int
    route: Any
    plan: RequestPlan
    number: int
    future: Future[Any]

    @property
    def group(self) -> tuple[Any, Hashable]:
        """A key that is equal for items that can be computed together."""
        return self.route, self.plan.groups[self.number]


class Batcher:
    """The queue of requests, and the loop of the model thread."""

    def __init__(self, programs: Programs):
        self.programs = programs
        self._changed = threading.Condition()
        self._items: list[_Item] = []
        self._is_closed = False
        WAITING.set_function(lambda: self.waiting)

    @property
    def waiting(self) -> int:
        """The number of requests with items that are not being computed."""
        return len({id(item.plan) for item in self._items if not item.future.done()})

    def submit(self, route: Any, plan: RequestPlan) -> list[Future[Any]]:
        """Returns futures for the results of a plan's items; a cancelled one is not computed.

        Raises queue.Full if `MAX_WAITING` requests are waiting.
        """
        with self._changed:
            if self.waiting >= MAX_WAITING:
                raise queue.Full
            first = self._items[0].rank if self._items else 0
            count = range(len(plan.items))
            items = [_Item(first + i, route, plan, i, Future()) for i in count]
            self._items = sorted([*self._items, *items], key=lambda item: item.rank)
            self._changed.notify()
        return [item.future for item in items]

    def close(self) -> None:
        """Ends the loop after the current batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def run(self) -> None:
        """Computes batches and compiles programs until `close` is called."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._items or self.programs.remain or self._is_closed
                )
                if self._is_closed:
                    return
                batch = self._take()
            if batch:
                self._compute(batch)
            elif self.programs.remain:
                self.programs.compile_next()

    def _take(self) -> list[_Item]:
        """Takes the next batch from the queue: the first item, and others of its group."""
        waiting = [item for item in self._items if not item.future.done()]
        same = [item for item in waiting if item.group == waiting[0].group]
        batch = same[: waiting[0].route.max_batch] if waiting else []
        futures = {item.future for item in batch}
        self._items = [item for item in waiting if item.future not in futures]
        return batch

    def _compute(self, batch: list[_Item]) -> None:
        """Computes a batch; if that fails, computes each item alone."""
        route, group = batch[0].group
        SIZES.labels(route.name).observe(len(batch))
        try:
            results = route.compute(group, [item.plan.items[item.number] for item in batch])
        except Exception as error:
            if len(batch) == 1:
                with contextlib.suppress(InvalidStateError):  # the client has disconnected
                    batch[0].future.set_exception(error)
                return
            for alone in batch:
                self._compute([alone])
            return
        for item, result in zip(batch, results, strict=True):
            with contextlib.suppress(InvalidStateError):
                item.future.set_result(result)
