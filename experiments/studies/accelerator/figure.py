"""The picture of the accelerator study: speed of the training step, and of vmapped runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from experiments.display.plotting import COLOURS, MARKER_SHAPES, light_grid, new_figure, save_figure

WIDTH, HEIGHT = 6.5, 2.8  # inches


def draw(results: Mapping[str, Any], picture: Path) -> bool:
    """Draws the results of the parts that have some; returns whether there was any to draw."""
    drawers = {"step": _draw_steps, "together": _draw_together}
    drawn = [name for name in drawers if results.get(name)]
    if not drawn:
        return False
    figure = new_figure(WIDTH, HEIGHT)
    row = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, name in zip(row, drawn, strict=True):
        drawers[name](axes, results[name])
        light_grid(axes)
    save_figure(figure, picture)
    return True


def _draw_steps(axes: Axes, rows: Any) -> None:
    """Target tokens per second by length of the sentences, a line for each model and dtype."""
    rows = [row for row in rows if "error" not in row]
    names = dict.fromkeys((row["model"], row["dtype"]) for row in rows)
    for number, (model, dtype) in enumerate(names):
        own = [row for row in rows if (row["model"], row["dtype"]) == (model, dtype)]
        own.sort(key=lambda row: row["length"])
        axes.plot(
            [row["length"] for row in own],
            [row["tokens_per_second"] for row in own],
            label=f"{model}, {dtype}",
            color=COLOURS[number],
            marker=MARKER_SHAPES[number],
            markersize=3.5,
        )
    lengths = sorted({row["length"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, labels=[str(length) for length in lengths])
    axes.set_ylim(0, 1.1 * max((row["tokens_per_second"] for row in rows), default=1))
    axes.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
    axes.set_xlabel("tokens of a sentence")
    axes.set_ylabel("target tokens per second")
    if rows:
        axes.legend(frameon=False, fontsize=8)


def _draw_together(axes: Axes, rows: Any) -> None:
    """How many times as fast runs are as one program."""
    counts, speeds = [row["runs"] for row in rows], [row["speedup"] for row in rows]
    axes.plot(counts, speeds, color=COLOURS[0], marker="o", markersize=3.5)
    axes.axhline(1, color="0.5", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, labels=[str(count) for count in counts])
    axes.set_ylim(0, 1.1 * max(1, *speeds))
    axes.set_xlabel("runs")
    axes.set_ylabel("speed-up of vmap")
