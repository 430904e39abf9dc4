"""Figures of a comparison: scores, differences, validation curves, and scores by length."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..display import plotting
from .statistics import CONFIDENCE, score_of
from .systems import Comparison
from .tasks import Measure, length_buckets

MAX_LABEL_LENGTH, MAX_LEGEND_LENGTH = 30, 80  # maximum number of characters per line of a name
DOTTED: dict[str, Any] = {"color": "#000000", "linewidth": 0.8, "linestyle": ":", "zorder": 0}
BANDS = "the mean over seeds, in a band of one standard deviation to each side"

Captioned = tuple[Figure, str]


def draw(comparison: Comparison, levels: Sequence[float] = ()) -> dict[str, Captioned]:
    """Returns the figures and their captions, keyed by figure name.

    A sweep has a `scores` figure; other comparisons have `differences`. `curves` is included if
    there are validation curves, and `lengths` unless a sweep's task has no scores by length.

    Args:
      levels: scores to mark with horizontal lines in the plots of validation curves.
    """
    measures = comparison.measures
    with matplotlib.rc_context({"font.size": 9, "text.parse_math": False}):
        if comparison.trials:
            figures = {"scores": _draw_scores(comparison)}
        else:
            figures = {"differences": _draw_differences(comparison)}
        names = [n for n in measures.curves if any(s.curve(n)[0] for s in comparison.systems)]
        if names:
            figures["curves"] = _draw_curves(comparison, names, levels)
        if not comparison.trials or measures.by_length:
            figures["lengths"] = _draw_lengths(comparison)
    return figures


def _style(n: int) -> dict[str, Any]:
    """Returns the plot style that system n has in every figure."""
    dashes = plotting.DASHES[n // len(plotting.COLOURS) % 4]
    return {**plotting.look(n), "markersize": 4, "linestyle": dashes}


def _names(comparison: Comparison, longest_line: int) -> list[str]:
    """Returns system names, wrapped to `longest_line`, with seed counts if any seeds are lost."""
    names = []
    for system in comparison.systems:
        marks = ["baseline"] * (system is comparison.baseline)
        count = len(system.runs)
        marks += [f"{count} of {count + len(system.others)} seeds"] * bool(system.lost)
        name = system.name + (f" ({', '.join(marks)})" if marks else "")
        names.append(textwrap.fill(name, longest_line))
    return names


def _draw_scores(comparison: Comparison) -> Captioned:
    """Plots a row for each system: the mean and standard deviation above the seeds' scores."""
    measures, systems = comparison.measures, comparison.systems
    panels = [measures.measure(name, panel=True) for name in measures.panels]
    panels = [panel for panel in panels if comparison.has(panel.path)]
    figure, row = _with_rows(_names(comparison, MAX_LABEL_LENGTH), panels)
    for axes, panel in zip(row, panels, strict=True):
        for y, system in enumerate(systems):
            spread = system.over_seeds(panel.path)
            if spread is None:
                continue
            if spread.n > 1:  # drawn below the mean, to keep the mean visible
                seeds = [panel.scale * (run.score(panel.path) or 0) for run in system.runs]
                small = {"markersize": 3, "alpha": 0.7, "markeredgewidth": 0}
                colour = plotting.look(y)["color"]
                axes.plot(seeds, [y + 0.25] * spread.n, "o", color=colour, **small)
            _draw_dot(axes, panel.scale * spread.mean, y, panel.scale * spread.deviation)
        if comparison.baseline and (base := comparison.baseline.over_seeds(panel.path)):
            axes.axvline(panel.scale * base.mean, **DOTTED)
    line = " The dotted line is the baseline." if comparison.baseline else ""
    return figure, (
        f"Scores on the {measures.split} set: a mark is the mean over seeds, its bar one standard "
        f"deviation to each side, and the dots below it are the seeds.{line}"
    )


def _draw_differences(comparison: Comparison) -> Captioned:
    """Plots each system's difference from the baseline and its interval, one subplot per metric."""
    panels = [comparison.measures.measure(name, panel=True) for name in comparison.metrics]
    figure, row = _with_rows(_names(comparison, MAX_LABEL_LENGTH), panels)
    for axes, panel in zip(row, panels, strict=True):
        for y, difference in enumerate(comparison.differences[panel.name]):
            if difference:
                half = panel.scale * (difference.high - difference.mean)
                _draw_dot(axes, panel.scale * difference.mean, y, half)
        axes.axvline(0, **DOTTED)
    return figure, f"Difference from the baseline, with {CONFIDENCE:.0%} intervals."


def _draw_dot(axes: Axes, value: float, row: int, half: float) -> None:
    """Plots a value in a row, with an error bar of `half` to each side unless `half` is NaN."""
    style = {"linestyle": "none", "markersize": 5, **plotting.look(row)}
    axes.errorbar(value, row, xerr=half, capsize=3, **style)


def _with_rows(names: Sequence[str], panels: Sequence[Measure]) -> tuple[Figure, list[Axes]]:
    """Returns a figure, and its subplots: one for each measure, with a row for each name."""
    lines = max(2, *(2 + name.count("\n") for name in names))  # lines per row, with a blank one
    figure = plotting.new_figure(plotting.WIDTH, 0.7 + 0.15 * lines * len(names))
    row = list(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0])
    for axes, panel in zip(row, panels, strict=True):
        axes.set_xlabel(textwrap.fill(panel.title, 2 * MAX_LABEL_LENGTH // len(panels)))
        plotting.light_grid(axes)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    row[0].set_yticks(range(len(names)), labels=names, parse_math=False)
    row[0].set_ylim(len(names) - 0.5, -0.5)
    return figure, row


def _draw_curves(
    comparison: Comparison, names: Sequence[str], levels: Sequence[float]
) -> Captioned:
    """Plots mean validation curves against minutes if times are known, or else against steps."""
    measures, systems = comparison.measures, comparison.systems
    figure = _with_legend(comparison, 2.3 * len(names))
    column = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    timed = any("seconds" in run.curves for run in comparison.runs)
    for axes, name in zip(column, names, strict=True):
        metric = measures.metric(name)
        for n, system in enumerate(systems):
            steps, values = system.curve(name)
            if steps:
                x = system.curve("seconds")[1].mean(0) / 60 if timed else np.array(steps)
                _draw_band(axes, x, metric.scale * values, n)
        for level in levels:
            axes.axhline(level, **DOTTED)
        axes.set_ylabel(f"validation {metric.label}")
    column[-1].set_xlabel("minutes of training" if timed else "training step")
    if not timed:
        plotting.count_steps(column[-1], 6)
    marked = " Dotted: the levels of the table." if levels else ""
    return figure, (f"Validation while training: {BANDS}, at steps that every seed has.{marked}")


def _draw_lengths(comparison: Comparison) -> Captioned:
    """Plots test scores for buckets of texts, which are grouped by number of words."""
    measures, lengths = comparison.measures, comparison.runs[0].lengths
    names = measures.by_length if comparison.trials else comparison.metrics[:1]
    buckets = length_buckets(lengths)
    ends = [(lengths[rows].min(), lengths[rows].max(), len(rows)) for rows in buckets]
    ticks = [f"{a}\n({n})" if a == b else f"{a}–{b}\n({n})" for a, b, n in ends]
    figure = _with_legend(comparison, 2.8)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        metric, of_sums = measures.metric(name), measures.of_sums[name]
        for n, system in enumerate(comparison.systems):
            counts = [run.counts[name] for run in system.runs]
            scores = [[score_of(each[rows], of_sums) for rows in buckets] for each in counts]
            _draw_band(axes, np.arange(len(buckets)), metric.scale * np.array(scores), n)
        axes.set_ylabel(metric.label)
        axes.set_xticks(range(len(ticks)), labels=ticks)
        axes.set_xlim(-0.4, len(ticks) - 0.6)
        axes.set_xlabel(f"{measures.length} ({measures.noun}s)")
    return figure, (
        f"The test set by {measures.length}, with the number of {measures.noun}s below: {BANDS}."
    )


def _draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, n: int) -> None:
    """Plots the mean over seeds of values [seeds, x], with a band of ± one standard deviation."""
    mean, deviation = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0
    # Markers at a hundred points would hide the curve.
    style = {**_style(n), "markevery": max(1, len(x) // 8)}
    plotting.curve(axes, x, mean, (mean - deviation, mean + deviation), **style)


def _with_legend(comparison: Comparison, height: float) -> Figure:
    """Returns a figure with `height` inches for subplots above a legend of the systems."""
    names = _names(comparison, MAX_LEGEND_LENGTH)
    lines = [Line2D([], [], **_style(n)) for n in range(len(names))]
    columns = max(1, min(len(names), 3, 90 // (max(map(len, names)) + 8)))
    count = sum(1 + name.count("\n") for name in names)
    figure = plotting.new_figure(plotting.WIDTH, height + 0.1 + 0.19 * math.ceil(count / columns))
    place = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.2}
    figure.legend(lines, names, **place, **plotting.LEGEND)
    return figure
