"""What became slower, or needs more memory, than in an earlier benchmark.

Costs are compared, see `numbers`, so that a slow machine of one kind is not taken for slow code.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
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
STARTS = ("cold", "warm")
START_MARGIN = 0.15


class Change(NamedTuple):
    """A quantity of a part relative to an earlier one: more than 1 is worse.

    Attributes:
      worse: whether the ratio is beyond the margin, and the quartiles do not overlap.
    """

    part: str
    system: str
    quantity: str
    ratio: float
    worse: bool


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Returns the changes of all that both benchmarks, as JSON has them, have measured.

    Parts of other workloads are left out.
    """
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
    """Returns the ratio of the medians, and whether the new one is worse beyond noise."""
    ratio = new["median"] / old["median"]
    return ratio, ratio > 1 + margin and new["low"] > old["high"]


def report(old: Mapping[str, Any], new: Mapping[str, Any], changes: Sequence[Change]) -> list[str]:
    """Returns lines: on what the baseline was measured, and each change that is worse."""
    then = old["environment"]
    lines = [f"compared with the baseline of {machine(then)}{_commit(then)}"]
    if machine(then) != machine(new["environment"]):
        lines.append(f"this machine is another: {machine(new['environment'])}")
    missing = sorted(new["parts"].keys() - {change.part for change in changes})
    if missing:
        lines.append(f"the baseline has not the same work in: {', '.join(missing)}")
    lines += [
        f"{own.part}, {own.system}: {own.quantity} is {own.ratio:.2f} times that of the baseline"
        for own in changes
        if own.worse
    ]
    if not any(own.worse for own in changes):
        lines.append(f"nothing of {len(changes)} quantities became worse{_range(changes)}")
    return lines


def _range(changes: Sequence[Change]) -> str:
    ratios = [own.ratio for own in changes]
    return f": ratios from {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""


def machine(environment: Mapping[str, Any]) -> str:
    """Returns the device, the processor and the version of JAX."""
    devices = environment["devices"]
    return ", ".join(
        (
            f"{devices['count']} x {devices['kind']}",
            f"{environment['cores']} cores of {environment['processor']}",
            f"jax {environment['packages'].get('jax')}",
        )
    )


def _commit(environment: Mapping[str, Any]) -> str:
    code = environment["code"]
    return f", commit {code['commit'][:7]}" if code else ""


def read(path: Path) -> dict[str, Any]:
    """Returns an earlier benchmark.

    Raises:
      UserError: the file is not that of a benchmark.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        machine(found["environment"])
        list(_systems(found))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"--baseline={path} is not a benchmark: name a file that one has written"
        ) from None
    return found


def _systems(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in found["parts"].values():
        yield from part.get("numbers", {}).values()
