"""The `benchmark` mode: measures the training speed of a config."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformer.errors import UserError
from transformer.runs.run import Run
from ..process.modes import Options
from ..results.table import Table, print_rows
from . import summary
from .measurements import Setting, choose_peers, measure
from .peers import PEERS
from .summary import quantity
from .workloads import Workload

TITLES = {
    "step": "compiled step",
    "loop": "whole loop",
    **{name: peer.title for name, peer in PEERS.items()},
}
TRAINING_HEAD = (
    *("part", "system", "step, ms", "target tokens/s"),
    *("of matmul speed", "time / our step", "peak memory"),
)
OTHER_HEAD = ("part", "", "")


def benchmark(run: Run, options: Options) -> None:
    """Benchmarks a config and prints tables.

    The trained weights are not saved, and no run folder is created.
    """
    if not hasattr(os, "killpg"):
        raise UserError("--mode=benchmark is for Linux and macOS: here, --mode=plan measures steps")
    share_device()
    setting = Setting(peers=tuple(choose_peers(options.peers)))
    show_results(measure({"training": Workload(run.config)}, setting), run.config.name)


def share_device() -> None:
    """Disables JAX's GPU memory preallocation, so that several processes can share one GPU.

    Call this before JAX initialises its backend; child processes inherit the setting.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def choose(text: str | None, parts: Sequence[str]) -> list[str]:
    """Returns the names in a comma-separated flag, ordered as in `parts`; None means all parts."""
    names = parts if text is None else text.split(",")
    for name in names:
        if name not in parts:
            raise UserError(f"--parts has {name!r}: choose from {','.join(parts)}")
    return [name for name in parts if name in names]


def show_results(results: Mapping[str, Any], name: str) -> None:
    """Prints the results."""
    parts, title = results["parts"], f"{name} on {summary.machine(results['environment'])}"
    training, others = (list(map(list, rows(parts))) for rows in (training_rows, other_rows))
    print_rows(Table(title, TRAINING_HEAD, training, len(TRAINING_HEAD)))
    print_rows(Table("", OTHER_HEAD, others, len(OTHER_HEAD)))


# -- the tables


def training_rows(parts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields a table row for each training system: medians, with quartiles in parentheses."""
    for name, part in parts.items():
        measured = part["numbers"]
        for system in measured:
            if "step_seconds" in (of_system := measured[system]):
                milliseconds = {k: 1000 * value for k, value in of_system["step_seconds"].items()}
                yield (
                    *(name, TITLES[system]),
                    _spread_text(milliseconds, ",.0f" if milliseconds["median"] >= 100 else ".3g"),
                    f"{of_system['tokens_per_second']['median']:,.0f}",
                    f"{of_system['fraction']['median']:.0%}",
                    _spread_text(of_system["ratio"], ".2f") if "ratio" in of_system else "-",
                    quantity(of_system["peak_bytes"]["median"], "B"),
                )


def _spread_text(number: Mapping[str, float], form: str) -> str:
    return f"{number['median']:{form}} ({number['low']:{form}} to {number['high']:{form}})"


def other_rows(parts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields (part, name, value) for all other results."""
    for name, part in parts.items():
        measured = part["numbers"]
        speed = measured[summary.MATMUL]["flops_per_second"]
        speed = {key: quantity(value, "FLOP/s") for key, value in speed.items()}
        yield name, "parameters", f"{part['parameters']:,}"
        yield name, "operations per step", quantity(part["flops_per_step"], "FLOP")
        yield name, "large matrix products", "{median} ({low} to {high})".format(**speed)
        yield name, "target positions with padding", f"{part['target_padding_fraction']:.1%}"
        compiled = measured["step"]["compile_seconds"]["median"]
        yield name, f"compiling {len(part['shapes'])} shapes", f"{compiled:.1f} s"
        yield name, "memory of the compiled step", quantity(part["program_bytes"], "B")
        if part["device_bytes"] is not None:
            yield name, "memory of the device, at most", quantity(part["device_bytes"], "B")
