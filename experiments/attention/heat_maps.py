"""Heat maps of attention: one figure per layer and kind of attention, one map per head.

Rows are queries, columns are keys, named as in `transformer.analysis.attention`. The colour scale
is fixed at 0 to 1, so that maps, layers and figures are comparable.

Source: Vaswani et al. 2017, figures 3 to 5, which draw such maps for selected heads.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer.analysis.attention import KINDS, Attention
from transformer.errors import UserError
from ..display.labels import TickLabels, text_widths
from ..display.plotting import SEQUENTIAL, add_colour_bar, new_figure

CELL, MAX_SIDE = 0.21, 5.0  # inches: preferred size of a token, maximum side of a map
LINED_CELL = 0.12  # inches: larger cells are separated by hairlines
MIN_WIDTH, MIN_HEIGHT = 3.2, 2.4  # inches: fits the longest title and axis label
FONT_SIZES = 6.0, 9.0  # points; a report shows them at 110 pixels per inch
TITLE_SIZE, TITLE_HEIGHT = 9, 0.25  # points and inches: title of a map
AROUND, TOP, GAP = (
    0.45,
    0.4,
    0.16,
)  # inches: axis label and margin, figure title, gap between maps
COLOUR_BAR, MIN_COLOUR_BAR, COLOUR_BAR_LABELS = 0.13, 1.1, 0.65  # inches


def checked_figure(seen: Attention, kind: str | None, layer: int, head: int | None) -> Figure:
    """Returns the figure for `Attention.figure`; UserError if kind, layer or head is missing."""
    if not seen.weights:
        raise UserError("this model has no attention to draw")
    kind = [kind for kind in KINDS if kind in seen.weights][-1] if kind is None else kind
    seen.check_kind(kind)
    numbers = {"layer": layer, "head": 1 if head is None else head}
    for (name, number), count in zip(numbers.items(), seen.weights[kind].shape, strict=False):
        if number not in range(1, count + 1):
            raise UserError(f"{name}={number!r} does not exist: {kind} has {name}s 1 to {count}")
    return build_figure(seen, kind, layer, head)


def build_figure(seen: Attention, kind: str, layer: int, only_head: int | None = None) -> Figure:
    """Returns the figure of one layer, with a map per head; layers and heads count from 1."""
    heads = np.asarray(seen.weights[kind][layer - 1], dtype=np.float32)
    numbers = [only_head] if only_head else list(range(1, len(heads) + 1))
    # Never taller than wide: 4 heads are 2 x 2, 8 heads 2 x 4, 16 heads 4 x 4.
    across = math.ceil(len(numbers) / math.isqrt(len(numbers)))
    rows = [numbers[i : i + across] for i in range(0, len(numbers), across)]
    queries, keys = seen.names(kind)
    return draw_maps(
        f"{KINDS[kind].title}, layer {layer} of {len(seen.weights[kind])}",
        [[heads[number - 1] for number in row] for row in rows],
        kind,
        (queries, keys),
        min(CELL, MAX_SIDE / max(len(queries), len(keys))),
        [[f"head {number}" for number in row] for row in rows],
    )


def draw_maps(
    title: str,
    maps: Sequence[Sequence[Float[np.ndarray, "L M"]]],
    kind: str,
    names: tuple[Sequence[str], Sequence[str]],
    cell: float,
    above: Sequence[Sequence[str]],
    right: Sequence[str] = (),
) -> Figure:
    """Returns a figure of rows of maps, drawn as one image: separate axes would take seconds.

    The figure is as large as the maps and their labels need.

    Args:
      names: the tokens in the rows and in the columns of each map.
      cell: inches per token.
      above: titles of the maps in each row, or in the first alone.
      right: labels of the rows of maps.
    """
    sides = [len(tokens) for tokens in names]
    labels = [TickLabels.of(tokens, 72 * cell, FONT_SIZES) for tokens in names]
    left, bottom = (AROUND + max(text_widths(set(each.texts), each.style)) for each in labels)
    text = {"fontsize": TITLE_SIZE}
    wide = max(cell * sides[1], *text_widths(itertools.chain(*above), text)) + GAP
    high = cell * sides[0] + GAP + TITLE_HEIGHT * (len(above) > 1)
    tops = [math.ceil(high / cell) * row for row in range(len(maps))]
    lefts = [math.ceil(wide / cell) * column for column in range(len(maps[0]))]
    image = np.full((tops[-1] + sides[0], lefts[-1] + sides[1]), np.nan, np.float32)
    height, width = cell * np.array(image.shape)
    after = max(wide - cell * sides[1], GAP + max(text_widths(right, text), default=0.0))
    across = max(MIN_WIDTH, left + width + after + COLOUR_BAR + COLOUR_BAR_LABELS)
    down = max(MIN_HEIGHT, bottom + height + TITLE_HEIGHT + TOP)
    bottom = down - height - TITLE_HEIGHT - TOP
    figure = new_figure(across, down, layout=None)
    figure.suptitle(title, y=1 - 0.1 / down, va="top", fontsize=11)
    axes = figure.add_axes((left / across, bottom / down, width / across, height / down))
    for y, row in zip(tops, maps, strict=True):
        for x, weights in zip(lefts, row, strict=False):
            image[y : y + sides[0], x : x + sides[1]] = weights
            _draw_lines(axes, x - 0.5, y - 0.5, sides, cell >= LINED_CELL)
    mesh = axes.imshow(image, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, width=0.5, pad=2)
    labels[0].put(axes.yaxis, 0, tops)
    labels[1].put(axes.xaxis, 90, lefts)
    axes.set(ylabel=f"{KINDS[kind].rows} (queries)", xlabel=f"{KINDS[kind].columns} (keys)")
    beyond = {"textcoords": "offset points", "annotation_clip": False, **text}
    for y, row in zip(tops, above, strict=False):
        for x, name in zip(lefts, row, strict=False):
            place = x + sides[1] / 2 - 0.5, y - 0.5
            axes.annotate(name, place, (0, 4), ha="center", va="bottom", **beyond)
    for y, label in zip(tops, right, strict=False):
        place = image.shape[1] - 0.5, y + sides[0] / 2 - 0.5
        axes.annotate(label, place, (5, 0), ha="left", va="center", **beyond)
    # The colour bar is as tall as the first row of maps.
    tall = max(cell * sides[0], MIN_COLOUR_BAR) / height
    bar = axes.inset_axes((1 + after / width, 1 - tall, COLOUR_BAR / width, tall))
    add_colour_bar(mesh, [0, 0.5, 1], "attention weight", cax=bar)
    return figure


def _draw_lines(axes: Axes, x: float, y: float, sides: Sequence[int], lined: bool) -> None:
    """Draws the frame of a map with its corner at (x, y), and hairlines between its cells."""
    frame = {"fill": False, "linewidth": 0.5, "edgecolor": "0.5", "clip_on": False}
    axes.add_patch(Rectangle((x, y), sides[1], sides[0], **frame))
    if lined:
        style = {"color": "0.88", "linewidth": 0.4}
        axes.hlines(y + np.arange(1, sides[0]), x, x + sides[1], **style)
        axes.vlines(x + np.arange(1, sides[1]), y, y + sides[0], **style)
