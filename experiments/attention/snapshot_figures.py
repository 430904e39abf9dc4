"""Attention heads over a training run: curves of their statistics, and strips of maps.

In `figures/attention_snapshots/`, `curves.png` has a column for each kind of attention and a panel
for each of its statistics, in which a line is a head and its colour the layer; `strip_<n>.png`
shows the n-th tracked sentence, n from 1: each row is a head, each column a checkpoint.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from transformer.analysis.attention import KINDS, Attention
from ..display import plotting
from ..display.labels import TickLabels
from .snapshots import SavedSnapshot, of_same_sentence, read_snapshots

MARGIN = 0.1  # inches around a picture
# Statistic -> its name with the unit.
PANEL_TITLES = {
    "relative_entropy": "entropy / largest possible",
    "diagonality": "diagonality",
    "end_fraction": "fraction on </s>",
    "distance": "mean distance (tokens)",
    # `--mode=align` scores the test set instead.
    "aer": "alignment error rate\n(tracked pairs, by output)",
}
# The rows of the figure: no kind has two of one row, and kinds that have none leave a gap.
PANEL_ROWS = (("relative_entropy",), ("diagonality",), ("end_fraction",), ("distance", "aer"))
PANEL_WIDTH, PANEL_HEIGHT = 3.1, 1.75  # inches, of a panel of curves with its labels
FEW = 30  # checkpoints that still show as single marks
MIN_WIDTH = 3.4  # inches: the longest line of a strip's title
STEPS, HEADS = 8, 6  # columns and rows of a strip at most
WIDEST, AROUND = 12.0, 1.9  # inches: of a strip, and of what stands on both sides of its maps
CELL, MAX_SIDE, GAP = 0.125, 2.4, 0.13  # inches: of a token, of a map of many, between maps
FONT_SIZES = 6.5, 7.5  # points; a report shows them at `report.page.SHOWN` pixels an inch


def draw(folder: Path) -> list[Path]:
    """Draws the snapshots of a run, replacing earlier pictures; returns the files."""
    snapshots, place = read_snapshots(folder), folder / "figures" / "attention_snapshots"
    drawn = {}
    if any(snapshot.statistics for snapshot in snapshots):
        drawn["curves"] = curves_figure(snapshots)
    for n in range(len(snapshots[-1].sentences) if snapshots else 0):
        if strip := find_strip(snapshots, n):
            drawn[f"strip_{n + 1}"] = strip_figure(strip)
    # Long names of tokens may reach beyond the figure.
    whole = {"bbox_inches": "tight", "pad_inches": MARGIN}
    pictures = [
        plotting.save_figure(f, place / f"{name}.png", **whole) for name, f in drawn.items()
    ]
    for picture in place.glob("*.png"):
        if picture not in pictures and re.fullmatch(r"curves|strip_[0-9]+", picture.stem):
            picture.unlink()
    return pictures


# -- curves


def curves_figure(snapshots: Sequence[SavedSnapshot]) -> Figure:
    """Returns the figure of all heads' statistics over the steps, a column per kind."""
    curves = {}  # steps and values [steps, layers, H]
    for kind, name in itertools.product(KINDS, PANEL_TITLES):
        having = [s for s in snapshots if name in s.statistics.get(kind, {})]
        if having:
            values = np.stack([snapshot.statistics[kind][name] for snapshot in having])
            curves[kind, name] = [snapshot.step for snapshot in having], values
    kinds = list(dict.fromkeys(kind for kind, _ in curves))
    rows = [{kind: name for kind, name in curves if name in names} for names in PANEL_ROWS]
    rows = [row for row in rows if row]
    depth = max(values.shape[1] for _, values in curves.values())  # layers of the deepest stack
    figure = plotting.new_figure(PANEL_WIDTH * len(kinds) + 0.2, PANEL_HEIGHT * len(rows) + 0.7)
    grid = figure.subplots(len(rows), len(kinds), sharex=True, squeeze=False)
    colours = plotting.layer_colours(depth)
    for column, kind in zip(grid.T, kinds, strict=True):
        for axes, row in zip(column, rows, strict=True):
            if kind in row:
                _draw_heads(axes, *curves[kind, row[kind]], name=row[kind], colours=colours)
            else:
                axes.set_axis_off()
        column[0].set_title(KINDS[kind].title, fontsize=10, pad=8)
        lowest = column[max(i for i, row in enumerate(rows) if kind in row)]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("training step", fontsize=8)
        lowest.xaxis.label.set_visible(True)
    figure.align_ylabels(grid)
    layers = [Line2D([], [], color=c, label=f"layer {i}") for i, c in enumerate(colours, 1)]
    place = {"loc": "outside lower center", "ncols": min(depth, 3 * len(kinds))}
    figure.legend(handles=layers, **plotting.LEGEND, **place)
    return figure


def _draw_heads(axes: Axes, steps: list[int], values: np.ndarray, name: str, colours) -> None:
    marker = "o" if len(steps) <= FEW else None
    for layer in range(values.shape[1]):
        style = {"color": colours[layer], "linewidth": 1.1, "alpha": 0.85, "markersize": 2.5}
        axes.plot(steps, values[:, layer], marker=marker, **style)
    axes.set_ylabel(PANEL_TITLES[name], fontsize=8)
    axes.set_ylim(0, None if name == "distance" else 1.02)
    axes.tick_params(labelsize=7)
    plotting.count_steps(axes, 5)
    plotting.light_grid(axes)
    if name == "aer" and not np.isnan(values).all():
        place, layer, head = np.unravel_index(np.nanargmin(values), values.shape)
        best = f"best {values[place, layer, head]:.2f}: layer {layer + 1}, head {head + 1}, "
        axes.set_title(f"{best}step {steps[place]:,}", fontsize=7, loc="right", pad=2)


# -- strips of maps


class Strip(NamedTuple):
    """One sentence's maps over the steps."""

    kind: str
    steps: list[int]  # of the columns
    heads: list[tuple[int, int]]  # layer and head of each row, both from zero
    maps: list[Attention]  # of each column


def find_strip(snapshots: Sequence[SavedSnapshot], n: int) -> Strip | None:
    """Returns the strip of the n-th sentence of the last snapshot, n from zero; None of nothing.

    It is of cross-attention if there is any. Of many heads, those are shown which align best in the
    end; without known links, those whose attention is the least spread out.
    """
    last, same = snapshots[-1].sentences[n], of_same_sentence(snapshots, n)
    kind = next((kind for kind in ("cross", *KINDS) if kind in last.weights), None)
    if kind is None:
        return None
    queries, keys = last.names(kind)
    room = int((WIDEST - AROUND + GAP) / (_cell(queries, keys) * len(keys) + GAP))
    count = min(max(2, room), STEPS, len(same))
    chosen = np.unique(np.linspace(0, len(same) - 1, count).round().astype(int))
    heads = [tuple(head) for head in np.ndindex(last.weights[kind].shape[:2])]
    statistics = snapshots[-1].statistics.get(kind, {})
    ranks = statistics.get("aer", statistics.get("relative_entropy"))
    if ranks is not None:
        heads = sorted(sorted(heads, key=lambda head: ranks[head])[:HEADS])
    steps, maps = [same[i].step for i in chosen], [same[i].sentences[n] for i in chosen]
    return Strip(kind, steps, heads[:HEADS], maps)


def strip_figure(strip: Strip) -> Figure:
    """Returns the figure of a strip, with names as in `transformer.analysis.attention`."""
    names = KINDS[strip.kind]
    queries, keys = strip.maps[0].names(strip.kind)
    cell = _cell(queries, keys)
    gap = round(GAP / cell)
    # One image of all maps: axes of their own would take seconds to draw.
    tops = [row * (len(queries) + gap) for row in range(len(strip.heads))]
    lefts = [column * (len(keys) + gap) for column in range(len(strip.steps))]
    height, width = tops[-1] + len(queries), lefts[-1] + len(keys)
    image = np.full((height, width), np.nan, np.float32)
    figure = plotting.new_figure(max(MIN_WIDTH, cell * width + AROUND), cell * height + 1.8)
    axes = figure.add_subplot()
    frame = {"fill": False, "linewidth": 0.5, "edgecolor": "0.5", "clip_on": False}
    for x, attention in zip(lefts, strip.maps, strict=True):
        weights = attention.weights[strip.kind]  # which may be read from a file here
        for y, head in zip(tops, strip.heads, strict=True):
            image[y : y + len(queries), x : x + len(keys)] = weights[head]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), len(keys), len(queries), **frame))
    mesh = axes.imshow(image, cmap=plotting.SEQUENTIAL, vmin=0, vmax=1)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=1.5, width=0.5, pad=1.5)
    TickLabels.of(queries, 72 * cell, FONT_SIZES).put(axes.yaxis, 0, tops)
    TickLabels.of(keys, 72 * cell, FONT_SIZES).put(axes.xaxis, 90, lefts)
    text = {"textcoords": "offset points", "fontsize": 8, "annotation_clip": False}
    for step, x in zip(strip.steps, lefts, strict=True):
        place = x + len(keys) / 2 - 0.5, -0.5
        axes.annotate(f"step {step:,}", place, (0, 4), ha="center", va="bottom", **text)
    for (layer, head), y in zip(strip.heads, tops, strict=True):
        place = width - 0.5, y + len(queries) / 2 - 0.5
        label = f"layer {layer + 1}\nhead {head + 1}"
        axes.annotate(label, place, (5, 0), ha="left", va="center", **text)
    size = {"shrink": 1 / len(strip.heads), "aspect": 10, "anchor": (0, 1)}
    plotting.add_colour_bar(mesh, [0, 0.5, 1], "attention weight", ax=axes, **size)
    title = f"{names.title}\nrows: {names.rows}, columns: {names.columns}"
    figure.suptitle(title, fontsize=9)
    return figure


def _cell(queries: Sequence[str], keys: Sequence[str]) -> float:
    """The inches of a token."""
    return min(CELL, MAX_SIDE / max(len(queries), len(keys)))
