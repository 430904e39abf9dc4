"""The thread that owns the models: it computes texts of requests that wait together in one batch.

Items of the same operation and group are computed in one call, one item of each request in turn, so
that a long request does not hold up short ones. While no request waits, programs are compiled.
"""

import contextlib
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from prometheus_client import Gauge, Histogram

from transformer.errors import one_line
from transformer.operations import Program
from .routes import RequestPlan, Served

logger = logging.getLogger(__name__)

MAX_WAITING = 256  # requests in the queue
WAITING = Gauge("transformer_queue_requests", "Requests that wait.")
SIZES = Histogram(
    "transformer_batch_texts",
    "Texts that were computed together.",
    ["operation"],
    buckets=(1, 2, 4, 8, 16, 32),
)
COMMON_TOKENS = 64  # tokens: programs for longer texts are compiled after the server is ready


class Programs:
    """The programs of all runs: those for up to `COMMON_TOKENS` tokens make the server ready."""

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
        """Returns the answer of `GET /health`."""
        return {
            "status": "ready" if self._compiled >= self._common else "starting",
            "compiled": self._compiled,
            "programs": len(self._programs),
        }

    def compile_next(self) -> None:
        """Compiles a program; one that cannot be compiled is in the log."""
        length, compile_program = self._programs[self._compiled]
        try:
            compile_program()
        except Exception as error:  # too large for the device: a request of this length is told so
            logger.warning(f"texts of {length} tokens: {one_line(str(error))}")
        self._compiled += 1
        if self._compiled == self._common:
            logger.info("ready")


class _Job:
    """A request: its items that no batch has taken, and the results of the others."""

    def __init__(self, route: Any, plan: RequestPlan):
        self.route, self.plan = route, plan
        self.waiting = list(range(len(plan.items)))
        self.results: dict[int, Any] = {}
        self.future: Future[list[Any]] = Future()

    def add(self, item: int, result: Any) -> None:
        """Adds a result, or the error in its place; the last one, or an error, ends the job."""
        self.results[item] = result
        with contextlib.suppress(InvalidStateError):  # its client has gone
            if isinstance(result, Exception):
                self.future.set_exception(result)
            elif len(self.results) == len(self.plan.items):
                self.future.set_result([self.results[i] for i in range(len(self.results))])


class Batcher:
    """The queue of requests, and the loop of the thread."""

    def __init__(self, programs: Programs):
        self.programs = programs
        self._changed = threading.Condition()
        self._jobs: list[_Job] = []
        self._is_closed = False
        WAITING.set_function(lambda: self.waiting)

    @property
    def waiting(self) -> int:
        """How many requests have items that are not being computed."""
        return sum(not job.future.done() for job in self._jobs)

    def submit(self, route: Any, plan: RequestPlan) -> Future[list[Any]]:
        """Returns the future results of a plan's items; if it is cancelled, they are not computed.

        Raises queue.Full if as many requests wait as may.
        """
        job = _Job(route, plan)
        if not plan.items:
            job.future.set_result([])
            return job.future
        with self._changed:
            if self.waiting >= MAX_WAITING:
                raise queue.Full
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Ends the loop after the batch that is being computed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def run(self, when_compiled: Callable[[], object] = lambda: None) -> None:
        """Computes batches and compiles programs until it is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._jobs or self.programs.remain or self._is_closed
                )
                if self._is_closed:
                    return
                batch = self._take()
            if batch:
                self._compute(batch)
            elif self.programs.remain:
                self.programs.compile_next()
                if not self.programs.remain:
                    when_compiled()

    def _take(self) -> list[tuple[_Job, int]]:
        """Takes the next batch, of which the oldest job has the first item, from the jobs."""
        self._jobs = [job for job in self._jobs if not job.future.done()]
        if not self._jobs:
            return []
        first = self._jobs[0]
        route, group = first.route, first.plan.groups[first.waiting[0]]
        by_job = (
            [(job, i) for i in job.waiting if job.plan.groups[i] == group]
            for job in self._jobs
            if job.route is route
        )
        items = filter(None, itertools.chain(*itertools.zip_longest(*by_job)))
        batch = list(itertools.islice(items, route.max_batch))
        for job, i in batch:
            job.waiting.remove(i)
        served = {job for job, _ in batch}  # if items of them remain, they go to the end
        self._jobs = sorted((job for job in self._jobs if job.waiting), key=served.__contains__)
        return batch

    def _compute(self, batch: list[tuple[_Job, int]]) -> None:
        """Computes a batch; if it fails, each of its items alone."""
        first, i = batch[0]
        SIZES.labels(first.route.name).observe(len(batch))
        items = [job.plan.items[i] for job, i in batch]
        try:
            results = first.route.compute(first.plan.groups[i], items)
        except Exception as error:
            if len(batch) > 1:
                for alone in batch:
                    self._compute([alone])
                return
            results = [error]
        for (job, i), result in zip(batch, results, strict=True):
            job.add(i, result)
