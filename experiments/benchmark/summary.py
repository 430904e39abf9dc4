"""The numbers of a benchmark, and what became slower since an earlier one.

They are medians and quartiles over rounds. The cost of a time is relative to large matmuls in the
same round: 1.5 means 1.5 times the time that matmuls with the same number of FLOPs would take. If
FLOPs are not counted, the cost is the number of FLOPs that matmuls do in the time, in units of
1e12. Costs are compared, so that a slow machine is not taken for slow code.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.files import Each, read_json

UNIT = 1e12  # operations
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
MATMUL, STEP, OURS_LOW = "matmul", "step", "ours_bfloat16"
OURS = (STEP, "loop", "decoding", "cold", "warm")
# The quantities that are compared: key -> (name, growth that is ignored).
COMPARED = {
    "cost": ("time", 0.05),
    "compile_cost": ("compilation", 0.15),
    "peak_bytes": ("peak memory", 0.05),
}
STARTS, START_MARGIN = ("cold", "warm"), 0.15
Numbers = Sequence[float] | np.ndarray
Spread = dict[str, float]
SystemRecords = Mapping[str, Mapping[str, Any]]  # by system, see `turns.rotate`


def spread(values: Numbers) -> Spread:
    """Returns the median and the quartiles: `median`, `low` and `high`."""
    low, median, high = np.quantile(np.asarray(values, float), [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high}


def column(records: SystemRecords, system: str, key: str) -> np.ndarray:
    """Returns the values of a key in the rounds of a system."""
    return np.array([row[key] for row in records[system]["rounds"]], float)


def training_numbers(records: SystemRecords) -> dict[str, dict[str, Any]]:
    """Returns {system: {quantity: spread}} of systems that train on the same batches.

    `tokens_per_second` counts real target tokens, `fraction` is relative to the speed of large
    matmuls, and `ratio` to the time of our step, in the same precision if that was measured.
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
    """Returns `seconds`, `cost`, and `ratio` to our time, of each system that translates."""
    speed = column(records, MATMUL, "flops_per_second")
    ours, numbers = column(records, "decoding", "seconds"), {}
    for name in records:
        if name != MATMUL:
            seconds = column(records, name, "seconds")
            numbers[name] = {**timed_numbers(seconds, speed), "ratio": spread(seconds / ours)}
    return numbers


def timed_numbers(seconds: Numbers, speed: Numbers) -> dict[str, Spread]:
    """Returns `seconds` and `cost`, given the speed of large matmuls measured with each time."""
    return {"seconds": spread(seconds), "cost": spread(np.multiply(seconds, speed) / UNIT)}


def quantity(number: float, unit: str) -> str:
    """Returns a number with an SI prefix, such as 1.5 GB."""
    power = 0
    while number >= 999.5 and power < len(PREFIXES) - 1:  # 999.5 is shown as 1e+03
        number, power = number / 1000, power + 1
    return f"{number:.3g} {PREFIXES[power]}{unit}"


# -- an earlier benchmark


class QuantityChange(NamedTuple):
    """A quantity's ratio to an earlier one, and whether it is worse beyond margin and noise."""

    part: str
    system: str
    quantity: str
    ratio: float
    worse: bool


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[QuantityChange]:
    """Returns the changes of all quantities that both benchmarks measured on the same workloads."""
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
    """Returns the ratio of medians, and whether it exceeds the margin with separate quartiles."""
    ratio = new["median"] / old["median"]
    return ratio, ratio > 1 + margin and new["low"] > old["high"]


def report(
    old: Mapping[str, Any], new: Mapping[str, Any], changes: Sequence[QuantityChange]
) -> list[str]:
    """Returns lines with the machine of the baseline, and each change for the worse."""
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
    """Returns the device, the processor and the version of JAX."""
    devices = environment["devices"]
    return (
        f"{devices['count']} x {devices['kind']}, {environment['cores']} cores of "
        f"{environment['processor']}, jax {environment['packages'].get('jax')}"
    )


def read(path: Path) -> dict[str, Any]:
    """Returns an earlier benchmark; UserError if the file is not one."""
    shape = {"environment": dict, "parts": Each(dict)}
    return read_json(path, shape, "give --baseline a file that a benchmark has written")
