"""Heat maps of attention: one figure per layer and kind of attention, one panel per head.

Rows are queries, columns are keys, both named as `transformer.analysis.attention` says. The colour
scale is fixed at 0 to 1, so that panels, layers and figures are comparable.

Source: Vaswani et al. 2017, figures 3 to 5, which draw such maps for chosen heads.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from transformer.analysis.attention import KINDS, Attention
from transformer.errors import UserError
from ..display.labels import TickLabels, text_widths
from ..display.plotting import SEQUENTIAL, add_colour_bar, new_figure

# Inches a token asks for, and the sides a panel may have: titles need room over one token, and a
# sentence of a hundred may not fill a wall. Past the cap, labels shrink and then thin out.
CELL, MIN_SIDE, MAX_SIDE = 0.21, 1.35, 5.0
MIN_WIDTH = 3.2  # inches: the longest title, over a figure of one small panel
FONT_SIZES = 5.0, 9.0  # points
MAX_CELLS = 160  # a side: more would be smaller than the eye tells apart
MARGIN, TITLE_HEIGHT, HEAD_HEIGHT, AXIS_LABEL, PANEL_GAP = 0.1, 0.36, 0.25, 0.27, 0.16  # inches
TICK, COLOUR_BAR, COLOUR_BAR_LABELS = 0.07, 0.13, 0.55  # inches; TICK: from a panel to its labels


def checked_figure(seen: Attention, kind: str | None, layer: int, head: int | None) -> Figure:
    """Returns the heat maps of `Attention.figure`, which says what is not there."""
    if not seen.weights:
        raise UserError("this model has no attention to draw")
    kind = [kind for kind in KINDS if kind in seen.weights][-1] if kind is None else kind
    seen.check_kind(kind)
    layers, heads = seen.weights[kind].shape[:2]
    check_number("layer", layer, layers, kind)
    if head is not None:
        check_number("head", head, heads, kind)
    return build_figure(seen, kind, layer, head)


def check_number(name: str, number: Any, count: int, kind: str) -> None:
    """Raises UserError if there is no such layer or head."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not (whole and 1 <= int(number) <= count):
        raise UserError(f"{name}={number!r} does not exist: {kind} has {name}s 1 to {count}")


def build_figure(seen: Attention, kind: str, layer: int, only_head: int | None = None) -> Figure:
    """Returns the figure of one layer: a panel per head, and last the axes of one colour bar.

    Beyond `MAX_CELLS` a cell is the largest weight of a square of tokens; the title gives its side.
    Layer and head count from 1.
    """
    heads = np.asarray(seen.weights[kind][layer - 1], dtype=np.float32)
    first = only_head or 1
    if only_head is not None:
        heads = heads[only_head - 1 : only_head]
    names = KINDS[kind]
    layout = _Layout.of(len(heads), *seen.names(kind))
    side = math.ceil(max(heads.shape[1:]) / MAX_CELLS)
    figure = new_figure(*layout.figure_size, layout=None)
    for head, image in enumerate(heads):
        axes = figure.add_axes(layout.panels[head])  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes arrays
        rows, columns = (np.arange(0, count, side) for count in image.shape)
        cells = np.maximum.reduceat(np.maximum.reduceat(image, rows, axis=0), columns, axis=1)
        mesh = axes.imshow(cells, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto")
        rows, columns = side * np.array(cells.shape)
        mesh.set_extent((-0.5, columns - 0.5, rows - 0.5, -0.5))  # in tokens
        axes.set(xlim=(-0.5, image.shape[1] - 0.5), ylim=(image.shape[0] - 0.5, -0.5))
        axes.set_title(f"head {first + head}", fontsize=9, pad=4)
        axes.spines[:].set(linewidth=0.5, color="0.5")
        axes.tick_params(length=2, width=0.5, pad=2)
        if max(image.shape) <= 40:  # hairlines between cells that are distinguishable
            axes.set_yticks(np.arange(1, image.shape[0]) - 0.5, minor=True)
            axes.set_xticks(np.arange(1, image.shape[1]) - 0.5, minor=True)
            axes.grid(which="minor", color="0.88", linewidth=0.4)
            axes.tick_params(which="minor", length=0)
        layout.rows.put(axes.yaxis, 0, shown=head % layout.across == 0)
        layout.columns.put(axes.xaxis, 90, shown=head + layout.across >= len(heads))
    bar_axes = figure.add_axes(layout.colour_bar)  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes arrays
    add_colour_bar(mesh, [0, 0.25, 0.5, 0.75, 1], "attention weight", cax=bar_axes)
    (x, y), (middle_x, middle_y) = layout.corner, layout.middle
    figure.text(middle_x, y, f"{names.columns} (keys)", ha="center", va="bottom")
    figure.text(x, middle_y, f"{names.rows} (queries)", ha="left", va="center", rotation=90)
    title = f"{names.title}, layer {layer} of {len(seen.weights[kind])}"
    if side > 1:
        title += f" (a cell: the largest of {side} × {side} weights)"
    figure.suptitle(title, y=1 - y, va="top", fontsize=11)
    return figure


class _Layout(NamedTuple):
    """Where everything goes: sizes in inches, rectangles (x, y, width, height) in fractions.

    A panel has the size its tokens need, and the figure grows around it; matplotlib's own layout
    engines shrink panels.
    """

    rows: TickLabels
    columns: TickLabels
    across: int  # panels in a row
    figure_size: tuple[float, float]
    panels: list[np.ndarray]
    colour_bar: np.ndarray
    corner: np.ndarray  # of the axis labels
    middle: np.ndarray  # of the panels

    @classmethod
    def of(cls, heads: int, queries: Sequence[str], keys: Sequence[str]) -> "_Layout":
        # Never taller than wide: 4 heads stand 2 x 2, 8 heads 2 x 4, 16 heads 4 x 4.
        down = math.isqrt(heads)
        across = math.ceil(heads / down)
        cell = min(CELL, MAX_SIDE / max(len(queries), len(keys)))
        width, height = (max(cell * len(tokens), MIN_SIDE) for tokens in (keys, queries))
        rows = TickLabels.of(queries, 72 * height / len(queries), FONT_SIZES)
        columns = TickLabels.of(keys, 72 * width / len(keys), FONT_SIZES)
        left, bottom = (
            MARGIN + AXIS_LABEL + max(text_widths(set(labels.texts), labels.style)) + TICK
            for labels in (rows, columns)
        )
        step_x, step_y = width + PANEL_GAP, height + HEAD_HEIGHT + PANEL_GAP
        right, top = left + across * step_x, bottom + down * step_y - PANEL_GAP
        total_width = right + COLOUR_BAR + COLOUR_BAR_LABELS + MARGIN
        size = np.array([max(total_width, MIN_WIDTH), top + TITLE_HEIGHT])
        scale = np.tile(size, 2)
        # The colour bar is as tall as the first row of panels: a longer one says no more.
        bar = np.array([right, top - HEAD_HEIGHT - height, COLOUR_BAR, height]) / scale
        middle = np.array([left + right - PANEL_GAP, bottom + top - HEAD_HEIGHT]) / 2 / size
        panels = []
        for row, column in (divmod(head, across) for head in range(heads)):
            x, y = left + column * step_x, bottom + (down - 1 - row) * step_y
            panels.append(np.array([x, y, width, height]) / scale)
        return cls(rows, columns, across, tuple(size), panels, bar, MARGIN / size, middle)
