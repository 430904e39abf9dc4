"""The table of a sweep, one row per setting, as Markdown; and the one of its trials, as CSV."""

import contextlib
import csv
import dataclasses
import io
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.display.text_table import ENDS_OF_LINES, markdown_table, markdown_text, one_line
from experiments.measures.registry import Measure
from experiments.measures.significance import CONFIDENCE, Difference, p_text
from experiments.sweeps.results.notes import notes
from experiments.sweeps.results.outcomes import Setting, Spread, Sweep
from experiments.sweeps.results.reading import SPLITS
from transformer.data.held_out import is_split
from transformer.metrics.registry import find

NONE = "-"
FORMULA = ("=", "+", "-", "@")  # what programs take for the start of one

COSTS = (
    Measure("tokens_per_second", "tokens/s", format=",.0f", spread=False),
    Measure("wall_seconds", "minutes", 1 / 60, ",.1f", spread=False),
    Measure("parameters", "parameters", format=",.0f", spread=False),
    Measure("flops_per_token", "GFLOP/token", 1e-9, ",.3g", spread=False),
)
# Of the CSV, after the scores.
RUN_COLUMNS = ("tokens_per_second", "flops_per_token", "wall_seconds", "parameters", "step")
TEST_COLUMNS = ("p_raw", "p_corrected", "p_test")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What a cell shows, and the number or text by which its column is sorted."""

    text: str
    order: float | str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Titles, and a row of as many cells for each setting of the sweep, in the same order."""

    titles: list[str]
    rows: list[list[Cell]]


def value_text(value: Any) -> str:
    """A config's value as people read it, in one line; an empty string shows."""
    text = f"{value:g}" if isinstance(value, float) else str(value) or '""'
    return _escape(text)


def _escape(text: str) -> str:
    """The text with its ends of lines written out, as `\\n`."""
    return ENDS_OF_LINES.sub(lambda found: repr(found[0])[1:-1], text)


def short_names(keys: list[str]) -> dict[str, str]:
    """The last name of each dotted key; the whole key if two end in the same name."""
    last = [key.split(".")[-1] for key in keys]
    return {
        key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)
    }


def label(setting: Setting, keys: list[str]) -> str:
    """A setting in a line: `positions=split, num_heads=8`."""
    names = short_names(keys)
    parts = [f"{names[k]}={value_text(setting.values[k])}" for k in keys if k in setting.values]
    return ", ".join(parts) or "as configured"


def build_table(sweep: Sweep) -> Table:
    """The table of a sweep: values, scores over seeds, the difference to the baseline, costs.

    Columns that no setting has a number for are left out.
    """
    names = short_names(sweep.keys)
    columns = [(names[key], _value_cells(sweep, key)) for key in sweep.keys]
    columns = columns or [("setting", [Cell("as configured") for _ in sweep.settings])]
    columns.append(("n", [_count(setting) for setting in sweep.settings]))
    main, *further = sweep.scores
    columns.append(_measure_column(sweep, main))
    spreads = [None if s.lost else s.over_seeds(main.path) for s in sweep.settings]
    columns.append((f"{CONFIDENCE:.0%} interval", [_interval(s, main) for s in spreads]))
    if sweep.baseline is not None:
        columns += _comparison_columns(sweep)
    speed = dataclasses.replace(COSTS[0], title=f"{sweep.measures.unit}/s")
    for measure in (*further, speed, *COSTS[1:]):
        if sweep.has(measure.path):
            columns.append(_measure_column(sweep, measure))
    titles, cells = zip(*columns, strict=True)
    return Table(list(titles), [list(row) for row in zip(*cells, strict=True)])


def signatures(sweep: Sweep) -> dict[str, str]:
    """The signature of each metric by its title; of longer sentences only where it is another."""
    found: dict[str, str] = {}
    for measure in sweep.scores:
        split, name = measure.path.split(".")
        for outcome in sweep.outcomes:
            text = (outcome.results.get(split) or {}).get(f"{name}_signature")
            if text and text != found.get(measure.title.removeprefix("length generalization: ")):
                found[measure.title] = text
    return found


def missing(sweep: Sweep) -> list[str]:
    """A line for each trial that is not in the table: its number, state, values and why."""
    return [
        f"trial {trial.number}, {trial.state}: "
        + (", ".join(f"{k}={value_text(v)}" for k, v in trial.values.items()) or "as configured")
        + (f" ({one_line(trial.note)})" if trial.note else "")
        for trial in sweep.trials
        if trial.state != "complete"
    ]


def to_markdown(sweep: Sweep, title: str, command: str) -> str:
    """The table as Markdown, with title, command and notes; the baseline's row is bold."""
    table = build_table(sweep)

    rows = []
    for setting, row in zip(sweep.settings, table.rows, strict=True):
        mark = "**" if setting is sweep.baseline else ""
        rows.append([f"{mark}{markdown_text(cell.text)}{mark}" for cell in row])
    names = max(1, len(sweep.keys))  # columns of text, to the left
    longest = max(map(len, re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    parts = [f"# {markdown_text(title)}", f"{fence}\n{command}\n{fence}"]
    parts.append(markdown_table([*map(markdown_text, table.titles)], rows, names))
    parts += map(markdown_text, notes(sweep))
    parts.append("\n".join(f"- {name}: `{text}`" for name, text in signatures(sweep).items()))
    if lines := missing(sweep):
        parts.append(
            "Not in the table:\n\n" + "\n".join(f"- {markdown_text(line)}" for line in lines)
        )
    return "\n\n".join(parts) + "\n"


def to_csv(sweep: Sweep) -> str:
    """The trials as CSV, a row each, with every score of every split and its signature.

    The columns that start with `p_` are of the comparison of a trial's whole setting. What a run
    tells in lists and tables, as a confusion matrix, is left to its `results.json`. Text that a
    spreadsheet would take for a formula has a single quote before it.
    """
    complete = (outcome for s in sweep.settings for outcome in (*s.outcomes, *s.repeats))
    outcomes = {outcome.trial.number: outcome.results for outcome in complete}
    keys = dict.fromkeys(key for trial in sweep.trials for key in trial.values)
    parts = (name for results in outcomes.values() for name in results if is_split(name))
    scores = dict.fromkeys(
        (split, name)
        for split in dict.fromkeys((*SPLITS, *parts))
        for results in outcomes.values()
        for name, value in (results.get(split) or {}).items()
        if not isinstance(value, dict | list)
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")

    def write(cells: Iterable[Any]) -> None:
        writer.writerow(map(_plain, cells))

    titles = [f"{split}_{name}" for split, name in scores]
    tested = _tested(sweep)
    write(["number", *keys, "state", *titles, *RUN_COLUMNS, *TEST_COLUMNS])
    for trial in sweep.trials:
        results = outcomes.get(trial.number, {})
        values = [trial.values.get(key) for key in keys]
        measured = [(results.get(split) or {}).get(name) for split, name in scores]
        costs = [results.get(name) for name in RUN_COLUMNS]
        test = tested.get(trial.number, [None] * len(TEST_COLUMNS))
        write([trial.number, *values, trial.state, *measured, *costs, *test])
    return text.getvalue()


def _plain(cell: Any) -> Any:
    """A cell of one line that no spreadsheet computes: a formula gets a quote before it.

    Numbers stay what they are, negative ones too.
    """
    if not isinstance(cell, str):
        return cell
    cell = _escape(cell)
    if not cell.startswith(FORMULA):
        return cell
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"


def _tested(sweep: Sweep) -> dict[int, list[Any]]:
    """The test columns of each complete trial whose setting was tested, by number."""
    return {
        outcome.trial.number: [found.p_value, found.corrected, found.signature]
        for setting, found in zip(sweep.settings, sweep.comparisons, strict=True)
        if found and found.has_interval
        for outcome in setting.outcomes
    }


def _count(setting: Setting) -> Cell:
    """How many seeds are complete; of how many, where others are not."""
    complete = len(setting.outcomes)
    of_all = f" of {complete + len(setting.others)}" if setting.others else ""
    return Cell(f"{complete}{of_all}", complete)


def _value_cells(sweep: Sweep, key: str) -> list[Cell]:
    cells = []
    for setting in sweep.settings:
        value = setting.values.get(key)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        text = value_text(value) if key in setting.values else NONE
        order: Any = value if numeric else text
        cells.append(Cell(text, order))
    return cells


def _measure_column(sweep: Sweep, measure: Measure) -> tuple[str, list[Cell]]:
    return measure.title, [_measured(s, measure) for s in sweep.settings]


def _measured(setting: Setting, measure: Measure) -> Cell:
    found = setting.over_seeds(measure.path)
    if found is None:
        return Cell(NONE)
    text = measure.show(found.mean)
    if measure.spread and found.n > 1:
        text += f" ± {measure.show(found.deviation)}"
    if measure.spread and setting.lost:
        return Cell(f"({text})")
    return Cell(text, "" if math.isnan(found.mean) else found.mean * measure.scale)


def _interval(found: Spread | None, measure: Measure) -> Cell:
    if found is None or math.isnan(found.interval):
        return Cell(NONE)
    metric, ends = find(measure.name), (found.mean - found.interval, found.mean + found.interval)
    bounded = metric.higher_is_better or metric.unit == "%"
    low, high = np.clip(ends, 0.0, 100 / metric.scale if bounded else math.inf).tolist()
    return Cell(f"{measure.show(low)} to {measure.show(high)}", low * measure.scale)


def _comparison_columns(sweep: Sweep) -> list[tuple[str, list[Cell]]]:
    """The difference to the baseline, its interval and p."""
    rows = [_comparison_cells(found, sweep.measures.main) for found in sweep.comparisons]
    for row, setting in zip(rows, sweep.settings, strict=True):
        if setting is sweep.baseline:
            row[0] = Cell("baseline", 0.0)
    titles = ["difference", f"its {CONFIDENCE:.0%} interval", "p"]
    if not any(found and found.has_interval for found in sweep.comparisons):
        titles = titles[:1]
    return [(title, [row[i] for row in rows]) for i, title in enumerate(titles)]


def _comparison_cells(found: Difference | None, main: Measure) -> list[Cell]:
    if found is None or math.isnan(found.mean):
        return [Cell(NONE)] * 3
    difference = Cell(main.show(found.mean, "+"), found.mean * main.scale)
    if not found.has_interval:
        return [difference, Cell(NONE), Cell(NONE)]
    text = f"{main.show(found.low, '+')} to {main.show(found.high, '+')}"
    return [
        difference,
        Cell(text, found.low * main.scale),
        Cell(p_text(found.corrected), found.corrected),
    ]
