"""The figures of a sweep and of a comparison: scores, curves, differences, scores by length."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from experiments.display.plotting import (
    COLOURS,
    MARKER_SHAPES,
    WIDTH,
    light_grid,
    new_figure,
)
from experiments.results.statistics import Difference
from experiments.results.systems import Comparison, Sweep, System
from experiments.results.table import label, short_names, title_of, value_text
from experiments.results.tasks import TaskMeasures
from experiments.results.texts import length_buckets
from transformer.errors import shorten
from transformer.metrics.registry import Metric

# All lines, letters and ticks of a sweep have this colour, so that a page can put its own in place.
INK = "#1b1b1c"
OTHERS = "#8c8c8c"  # of settings without a colour of their own
MARKERS = "osD^vPX*"  # one for each setting with a colour of its own
DASHES = ("-", "--", "-.", ":")
MAX_TOLD_APART = len(MARKERS)  # more curves in a panel the eye does not follow
MAX_LINE_LENGTH = 30  # characters of a label before it is broken
MAX_NAME = 40  # characters of a system in a comparison
BAND = 0.16  # opacity
SPREAD = 0.5  # of the marks of one bucket of lengths, whose distance is 1
DOTTED: dict[str, Any] = {"linewidth": 0.8, "linestyle": ":", "zorder": 0}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
} | dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"),
    INK,
)


class _Look(NamedTuple):
    """How a setting is drawn in every picture; without a marker it is one of the others."""

    colour: str = OTHERS
    marker: str = ""
    dashes: str = "-"

    def line(self) -> dict[str, Any]:
        return {"linestyle": self.dashes, "marker": self.marker, "markersize": 4}


def sweep_figures(sweep: Sweep) -> dict[str, Figure]:
    """Returns the figures of a sweep by name: `scores`, `curves`, `lengths` and `heatmap`.

    Of more than eight settings, the baseline and the best have their own colours in curves, and the
    others stand behind them in grey. `curves` is left out if no run has any, `lengths` if the task
    keeps no texts, `heatmap` unless settings differ in two numbers and nothing else.
    """
    looks = _looks(sweep)
    with matplotlib.rc_context(STYLE):
        drawn = {
            "scores": _draw_scores(sweep, looks),
            "curves": _draw_curves(sweep, looks),
            "lengths": _draw_lengths(sweep, looks),
            "heatmap": _draw_map(sweep),
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _main_mean(sweep: Sweep, system: System) -> float:
    found = system.over_seeds(sweep.measures.main.path)
    return math.nan if found is None else found.mean


def _looks(sweep: Sweep) -> list[_Look]:
    """A look for each setting."""
    sign = -1 if sweep.measures.higher_is_better else 1

    def rank(i: int) -> tuple[bool, bool, float]:
        system, mean = sweep.systems[i], _main_mean(sweep, sweep.systems[i])
        lost = bool(system.lost)
        return system is not sweep.baseline, lost, math.inf if math.isnan(mean) else sign * mean

    looks, colours = [_Look()] * len(sweep.systems), (*COLOURS, INK)
    for n, i in enumerate(sorted(sorted(range(len(looks)), key=rank)[:MAX_TOLD_APART])):
        looks[i] = _Look(colours[n % len(colours)], MARKERS[n], DASHES[n % len(DASHES)])
    return looks


def _names(sweep: Sweep, longest_line: int) -> list[str]:
    """A label of each setting, with its lost seeds, wrapped to a number of characters."""
    names = []
    for system in sweep.systems:
        marks = ["baseline"] * (system is sweep.baseline)
        count = len(system.runs)
        marks += [f"{count} of {count + len(system.others)} seeds"] * bool(system.lost)
        name = label(system, sweep.varied) + (f" ({', '.join(marks)})" if marks else "")
        names.append(textwrap.fill(name, longest_line))
    return names


def _draw_scores(sweep: Sweep, looks: list[_Look]) -> Figure:
    """A row a setting: its mean, a bar of one standard deviation each way, its seeds below it."""
    panels = [panel for panel in sweep.measures.score_panels if sweep.has(panel.path)]
    names = _names(sweep, MAX_LINE_LENGTH)
    lines = max(2, *(2 + name.count("\n") for name in names))  # a row's, one of them blank
    figure = new_figure(WIDTH, 0.7 + 0.15 * lines * len(names))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(row, panels, strict=True):
        for y, (system, look) in enumerate(zip(sweep.systems, looks, strict=True)):
            found = system.over_seeds(panel.path)
            if found is None:
                continue
            if found.n > 1:  # below the mean, which would hide them
                seeds = [panel.scale * (run.score(panel.path) or 0) for run in system.runs]
                dot = {"color": look.colour, "markersize": 3, "alpha": 0.7, "markeredgewidth": 0}
                axes.plot(seeds, [y + 0.25] * found.n, "o", **dot)
            bar = None if math.isnan(found.deviation) else panel.scale * found.deviation
            mark = {"fmt": look.marker or "o", "markersize": 5, "capsize": 3}
            axes.errorbar(panel.scale * found.mean, y, xerr=bar, color=look.colour, **mark)
        if sweep.baseline and (base := sweep.baseline.over_seeds(panel.path)):
            axes.axvline(panel.scale * base.mean, color=INK, **DOTTED)
        axes.set_xlabel(panel.title)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    _name_rows(row[0], names)
    return figure


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _draw_curves(sweep: Sweep, looks: list[_Look]) -> Figure | None:
    """The task's curves of validation: means over seeds in bands of one deviation."""
    panels = [
        panel
        for panel in sweep.measures.curve_panels
        if any(system.curve(panel.path)[0] for system in sweep.systems)
    ]
    if not panels:
        return None
    entries = _legend(sweep, looks)
    figure = new_figure(WIDTH, 2.3 * len(panels) + _legend_height(entries))
    column = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        for system, look in zip(sweep.systems, looks, strict=True):
            steps, values = system.curve(panel.path)
            if steps:
                _draw_band(axes, np.array(steps), panel.scale * values, look)
        axes.set_ylabel(panel.title)
    column[-1].set_xlabel("training step")
    column[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    column[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    _add_legend(figure, *zip(*entries, strict=True), handlelength=3.2, ncols=_columns(entries))
    return figure


def _draw_lengths(sweep: Sweep, looks: list[_Look]) -> Figure | None:
    """What the task scores of the texts of the test set, by their words."""
    measures = sweep.measures
    if not measures.all_texts:
        return None
    lengths = sweep.runs[0].texts.lengths
    buckets = length_buckets(lengths)
    entries, names = _legend(sweep, looks), _ticks(lengths, buckets)
    figure = new_figure(WIDTH, 2.8 + _legend_height(entries))
    row = figure.subplots(1, len(measures.by_length), squeeze=False)[0]
    for axes, name in zip(row, measures.by_length, strict=True):
        metric = measures.metric(name)
        for system, look in zip(sweep.systems, looks, strict=True):
            scores = [
                [measures.score(name, run.texts, rows) for rows in buckets] for run in system.runs
            ]
            _draw_band(axes, np.arange(len(buckets)), metric.scale * np.array(scores), look)
        axes.set_ylabel(metric.label)
        axes.set_xticks(range(len(names)), labels=names)
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_xlabel(f"{measures.length} ({measures.noun}s)")
    _add_legend(figure, *zip(*entries, strict=True), handlelength=3.2, ncols=_columns(entries))
    return figure


def _ticks(lengths: Int[np.ndarray, "texts"], buckets: Sequence[Int[np.ndarray, "_"]]) -> list[str]:
    """The lengths of each bucket, and the number of its texts."""
    ends = [(lengths[rows].min(), lengths[rows].max(), len(rows)) for rows in buckets]
    return [f"{a}\n({n})" if a == b else f"{a}–{b}\n({n})" for a, b, n in ends]


def _draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, look: _Look) -> None:
    """Draws the mean of values [seeds, x], and one standard deviation to each side."""
    mean = values.mean(0)
    if not look.marker:
        axes.plot(x, mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        return
    # A mark at each of a hundred steps would hide the curve.
    every = max(1, len(x) // 8)
    line = {"linewidth": 1.3, "zorder": 3, "markevery": every, **look.line()}
    axes.plot(x, mean, color=look.colour, **line)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        edges = mean - deviation, mean + deviation
        axes.fill_between(x, *edges, color=look.colour, alpha=BAND, linewidth=0, zorder=2)


def _legend(sweep: Sweep, looks: list[_Look]) -> list[tuple[Line2D, str]]:
    entries = []
    for name, look in zip(_names(sweep, 80), looks, strict=True):
        if look.marker:
            entries.append((Line2D([], [], color=look.colour, **look.line()), name))
    if others := len(looks) - len(entries):
        line = Line2D([], [], color=OTHERS, linewidth=0.8, alpha=0.6)
        entries.append((line, f"{others} other settings" if others > 1 else "1 other setting"))
    return entries


def _columns(entries: list[tuple[Line2D, str]]) -> int:
    longest = max(len(name) for _, name in entries)
    return max(1, min(len(entries), 3, 90 // (longest + 8)))


def _legend_height(entries: list[tuple[Line2D, str]]) -> float:
    """Inches that a legend takes below the panels."""
    lines = sum(1 + name.count("\n") for _, name in entries)
    return 0.1 + 0.19 * math.ceil(lines / _columns(entries))


def _add_legend(figure: Figure, handles: Sequence, names: Sequence[str], **options: Any) -> None:
    """Draws a legend below the panels, whose names are no formulas."""
    place: dict[str, Any] = {"loc": "outside lower center", "fontsize": 8, **options}
    for text in figure.legend(handles, names, **place).get_texts():
        text.set_parse_math(False)


def _draw_map(sweep: Sweep) -> Figure | None:
    """The mean score by the two numbers that were swept, each cell a setting."""
    values = [system.values.get(key) for system in sweep.systems for key in sweep.varied]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if len(sweep.varied) != 2 or not numeric:
        return None
    main, (down, across) = sweep.measures.main, sweep.varied
    ys, xs = (sorted({s.values[key] for s in sweep.systems}) for key in sweep.varied)
    means = np.full((len(ys), len(xs)), np.nan)
    # The mean of the remaining seeds of a setting that lost some is too good.
    for system in (system for system in sweep.systems if not system.lost):
        cell = ys.index(system.values[down]), xs.index(system.values[across])
        means[cell] = _main_mean(sweep, system) * main.scale
    if np.isnan(means).all() or min(means.shape) < 2:
        return None
    figure = new_figure(WIDTH, min(6.5, 1.3 + 0.45 * len(ys)))
    axes = figure.subplots()
    mesh = axes.pcolormesh(means, cmap="viridis", edgecolors="none")
    small = max(len(xs), len(ys)) <= MAX_TOLD_APART
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    for (y, x), mean in np.ndenumerate(means):
        if small and not math.isnan(mean):
            # Dark letters on light cells, in every light.
            colour = "black" if np.asarray(mesh.norm(mean)) > 0.5 else "white"
            axes.text(x + 0.5, y + 0.5, format(mean, main.format), color=colour, **middle)
    names = short_names(sweep.varied)
    turned = 0 if small else 90
    axes.set_xticks(np.arange(len(xs)) + 0.5, labels=map(value_text, xs), rotation=turned)
    axes.set_yticks(np.arange(len(ys)) + 0.5, labels=map(value_text, ys))
    axes.set(xlabel=names[across], ylabel=names[down])
    axes.grid(False)
    figure.colorbar(mesh, ax=axes, label=f"mean {main.title}").outline.set_visible(False)
    return figure


# -- of a comparison


def draw_differences(
    measures: TaskMeasures, systems: Sequence[System], comparisons: Sequence[Comparison]
) -> Figure:
    """Returns a panel for each measure with each system's difference and its 95% interval."""
    names = [shorten(system.name, MAX_NAME) for system in systems[1:]]
    figure = new_figure(WIDTH, 0.9 + 0.3 * len(names))
    row = figure.subplots(1, len(comparisons), sharey=True, squeeze=False)[0]
    for axes, comparison in zip(row, comparisons, strict=True):
        metric = measures.metric(comparison.metric)
        for n, found in enumerate(comparison.differences[1:], 1):
            _draw_interval(axes, found, metric, n - 1, n, upright=False)
        axes.axvline(0, color="#000000", **DOTTED)
        axes.set_xlabel(title_of(metric), fontsize=8)
        axes.tick_params(labelsize=8)
        light_grid(axes)
        axes.grid(False, axis="y")
    _name_rows(row[0], names)
    return figure


def draw_lengths(
    measures: TaskMeasures,
    systems: Sequence[System],
    buckets: Sequence[Int[np.ndarray, "_"]],
    comparisons: Sequence[Comparison],
) -> Figure:
    """Returns a panel of scores by length, and one of the differences to the baseline.

    Args:
      buckets: numbers of the texts of each, the shortest texts first.
      comparisons: in one measure, of each bucket.
    """
    metric = measures.metric(comparisons[0].metric)
    figure = new_figure(WIDTH, 3.0 + 0.18 * len(systems))
    scores, differences = figure.subplots(1, 2)
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, len(systems) + 2)[1:-1]
    for n, (system, offset) in enumerate(zip(systems, offsets, strict=True)):
        places = np.arange(len(buckets)) + offset
        means = [metric.scale * np.mean(found.scores[n]) for found in comparisons]
        style = {"linewidth": 1, "markersize": 4, "label": system_label(system, n)}
        scores.plot(places, means, color=system_colour(n), marker=_marker(n), **style)
        for place, found in zip(places, comparisons, strict=True):
            if n:
                _draw_interval(differences, found.differences[n], metric, place, n, upright=True)
    differences.axhline(0, color="#000000", **DOTTED)
    ticks = _ticks(systems[0].runs[0].texts.lengths, buckets)
    for axes, title in ((scores, title_of(metric)), (differences, "difference to the baseline")):
        axes.set_xticks(range(len(ticks)), labels=ticks, fontsize=7)
        axes.tick_params(axis="y", labelsize=8)
        axes.set_ylabel(title, fontsize=8)
        light_grid(axes)
        axes.grid(False, axis="x")
    _add_legend(figure, *scores.get_legend_handles_labels(), frameon=False, ncols=2)
    return figure


def _draw_interval(
    axes: Axes, found: Difference | None, metric: Metric, place: float, n: int, upright: bool
) -> None:
    """Draws the difference of system n, and its interval if any, at a place of the other axis."""
    assert found is not None, "the baseline has no difference"
    value = metric.scale * found.mean
    half = [metric.scale * (found.high - found.mean)] if found.has_interval else None
    look: dict[str, Any] = {"fmt": _marker(n), "color": system_colour(n)}
    look |= {"markersize": 4, "capsize": 2.5, "yerr" if upright else "xerr": half}
    axes.errorbar(*([place], [value]) if upright else ([value], [place]), **look)


def system_label(system: System, n: int) -> str:
    """Returns the name of system n in a legend."""
    return shorten(system.name, MAX_NAME) + (" (baseline)" if n == 0 else "")


def system_colour(n: int) -> str:
    """Returns the colour of system n."""
    return COLOURS[n % len(COLOURS)]


def _marker(n: int) -> str:
    return MARKER_SHAPES[n % len(MARKER_SHAPES)]
