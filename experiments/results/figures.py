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

from transformer.errors import shorten
from transformer.metrics.registry import Metric
from ..display.plotting import COLOURS, MARKER_SHAPES, WIDTH, light_grid, new_figure
from .statistics import Difference, score_of
from .systems import Comparison, Sweep, System
from .table import label, title_of
from .tasks import TaskMeasures
from .texts import length_buckets

# All lines, letters and ticks of a sweep have this colour, so that a page can put its own in place.
INK = "#1b1b1c"
OTHERS_COLOUR = "#8c8c8c"  # of settings without a colour of their own
MARKERS = "osD^vPX*"  # one for each setting with a colour of its own
DASHES = ("-", "--", "-.", ":")
MAX_TOLD_APART = len(MARKERS)  # more curves in a panel the eye does not follow
MAX_LABEL_LENGTH = 30  # characters of a label before it is broken
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

    colour: str = OTHERS_COLOUR
    marker: str = ""
    dashes: str = "-"

    def line(self) -> dict[str, Any]:
        return {"linestyle": self.dashes, "marker": self.marker, "markersize": 4}


def sweep_figures(sweep: Sweep) -> dict[str, Figure]:
    """Returns the figures of a sweep by name: `scores`, `curves` and `lengths`.

    Of more than eight settings, the baseline and the best have their own colours in curves, and the
    others stand behind them in grey. `curves` is left out if no run has any, `lengths` if the task
    has no texts whose length counts.
    """
    looks = _looks(sweep)
    with matplotlib.rc_context(STYLE):
        figures = {
            "scores": _draw_scores(sweep, looks),
            "curves": _draw_curves(sweep, looks),
            "lengths": _draw_lengths(sweep, looks),
        }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _looks(sweep: Sweep) -> list[_Look]:
    """A look for each setting."""
    measures = sweep.measures
    sign = -1 if measures.metric(measures.main_metric).higher_is_better else 1

    def rank(i: int) -> tuple[bool, bool, float]:
        system = sweep.systems[i]
        spread = system.over_seeds(measures.main.path)
        score = math.nan if spread is None else sign * spread.mean
        is_last = math.isnan(score)
        return system is not sweep.baseline, bool(system.lost), math.inf if is_last else score

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
    measures = (sweep.measures.measure(name, panel=True) for name in sweep.measures.panels)
    panels = [panel for panel in measures if sweep.has(panel.path)]
    names = _names(sweep, MAX_LABEL_LENGTH)
    lines = max(2, *(2 + name.count("\n") for name in names))  # a row's, one of them blank
    figure = new_figure(WIDTH, 0.7 + 0.15 * lines * len(names))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(row, panels, strict=True):
        for y, (system, look) in enumerate(zip(sweep.systems, looks, strict=True)):
            spread = system.over_seeds(panel.path)
            if spread is None:
                continue
            if spread.n > 1:  # below the mean, which would hide them
                seeds = [panel.scale * (run.score(panel.path) or 0) for run in system.runs]
                dot = {"color": look.colour, "markersize": 3, "alpha": 0.7, "markeredgewidth": 0}
                axes.plot(seeds, [y + 0.25] * spread.n, "o", **dot)
            bar = None if math.isnan(spread.deviation) else panel.scale * spread.deviation
            mark = {"fmt": look.marker or "o", "markersize": 5, "capsize": 3}
            axes.errorbar(panel.scale * spread.mean, y, xerr=bar, color=look.colour, **mark)
        if sweep.baseline and (base := sweep.baseline.over_seeds(panel.path)):
            axes.axvline(panel.scale * base.mean, color=INK, **DOTTED)
        axes.set_xlabel(textwrap.fill(panel.title, 2 * MAX_LABEL_LENGTH // len(panels)))
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
    names = [n for n in sweep.measures.curves if any(s.curve(n)[0] for s in sweep.systems)]
    panels = list(map(sweep.measures.metric, names))
    if not panels:
        return None
    figure = _with_legend(sweep, looks, 2.3 * len(panels))
    column = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        for system, look in zip(sweep.systems, looks, strict=True):
            steps, values = system.curve(panel.name)
            if steps:
                _draw_band(axes, np.array(steps), panel.scale * values, look)
        axes.set_ylabel(f"validation {panel.label}")
    column[-1].set_xlabel("training step")
    column[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    column[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    return figure


def _draw_lengths(sweep: Sweep, looks: list[_Look]) -> Figure | None:
    """What the task scores of the texts of the test set, by their words."""
    measures = sweep.measures
    if not measures.by_length:
        return None
    lengths = sweep.runs[0].lengths
    buckets = length_buckets(lengths)
    names, figure = _ticks(lengths, buckets), _with_legend(sweep, looks, 2.8)
    row = figure.subplots(1, len(measures.by_length), squeeze=False)[0]
    for axes, name in zip(row, measures.by_length, strict=True):
        metric = measures.metric(name)
        for system, look in zip(sweep.systems, looks, strict=True):
            of_sums = measures.of_sums[name]
            scores = [
                [score_of(run.counts[name][rows], of_sums) for rows in buckets]
                for run in system.runs
            ]
            _draw_band(axes, np.arange(len(buckets)), metric.scale * np.array(scores), look)
        axes.set_ylabel(metric.label)
        axes.set_xticks(range(len(names)), labels=names)
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_xlabel(f"{measures.length} ({measures.noun}s)")
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


def _with_legend(sweep: Sweep, looks: list[_Look], height: float) -> Figure:
    """A figure with a legend below panels of this height."""
    entries = [
        (Line2D([], [], color=look.colour, **look.line()), name)
        for name, look in zip(_names(sweep, 80), looks, strict=True)
        if look.marker
    ]
    if others := len(looks) - len(entries):
        line = Line2D([], [], color=OTHERS_COLOUR, linewidth=0.8, alpha=0.6)
        entries.append((line, f"{others} other settings" if others > 1 else "1 other setting"))
    columns = max(1, min(len(entries), 3, 90 // (max(len(name) for _, name in entries) + 8)))
    lines = sum(1 + name.count("\n") for _, name in entries)
    figure = new_figure(WIDTH, height + 0.1 + 0.19 * math.ceil(lines / columns))
    _add_legend(figure, *zip(*entries, strict=True), handlelength=3.2, ncols=columns)
    return figure


def _add_legend(figure: Figure, handles: Sequence, names: Sequence[str], **options: Any) -> None:
    """Draws a legend below the panels, whose names are no formulas."""
    place: dict[str, Any] = {"loc": "outside lower center", "fontsize": 8, **options}
    for text in figure.legend(handles, names, **place).get_texts():
        text.set_parse_math(False)


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
        for n, difference in enumerate(comparison.differences[1:], 1):
            _draw_interval(axes, difference, metric, n - 1, n, upright=False)
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

    Each bucket has numbers of texts, the shortest texts first, and a comparison in one measure.
    """
    metric = measures.metric(comparisons[0].metric)
    figure = new_figure(WIDTH, 3.0 + 0.18 * len(systems))
    scores, differences = figure.subplots(1, 2)
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, len(systems) + 2)[1:-1]
    for n, (system, offset) in enumerate(zip(systems, offsets, strict=True)):
        places = np.arange(len(buckets)) + offset
        means = [metric.scale * np.mean(each.scores[n]) for each in comparisons]
        style = {"linewidth": 1, "markersize": 4, "label": system_label(system, n)}
        scores.plot(places, means, color=system_colour(n), marker=_marker(n), **style)
        for place, each in zip(places, comparisons, strict=True) if n else ():
            _draw_interval(differences, each.differences[n], metric, place, n, upright=True)
    differences.axhline(0, color="#000000", **DOTTED)
    ticks = _ticks(systems[0].runs[0].lengths, buckets)
    for axes, title in ((scores, title_of(metric)), (differences, "difference to the baseline")):
        axes.set_xticks(range(len(ticks)), labels=ticks, fontsize=7)
        axes.tick_params(axis="y", labelsize=8)
        axes.set_ylabel(title, fontsize=8)
        light_grid(axes)
        axes.grid(False, axis="x")
    _add_legend(figure, *scores.get_legend_handles_labels(), frameon=False, ncols=2)
    return figure


def _draw_interval(
    axes: Axes, difference: Difference | None, metric: Metric, place: float, n: int, upright: bool
) -> None:
    """Draws the difference of system n, and its interval if any, at a place of the other axis."""
    assert difference is not None, "the baseline has no difference"
    value, half = metric.scale * difference.mean, None
    if difference.has_interval:
        half = [metric.scale * (difference.high - difference.mean)]
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
