"""Pictures of head importance: maps of layers and heads, and gradient against ablation."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from experiments.attention.arrays import KINDS
from experiments.attention.maps import DOTS_PER_INCH
from experiments.display.training_curves import COLOURS, MARKER_SHAPES, light_grid


class Measure(NamedTuple):
    """A column of maps: its title, how a cell tells a number, and the sign of what is red."""

    title: str
    told: str
    harm: int


MEASURES = {
    "importance": Measure("importance by gradient\n(nats a {unit})", "{:.3f}", 1),
    "loss": Measure("change of loss, head off\n(nats a {unit})", "{:+.3f}", 1),
    "bleu": Measure("change of BLEU, head off\n(of 100)", "{:+.1f}", -1),
}
# Zero is white, and both ends stay apart for the colour-blind.
COLOUR_MAP = "RdBu_r"
CELL, MIN_SIDE, MAX_SIDE = 0.48, 1.5, 4.0  # inches
BAR_HEIGHT, SCATTER_WIDTH, SCATTER_HEIGHT = 0.9, 4.2, 3.4  # inches
WIDEST_NUMBER = 0.4  # inches that a cell's number asks for
DARK = 0.6  # of the colour scale, from which text on a cell is white
NAMED = 3  # points of the scatter that are named


def build_figure(
    heads: Sequence[Mapping[str, Any]], correlation: float | None, unit: str
) -> Figure:
    """A row of maps per kind of attention, a column per measure, and gradient against ablation
    below.

    All maps of a column share their colours: red is a head that the model needs, blue one that it
    is better without. A few heads count for more than all others, so colours follow the root.

    Args:
      heads: see `importance.HeadScores`.
      correlation: Spearman's, of importance and change of loss; None if there is none.
      unit: one of those that losses are means over.

    Returns:
      A figure outside pyplot, with an Agg canvas.
    """
    by_kind = {kind: [head for head in heads if head["kind"] == kind] for kind in KINDS}
    by_kind = {kind: own for kind, own in by_kind.items() if own}
    measures = [name for name in MEASURES if heads[0][name] is not None]
    across = max(head["head"] for head in heads)
    depths = [max(head["layer"] for head in own) for own in by_kind.values()]
    side = min(max(CELL * across, MIN_SIDE), MAX_SIDE)
    cell = side / across
    maps_height = sum(cell * depth + 0.55 for depth in depths) + BAR_HEIGHT
    figure = Figure(
        figsize=(max((side + 0.6) * len(measures), SCATTER_WIDTH), maps_height + SCATTER_HEIGHT),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    ratios = [maps_height, SCATTER_HEIGHT]
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=ratios)
    grid = above.subplots(len(by_kind), len(measures), squeeze=False, height_ratios=depths)
    for name, column in zip(measures, grid.T, strict=True):
        largest = max(abs(head[name]) for head in heads) or 1.0
        for (kind, own), axes in zip(by_kind.items(), column, strict=True):
            mesh = _draw_map(axes, own, name, largest, cell)
            axes.set_title(KINDS[kind][0], fontsize=8)
        column[-1].set_xlabel("head", fontsize=8)
        bar = above.colorbar(mesh, ax=column, location="top", shrink=0.8, aspect=16, pad=0.02)
        _label_bar(bar, name, largest, unit)
    for axes in grid[:, 0]:
        axes.set_ylabel("layer", fontsize=8)
    _draw_scatter(below.subplots(), by_kind, correlation, unit)
    below.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7.5)
    return figure


def _draw_map(
    axes: Axes, heads: Sequence[Mapping[str, Any]], name: str, largest: float, cell: float
):
    """One kind's layers and heads in the colours of a measure, with numbers if they fit."""
    measure = MEASURES[name]
    shape = max(head["layer"] for head in heads), max(head["head"] for head in heads)
    values = np.zeros(shape)
    for head in heads:
        values[head["layer"] - 1, head["head"] - 1] = head[name]
    norm = FuncNorm((_signed_root, _signed_square), -largest, largest)
    mesh = axes.imshow(measure.harm * values, cmap=COLOUR_MAP, norm=norm)
    for (row, column), value in np.ndenumerate(values) if cell >= WIDEST_NUMBER else ():
        dark = abs(value) / largest > DARK**2
        style = {"ha": "center", "va": "center", "fontsize": 6.5}
        text = measure.told.format(value)
        axes.text(column, row, text, color="white" if dark else "black", **style)
    step = 1 if cell > 0.2 else 5
    for axis, count in ((axes.yaxis, shape[0]), (axes.xaxis, shape[1])):
        axis.set_major_locator(FixedLocator(np.arange(0, count, step)))
        axis.set_ticklabels(np.arange(1, count + 1, step))
    axes.tick_params(length=0, labelsize=7)
    return mesh


def _label_bar(bar, name: str, largest: float, unit: str) -> None:
    """Ticks at the ends of the scale and half-way between them and zero, and its title."""
    measure = MEASURES[name]
    shares = np.array([-1, -0.25, 0, 0.25, 1])
    if name == "importance":  # which is never negative
        bar.ax.set_xlim(0, largest)
        shares = shares[2:]
    bar.set_ticks(shares * largest)
    # Zero has no sign.
    bar.ax.set_xticklabels([f"{measure.harm * share * largest + 0.0:.2g}" for share in shares])
    bar.ax.tick_params(labelsize=6.5)
    bar.ax.minorticks_off()
    bar.set_label(measure.title.format(unit=unit), fontsize=8.5)


def _draw_scatter(
    axes: Axes,
    by_kind: Mapping[str, Sequence[Mapping[str, Any]]],
    correlation: float | None,
    unit: str,
) -> None:
    """A point per head: its importance by gradient, and the loss without it."""
    heads = [head for own in by_kind.values() for head in own]
    axes.axhline(0, color="0.6", linewidth=0.8)
    for (kind, own), colour, marker in zip(by_kind.items(), COLOURS, MARKER_SHAPES, strict=False):
        points = zip(*((head["importance"], head["loss"]) for head in own), strict=True)
        style = {"color": colour, "markersize": 5, "alpha": 0.85, "label": KINDS[kind][0]}
        axes.plot(*points, marker, **style)
    for number, head in enumerate(sorted(heads, key=lambda head: -head["loss"])[:NAMED]):
        place, offset = (head["importance"], head["loss"]), (5, -8 if number % 2 else 3)
        style = {"xytext": offset, "textcoords": "offset points", "fontsize": 7}
        axes.annotate(f"{head['layer']}.{head['head']}", place, **style)
    # A hundredth of the largest change is still distinguishable from zero.
    axes.set_yscale("symlog", linthresh=max(abs(head["loss"]) for head in heads) / 100 or 1.0)
    axes.set_xlabel(MEASURES["importance"].title.replace("\n", " ").format(unit=unit), fontsize=8.5)
    axes.set_ylabel(MEASURES["loss"].title.format(unit=unit), fontsize=8.5)
    told = "" if correlation is None else f"; Spearman's rank correlation {correlation:.2f}"
    axes.set_title(f"{len(heads)} heads, layer.head of a few that count most{told}", fontsize=8.5)
    light_grid(axes)
    axes.tick_params(labelsize=7.5)


def _signed_root(values):
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values):
    return np.sign(values) * np.square(values)
