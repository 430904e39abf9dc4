"""The table that `--mode=plan` prints."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from experiments.text_io import print_table

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


def print_plan(found: Mapping[str, Any]) -> None:
    """Prints a plan, see `plan.estimate`, with what to change."""
    table = Table("", "estimate", title=f"{found['name']} on {found['device']}")
    sections = (_text, _model, _memory, _disk, _time)
    for section in sections:
        for name, value in section(found):
            table.add_row(name, value)
        table.add_section()
    print_table(table)
    if found["advice"]:
        print(f"the memory is too small: {found['advice']}", flush=True)
    if found["faster"]:
        line = f"this CPU has AMX, with which --{found['faster']} shortened steps by a third"
        print(f"{line} (docs/performance.md)", flush=True)


def _text(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    text = found["text"]
    for split, counts in text["splits"].items():
        yield f"{split}", ", ".join(f"{count:,} {name}" for name, count in counts.items())
    for side, count in text["tokens"].items():
        yield f"tokens, {side}", f"{count:,}"
    for side, count in text["vocabulary"].items():
        yield f"vocabulary, {side}", f"{count:,}"
    if text["padding_fraction"] is not None:
        yield "padding", f"{text['padding_fraction']:.1%}"
    shapes = ", ".join(f"{s['rows']}x{s['length']} ({s['batches']:,})" for s in found["shapes"])
    yield "batches per epoch", f"{text['batches_per_epoch']:,}: {shapes}"


def _model(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, count in found["parameters"].items():
        yield f"parameters, {name}", f"{count:,}"
    flops = found["flops"]
    yield "operations per step", quantity(flops["per_step"], "FLOP")
    yield "operations per epoch", quantity(flops["per_epoch"], "FLOP")


def _memory(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory = found["memory"]
    yield "memory: parameters and optimizer", quantity(memory["state"], "B")
    yield "memory: largest step, these included", quantity(memory["step"], "B")
    yield "memory: copy while saving", quantity(memory["saving"], "B")
    if memory["process"]:
        yield "memory: all of this plan's process", quantity(memory["process"], "B")
    needed, free = (quantity(memory[name], "B") for name in ("needed", "free"))
    verdict = "" if memory["fits"] else ", too little"
    yield "memory needed", f"{needed} of {free} that are free{verdict}"
    if memory["largest_batch_tokens"]:
        yield "largest batch_tokens, about", f"{memory['largest_batch_tokens']:,}"


def _disk(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    disk = found["disk"]
    run, each = quantity(disk["run"], "B"), quantity(disk["checkpoint"], "B")
    yield "disk: run", f"{run}, up to {disk['checkpoints']} checkpoints of {each}"
    yield "disk: cache of the text", quantity(disk["cache"], "B")
    short = ", too little: lower --config.train.keep_last or --config.evaluate.average_last_n"
    few = disk["run"] + disk["cache"] > disk["free"]
    yield "disk: free", quantity(disk["free"], "B") + (short if few else "")


def _time(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    time = found["time"]
    if time is None:
        yield "time", "not measured, since the memory is too small"
        return
    each = time["seconds_per_step"]
    speed = quantity(found["flops"]["per_step"] / each, "FLOP/s")
    yield "time: a step", f"{each:.3g} s, {speed}"
    yield "time: to compile", duration(time["compile"])
    evaluation, count = duration(time["evaluation"]), time["evaluations"]
    yield "time: an evaluation, at most", f"{evaluation}; evaluations: {count:,}"
    end = f"{time['steps']:,} steps, {time['epochs']:.1f} epochs ({time['ending']})"
    if time["minutes"]:
        end += f", or train.minutes={time['minutes']:g}"
    least, most = duration(time["least"]), duration(time["most"])
    yield "time: to the end", f"{least} to {most}: {end}"
    if time["patience"]:
        yield "", f"or earlier: after {time['patience']} evaluations without a better score"


def quantity(number: float, unit: str) -> str:
    """Returns a number with a prefix of a thousand's power, such as 1.5 GB."""
    power = 0
    while number >= 999.5 and power < len(PREFIXES) - 1:  # which three digits round up
        number, power = number / 1000, power + 1
    return f"{number:.3g} {PREFIXES[power]}{unit}"


def duration(seconds: float) -> str:
    """Returns seconds as text: 4.2 s, or hours, minutes and seconds from a minute on."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return str(datetime.timedelta(seconds=round(seconds)))
