"""Tables of results: printed, as Markdown and as CSV."""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.table

from transformer.data.held_out import COPY_PREFIX, is_split
from transformer.errors import ENDS_OF_LINES, markdown_text
from transformer.metrics.registry import find
from ..process.text_io import print_table
from .statistics import CONFIDENCE, Difference, Spread, p_text, spread
from .systems import SPLIT_ORDER, Comparison, SweepTrial, System, short_names, value_text
from .tasks import Measure

NONE = "-"  # a missing number in a cell
INTERVAL = f"{CONFIDENCE:.0%} interval"
COSTS = (
    Measure("tokens_per_second", "tokens/s", format=",.0f", spread=False),
    Measure("wall_seconds", "minutes", 1 / 60, ",.1f", spread=False),
    Measure("parameters", "parameters", format=",.0f", spread=False),
    Measure("flops_per_token", "GFLOP/token", 1e-9, ",.3g", spread=False),
)
# Columns of the CSV after the scores.
RUN_COLUMNS = ("tokens_per_second", "flops_per_token", "wall_seconds", "parameters", "step")
TEST_COLUMNS = ("p_raw", "p_corrected", "detectable", "p_test")


class Table(NamedTuple):
    """A table of text."""

    caption: str
    head: Sequence[str]
    rows: list[list[str]]
    names: int = 1  # the first columns, which hold text; the others are right-aligned
    marked: int | None = None  # the index of a highlighted row, the baseline's


def one_line(text: str) -> str:
    """Returns the text without line breaks."""
    return " ".join(ENDS_OF_LINES.sub(" ", text).split())


def markdown_table(table: Table) -> str:
    """Returns a table as Markdown, without its caption."""

    def line(texts: Iterable[str], mark: str = "") -> str:
        cells = (f"{mark}{markdown_text(text)}{mark}".replace("|", "\\|") for text in texts)
        return f"| {' | '.join(cells)} |"

    ruler = ("---" if column < table.names else "---:" for column, _ in enumerate(table.head))
    rows = [line(row, "**" * (number == table.marked)) for number, row in enumerate(table.rows)]
    return "\n".join([line(table.head), f"| {' | '.join(ruler)} |", *rows])


def to_markdown(
    title: str,
    command: str,
    tables: Sequence[Table],
    notes: Iterable[str],
    signatures: Mapping[str, str],
    missing: Sequence[str] = (),
) -> str:
    """Returns results as Markdown."""
    parts = [f"# {markdown_text(title)}", f"```\n{one_line(command)}\n```"]
    for table in tables:
        parts += [f"{table.caption}:" if table.caption else "", markdown_table(table)]
    parts += map(markdown_text, notes)
    parts.append("\n".join(f"- {name}: `{text}`" for name, text in signatures.items()))
    if missing:
        lines = (f"- {markdown_text(line)}" for line in missing)
        parts.append("Not in the table:\n\n" + "\n".join(lines))
    return "\n\n".join(filter(None, parts)) + "\n"


def with_interval(text: str, interval: Any, show: Callable[[float], str]) -> str:
    """Returns a score with its interval: half a width, two bounds, or None."""
    if isinstance(interval, list):
        return f"{text} ({show(interval[0])} to {show(interval[1])})"
    return text if interval is None else f"{text} ± {show(interval)}"


def print_rows(table: Table) -> None:
    """Prints a table."""
    printed = rich.table.Table(title=table.caption)
    for column, name in enumerate(table.head):
        printed.add_column(name, justify="right" if column >= table.names else "left")
    for row in table.rows:
        printed.add_row(*row)
    print_table(printed)


def _difference_cells(difference: Difference | None, measure: Measure) -> list[str]:
    """Returns the cells of a difference: mean, interval, p, and the detectable size."""

    def show(number: float) -> str:
        return format(number * measure.scale, f"+{measure.format}")

    if difference is None or math.isnan(difference.mean):
        return [NONE] * 4
    if not difference.has_interval:
        return [show(difference.mean), *[NONE] * 3]
    interval = f"{show(difference.low)} to {show(difference.high)}"
    detectable = show(difference.detectable)[1:]
    return [show(difference.mean), interval, p_text(difference.corrected), detectable]


def build_tables(comparison: Comparison) -> list[Table]:
    """Returns a table for each metric, see `score_table`; the first one of a sweep is wider."""
    measures = comparison.measures
    if not comparison.trials:
        return [
            score_table(comparison, name)._replace(caption=measures.measure(name, panel=True).title)
            for name in comparison.metrics
        ]
    speed = dataclasses.replace(COSTS[0], title=f"{measures.unit}/s")
    further = [*comparison.scores[1:], speed, *COSTS[1:]]
    return [score_table(comparison, name, further) for name in comparison.metrics]


def score_table(comparison: Comparison, metric: str, further: Sequence[Measure] = ()) -> Table:
    """Returns a row for each system: name, score over seeds, difference to the baseline, and more.

    Columns without any number are left out.
    """
    systems, keys = comparison.systems, short_names(comparison.keys)
    main = comparison.measures.measure(metric)
    columns = {
        name: [value_text(s.values[key]) if key in s.values else NONE for s in systems]
        for key, name in keys.items()
    } or {"setting": ["as configured"] * len(systems)}
    columns["n"] = [
        f"{len(s.runs)} of {len(s.runs) + len(s.others)}" if s.others else str(len(s.runs))
        for s in systems
    ]
    columns[main.title] = [_measured(system, main) for system in systems]
    spreads = [None if system.lost else system.over_seeds(main.path) for system in systems]
    columns[INTERVAL] = [_interval(each, main) for each in spreads]
    cells = [_difference_cells(each, main) for each in comparison.differences[metric]]
    for system, row in zip(systems, cells, strict=True):
        row[0] = "baseline" if system is comparison.baseline else row[0]
    titles = ("difference", f"its {INTERVAL}", "p", "detectable")
    columns |= dict(zip(titles, zip(*cells, strict=True), strict=True))
    columns |= {each.title: [_measured(system, each) for system in systems] for each in further}
    columns = {title: texts for title, texts in columns.items() if {*texts} != {NONE}}
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    marked = next((i for i, each in enumerate(systems) if each is comparison.baseline), None)
    return Table("", list(columns), rows, max(1, len(keys)), marked)


def _measured(system: System, measure: Measure) -> str:
    numbers = system.over_seeds(measure.path)
    if numbers is None:
        return NONE
    text = measure.show(numbers.mean)
    if measure.spread and numbers.n > 1:
        text += f" ± {measure.show(numbers.deviation)}"
    return f"({text})" if measure.spread and system.lost else text


def _interval(numbers: Spread | None, measure: Measure) -> str:
    if numbers is None or math.isnan(numbers.interval):
        return NONE
    metric, half = find(measure.name), numbers.interval
    bounded = metric.higher_is_better or metric.unit == "%"
    ends = numbers.mean - half, numbers.mean + half
    low, high = np.clip(ends, 0.0, 100 / metric.scale if bounded else math.inf).tolist()
    return f"{measure.show(low)} to {measure.show(high)}"


def list_signatures(comparison: Comparison) -> dict[str, str]:
    """Returns signatures by metric title; those of longer sentences only if they differ."""
    signatures: dict[str, str] = {}
    for measure in comparison.scores:
        split, name = measure.path.split(".")
        of_test = signatures.get(measure.title.removeprefix("length generalization: "))
        for run in comparison.runs:
            text = (run.results.get(split) or {}).get(f"{name}_signature")
            if text and text != of_test:
                signatures[measure.title] = text
    return signatures


def list_missing(trials: Iterable[SweepTrial]) -> list[str]:
    """Returns a line for each trial missing in the table: number, state, values and reason."""
    return [
        f"trial {trial.number}, {trial.state}: "
        + (", ".join(f"{k}={value_text(v)}" for k, v in trial.values.items()) or "as configured")
        + (f" ({one_line(trial.note)})" if trial.note else "")
        for trial in trials
        if trial.state != "complete"
    ]


def to_csv(sweep: Comparison) -> str:
    """Returns the trials as CSV, one per row, with every score of every split and its signature.

    The columns from `p_raw` on belong to the comparison of the trial's whole setting.
    """
    runs = [run for system in sweep.systems for run in (*system.runs, *system.repeats)]
    results = {run.trial.number: run.results for run in runs if run.trial}
    keys = dict.fromkeys(key for trial in sweep.trials for key in trial.values)
    parts = (name for each in results.values() for name in each if is_split(name))
    scores = dict.fromkeys(
        (split, name)
        for split in dict.fromkeys((*SPLIT_ORDER, *parts))
        for each in results.values()
        for name, value in (each.get(split) or {}).items()
        if not isinstance(value, dict | list) or name.endswith("_ci")
    )
    tests = {
        run.trial.number: [
            difference.p_value,
            difference.corrected,
            difference.detectable,
            difference.signature,
        ]
        for system, difference in zip(sweep.systems, sweep.main_differences, strict=True)
        if difference and difference.has_interval
        for run in system.runs
        if run.trial
    }
    titles = [f"{split}_{name}" for split, name in scores]
    rows = [["number", *keys, "state", *titles, *RUN_COLUMNS, *TEST_COLUMNS]]
    for trial in sweep.trials:
        numbers = results.get(trial.number, {})
        row = [trial.number, *(trial.values.get(key) for key in keys), trial.state]
        row += [(numbers.get(split) or {}).get(name) for split, name in scores]
        row += [numbers.get(name) for name in RUN_COLUMNS]
        rows.append(row + tests.get(trial.number, [None] * len(TEST_COLUMNS)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def mean_text(numbers: Sequence[float], form: str) -> str:
    """Returns the mean of numbers, and their standard deviation if there are several."""
    numbers_spread = spread(numbers)
    text = format(numbers_spread.mean, form)
    return f"{text} ± {format(numbers_spread.deviation, form)}" if len(numbers) > 1 else text


def copies_tables(systems: Sequence[System]) -> list[Table]:
    """Returns tables of mean BLEU, and its ratio, on perturbed copies that all runs have."""
    first, *others = (run.results for system in systems for run in system.runs)
    shared = [
        name
        for name, copy in first.items()
        if name.startswith(COPY_PREFIX)
        and all(each.get(name, {}).get("sentences") == copy["sentences"] for each in others)
    ]
    caption = "BLEU of perturbed copies of the test set (ratio to the same sentences as they were)"

    def mean(system: System, name: str, score: str) -> str:
        copies = [run.results[name] for run in system.runs]
        numbers = [copy[score] for copy in copies if score in copy]
        return format(spread(numbers).mean, find(score).format) if numbers else NONE

    rows = [
        [s.name, *(f"{mean(s, name, 'bleu')} ({mean(s, name, 'clean_ratio')})" for name in shared)]
        for s in systems
    ]
    return [Table(caption, ["system", *shared], rows)] if shared else []
