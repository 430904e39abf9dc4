"""One part of the accelerator study, in a process that has the device to itself.

    python -m experiments.studies.accelerator.worker PART OUTCOME.json ORDER

The order is JSON. A part that crashes, or fills the device's memory, leaves the others alone.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments import environment
from experiments.process import explain
from experiments.studies.accelerator import (
    multi30k,
    numeric_tests,
    products,
    searches,
    steps,
    together,
    twice,
)
from experiments.studies.accelerator.parts import Order
from transformer.errors import one_line
from transformer.storage.files import write_json


def describe(order: Order) -> dict[str, Any]:
    """Returns the device and the versions, see `environment.describe`."""
    return {**environment.describe(), "platform": jax.default_backend()}


DEVICE = "device"  # no part of the page, but what the others are measured on
MEASURES: dict[str, Callable[[Order], Any]] = {
    DEVICE: describe,
    "peak": products.measure,
    "step": steps.measure,
    "multi30k": multi30k.measure,
    "tests": numeric_tests.measure,
    "together": together.measure,
    "decoding": searches.measure,
    "twice": twice.measure,
    "chunks": steps.measure_chunks,
}


def parse_order(text: str) -> Order:
    """Returns an order, given as JSON."""
    found = json.loads(text)
    data = found["data"] and Path(found["data"])
    return Order(**{**found, "folder": Path(found["folder"]), "data": data})


def outcomes(measure: Callable[[Order], Any], order: Order) -> Iterator[dict[str, Any]]:
    """Yields the `result` of a part, and its one-line `error` if it fails.

    Of a part that yields rows, the result grows by each, so that a crash loses only the next one.
    """
    rows: list[Any] = []
    try:
        found = measure(order)
        if isinstance(found, Iterator):
            for row in found:
                rows.append(row)
                yield {"result": rows}
        else:
            yield {"result": found}
    except Exception as error:
        logging.getLogger(__name__).exception("this part failed")
        line = explain(error, "a file", "the sizes of this part")
        found = {"result": rows} if rows else {}
        yield {**found, "error": line or one_line(f"{type(error).__name__}: {error}")[:300]}


def main(arguments: Sequence[str]) -> None:
    """Measures the part that the arguments name."""
    name, path, order = arguments
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    for outcome in outcomes(MEASURES[name], parse_order(order)):
        write_json(Path(path), outcome)


if __name__ == "__main__":
    main(sys.argv[1:])
