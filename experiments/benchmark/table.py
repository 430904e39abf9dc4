"""The tables that a benchmark prints."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from experiments.benchmark.numbers import MATMUL
from experiments.benchmark.peers import PEERS
from experiments.planning.table import quantity
from experiments.text_io import print_table

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


def training_rows(parts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields a row of each system that trains: medians, and quartiles in parentheses.

    Those in float32 come first.
    """
    for name, part in parts.items():
        numbers = part["numbers"]
        for system in sorted(numbers, key=lambda system: "bfloat16" in system):
            if "step_seconds" in (own := numbers[system]):
                milliseconds = {key: 1000 * value for key, value in own["step_seconds"].items()}
                yield (
                    name,
                    TITLES[system],
                    _spread(milliseconds, ",.0f" if milliseconds["median"] >= 100 else ".3g"),
                    f"{own['tokens_per_second']['median']:,.0f}",
                    f"{own['fraction']['median']:.0%}",
                    _spread(own["ratio"], ".2f") if "ratio" in own else "-",
                    quantity(own["peak_bytes"]["median"], "B"),
                )
        for system, error in part.get("errors", {}).items():
            yield (name, TITLES[system], error, "", "", "", "")


def _spread(own: Mapping[str, float], form: str) -> str:
    return f"{own['median']:{form}} ({own['low']:{form}} to {own['high']:{form}})"


def other_rows(parts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields (part, name, value) of all else."""
    for name, part in parts.items():
        numbers = part["numbers"]
        yield name, "work", part["workload"]
        if "flops_per_step" in part:
            speed = numbers[MATMUL]["flops_per_second"]
            speed = {key: quantity(value, "FLOP/s") for key, value in speed.items()}
            yield name, "parameters", f"{part['parameters']:,}"
            yield name, "operations per step", quantity(part["flops_per_step"], "FLOP")
            yield name, "large matrix products", "{median} ({low} to {high})".format(**speed)
            yield name, "target positions with padding", f"{part['target_padding_fraction']:.1%}"
            compiled = numbers["step"]["compile_seconds"]["median"]
            yield name, f"compiling {len(part['shapes'])} shapes", f"{compiled:.1f} s"
            yield name, "memory of the compiled step", quantity(part["program_bytes"], "B")
            if part["device_bytes"] is not None:
                yield name, "memory of the device, at most", quantity(part["device_bytes"], "B")
        if "decoding" in numbers:
            yield name, "sentences/s", f"{part['sentences_per_second']:,.0f}"
            yield name, "the first time, with compilation", f"{part['first_seconds']:.1f} s"
            for system in (peer for peer in numbers if peer != "decoding"):
                speed = part["sentences"] / numbers[system]["seconds"]["median"]
                ratio = _spread(numbers[system]["ratio"], ".2f")
                yield name, f"sentences/s, {TITLES[system]}", f"{speed:,.0f}; time / ours {ratio}"
        for start, title in (("cold", "no compiled programs"), ("warm", "compiled programs")):
            if start in numbers:
                seconds = _spread(numbers[start]["seconds"], ".1f")
                yield name, f"start to the second step, {title} in the cache", f"{seconds} s"


def print_tables(parts: Mapping[str, Any], title: str) -> None:
    """Prints both tables."""
    if rows := list(training_rows(parts)):
        table = Table(*TRAINING_HEAD, title=title)
        for row in rows:
            table.add_row(*row)
        print_table(table, 2)
    table = Table(*OTHER_HEAD, title=None if rows else title)
    for row in other_rows(parts):
        table.add_row(*row)
    print_table(table, 2)
