"""The figures of a comparison: differences with intervals, and scores by length."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.comparison.differences import Comparison
from experiments.comparison.systems import System
from experiments.comparison.table import title_of
from experiments.display.plotting import (
    COLOURS,
    MARKER_SHAPES,
    WIDTH,
    light_grid,
    new_figure,
)
from experiments.measures.significance import Difference
from transformer.errors import shorten
from transformer.metrics.registry import Metric, find

MAX_NAME = 40  # characters of a system on an axis
SPREAD = 0.5  # of the marks of one bucket of lengths, whose distance is 1


def draw_differences(
    task: str, systems: Sequence[System], comparisons: Sequence[Comparison]
) -> Figure:
    """Returns a panel for each measure with each system's difference and its 95% interval."""
    names = [shorten(system.name, MAX_NAME) for system in systems[1:]]
    figure = new_figure(WIDTH, 0.9 + 0.3 * len(names))
    row = figure.subplots(1, len(comparisons), sharey=True, squeeze=False)[0]
    for axes, comparison in zip(row, comparisons, strict=True):
        metric = find(comparison.measure.name, task)
        for n, found in enumerate(comparison.differences[1:], 1):
            _draw_interval(axes, found, metric, n - 1, n, upright=False)
        axes.axvline(0, color="#000000", linewidth=0.8, linestyle=":", zorder=0)
        axes.set_xlabel(title_of(metric), fontsize=8)
        axes.tick_params(labelsize=8)
        light_grid(axes)
        axes.grid(False, axis="y")
    row[0].set_yticks(range(len(names)), labels=names, parse_math=False)
    row[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def draw_lengths(
    task: str,
    systems: Sequence[System],
    buckets: Sequence[Int[np.ndarray, "_"]],
    comparisons: Sequence[Comparison],
) -> Figure:
    """Returns a panel of scores by length, and one of the differences to the baseline.

    Args:
      buckets: numbers of the texts of each, the shortest texts first.
      comparisons: in one measure, of each bucket.
    """
    metric = find(comparisons[0].measure.name, task)
    figure = new_figure(WIDTH, 3.0 + 0.18 * len(systems))
    scores, differences = figure.subplots(1, 2)
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, len(systems) + 2)[1:-1]
    for n, (system, offset) in enumerate(zip(systems, offsets, strict=True)):
        places = np.arange(len(buckets)) + offset
        look = {"color": system_colour(n), "marker": MARKER_SHAPES[n % len(MARKER_SHAPES)]}
        means = [metric.scale * np.mean(found.scores[n]) for found in comparisons]
        label = system_label(system, n)
        scores.plot(places, means, linewidth=1, markersize=4, label=label, **look)
        for place, found in zip(places, comparisons, strict=True):
            if n:
                _draw_interval(differences, found.differences[n], metric, place, n, True)
    differences.axhline(0, color="#000000", linewidth=0.8, linestyle=":", zorder=0)
    lengths = systems[0].runs[0].outputs.lengths
    ticks = [_ticks(lengths[rows]) for rows in buckets]
    for axes, title in ((scores, title_of(metric)), (differences, "difference to the baseline")):
        axes.set_xticks(range(len(ticks)), labels=ticks, fontsize=7)
        axes.tick_params(axis="y", labelsize=8)
        axes.set_ylabel(title, fontsize=8)
        light_grid(axes)
        axes.grid(False, axis="x")
    handles, labels = scores.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", frameon=False, fontsize=8, ncols=2
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw_interval(
    axes: Axes, found: Difference | None, metric: Metric, place: float, n: int, upright: bool
) -> None:
    """Draws the difference of system n, and its interval if any, at a place of the other axis."""
    assert found is not None, "the baseline has no difference"
    value = metric.scale * found.mean
    half = [metric.scale * (found.high - found.mean)] if found.has_interval else None
    marker = MARKER_SHAPES[n % len(MARKER_SHAPES)]
    look: dict[str, Any] = {
        "fmt": marker,
        "color": system_colour(n),
        "markersize": 4,
        "capsize": 2.5,
    }
    if upright:
        axes.errorbar([place], [value], yerr=half, **look)
    else:
        axes.errorbar([value], [place], xerr=half, **look)


def system_label(system: System, n: int) -> str:
    """Returns the name of system n in a legend."""
    return shorten(system.name, MAX_NAME) + (" (baseline)" if n == 0 else "")


def system_colour(n: int) -> str:
    """Returns the colour of system n."""
    return COLOURS[n % len(COLOURS)]


def _ticks(lengths: Int[np.ndarray, "texts"]) -> str:
    low, high = lengths.min(), lengths.max()
    return f"{low}\n({len(lengths)})" if low == high else f"{low}–{high}\n({len(lengths)})"
