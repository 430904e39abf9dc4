"""Attention heads over a training run: curves of their statistics, and strips of maps.

In `figures/attention_snapshots/`, `curves.png` has a column for each kind of attention and a panel
for each of its statistics, in which a line is a head and its colour the layer; `strip_<n>.png`
shows the n-th tracked sentence, n from 1: each row is a head, each column a checkpoint.
"""

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from experiments.attention.arrays import KINDS
from experiments.attention.labels import visible
from experiments.attention.maps import AS_TEXT, COLOUR_MAP, fonts_for
from experiments.attention.snapshots import Snapshot, of_same_sentence, read_snapshots
from experiments.display.figure_files import save_figure
from transformer.analysis.attention import Attention

MARGIN = 0.1  # inches around a picture
# Statistic -> its name with the unit; those without bounds of 0 and 1 have their own axes.
PANELS = {
    "relative_entropy": "entropy / largest possible",
    "diagonality": "diagonality",
    "end_fraction": "fraction on </s>",
    "distance": "mean distance (tokens)",
    # `--mode=align` scores the test set instead.
    "aer": "alignment error rate\n(tracked pairs, by output)",
}
UNBOUNDED = ("distance",)
# The rows of the figure: no kind has two of one row, and kinds that have none leave a gap.
ROWS = (("relative_entropy",), ("diagonality",), ("end_fraction",), ("distance", "aer"))
DOTS_PER_INCH = 200
PANEL_WIDTH, PANEL_HEIGHT = 3.1, 1.75  # inches, of a panel of curves with its labels
FEW = 30  # checkpoints that still show as single marks
MIN_WIDTH = 3.4  # inches: the longest line of a strip's title
STEPS, HEADS = 8, 6  # columns and rows of a strip at most
WIDEST, AROUND = 12.0, 1.9  # inches: of a strip, and of what stands on both sides of its maps
CELL, MAX_SIDE, GAP = 0.125, 2.4, 0.13  # inches: of a token, of a map of many, between maps
# Points, points, multiple of the size; a report shows them at `report.page.SHOWN` pixels an inch.
MAX_FONT, MIN_FONT, LINE_HEIGHT = 7.5, 6.5, 1.2


def draw(folder: Path) -> list[Path]:
    """Draws the snapshots of a run, see above; returns the pictures, none without snapshots.

    Pictures of an earlier run with more snapshots go.
    """
    snapshots, place = read_snapshots(folder), folder / "figures" / "attention_snapshots"
    drawn = {}
    if any(snapshot.statistics for snapshot in snapshots):
        drawn["curves"] = curves_figure(snapshots)
    for n in range(len(snapshots[-1].sentences) if snapshots else 0):
        if strip := find_strip(snapshots, n):
            drawn[f"strip_{n + 1}"] = strip_figure(strip)
    pictures = []
    for name, figure in drawn.items():
        # Long names of tokens may reach beyond the figure.
        options = {"bbox_inches": "tight", "pad_inches": MARGIN}
        pictures.append(save_figure(figure, place / f"{name}.png", **options))
    for picture in place.glob("*.png"):
        if picture not in pictures and re.fullmatch(r"curves|strip_[0-9]+", picture.stem):
            picture.unlink()
    return pictures


# -- curves


def curves_figure(snapshots: Sequence[Snapshot]) -> Figure:
    """Returns the figure of all heads' statistics over the steps, a column per kind."""
    kinds = [kind for kind in KINDS if any(kind in snapshot.statistics for snapshot in snapshots)]
    panels = [
        {kind: name for kind in kinds for name in row if _curves(snapshots, kind, name)}
        for row in ROWS
    ]
    panels, depth = [row for row in panels if row], max(map(_depth, snapshots))
    size = (PANEL_WIDTH * len(kinds) + 0.2, PANEL_HEIGHT * len(panels) + 0.7)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), len(kinds), sharex=True, squeeze=False)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, depth))
    for (row, names), (column, kind) in itertools.product(enumerate(panels), enumerate(kinds)):
        curves = _curves(snapshots, kind, names[kind]) if kind in names else None
        if curves:
            _draw_heads(grid[row, column], *curves, name=names[kind], colours=colours)
        else:
            grid[row, column].set_axis_off()
    for axes, kind in zip(grid[0], kinds, strict=True):
        axes.set_title(KINDS[kind][0], fontsize=10, pad=8)
    for column, kind in enumerate(kinds):  # below the last panel that the kind has
        lowest = max(row for row, names in enumerate(panels) if kind in names)
        grid[lowest, column].tick_params(labelbottom=True)
        grid[lowest, column].set_xlabel("training step", fontsize=8)
        grid[lowest, column].xaxis.label.set_visible(True)
    figure.align_ylabels(grid)
    layers = [Line2D([], [], color=c, label=f"layer {i}") for i, c in enumerate(colours, 1)]
    across = min(depth, 3 * len(kinds))
    figure.legend(
        handles=layers, loc="outside lower center", ncols=across, fontsize=8, frameon=False
    )
    return figure


def _depth(snapshot: Snapshot) -> int:
    """The layers of the deepest stack."""
    return max((len(a) for own in snapshot.statistics.values() for a in own.values()), default=1)


def _curves(
    snapshots: Sequence[Snapshot], kind: str, name: str
) -> tuple[list[int], np.ndarray] | None:
    """The steps that have a statistic, and its values [steps, layers, H]; None without any."""
    found = {
        p.step: p.statistics[kind][name] for p in snapshots if name in p.statistics.get(kind, {})
    }
    return (list(found), np.stack(list(found.values()))) if found else None


def _draw_heads(axes: Axes, steps: list[int], values: np.ndarray, name: str, colours) -> None:
    marker = "o" if len(steps) <= FEW else None
    for layer in range(values.shape[1]):
        own = {"color": colours[layer], "linewidth": 1.1, "alpha": 0.85}
        axes.plot(steps, values[:, layer], marker=marker, markersize=2.5, **own)
    axes.set_ylabel(PANELS[name], fontsize=8)
    axes.set_ylim(0, None if name in UNBOUNDED else 1.02)
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=[1, 2, 5, 10]))
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if name == "aer" and not np.isnan(values).all():
        place, layer, head = np.unravel_index(np.nanargmin(values), values.shape)
        best = f"best {values[place, layer, head]:.2f}: layer {layer + 1}, head {head + 1}, "
        text = f"{best}step {steps[place]:,}"
        axes.set_title(text, fontsize=7, loc="right", pad=2)


# -- strips of maps


class Strip(NamedTuple):
    """One sentence's maps over the steps.

    Attributes:
      steps: of the columns.
      heads: layer and head of each row, both from zero.
      maps: of each column, the sentence's attention then.
    """

    kind: str
    steps: list[int]
    heads: list[tuple[int, int]]
    maps: list[Attention]


def find_strip(snapshots: Sequence[Snapshot], n: int) -> Strip | None:
    """Returns the strip of the n-th sentence of the last snapshot, n from zero; None of nothing.

    It is of cross-attention if there is any. If all heads are too many, those are shown which align
    best in the end; without known links, those whose attention is the least spread out.
    """
    last = snapshots[-1].sentences[n]
    kinds = [kind for kind in ("cross", *KINDS) if kind in last.weights]
    same = of_same_sentence(snapshots, n)
    if not kinds:
        return None
    kind = kinds[0]
    queries, keys = last.names(kind)
    room = int((WIDEST - AROUND + GAP) / (_cell(queries, keys) * len(keys) + GAP))
    count = min(max(2, room), STEPS, len(same))
    chosen = np.unique(np.linspace(0, len(same) - 1, count).round().astype(int))
    heads = [tuple(head) for head in np.ndindex(last.weights[kind].shape[:2])]
    own = snapshots[-1].statistics.get(kind, {})
    ranks = own.get("aer", own.get("relative_entropy"))
    if ranks is not None:
        heads = sorted(sorted(heads, key=lambda head: ranks[head])[:HEADS])
    picked = [same[i] for i in chosen]
    maps = [snapshot.sentences[n] for snapshot in picked]
    return Strip(kind, [snapshot.step for snapshot in picked], heads[:HEADS], maps)


def strip_figure(strip: Strip) -> Figure:
    """Returns the figure of a strip, with names as in `transformer.analysis.attention`."""
    names, first = KINDS[strip.kind], strip.maps[0]
    queries, keys = first.names(strip.kind)
    cell = _cell(queries, keys)
    gap = round(GAP / cell)
    # One image of all maps: axes of their own would take seconds to draw.
    rows = len(queries) + gap, len(strip.heads)
    columns = len(keys) + gap, len(strip.steps)
    height, width = (pitch * count - gap for pitch, count in (rows, columns))
    image = np.full((height, width), np.nan, np.float32)
    size = max(MIN_WIDTH, cell * width + AROUND), cell * height + 1.8
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    frame = {"fill": False, "linewidth": 0.5, "edgecolor": "0.5", "clip_on": False}
    for column, attention in enumerate(strip.maps):
        weights = attention.weights[strip.kind]  # which may be read from a file here
        for row, head in enumerate(strip.heads):
            y, x = row * rows[0], column * columns[0]
            image[y : y + len(queries), x : x + len(keys)] = weights[head]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), len(keys), len(queries), **frame))
    mesh = axes.imshow(image, cmap=COLOUR_MAP, vmin=0, vmax=1)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=1.5, width=0.5, pad=1.5)
    _name_ticks(axes.yaxis, queries, cell, rows)
    _name_ticks(axes.xaxis, keys, cell, columns, rotation=90)
    _name_maps(axes, strip, rows[0], columns[0], gap)
    bar = figure.colorbar(
        mesh, ax=axes, ticks=[0, 0.5, 1], shrink=1 / rows[1], aspect=10, anchor=(0, 1)
    )
    bar.outline.set_linewidth(0.5)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    text = f"{names.title}\nrows: {names.rows}, columns: {names.columns}"
    figure.suptitle(text, fontsize=9)
    return figure


def _cell(queries: Sequence[str], keys: Sequence[str]) -> float:
    """The inches of a token."""
    return min(CELL, MAX_SIDE / max(len(queries), len(keys)))


def _name_maps(axes: Axes, strip: Strip, down: int, across: int, gap: int) -> None:
    """Writes the step over each column of maps, and the head next to each row.

    Args:
      down, across: from one map to the next, in cells, including a `gap` between them.
    """
    text = {"textcoords": "offset points", "fontsize": 8, "annotation_clip": False}
    for column, step in enumerate(strip.steps):
        place = column * across + (across - gap) / 2 - 0.5, -0.5
        axes.annotate(f"step {step:,}", place, (0, 4), ha="center", va="bottom", **text)
    for row, (layer, head) in enumerate(strip.heads):
        place = len(strip.steps) * across - gap - 0.5, row * down + (down - gap) / 2 - 0.5
        label = f"layer {layer + 1}\nhead {head + 1}"
        axes.annotate(label, place, (5, 0), ha="left", va="center", **text)


def _name_ticks(
    axis, tokens: Sequence[str], cell: float, maps: tuple[int, int], rotation: float = 0
) -> None:
    """Names the tokens along an axis of several maps, every n-th if there is no room for more.

    Args:
      cell: inches of a token.
      maps: the cells from one map to the next, and how many maps there are.
    """
    pitch = 72 * cell  # points from one token to the next
    size = min(max(pitch / LINE_HEIGHT, MIN_FONT), MAX_FONT)
    step = math.ceil(size * LINE_HEIGHT / pitch - 1e-6)
    families, covered = fonts_for(frozenset("".join(tokens)))
    font = FontProperties(family=families, size=size)
    own = np.arange(0, len(tokens), step)
    texts = [visible(token, covered) for token in tokens[::step]] * maps[1]
    places = (np.arange(maps[1])[:, None] * maps[0] + own).ravel()
    style = {
        "rotation": rotation,
        "ha": "right",
        "va": "center_baseline",
        "rotation_mode": "anchor",
    }
    axis.set_ticks(places, labels=texts, fontproperties=font, **style, **AS_TEXT)
