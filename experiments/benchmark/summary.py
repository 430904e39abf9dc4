"""Summary statistics of a benchmark, and regressions from an earlier benchmark.

Statistics are medians and quartiles over rounds. A cost is a time relative to large matmuls in the
same round: a cost of 1.5 is 1.5 times the time of matmuls with as many FLOPs. If FLOPs are not
counted, the cost is the number of FLOPs that matmuls perform in that time, in units of 1e12.
Benchmarks are compared by cost, so that a slow machine is not mistaken for slow code.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.files import Each, read_json

UNIT = 1e12  # FLOPs
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
MATMUL, STEP, OURS_LOW = "matmul", "step", "ours_bfloat16"
OURS = (STEP, "loop", "decoding", "cold", "warm")
# Quantities to compare: key -> (name, tolerated relative increase).
COMPARED = {
    "cost": ("time", 0.05),
    "compile_cost": ("compilation", 0.15),
    "peak_bytes": ("peak memory", 0.05),
}
STARTS, START_MARGIN = ("cold", "warm"), 0.15
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


def decoding_numbers(records: SystemRecords) -> dict[str, dict[str, Any]]:
    """Returns `seconds`, `cost` and `ratio` (time relative to ours) for each translation system."""
    speed = column(records, MATMUL, "flops_per_second")
    ours, numbers = column(records, "decoding", "seconds"), {}
    for name in records:
        if name != MATMUL:
            seconds = column(records, name, "seconds")
            numbers[name] = {**timed_numbers(seconds, speed), "ratio": spread(seconds / ours)}
    return numbers


def timed_numbers(seconds: Numbers, speed: Numbers) -> dict[str, Spread]:
    """Returns `seconds` and `cost`, given the matmul speed in FLOP/s measured with each time."""
    return {"seconds": spread(seconds), "cost": spread(np.multiply(seconds, speed) / UNIT)}


def quantity(number: float, unit: str) -> str:
    """Formats a number with an SI prefix and a unit, such as 1.5 GB."""
    power = 0
    while number >= 999.5 and power < len(PREFIXES) - 1:  # 999.5 is shown as 1e+03
        number, power = number / 1000, power + 1
    return f"{number:.3g} {PREFIXES[power]}{unit}"


# -- comparison with an earlier benchmark


class QuantityChange(NamedTuple):
    """The ratio of a quantity to the baseline, and whether it is worse beyond margin and noise."""

    part: str
    system: str
    quantity: str
    ratio: float
    worse: bool


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[QuantityChange]:
    """Returns the changes of all quantities measured by both benchmarks on the same workloads."""
    changes = []
    for name, part in new["parts"].items():
        before = old["parts"].get(name, {})
        if before.get("workload") != part.get("workload"):
            continue
        for system in OURS:
            now, then = (each.get("numbers", {}).get(system, {}) for each in (part, before))
            for key, (title, margin) in COMPARED.items():
                if key in now and key in then:
                    margin = START_MARGIN if system in STARTS else margin
                    ratio, worse = relate(then[key], now[key], margin)
                    changes.append(QuantityChange(name, system, title, ratio, worse))
    return changes


def relate(old: Spread, new: Spread, margin: float) -> tuple[float, bool]:
    """Returns the ratio of medians, and whether it exceeds 1 + margin with disjoint quartiles."""
    ratio = new["median"] / old["median"]
    return ratio, ratio > 1 + margin and new["low"] > old["high"]


def report(
    old: Mapping[str, Any], new: Mapping[str, Any], changes: Sequence[QuantityChange]
) -> list[str]:
    """Returns the lines of a report: the machine of the baseline, and each regression."""
    then = old["environment"]
    commit = f", commit {then['code']['commit'][:7]}" if then["code"] else ""
    lines = [f"compared with the baseline of {machine(then)}{commit}"]
    missing = sorted(new["parts"].keys() - {change.part for change in changes})
    if missing:
        lines.append(f"the baseline has not the same work in: {', '.join(missing)}")
    worse = [change for change in changes if change.worse]
    lines += [
        f"{part}, {system}: {title} is {ratio:.2f} times that of the baseline"
        for part, system, title, ratio, _ in worse
    ]
    if not worse:
        lines.append(f"nothing of {len(changes)} quantities became worse")
    return lines


def machine(environment: Mapping[str, Any]) -> str:
    """Returns a description of the devices, the processor and the JAX version."""
    devices = environment["devices"]
    return (
        f"{devices['count']} x {devices['kind']}, {environment['cores']} cores of "
        f"{environment['processor']}, jax {environment['packages'].get('jax')}"
    )


def read(path: Path) -> dict[str, Any]:
    """Returns the results of an earlier benchmark; raises UserError if the file is invalid."""
    shape = {"environment": dict, "parts": Each(dict)}
    return read_json(path, shape, "give --baseline a file that a benchmark has written")
