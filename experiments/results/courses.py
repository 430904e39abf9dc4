"""The validation curves of compared runs over training steps and time."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.data import held_out
from transformer.data.corpora import parts_of
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.runs.run import read_run
from .statistics import spread
from .systems import Comparison, ScoredRun, validation_curves
from .table import NONE, Table

LEVELS_EXAMPLE = "--levels=38,40"
CLOCK = "seconds"  # training time at each evaluation
ABOUT_MINUTES = (
    "Minutes of training include compilation and evaluations. A level is reached at the first "
    "evaluation during training that has it, before checkpoints are averaged."
)


def parse_levels(text: str | None) -> list[float]:
    """Returns the comma-separated scores of `--levels`."""
    try:
        levels = [float(part) for part in (text or "").split(",") if part]
    except ValueError:
        levels = [math.nan]
    if not all(map(math.isfinite, levels)):
        raise UserError(f"--levels={text} is not a list of scores: give numbers, {LEVELS_EXAMPLE}")
    return levels


def add_curves(comparison: Comparison) -> tuple[Comparison, list[str]]:
    """Returns a comparison with the curves of one metric and of `CLOCK`, and notes about them.

    If the runs' curves are not comparable, it is returned unchanged, and the note says why.
    """
    curves, runs = comparison.measures.curves, comparison.runs
    metric = next((name for name in comparison.metrics if name in curves), None)
    read = {run.folder: _read_curves(run, metric) for run in runs} if metric else {}
    if reason := _obstacle(runs, read):
        return comparison, [f"No scores during training are compared: {reason}."]
    notes, machines = [ABOUT_MINUTES], {_machine(run.folder) for run in runs}
    if len(machines) > 1:
        notes.append(f"The minutes are of different machines: {'; '.join(sorted(machines))}.")
    measures = dataclasses.replace(comparison.measures, curves=(metric,))
    systems = [
        dataclasses.replace(s, runs=[run._replace(curves=read[run.folder]) for run in s.runs])
        for s in comparison.systems
    ]
    more = {"systems": systems, "baseline": systems[0], "measures": measures}
    return dataclasses.replace(comparison, **more), notes


def _obstacle(runs: Sequence[ScoredRun], read: dict[Path, Any]) -> str:
    """Returns why the curves of runs are not comparable; empty if they are."""
    if not read:
        return "the tokens of the systems differ"
    first, *others = (run.folder for run in runs)
    settings = _evaluation_settings(first)
    for folder in others:
        if _evaluation_settings(folder) != settings:
            return f"{first} and {folder} had other texts or another search"
    missing = [folder for folder, curves in read.items() if not curves]
    return f"{missing[0]} has no evaluations with their times" if missing else ""


def default_level(comparison: Comparison) -> float:
    """Returns the best validation score that all runs reach, rounded to one decimal."""
    [name] = comparison.measures.curves
    metric = comparison.measures.metric(name)
    best, worst = (max, min) if metric.higher_is_better else (min, max)
    level = metric.scale * worst(best(run.curves[name][1]) for run in comparison.runs)
    return (math.floor if metric.higher_is_better else math.ceil)(10 * level) / 10


def training_table(comparison: Comparison, levels: Sequence[float]) -> Table:
    """Returns a table of each system's steps, minutes, best score, and minutes to each level."""
    [name] = comparison.measures.curves
    measure = comparison.measures.measure(name, panel=True)
    sign, rows = (1 if comparison.measures.metric(name).higher_is_better else -1), []
    for system in comparison.systems:
        scores = [measure.scale * np.array(run.curves[name][1]) for run in system.runs]
        minutes = [np.array(run.curves[CLOCK][1]) / 60 for run in system.runs]
        row = [
            _mean_text([run.curves[name][0][-1] for run in system.runs], ",.0f"),
            _mean_text([each[-1] for each in minutes], ",.1f"),
            _mean_text([sign * (sign * each).max() for each in scores], measure.format),
        ]
        for level in levels:
            reached = [
                at[sign * (each - level) >= 0] for at, each in zip(minutes, scores, strict=True)
            ]
            row.append(_minutes_text(reached))
        rows.append([system.name, str(len(system.runs)), *row])
    head = ["system", "n", "steps", "minutes", f"best validation {measure.title}"]
    head += [f"minutes to {level:g}" for level in levels]
    return Table(f"Validation {measure.title} during training", head, rows)


def _minutes_text(reached: Sequence[np.ndarray]) -> str:
    """Returns the mean minutes to a level, given the minutes at which each run had reached it."""
    first = [each[0] for each in reached if len(each)]
    if len(first) in (0, len(reached)):
        return _mean_text(first, ",.1f") if first else NONE
    return f"{np.mean(first):,.1f} ({len(first)} of {len(reached)} seeds)"


def _mean_text(numbers: Sequence[float], form: str) -> str:
    """Returns the mean of numbers, with their standard deviation if there are several."""
    _, mean, deviation, _ = spread(numbers)
    return f"{mean:{form}} ± {deviation:{form}}" if len(numbers) > 1 else f"{mean:{form}}"


def _evaluation_settings(folder: Path) -> tuple[Any, ...]:
    """Returns the settings that validation scores depend on besides the model: texts and search."""
    config = workdir.load_config(folder)
    parts = parts_of(config.data, "validation")
    texts = [held_out.digests_of(folder, part) for part in parts]
    beam_size = config.evaluate.training_beam_size
    limits = config.decode.max_ratio, config.decode.max_extra
    penalty = (config.decode.length_penalty, config.decode.alpha) if beam_size > 1 else ()
    return texts, config.evaluate.max_sentences, beam_size, *limits, *penalty


def _read_curves(run: ScoredRun, metric: str) -> dict[str, Any]:
    """Returns a run's scores and times at evaluations that have both; empty if there are none."""
    try:
        curves = validation_curves(run.folder, (metric, CLOCK))
    except ValueError:
        return {}
    values = [dict(zip(*curves.get(name, ([], [])), strict=True)) for name in (metric, CLOCK)]
    steps = [s for s in values[0] if all(math.isfinite(each.get(s, math.nan)) for each in values)]
    both = zip((metric, CLOCK), values, strict=True)
    return {name: (steps, [each[s] for s in steps]) for name, each in both} if steps else {}


def _machine(folder: Path) -> str:
    machine = read_run(folder).get("environment")
    if machine is None:
        return "unknown"
    devices = f"{machine['devices']['count']} x {machine['devices']['kind']}"
    return f"{machine['processor']}, {machine['cores']} cores, {devices}"
