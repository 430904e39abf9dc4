"""Summary statistics of a benchmark.

Statistics are medians and quartiles over rounds. A cost is a time relative to large matmuls in the
same round: a cost of 1.5 is 1.5 times the time of matmuls with as many FLOPs. If FLOPs are not
counted, the cost is the number of FLOPs that matmuls perform in that time, in units of 1e12.
Compare benchmarks by cost, so that a slow machine is not mistaken for slow code.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

UNIT = 1e12  # FLOPs
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
MATMUL, STEP, OURS_LOW = "matmul", "step", "ours_bfloat16"
Numbers = Sequence[float] | np.ndarray
Spread = dict[str, float]
SystemRecords = Mapping[str, Mapping[str, Any]]  # keyed by system; see `turns.rotate`


def spread(values: Numbers) -> Spread:
    """Returns the `median`, and the lower and upper quartiles as `low` and `high`."""
    low, median, high = np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high}


def column(records: SystemRecords, system: str, key: str) -> np.ndarray:
    """Returns a system's values for a key in all rounds."""
    return np.array([row[key] for row in records[system]["rounds"]], float)


def training_numbers(records: SystemRecords) -> dict[str, dict[str, Any]]:
    """Returns {system: {quantity: spread}} for systems that train on the same batches.

    `tokens_per_second` counts target tokens without padding, `fraction` is the speed relative to
    large matmuls, and `ratio` is the time relative to our step in the same precision.
    """
    speed = column(records, MATMUL, "flops_per_second")
    work = {key: column(records, STEP, key) for key in ("steps", "tokens", "flops")}
    numbers: dict[str, dict[str, Any]] = {MATMUL: {"flops_per_second": spread(speed)}}
    for name, record in records.items():
        if name == MATMUL:
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
        if ours in records:
            numbers[name]["ratio"] = spread(seconds / column(records, ours, "seconds"))
    compile_seconds = records[STEP]["compile_seconds"]
    numbers[STEP]["compile_seconds"] = spread([compile_seconds])
    numbers[STEP]["compile_cost"] = spread(compile_seconds * speed / UNIT)
    return numbers


def quantity(number: float, unit: str) -> str:
    """Formats a number with an SI prefix and a unit, such as 1.5 GB."""
    power = 0
    while number >= 999.5 and power < len(PREFIXES) - 1:  # 999.5 is shown as 1e+03
        number, power = number / 1000, power + 1
    return f"{number:.3g} {PREFIXES[power]}{unit}"


def machine(environment: Mapping[str, Any]) -> str:
    """Returns a description of the devices, the processor and the JAX version."""
    devices = environment["devices"]
    return (
        f"{devices['count']} x {devices['kind']}, {environment['cores']} cores of "
        f"{environment['processor']}, jax {environment['packages'].get('jax')}"
    )
