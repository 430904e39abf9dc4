"""The picture of what each head is worth: maps of layers and heads, and gradient against truth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from experiments.attention_maps import DOTS_PER_INCH, KINDS
from experiments.training_curves import COLOURS, MARKER_SHAPES

# Measure -> (title, how a cell tells it, what a gain is multiplied by to be red: what harms).
MEASURES = {
    "importance": ("importance by gradient\n(nats a token)", "{:.2f}", 1.0),
    "loss": ("change of loss, head off\n(nats a token)", "{:+.2f}", 1.0),
    "bleu": ("change of BLEU, head off", "{:+.1f}", -1.0),
}
# Zero is white, and both ends stay apart for the colour-blind.
COLOUR_MAP = "RdBu_r"
CELL, SMALLEST_SIDE, LARGEST_SIDE = 0.46, 1.5, 6.0  # inches
SCATTER = 3.6  # inches
WIDEST_NUMBER = 0.4  # inches that a cell's number asks for
DARK = 0.6  # share of the scale from which text on a cell is white


def build_figure(heads: Sequence[Mapping[str, Any]], correlation: float | None) -> Figure:
    """A row of maps a kind of attention, a column a measure, and gradient against truth below.

    All maps of a column share their colours: red is a head that the model needs, blue one that it
    is better without. Points below 0 of the scatter are such, too.

    Args:
      heads: see `head_importance.HeadScores`.
      correlation: Spearman's, of importance and change of loss; None where there is none.

    Returns:
      A figure outside pyplot, with an Agg canvas.
    """
    kinds = [kind for kind in KINDS if any(head["kind"] == kind for head in heads)]
    measures = [name for name in MEASURES if heads[0][name] is not None]
    across = max(head["head"] for head in heads)
    depths = [max(head["layer"] for head in heads if head["kind"] == kind) for kind in kinds]
    side = min(max(CELL * across, SMALLEST_SIDE), LARGEST_SIDE)
    cell = side / across
    heights = [cell * depth + 0.75 for depth in depths]
    figure = Figure(
        figsize=((side + 1.3) * len(measures) + 0.4, sum(heights) + SCATTER + 0.6),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    above, below = figure.subfigures(2, height_ratios=[sum(heights) + 0.6, SCATTER])
    grid = above.subplots(len(kinds), len(measures), squeeze=False, height_ratios=depths)
    for measure, column in zip(measures, grid.T, strict=True):
        largest = max(abs(head[measure]) for head in heads) or 1.0
        for kind, axes in zip(kinds, column, strict=True):
            own = [head for head in heads if head["kind"] == kind]
            mesh = _draw_map(axes, own, measure, largest, cell)
            axes.set_title(KINDS[kind][0], fontsize=8)
        column[-1].set_xlabel("head")
        sign = MEASURES[measure][2]
        bar = above.colorbar(mesh, ax=column, location="top", aspect=18, fraction=0.08, pad=0.02)
        bar.set_label(MEASURES[measure][0], fontsize=9)
        bar.ax.set_xticks([-largest, 0, largest])
        told = "{:.3g}".format
        bar.ax.set_xticklabels([told(-sign * largest), "0", told(sign * largest)], fontsize=7)
    for axes in grid[:, 0]:
        axes.set_ylabel("layer")
    _draw_scatter(below.subplots(), heads, kinds, correlation)
    return figure


def _draw_map(
    axes: Axes, heads: Sequence[Mapping[str, Any]], measure: str, largest: float, cell: float
):
    """One kind's layers and heads in the colours of one measure, with numbers where they fit."""
    _, told, sign = MEASURES[measure]
    shape = max(head["layer"] for head in heads), max(head["head"] for head in heads)
    values = np.zeros(shape)
    for head in heads:
        values[head["layer"] - 1, head["head"] - 1] = head[measure]
    scale = {"vmin": -largest, "vmax": largest, "cmap": COLOUR_MAP}
    mesh = axes.imshow(sign * values, **scale)
    if cell >= WIDEST_NUMBER:
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(value) > DARK * largest else "black"
            axes.text(
                *(column, row, told.format(value)),
                **{"ha": "center", "va": "center", "fontsize": 6.5, "color": colour},
            )
    for axis, count in ((axes.yaxis, shape[0]), (axes.xaxis, shape[1])):
        step = 1 if cell > 0.2 else 5
        axis.set_major_locator(FixedLocator(np.arange(0, count, step)))
        axis.set_ticklabels(np.arange(1, count + 1, step))
    axes.tick_params(length=0, labelsize=7)
    return mesh


def _draw_scatter(
    axes: Axes,
    heads: Sequence[Mapping[str, Any]],
    kinds: Sequence[str],
    correlation: float | None,
) -> None:
    """A point a head: what its gradient says, and what happens without it."""
    axes.axhline(0, color="0.6", linewidth=0.8)
    for kind, colour, marker in zip(kinds, COLOURS, MARKER_SHAPES, strict=False):
        own = [head for head in heads if head["kind"] == kind]
        axes.plot(
            [head["importance"] for head in own],
            [head["loss"] for head in own],
            marker,
            color=colour,
            markersize=5,
            alpha=0.85,
            label=KINDS[kind][0],
        )
    axes.set_xlabel("importance by gradient (nats a token)")
    axes.set_ylabel("change of loss, head off\n(nats a token)")
    told = "" if correlation is None else f": Spearman's rank correlation {correlation:.2f}"
    axes.set_title(f"{len(heads)} heads{told}", fontsize=9)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
