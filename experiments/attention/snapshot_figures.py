"""Attention heads during training: curves of their statistics, and strips of maps.

In `figures/attention_snapshots/`, `curves.png` has a column for each kind of attention and a panel
for each of its statistics, with a line per head, coloured by layer; `strip_<n>.png` shows the n-th
tracked sentence, n from 1, with a row per head and a column per checkpoint.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from transformer.analysis.attention import KINDS
from ..display import plotting
from .heat_maps import draw_maps
from .snapshots import SavedSnapshot, of_same_sentence, read_snapshots

# Statistic -> its name with the unit.
PANEL_TITLES = {
    "relative_entropy": "entropy / largest possible",
    "diagonality": "diagonality",
    "end_fraction": "fraction on </s>",
    "distance": "mean distance (tokens)",
    # On the tracked pairs; `--mode=align` scores the test set.
    "aer": "alignment error rate\n(tracked pairs, by output)",
}
# Statistics by row of the figure; a kind has at most one per row, or leaves a gap.
PANEL_ROWS = (("relative_entropy",), ("diagonality",), ("end_fraction",), ("distance", "aer"))
PANEL_WIDTH, PANEL_HEIGHT = 3.1, 1.75  # inches: a panel of curves with its labels
FEW = 30  # maximum number of checkpoints with a mark each
STEPS, HEADS = 8, 6  # maximum columns and rows of a strip
WIDEST, AROUND = 12.0, 1.9  # inches: width of a strip, and of the labels next to its maps
CELL, MAX_SIDE, GAP = 0.125, 2.4, 0.16  # inches: a token, a map with many tokens, between maps


def draw(folder: Path) -> list[Path]:
    """Draws the snapshots of a run; returns the paths of the pictures."""
    snapshots, place = read_snapshots(folder), folder / "figures" / "attention_snapshots"
    drawn = {}
    if any(snapshot.statistics for snapshot in snapshots):
        drawn["curves"] = curves_figure(snapshots)
    for n in range(len(snapshots[-1].sentences) if snapshots else 0):
        if strip := strip_figure(snapshots, n):
            drawn[f"strip_{n + 1}"] = strip
    return [plotting.save_figure(each, place / f"{name}.png") for name, each in drawn.items()]


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
    for axes, (row, kind) in zip(grid.flat, itertools.product(rows, kinds), strict=True):
        if kind in row:
            _draw_heads(axes, *curves[kind, row[kind]], name=row[kind], colours=colours)
        else:
            axes.set_axis_off()
    for axes, kind in zip(grid[0], kinds, strict=True):
        axes.set_title(KINDS[kind].title, fontsize=10, pad=8)
    figure.supxlabel("training step", fontsize=8)
    figure.align_ylabels(grid)
    layers = [Line2D([], [], color=c, label=f"layer {i}") for i, c in enumerate(colours, 1)]
    place = {"loc": "outside upper center", "ncols": min(depth, 3 * len(kinds))}
    figure.legend(handles=layers, **plotting.LEGEND, **place)
    return figure


def _draw_heads(axes: Axes, steps: list[int], values: np.ndarray, name: str, colours) -> None:
    marker = "o" if len(steps) <= FEW else None
    for layer in range(values.shape[1]):
        style = {"color": colours[layer], "linewidth": 1.1, "alpha": 0.85, "markersize": 2.5}
        axes.plot(steps, values[:, layer], marker=marker, **style)
    axes.set_ylabel(PANEL_TITLES[name], fontsize=8)
    axes.set_ylim(0, None if name == "distance" else 1.02)
    axes.tick_params(labelsize=7, labelbottom=True)
    plotting.count_steps(axes, 5)
    plotting.light_grid(axes)
    if name == "aer" and not np.isnan(values).all():
        place, layer, head = np.unravel_index(np.nanargmin(values), values.shape)
        best = f"best {values[place, layer, head]:.2f}: layer {layer + 1}, head {head + 1}, "
        axes.set_title(f"{best}step {steps[place]:,}", fontsize=7, loc="right", pad=2)


# -- strips of maps


def strip_figure(snapshots: Sequence[SavedSnapshot], n: int) -> Figure | None:
    """Returns the strip of the last snapshot's n-th sentence, n from zero; None without attention.

    It shows cross-attention if there is any. If there are many heads, it shows those with lowest
    final alignment error rate or, without gold links, with the lowest entropy.
    """
    last, same = snapshots[-1].sentences[n], of_same_sentence(snapshots, n)
    kind = next((kind for kind in ("cross", *KINDS) if kind in last.weights), None)
    if kind is None:
        return None
    names = last.names(kind)
    cell = min(CELL, MAX_SIDE / max(map(len, names)))
    room = int((WIDEST - AROUND + GAP) / (cell * len(names[1]) + GAP))
    count = min(max(2, room), STEPS, len(same))
    chosen = np.unique(np.linspace(0, len(same) - 1, count).round().astype(int))
    heads = [tuple(head) for head in np.ndindex(last.weights[kind].shape[:2])]
    statistics = snapshots[-1].statistics.get(kind, {})
    ranks = statistics.get("aer", statistics.get("relative_entropy"))
    if ranks is not None:
        heads = sorted(sorted(heads, key=lambda head: ranks[head])[:HEADS])
    heads = heads[:HEADS]
    columns = [same[i].sentences[n].weights[kind] for i in chosen]  # files are read here
    return draw_maps(
        KINDS[kind].title,
        [[weights[head] for weights in columns] for head in heads],
        kind,
        names,
        cell,
        [[f"step {same[i].step:,}" for i in chosen]],
        [f"layer {layer + 1}\nhead {head + 1}" for layer, head in heads],
    )
