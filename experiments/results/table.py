"""Results of a sweep or comparison as printed tables, Markdown, CSV and an HTML page."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.table

from transformer.data.held_out import is_split
from transformer.errors import markdown_text
from transformer.metrics.registry import SWEEPS, find, metrics_of
from ..display import web_page
from ..process.text_io import print_table
from .figures import Captioned
from .statistics import CONFIDENCE, LEVEL, POWER, TESTS, Difference, Spread, test_of
from .systems import SPLIT_ORDER, Comparison, SweepTrial, System, short_names, value_text
from .tasks import Measure

NONE = "-"  # a missing number in a cell
INTERVAL = f"{CONFIDENCE:.0%} interval"
COSTS = (
    Measure("wall_seconds", "minutes", 1 / 60, ",.1f", spread=False),
    Measure("parameters", "parameters", format=",.0f", spread=False),
    Measure("flops_per_token", "GFLOP/token", 1e-9, ",.3g", spread=False),
)
# Columns of the CSV after the scores.
RUN_COLUMNS = ("tokens_per_second", "flops_per_token", "wall_seconds", "parameters", "step")
TEST_COLUMNS = ("p_raw", "p_corrected", "detectable", "p_test")


class Table(NamedTuple):
    """A table of strings."""

    caption: str
    head: Sequence[str]
    rows: list[list[str]]
    names: int = 1  # number of leading text columns; the other columns are right-aligned
    marked: int | None = None  # index of the highlighted row, which is the baseline


class Results(NamedTuple):
    """The results of a comparison as text."""

    title: str
    command: str  # the command that reproduces the results
    tables: Sequence[Table]
    notes: Sequence[str]
    signatures: Mapping[str, str]  # keyed by score title
    missing: Sequence[str]  # a line for each trial that is missing from the table

    def to_page(self, figures: Mapping[str, Captioned], **more: Any) -> str:
        """Returns an HTML page with the results and figures.

        Args:
          more: variables of `results.html`: `progress`, a status line that makes the page reload
            itself; `changes`, the changed texts; and `measure`, `noun` and `baseline` for them.
        """
        drawn = [
            (web_page.figure_svg(figure, name, caption), caption)
            for name, (figure, caption) in figures.items()
        ]
        values = {"progress": "", "changes": (), **self._asdict(), **more}
        return web_page.render("results.html", figures=drawn, **values)

    def to_markdown(self) -> str:
        """Returns the results as Markdown."""
        text = web_page.render("markdown.txt", markdown_text=markdown_text, **self._asdict())
        return text.rstrip() + "\n"


def describe(comparison: Comparison, title: str, command: str) -> Results:
    """Returns the results of a comparison as text."""
    return Results(
        title,
        command,
        build_tables(comparison),
        write_notes(comparison),
        list_signatures(comparison),
        list_missing(comparison.trials),
    )


def with_interval(text: str, interval: Any, show: Callable[[float], str]) -> str:
    """Returns a score with its interval, which is a half-width, two bounds, or None."""
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
    """Returns the table cells of a difference: mean, interval, p-value, detectable difference."""

    def show(number: float) -> str:
        return format(number * measure.scale, f"+{measure.format}")

    if difference is None or math.isnan(difference.mean):
        return [NONE] * 4
    if not difference.has_interval:
        return [show(difference.mean), *[NONE] * 3]
    interval = f"{show(difference.low)} to {show(difference.high)}"
    detectable = show(difference.detectable)[1:]
    p = "<0.001" if difference.corrected < 0.0005 else f"{difference.corrected:.3f}"
    return [show(difference.mean), interval, p, detectable]


def build_tables(comparison: Comparison) -> list[Table]:
    """Returns a table for each metric (see `score_table`). Sweep tables have further columns."""
    measures = comparison.measures
    if not comparison.trials:
        return [
            score_table(comparison, name)._replace(caption=measures.measure(name, panel=True).title)
            for name in comparison.metrics
        ]
    speed = Measure("tokens_per_second", f"{measures.unit}/s", format=",.0f", spread=False)
    further = [*comparison.scores[1:], speed, *COSTS]
    return [score_table(comparison, name, further) for name in comparison.metrics]


def score_table(comparison: Comparison, metric: str, further: Sequence[Measure] = ()) -> Table:
    """Returns a table with each system's setting, scores, costs, and difference from the baseline.

    Columns that are empty for all systems are omitted.
    """
    systems = comparison.systems
    keys = short_names(list(dict.fromkeys(key for system in systems for key in system.values)))
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


def write_notes(comparison: Comparison) -> list[str]:
    """Returns sentences that explain the numbers in the tables; `notes.txt` has their texts."""
    measures = comparison.measures
    compared = [each for row in comparison.differences.values() for each in row if each]
    tested = [each for each in compared if each.has_interval]
    tests = {test_of(each.seeds) for each in tested}
    paths = {measure.path for measure in comparison.scores if comparison.has(measure.path)}
    metrics = metrics_of(measures.scored, SWEEPS).values()
    return web_page.paragraphs(
        "notes.txt",
        comparison=comparison,
        measures=measures,
        baseline=comparison.baseline,
        texts=len(comparison.runs[0].lengths),
        compared=compared,
        tested=tested,
        tests=[name for test, name in TESTS.items() if test in tests],
        systems=len(compared) // len(comparison.metrics),  # that are compared
        several=any(max(each.seeds) > 1 for each in tested),
        over_texts=any(each.texts for each in tested),
        one_seed=any(max(each.seeds) == 1 for each in compared),
        one_seed_tested=any(max(each.seeds) == 1 for each in tested),
        about=[m.about for m in metrics if m.about and f"{measures.split}.{m.name}" in paths],
        **{"confidence": CONFIDENCE, "level": LEVEL, "power": POWER},
    )


def list_signatures(comparison: Comparison) -> dict[str, str]:
    """Returns signatures keyed by metric title, without duplicates for length generalisation."""
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
    """Returns a line for each trial missing from the table: number, state, values and reason."""
    return [
        f"trial {trial.number}, {trial.state}: "
        + (", ".join(f"{k}={value_text(v)}" for k, v in trial.values.items()) or "as configured")
        + (f" ({trial.note})" if trial.note else "")
        for trial in trials
        if trial.state != "complete"
    ]


def to_csv(sweep: Comparison) -> str:
    """Returns the trials as CSV, one per row, with the scores and signatures of all splits.

    The columns from `p_raw` on describe the comparison of the trial's setting to the baseline.
    """
    results = {run.trial.number: run.results for run in sweep.runs if run.trial}
    keys = dict.fromkeys(key for trial in sweep.trials for key in trial.values)
    parts = (name for each in results.values() for name in each if is_split(name))
    scores = dict.fromkeys(
        (split, name)
        for split in dict.fromkeys((*SPLIT_ORDER, *parts))
        for each in results.values()
        for name, value in (each.get(split) or {}).items()
        if not isinstance(value, dict | list) or name.endswith("_ci")
    )
    tests: dict[int, dict[str, Any]] = {}
    for system, each in zip(sweep.systems, sweep.main_differences, strict=True):
        if each and each.has_interval:
            numbers = (each.p_value, each.corrected, each.detectable, each.signature)
            cells: dict[str, Any] = dict(zip(TEST_COLUMNS, numbers, strict=True))
            tests |= {run.trial.number: cells for run in system.runs if run.trial}
    titles = [f"{split}_{name}" for split, name in scores]
    text = io.StringIO()
    head = ["number", *keys, "state", *titles, *RUN_COLUMNS, *TEST_COLUMNS]
    writer = csv.DictWriter(text, head, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for trial in sweep.trials:
        numbers = results.get(trial.number, {})
        values = {f"{s}_{name}": (numbers.get(s) or {}).get(name) for s, name in scores}
        about = {"number": trial.number, "state": trial.state, **trial.values}
        writer.writerow(numbers | values | tests.get(trial.number, {}) | about)
    return text.getvalue()
