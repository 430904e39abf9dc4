"""What became slower, or needs more memory, than in an earlier benchmark.

Costs are compared, see `numbers`, so that a slow machine of one kind is not taken for slow code.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer.errors import UserError

OURS = ("step", "loop", "decoding", "cold", "warm")
# The quantities that are compared, what they are called, and the growth that is no news.
COMPARED = {
    "cost": ("time", 0.05),
    "compile_cost": ("compilation", 0.15),
    "peak_bytes": ("peak memory", 0.05),
}
STARTS, START_MARGIN = ("cold", "warm"), 0.15


class Change(NamedTuple):
    """A quantity relative to an earlier one, and whether it is worse beyond margin and noise."""

    part: str
    system: str
    quantity: str
    ratio: float
    worse: bool


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Returns the changes of all that both benchmarks have measured of the same workloads."""
    changes = []
    for name, part in new["parts"].items():
        before = old["parts"].get(name, {})
        if before.get("workload") != part.get("workload"):
            continue
        for system in OURS:
            now, then = (own.get("numbers", {}).get(system, {}) for own in (part, before))
            for quantity, (title, margin) in COMPARED.items():
                if quantity in now and quantity in then:
                    margin = START_MARGIN if system in STARTS else margin
                    ratio, worse = relate(then[quantity], now[quantity], margin)
                    changes.append(Change(name, system, title, ratio, worse))
    return changes


def relate(old: Mapping[str, float], new: Mapping[str, float], margin: float) -> tuple[float, bool]:
    """Returns the ratio of the medians; worse is beyond the margin, with quartiles apart."""
    ratio = new["median"] / old["median"]
    return ratio, ratio > 1 + margin and new["low"] > old["high"]


def report(old: Mapping[str, Any], new: Mapping[str, Any], changes: Sequence[Change]) -> list[str]:
    """Returns lines: on what the baseline was measured, and each change that is worse."""
    then, now = old["environment"], new["environment"]
    commit = f", commit {then['code']['commit'][:7]}" if then["code"] else ""
    lines = [f"compared with the baseline of {machine(then)}{commit}"]
    if machine(then) != machine(now):
        lines.append(f"this machine is another: {machine(now)}")
    missing = sorted(new["parts"].keys() - {change.part for change in changes})
    if missing:
        lines.append(f"the baseline has not the same work in: {', '.join(missing)}")
    worse = [change for change in changes if change.worse]
    lines += [
        f"{part}, {system}: {quantity} is {ratio:.2f} times that of the baseline"
        for part, system, quantity, ratio, _ in worse
    ]
    if not worse:
        ratios = [change.ratio for change in changes]
        span = f": ratios from {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        lines.append(f"nothing of {len(changes)} quantities became worse{span}")
    return lines


def machine(environment: Mapping[str, Any]) -> str:
    """Returns the device, the processor and the version of JAX."""
    devices = environment["devices"]
    return (
        f"{devices['count']} x {devices['kind']}, {environment['cores']} cores of "
        f"{environment['processor']}, jax {environment['packages'].get('jax')}"
    )


def read(path: Path) -> dict[str, Any]:
    """Returns an earlier benchmark; raises UserError if the file is none."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        machine(earlier["environment"])
        for part in earlier["parts"].values():
            part.get("numbers", {}).values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"--baseline={path} is not a benchmark: name a file that one has written"
        ) from None
    return earlier
