"""The numbers of a benchmark from its rounds: medians and quartiles, relative to large products.

The cost of a time is what large matrix products need for as many floating-point operations, as
measured in the same round: 1.5 means that it took 1.5 times as long as they would. Where operations
are not counted, the cost is in units of 1e12 of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

UNIT = 1e12  # operations
MATMUL, STEP, OURS_LOW = "matmul", "step", "ours_bfloat16"
Numbers = Sequence[float] | np.ndarray
Spread = dict[str, float]
Records = Mapping[str, Mapping[str, Any]]  # what `rotation.rotate` returns


def spread(values: Numbers) -> Spread:
    """Returns the median and the quartiles: `median`, `low` and `high`."""
    low, median, high = np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high}


def column(records: Records, system: str, key: str) -> np.ndarray:
    """Returns a number of each round of a system."""
    return np.array([row[key] for row in records[system]["rounds"]], float)


def training_numbers(records: Records) -> dict[str, dict[str, Any]]:
    """Returns {system: {quantity: spread}} of systems that train on the same batches.

    `tokens_per_second` are real target tokens, `fraction` is of the speed of large products, and
    `ratio` relates the time to that of our step, of the same precision if that was measured.
    """
    speed = column(records, MATMUL, "flops_per_second")
    work = {key: column(records, STEP, key) for key in ("steps", "tokens", "flops")}
    numbers: dict[str, dict[str, Any]] = {MATMUL: {"flops_per_second": spread(speed)}}
    for name, record in records.items():
        if name == MATMUL or "error" in record:
            continue
        seconds = column(records, name, "seconds")
        cost = seconds * speed / work["flops"]
        numbers[name] = {
            "step_seconds": spread(seconds / work["steps"]),
            "tokens_per_second": spread(work["tokens"] / seconds),
            "cost": spread(cost),
            "fraction": spread(1 / cost),
            "peak_bytes": spread([record["peak_bytes"]]),
        }
        ours = OURS_LOW if "bfloat16" in name and name != OURS_LOW else STEP
        if "rounds" in records.get(ours, {}):
            numbers[name]["ratio"] = spread(seconds / column(records, ours, "seconds"))
    compiled = records[STEP]["compile_seconds"]
    numbers[STEP]["compile_seconds"] = spread([compiled])
    numbers[STEP]["compile_cost"] = spread(compiled * speed / UNIT)
    return numbers


def decoding_numbers(records: Records) -> dict[str, dict[str, Any]]:
    """Returns `seconds`, `cost` and `ratio` to the time of ours, of each system that translates."""
    speed = column(records, MATMUL, "flops_per_second")
    ours, numbers = column(records, "decoding", "seconds"), {}
    for name, record in records.items():
        if name != MATMUL and "error" not in record:
            seconds = column(records, name, "seconds")
            numbers[name] = {**timed_numbers(seconds, speed), "ratio": spread(seconds / ours)}
    return numbers


def timed_numbers(seconds: Numbers, speed: Numbers) -> dict[str, Spread]:
    """Returns `seconds` and their `cost`, given the speed of large products at the time of each."""
    return {"seconds": spread(seconds), "cost": spread(np.multiply(seconds, speed) / UNIT)}
