"""The pictures of a sweep: scores, learning curves, scores by length, a map of two numbers."""

import dataclasses
import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from experiments.display.plotting import COLOURS, WIDTH, new_figure
from experiments.measures.texts import length_buckets
from experiments.sweeps.results.outcomes import Setting, Sweep
from experiments.sweeps.results.table import label, short_names, value_text

# All lines, letters and ticks have this colour, so that a page can put its own in its place.
INK = "#1b1b1c"
OTHERS = "#8c8c8c"  # of settings without a colour of their own
MARKERS = "osD^vPX*"  # one for each setting with a colour of its own
DASHES = ("-", "--", "-.", ":")
MAX_TOLD_APART = len(MARKERS)  # more curves in a panel the eye does not follow
MAX_LINE_LENGTH = 30  # characters of a label before it is broken
BAND = 0.16  # opacity
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


@dataclasses.dataclass(frozen=True)
class _Look:
    """How a setting is drawn in every picture; without a marker it is one of the others."""

    colour: str
    marker: str = ""
    dashes: str = "-"

    @property
    def told_apart(self) -> bool:
        return bool(self.marker)


def build_figures(sweep: Sweep) -> dict[str, Figure]:
    """The figures of a sweep by name: `scores`, `curves`, `lengths` and `heatmap`.

    Of more than eight settings, the baseline and the best have their own colours in curves, and the
    others stand behind them in grey. `curves` is left out where no run has any, `lengths` where the
    task keeps no texts, `heatmap` unless settings differ in two numbers and nothing else.

    Returns:
      Figures outside pyplot, with Agg canvases.
    """
    with matplotlib.rc_context(STYLE):
        built = {
            "scores": _draw_scores(sweep),
            "curves": _draw_curves(sweep),
            "lengths": _draw_lengths(sweep),
            "heatmap": _draw_map(sweep),
        }
    return {name: figure for name, figure in built.items() if figure is not None}


def _looks(sweep: Sweep) -> list[_Look]:
    """A look for each setting."""
    measures = sweep.measures
    means = [setting.main_spread(measures.main.path).mean for setting in sweep.settings]
    sign = -1 if measures.higher_is_better else 1
    ranked = sorted(
        range(len(means)),
        key=lambda i: (
            sweep.settings[i] is not sweep.baseline,
            bool(sweep.settings[i].lost),
            math.inf if math.isnan(means[i]) else sign * means[i],
        ),
    )
    chosen = sorted(ranked[:MAX_TOLD_APART])
    looks = [_Look(OTHERS)] * len(means)
    for n, i in enumerate(chosen):
        colours = (*COLOURS, INK)
        looks[i] = _Look(colours[n % len(colours)], MARKERS[n], DASHES[n % len(DASHES)])
    return looks


def _names(sweep: Sweep, longest_line: int) -> list[str]:
    """A label of each setting, the baseline's marked, wrapped to a number of characters."""
    marked = [_mark(setting, setting is sweep.baseline) for setting in sweep.settings]
    labels = [label(s, sweep.varied) + mark for s, mark in zip(sweep.settings, marked, strict=True)]
    return [textwrap.fill(text, longest_line) for text in labels]


def _mark(setting: Setting, is_baseline: bool) -> str:
    """What a name is followed by: whether it is the baseline, and has lost seeds."""
    count = len(setting.outcomes)
    left = f"{count} of {count + len(setting.others)} seeds" if setting.lost else ""
    told = ", ".join(filter(None, ("baseline" if is_baseline else "", left)))
    return f" ({told})" if told else ""


def _draw_scores(sweep: Sweep) -> Figure:
    """A row a setting: its mean, a bar of one standard deviation each way, its seeds below it."""
    panels = [panel for panel in sweep.measures.score_panels if sweep.has(panel.path)]
    names = _names(sweep, MAX_LINE_LENGTH)
    lines = max(2, *(2 + name.count("\n") for name in names))  # a row's, one of them blank
    figure = new_figure(WIDTH, 0.7 + 0.15 * lines * len(names))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    rows = range(len(sweep.settings))
    for axes, panel in zip(row, panels, strict=True):
        for y, setting, look in zip(rows, sweep.settings, _looks(sweep), strict=True):
            found = setting.over_seeds(panel.path)
            if found is None:
                continue
            if found.n > 1:  # below the mean, which would hide them
                scores = [outcome.score(panel.path) for outcome in setting.outcomes]
                seeds = [panel.scale * score for score in scores if score is not None]
                dot = {"color": look.colour, "markersize": 3, "alpha": 0.7, "markeredgewidth": 0}
                axes.plot(seeds, [y + 0.25] * found.n, "o", **dot)
            bar = None if math.isnan(found.deviation) else panel.scale * found.deviation
            mark = {"fmt": look.marker or "o", "markersize": 5, "capsize": 3}
            axes.errorbar(panel.scale * found.mean, y, xerr=bar, color=look.colour, **mark)
        if sweep.baseline and (base := sweep.baseline.over_seeds(panel.path)):
            line = {"color": INK, "linewidth": 0.8, "linestyle": ":", "zorder": 0}
            axes.axvline(panel.scale * base.mean, **line)
        axes.set_xlabel(panel.title)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    row[0].set_yticks(rows, labels=names, parse_math=False)
    row[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def _draw_curves(sweep: Sweep) -> Figure | None:
    """The task's curves of validation: means over seeds in bands of one deviation."""
    panels = [
        panel
        for panel in sweep.measures.curve_panels
        if any(setting.curve(panel.path)[0] for setting in sweep.settings)
    ]
    if not panels:
        return None
    looks = _looks(sweep)
    figure = new_figure(WIDTH, 2.3 * len(panels) + _legend_height(sweep, looks))
    column = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        for setting, look in zip(sweep.settings, looks, strict=True):
            steps, values = setting.curve(panel.path)
            if steps:
                _draw_band(axes, np.array(steps), panel.scale * values, look)
        axes.set_ylabel(panel.title)
    column[-1].set_xlabel("training step")
    column[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    column[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    _add_legend(figure, sweep, looks)
    return figure


def _draw_lengths(sweep: Sweep) -> Figure | None:
    """What the task scores of the texts of the test set, by their words."""
    scored = sweep.measures.texts
    if scored is None:
        return None
    lengths = sweep.outcomes[0].own_texts.lengths
    buckets = length_buckets(lengths)
    names = []
    for rows in buckets:
        low, high = lengths[rows].min(), lengths[rows].max()
        names.append(f"{low}\n({len(rows)})" if low == high else f"{low}–{high}\n({len(rows)})")
    looks = _looks(sweep)
    figure = new_figure(WIDTH, 2.8 + _legend_height(sweep, looks))
    row = figure.subplots(1, len(scored.by_length), squeeze=False)[0]
    for axes, (title, score) in zip(row, scored.by_length.items(), strict=True):
        for setting, look in zip(sweep.settings, looks, strict=True):
            values = [[score(o.own_texts, rows) for rows in buckets] for o in setting.outcomes]
            _draw_band(axes, np.arange(len(buckets)), np.array(values), look)
        axes.set_ylabel(title)
        axes.set_xticks(range(len(names)), labels=names)
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_xlabel(f"{scored.length} ({scored.noun}s)")
    _add_legend(figure, sweep, looks)
    return figure


def _draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, look: _Look) -> None:
    """Draws the mean of values [seeds, x], and one standard deviation to each side."""
    mean = values.mean(0)
    if not look.told_apart:
        axes.plot(x, mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        return
    # A mark at each of a hundred steps would hide the curve.
    every = max(1, len(x) // 8)
    style = {"linestyle": look.dashes, "marker": look.marker, "markersize": 4, "markevery": every}
    axes.plot(x, mean, color=look.colour, linewidth=1.3, zorder=3, **style)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        edges = mean - deviation, mean + deviation
        axes.fill_between(x, *edges, color=look.colour, alpha=BAND, linewidth=0, zorder=2)


def _legend(sweep: Sweep, looks: list[_Look]) -> list[tuple[Line2D, str]]:
    entries = []
    for name, look in zip(_names(sweep, 80), looks, strict=True):
        if look.told_apart:
            style = {"linestyle": look.dashes, "marker": look.marker, "markersize": 4}
            entries.append((Line2D([], [], color=look.colour, **style), name))
    if others := len(looks) - len(entries):
        line = Line2D([], [], color=OTHERS, linewidth=0.8, alpha=0.6)
        entries.append((line, f"{others} other settings" if others > 1 else "1 other setting"))
    return entries


def _legend_columns(entries: list[tuple[Line2D, str]]) -> int:
    longest = max(len(name) for _, name in entries)
    return max(1, min(len(entries), 3, 90 // (longest + 8)))


def _legend_height(sweep: Sweep, looks: list[_Look]) -> float:
    """Inches that the legend takes below the panels."""
    entries = _legend(sweep, looks)
    lines = sum(1 + name.count("\n") for _, name in entries)
    return 0.1 + 0.19 * math.ceil(lines / _legend_columns(entries))


def _add_legend(figure: Figure, sweep: Sweep, looks: list[_Look]) -> None:
    entries = _legend(sweep, looks)
    handles, names = zip(*entries, strict=True)
    columns = {"ncols": _legend_columns(entries), "handlelength": 3.2, "fontsize": 8}
    legend = figure.legend(handles, names, loc="outside lower center", **columns)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_map(sweep: Sweep) -> Figure | None:
    """The mean score by the two numbers that were swept, each cell a setting."""
    if len(sweep.varied) != 2 or not all(_numeric(s, sweep.varied) for s in sweep.settings):
        return None
    main, (down, across) = sweep.measures.main, sweep.varied
    ys, xs = (sorted({s.values[key] for s in sweep.settings}) for key in sweep.varied)
    means = np.full((len(ys), len(xs)), np.nan)
    # The mean of the seeds that are left of a setting is too good.
    for setting in (setting for setting in sweep.settings if not setting.lost):
        cell = ys.index(setting.values[down]), xs.index(setting.values[across])
        means[cell] = setting.main_spread(main.path).mean * main.scale
    if np.isnan(means).all() or min(means.shape) < 2:
        return None
    figure = new_figure(WIDTH, min(6.5, 1.3 + 0.45 * len(ys)))
    axes = figure.subplots()
    mesh = axes.pcolormesh(means, cmap="viridis", edgecolors="none")
    small = max(len(xs), len(ys)) <= MAX_TOLD_APART
    for (y, x), mean in np.ndenumerate(means):
        if small and not math.isnan(mean):
            # Dark letters on light cells, in every light.
            colour = "black" if np.asarray(mesh.norm(mean)) > 0.5 else "white"
            axes.text(
                x + 0.5, y + 0.5, format(mean, main.format), ha="center", va="center", color=colour
            )
    names = short_names(sweep.varied)
    axes.set_xticks(
        np.arange(len(xs)) + 0.5, labels=map(value_text, xs), rotation=0 if small else 90
    )
    axes.set_yticks(np.arange(len(ys)) + 0.5, labels=map(value_text, ys))
    axes.set(xlabel=names[across], ylabel=names[down])
    axes.grid(False)
    figure.colorbar(mesh, ax=axes, label=f"mean {main.title}").outline.set_visible(False)
    return figure


def _numeric(setting: Setting, keys: list[str]) -> bool:
    values = [setting.values.get(key) for key in keys]
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
