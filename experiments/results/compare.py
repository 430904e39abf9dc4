"""The `compare` mode: compares two or more systems on a test set, with significance tests."""

import dataclasses
import difflib
import math
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.data import held_out
from transformer.data.corpora import parts_of
from transformer.errors import UserError
from transformer.files import write_text
from transformer.runs import workdir
from transformer.runs.run import Run
from ..display.web_page import shortened
from ..process.modes import Options
from . import figures, table
from .runs import RUNS_EXAMPLE, list_stopped, read_systems
from .statistics import ROUNDING, spread
from .systems import Comparison, ScoredRun, System, validation_curves
from .table import NONE, Table

OUTPUT = "runs/comparison"
MAX_CHANGES = 10  # maximum number of improved texts shown, and of worsened texts
MAX_RUNS = 3  # maximum number of runs per system whose outputs are shown
MAX_TEXT_LENGTH = 600  # maximum number of characters shown per text
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]|\s+")
CLOCK = "seconds"  # training time at each evaluation
ABOUT_MINUTES = (
    "Minutes of training are those of each run's own machine, with compilation and evaluations. A "
    "level is reached at the first evaluation that has it, before checkpoints are averaged."
)

Parts = list[tuple[str, bool]]  # (part of a text, whether the other text lacks this part)


def compare_runs(run: Run, options: Options) -> list[Path]:
    """Writes the comparison of `--runs` as Markdown and as an HTML page, and prints it.

    The files are written before anything is printed, since standard output may be closed early, for
    example by `| head`. No --config or --workdir is needed, since each compared run has both.
    """
    if options.runs is None:
        raise UserError(f"--runs is missing: name the systems to compare, such as {RUNS_EXAMPLE}")
    try:
        levels = [float(part) for part in (options.levels or "").split(",") if part]
    except ValueError:
        raise UserError(
            f"--levels={options.levels} is not a list of scores: give numbers, --levels=38,40"
        ) from None
    output = Path(options.output or OUTPUT).expanduser()
    comparison = read_systems(options.runs, options.set)
    output.mkdir(parents=True, exist_ok=True)
    comparison, more = add_curves(comparison)
    if stopped := list_stopped(Run(each.folder) for each in comparison.runs):
        more.insert(0, f"Scored before the end of the training: {', '.join(stopped)}.")
    title = "Comparison" + (f" on {options.set}" if options.set else "")
    command = f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}"
    results = table.describe(comparison, title, command)
    tables = [*results.tables]
    if comparison.runs[0].curves:
        levels = levels or [default_level(comparison)]
        tables.append(training_table(comparison, levels))
    results = results._replace(tables=tables, notes=[*results.notes, *more])
    measures = comparison.measures
    page = results.to_page(
        figures.draw(comparison, levels),
        changes=find_changes(comparison),
        measure=measures.metric(measures.changes).title,
        noun=measures.noun,
        baseline=comparison.systems[0].name,
    )
    files = {"comparison.md": results.to_markdown(), "comparison.html": page}
    for name, text in files.items():
        write_text(output / name, text)
    for each in tables:
        table.print_rows(each)
    lines = (f"{name}: {text}" for name, text in results.signatures.items())
    for line in (*results.notes, *lines):
        print(line, flush=True)
    return [output / name for name in files]


# -- the texts that changed


def find_changes(comparison: Comparison) -> list[dict[str, Any]]:
    """Returns the texts on which each system scores better or worse than the baseline.

    The keys are `system`, `better` and `worse`. The texts with the largest changes come first.
    """
    measures, systems = comparison.measures, comparison.systems
    name = measures.changes
    metric, of_sums = measures.metric(name), measures.of_sums[name]
    sign = 1 if metric.higher_is_better else -1
    # Per-text scores, averaged over the runs of each system.
    before, *others = (
        np.mean([of_sums(run.counts[name]) for run in system.runs], 0) for system in systems
    )
    changes: list[dict[str, Any]] = []
    for system, after in zip(systems[1:], others, strict=True):
        differences, gains = after - before, sign * (after - before)
        order = np.argsort(-gains, kind="stable").tolist()
        sides = {
            "better": [i for i in order[:MAX_CHANGES] if gains[i] > ROUNDING],
            "worse": [i for i in order[::-1][:MAX_CHANGES] if gains[i] < -ROUNDING],
        }
        change: dict[str, Any] = {"system": system.name, "better": [], "worse": []}
        for side, rows in sides.items():
            for i in rows:
                difference = f"{differences[i] * metric.scale:+{metric.format}} {metric.title}"
                text = {"number": i + 1, "difference": difference}
                change[side].append(text | {"lines": _lines(systems[0], system, i)})
        changes.append(change)
    return changes


def _lines(baseline: System, system: System, i: int) -> list[tuple[str, Parts]]:
    """Returns the inputs of text i, and both systems' outputs for this text, paired by run."""
    lines = [
        (name, [(shortened(texts[i], MAX_TEXT_LENGTH), False)])
        for name, texts in baseline.runs[0].texts.shown.items()
        if texts[i]
    ]
    for runs in list(zip(baseline.runs, system.runs, strict=False))[:MAX_RUNS]:
        marked = mark(*(shortened(run.texts.outputs[i], MAX_TEXT_LENGTH) for run in runs))
        for side, run, parts in zip((baseline, system), runs, marked, strict=True):
            seed = f", {run.folder.name}" if len(side.runs) > 1 else ""
            lines.append((side.name + seed, parts))
    return lines


def mark(before: str, after: str) -> tuple[Parts, Parts]:
    """Splits two texts into parts, each marked with whether the other text lacks this part.

    The texts are compared by words and single symbols. Joining the parts restores the texts.
    """
    words = WORD_OR_SIGN.findall(before), WORD_OR_SIGN.findall(after)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    parts: tuple[Parts, Parts] = [], []
    for kind, *ends in matcher.get_opcodes():
        for side, texts, start, end in zip(parts, words, ends[::2], ends[1::2], strict=True):
            if text := "".join(texts[start:end]):
                side.append((text, kind != "equal"))
    return parts


# -- the validation curves over training steps and time


def add_curves(comparison: Comparison) -> tuple[Comparison, list[str]]:
    """Returns the comparison with validation curves of one metric and `CLOCK` added, and notes.

    If the runs' curves are not comparable, no curves are added, and a note gives the reason.
    """
    curves, runs = comparison.measures.curves, comparison.runs
    metric = next((name for name in comparison.metrics if name in curves), None)
    read = {run.folder: _read_curves(run, metric) for run in runs} if metric else {}
    if reason := _obstacle(runs, read):
        return comparison, [f"No scores during training are compared: {reason}."]
    measures = dataclasses.replace(comparison.measures, curves=(metric,))
    systems = [
        dataclasses.replace(s, runs=[run._replace(curves=read[run.folder]) for run in s.runs])
        for s in comparison.systems
    ]
    more = {"systems": systems, "baseline": systems[0], "measures": measures}
    return dataclasses.replace(comparison, **more), [ABOUT_MINUTES]


def _read_curves(run: ScoredRun, metric: str) -> dict[str, Any]:
    """Returns a run's scores and times at the steps that have both, or {} if no step does."""
    curves = validation_curves(run.folder, (metric, CLOCK))
    values = [dict(zip(*curves.get(name, ([], [])), strict=True)) for name in (metric, CLOCK)]
    steps = [s for s in values[0] if all(math.isfinite(each.get(s, math.nan)) for each in values)]
    both = zip((metric, CLOCK), values, strict=True)
    return {name: (steps, [each[s] for s in steps]) for name, each in both} if steps else {}


def _obstacle(runs: Sequence[ScoredRun], read: dict[Path, Any]) -> str:
    """Returns the reason why the runs' curves are not comparable, or '' if they are comparable."""
    if not read:
        return "the tokens of the systems differ"
    first, *others = (run.folder for run in runs)
    settings = _evaluation_settings(first)
    for folder in others:
        if _evaluation_settings(folder) != settings:
            return f"{first} and {folder} had other texts or another search"
    missing = [folder for folder, curves in read.items() if not curves]
    return f"{missing[0]} has no evaluations with their times" if missing else ""


def _evaluation_settings(folder: Path) -> tuple[Any, ...]:
    """Returns the non-model settings that affect validation scores: the texts and the search."""
    config = workdir.load_config(folder)
    parts = parts_of(config.data, "validation")
    texts = [held_out.digests_of(folder, part) for part in parts]
    beam_size = config.evaluate.training_beam_size
    limits = config.decode.max_ratio, config.decode.max_extra
    penalty = (config.decode.length_penalty, config.decode.alpha) if beam_size > 1 else ()
    return texts, config.evaluate.max_sentences, beam_size, *limits, *penalty


def default_level(comparison: Comparison) -> float:
    """Returns the best validation score that all runs reach, rounded to one decimal."""
    [name] = comparison.measures.curves
    metric = comparison.measures.metric(name)
    best, worst = (max, min) if metric.higher_is_better else (min, max)
    level = metric.scale * worst(best(run.curves[name][1]) for run in comparison.runs)
    return (math.floor if metric.higher_is_better else math.ceil)(10 * level) / 10


def training_table(comparison: Comparison, levels: Sequence[float]) -> Table:
    """Returns a table with each system's steps, minutes, best score, and minutes to each level."""
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
            first = [each[0] for each in reached if len(each)]
            text = _mean_text(first, ",.1f") if first else NONE
            if 0 < len(first) < len(reached):
                text = f"{np.mean(first):,.1f} ({len(first)} of {len(reached)} seeds)"
            row.append(text)
        rows.append([system.name, str(len(system.runs)), *row])
    head = ["system", "n", "steps", "minutes", f"best validation {measure.title}"]
    head += [f"minutes to {level:g}" for level in levels]
    return Table(f"Validation {measure.title} during training", head, rows)


def _mean_text(numbers: Sequence[float], form: str) -> str:
    """Returns the mean of numbers, with their standard deviation if there are several."""
    _, mean, deviation, _ = spread(numbers)
    return f"{mean:{form}} ± {deviation:{form}}" if len(numbers) > 1 else f"{mean:{form}}"
