"""Numbers about a server, in the text format of Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from experiments.serving.batching import Work

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Requests, their seconds, the queue, the batches, and the process."""

    def __init__(self):
        self._registry = CollectorRegistry()
        about: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter(
            "transformer_requests", "Requests that were answered.", ["route", "status"], **about
        )
        self._seconds = Histogram(
            "transformer_request_seconds", "Time of a request.", ["route"], buckets=SECONDS, **about
        )
        self._batches = Histogram(
            "transformer_batch_texts",
            "Texts that were computed together.",
            ["operation"],
            buckets=TEXTS,
            **about,
        )
        self._waiting = Gauge("transformer_queue_requests", "Requests that wait.", **about)
        ProcessCollector(registry=self._registry)

    def watch(self, waiting: Callable[[], int]) -> None:
        """Takes the length of the queue from a function."""
        self._waiting.set_function(waiting)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, work: Work, texts: int) -> None:
        """Counts a batch."""
        self._batches.labels(work.name).observe(texts)

    def text(self) -> bytes:
        """Returns all of them."""
        return generate_latest(self._registry)
