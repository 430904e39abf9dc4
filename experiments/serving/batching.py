"""Dynamic batching: texts of requests that wait together are computed together, in one thread.

A request is a plan of items, each with a group. Items of the same work and group are computed in
one call, one item of each request in turn, so that a long request does not hold up short ones.
Plans are made in another thread: a mistake is told at once, whatever is being computed.
"""

import abc
import asyncio
import collections
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

logger = logging.getLogger(__name__)


class Item(NamedTuple):
    """A part of a request. Those of the same `group` can be computed together."""

    group: Hashable
    payload: Any


class Plan(NamedTuple):
    """A request's items, and the function that makes its answer from their results."""

    items: Sequence[Item]
    finish: Callable[[list[Any]], bytes]


class Work(abc.ABC):
    """The computation for a kind of request."""

    name: ClassVar[str]
    most: int  # items that are computed together

    @abc.abstractmethod
    def plan(self, fields: Mapping[str, Any]) -> Plan:
        """Returns the plan of a request; called in a thread of its own, without the model.

        Raises:
          UserError: a field has a value that the model does not take.
        """

    @abc.abstractmethod
    def compute(self, group: Any, payloads: list[Any]) -> list[Any]:
        """Returns the result of each payload; it does not depend on the others."""


class FullError(Exception):
    """As many requests wait as may."""


class Job:
    """A request that waits for its answer, which is the result of `future`."""

    def __init__(self, work: Work, fields: Mapping[str, Any], loop: asyncio.AbstractEventLoop):
        self.work, self.fields, self._loop = work, fields, loop
        self.future: asyncio.Future[bytes] = loop.create_future()
        self.plan: Plan | None = None
        self.left: list[int] = []  # the items that no batch has taken yet
        self.results: dict[int, Any] = {}
        self.ended = False

    def prepare(self) -> None:
        """Plans the request."""
        plan = self.work.plan(self.fields)
        self.left = list(range(len(plan.items)))
        if not plan.items:
            self.end(plan.finish([]))
        self.plan = plan  # last: from then on, its items can be taken

    def end(self, answer: bytes | BaseException) -> None:
        """Gives the answer to who waits for it, if it is the first and somebody still does."""
        if self.ended:
            return
        self.ended = True
        give = self.future.set_result if isinstance(answer, bytes) else self.future.set_exception

        def deliver() -> None:
            if not self.future.done():
                give(answer)  # type: ignore[arg-type]

        self._loop.call_soon_threadsafe(deliver)

    def take(self, item: int, result: Any) -> None:
        """Adds the result of an item; the last one ends the job."""
        assert self.plan is not None
        self.results[item] = result
        if len(self.results) == len(self.plan.items):
            self.end(self.plan.finish([self.results[i] for i in range(len(self.results))]))


Batch = list[tuple[Job, int]]  # items by their number in their job


class Batcher:
    """The queue of requests, and the loop of the thread that owns the models.

    Args:
      max_waiting: requests that may wait.
      observe: called with a work and the number of items of each batch.
    """

    def __init__(self, max_waiting: int, observe: Callable[[Work, int], None]):
        self._max_waiting, self._observe = max_waiting, observe
        self._planner = ThreadPoolExecutor(1)
        self._changed = threading.Condition()
        self._jobs: collections.deque[Job] = collections.deque()
        self._aside: collections.deque[Callable[[], None]] = collections.deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests have items that are not being computed."""
        return len(self._jobs)

    def submit(self, work: Work, fields: Mapping[str, Any]) -> Job:
        """Returns a new job; called in the event loop.

        Raises:
          FullError: too many requests wait.
        """
        job = Job(work, fields, asyncio.get_running_loop())
        with self._changed:
            if len(self._jobs) >= self._max_waiting:
                raise FullError
            self._jobs.append(job)
        self._planner.submit(self._prepare, job)
        return job

    def cancel(self, job: Job) -> None:
        """Forgets a job: its items that are not computed yet never are."""
        job.ended = True
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Has something called in the thread while no request waits."""
        with self._changed:
            self._aside.append(call)
            self._changed.notify()

    def close(self) -> None:
        """Ends the loop after the batch that is being computed."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._planner.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Computes the items that wait until it is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._closed:
                    return
                aside = None if self._jobs else self._aside.popleft()
                batch = self._take()
            if aside is not None:
                self._call(aside)
            elif batch:
                self._compute(batch)

    def _call(self, aside: Callable[[], None]) -> None:
        """Calls a function for idle times; its error is logged, and must not end the thread."""
        try:
            aside()
        except Exception:
            with contextlib.suppress(OSError):  # the log may be closed
                logger.exception("an error while no request waited:")

    def _has_work(self) -> bool:
        """Whether the loop has something to do; requests that are not planned yet come first."""
        if self._jobs:
            return self._closed or any(job.plan is not None for job in self._jobs)
        return self._closed or bool(self._aside)

    def _prepare(self, job: Job) -> None:
        if not job.ended:
            self._try(job.prepare, [job])
        with self._changed:
            self._changed.notify()

    def _take(self) -> Batch:
        """Takes the items of the next batch from the jobs; the first of them is the oldest job's.

        Jobs that have further ones go to the end of the queue.
        """
        ready = [job for job in self._jobs if job.plan is not None and not job.ended]
        self._jobs = collections.deque(
            job for job in self._jobs if not job.ended and (job.plan is None or job.left)
        )
        if not ready:
            return []
        first = ready[0]
        assert first.plan is not None
        work, group = first.work, first.plan.items[first.left[0]].group
        own = [
            [(job, i) for i in job.left if job.plan and job.plan.items[i].group == group]
            for job in ready
            if job.work is work
        ]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*own))
        batch = list(itertools.islice((each for each in turns if each), work.most))
        for job, i in batch:
            job.left.remove(i)
        served = dict.fromkeys(job for job, _ in batch)
        others = [job for job in self._jobs if job not in served]
        self._jobs = collections.deque([*others, *(job for job in served if job.left)])
        return batch

    def _compute(self, batch: Batch) -> None:
        """Computes a batch; if it fails, each of its items alone."""
        [(first, i), *_] = batch
        assert first.plan is not None
        group = first.plan.items[i].group
        payloads = [job.plan.items[i].payload for job, i in batch if job.plan]
        self._observe(first.work, len(batch))
        try:
            results = first.work.compute(group, payloads)
        except Exception as error:
            if len(batch) == 1:
                self._fail(first, error)
                return
            for alone in batch:
                self._compute([alone])
            return
        for (job, i), result in zip(batch, results, strict=True):
            self._try(lambda job=job, i=i, result=result: job.take(i, result), [job])

    def _try(self, call: Callable[[], None], jobs: Sequence[Job]) -> None:
        try:
            call()
        except Exception as error:
            for job in jobs:
                self._fail(job, error)

    def _fail(self, job: Job, error: Exception) -> None:
        job.end(error)
        self.cancel(job)
