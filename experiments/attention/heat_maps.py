"""Attention maps over texts and images.

`build_figure` draws one layer and kind of attention, with one heat map per head. Rows are queries
and columns are keys, named as in `transformer.analysis.attention`. The colour scale is fixed at 0
to 1, so that maps, layers and figures are comparable.

For an image, each subplot shows one head or one word, and patches with larger weights are brighter.
The patch with the largest weight has full brightness, and this weight is printed on the subplot.

Source: Vaswani et al. 2017, figures 3 to 5, which show such maps for selected heads.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer.analysis.attention import KINDS, Attention, GridPicture
from transformer.analysis.pointing import rollout
from transformer.data.pairs import LabelledPicture
from transformer.errors import UserError
from ..display.labels import AS_TEXT, LINE_HEIGHT, labels_of, text_widths
from ..display.plotting import add_colour_bar, heat_map, new_figure

CELL, MAX_SIDE = 0.21, 5.0  # inches: preferred cell side per token, maximum map side
MIN_WIDTH, MIN_HEIGHT = 3.2, 2.4  # inches: enough for the longest title and axis label
FONT_SIZES = 6.0, 9.0  # points: minimum, maximum; reports use 110 pixels per inch
TITLE_SIZE, TITLE_HEIGHT = 9, 0.25  # points, inches: title of a map
AROUND, TOP = 0.45, 0.4  # inches: axis label and margin, figure title
GAP = 0.16  # inches between maps and between subplots
COLOUR_BAR, MIN_COLOUR_BAR, COLOUR_BAR_LABELS = 0.13, 1.1, 0.65  # inches
FRAME = {"fill": False, "linewidth": 0.5, "edgecolor": "0.5", "clip_on": False}  # map frame
PANEL, TITLE, PAD = 1.2, 0.35, 0.03  # inches: subplot side, title height, padding
SMALL = 7.5  # points
DIM = 0.25  # brightness of a patch with zero weight
TINT = 120, 60, 0  # RGB tint of patches with large weights in greyscale images
MAX_ACROSS = 8  # maximum number of subplots in a row
WORD_MARK = "▁"  # prefix of the first token of a word

Pixels = UInt8[np.ndarray, "S S C"]


def checked_figure(seen: Attention, kind: str | None, layer: int, head: int | None) -> Figure:
    """Returns `Attention.figure`; raises UserError if the kind, layer or head does not exist."""
    kind = [kind for kind in KINDS if kind in seen.weights][-1] if kind is None else kind
    seen.check_kind(kind)
    layers, heads, *_ = seen.weights[kind].shape
    if not (1 <= layer <= layers and 1 <= (1 if head is None else head) <= heads):
        fix = f"{kind} has layers 1 to {layers} and heads 1 to {heads}"
        raise UserError(f"layer={layer}, head={head} does not exist: {fix}")
    return build_figure(seen, kind, layer, head)


def build_figure(seen: Attention, kind: str, layer: int, only_head: int | None = None) -> Figure:
    """Returns a figure of one layer with a map per head; layers and heads are numbered from 1.

    The maps are drawn as one image, since many axes would take seconds. The size of the figure
    depends on the maps and their labels.
    """
    heads = np.asarray(seen.weights[kind][layer - 1], dtype=np.float32)
    numbers = [only_head] if only_head else list(range(1, len(heads) + 1))
    # The grid is never taller than wide: 2 x 2 for 4 heads, 2 x 4 for 8, 4 x 4 for 16.
    columns = math.ceil(len(numbers) / math.isqrt(len(numbers)))
    rows = [numbers[i : i + columns] for i in range(0, len(numbers), columns)]
    names = seen.names(kind)
    cell = min(CELL, MAX_SIDE / max(map(len, names)))
    sides = [len(tokens) for tokens in names]
    labels = [_fitting_labels(tokens, cell) for tokens in names]
    left, bottom = (AROUND + max(text_widths(set(texts), style)) for texts, style, _ in labels)
    text = {"fontsize": TITLE_SIZE}
    wide = max(cell * sides[1], *text_widths(map("head {}".format, numbers), text)) + GAP
    high = cell * sides[0] + GAP + TITLE_HEIGHT * (len(rows) > 1)
    tops = [math.ceil(high / cell) * row for row in range(len(rows))]
    lefts = [math.ceil(wide / cell) * column for column in range(columns)]
    image = np.full((tops[-1] + sides[0], lefts[-1] + sides[1]), np.nan, np.float32)
    height, width = cell * np.array(image.shape)
    after = max(wide - cell * sides[1], GAP)
    across = max(MIN_WIDTH, left + width + after + COLOUR_BAR + COLOUR_BAR_LABELS)
    down = max(MIN_HEIGHT, bottom + height + TITLE_HEIGHT + TOP)
    bottom = down - height - TITLE_HEIGHT - TOP
    figure = new_figure(across, down, layout=None)
    title = f"{KINDS[kind].title}, layer {layer} of {len(seen.weights[kind])}"
    figure.suptitle(title, y=1 - 0.1 / down, va="top", fontsize=11)
    axes = figure.add_axes((left / across, bottom / down, width / across, height / down))
    beyond = {"textcoords": "offset points", "annotation_clip": False, **text}
    for y, row in zip(tops, rows, strict=True):
        for x, number in zip(lefts, row, strict=False):
            image[y : y + sides[0], x : x + sides[1]] = heads[number - 1]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), sides[1], sides[0], **FRAME))
            place = x + sides[1] / 2 - 0.5, y - 0.5
            axes.annotate(f"head {number}", place, (0, 4), ha="center", va="bottom", **beyond)
    mesh = heat_map(axes, image, aspect="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, width=0.5, pad=2)
    _put_labels(axes.yaxis, *labels[0], tops, rotation=0)
    _put_labels(axes.xaxis, *labels[1], lefts, rotation=90)
    axes.set(ylabel=f"{KINDS[kind].rows} (queries)", xlabel=f"{KINDS[kind].columns} (keys)")
    # The colour bar is as tall as the first row of maps.
    tall = max(cell * sides[0], MIN_COLOUR_BAR) / height
    bar = axes.inset_axes((1 + after / width, 1 - tall, COLOUR_BAR / width, tall))
    add_colour_bar(mesh, [0, 0.5, 1], "attention weight", cax=bar)
    return figure


def _fitting_labels(tokens: Sequence[str], cell: float) -> tuple[list[str], dict[str, Any], int]:
    """Returns the labels of an axis, their style, and the number of tokens per label.

    Only every n-th token is labelled if the minimum font size does not fit in `cell` inches.
    """
    pitch = 72 * cell  # points
    size = min(max(pitch / LINE_HEIGHT, FONT_SIZES[0]), FONT_SIZES[1])
    step = math.ceil(size * LINE_HEIGHT / pitch - 1e-6)
    texts, style = labels_of(tokens, size)
    return texts[::step], style, step


def _put_labels(axis, texts: list[str], style: dict[str, Any], step: int, starts, rotation) -> None:
    """Labels the tokens on an axis; `starts` are the positions of the maps' first tokens."""
    places = [start + step * i for start in starts for i in range(len(texts))]
    # Labels end at the axis and share a baseline. Centred boxes would look uneven, since the box
    # of '▁a' extends lower than the box of 'ed'.
    aligned = {"ha": "right", "va": "center_baseline", "rotation_mode": "anchor"}
    axis.set_ticks(places, labels=texts * len(starts), rotation=rotation, **style, **aligned)


# -- images


def heads_figure(seen: Attention, title: str) -> Figure:
    """Plots the class token's attention: a row per layer, with each head and then the rollout."""
    (pixels, grid), weights = _picture(seen), seen.weights["encoder_self"]
    layers, heads = weights.shape[:2]
    patches = 1 + grid**2
    figure, panels = _grid(layers, heads + 1, title)
    for layer, head in np.ndindex(layers, heads):
        axes = panels[layer][head]
        _draw(axes, pixels, weights[layer, head, 0, 1:patches])
        axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=SMALL, pad=2)
    for layer, row in enumerate(panels):
        _draw(row[-1], pixels, rollout(weights[: layer + 1])[0, 1:patches])
        row[-1].set_title(f"rollout to layer {layer + 1}", fontsize=SMALL, pad=2)
    return figure


def words_of(seen: Attention) -> tuple[list[str], Float[np.ndarray, "words P"]]:
    """Returns the words of a question or caption, and their last-layer attention to the patches.

    Weights are averaged over heads. For a caption, they are from the step that outputs the word.
    """
    first = 1 + _picture(seen).grid ** 2
    if seen.target_tokens:
        return seen.written_tokens, seen.weights["cross"][-1].mean(axis=0)[:, 1:first]
    weights = seen.weights["encoder_self"][-1].mean(axis=0)
    return seen.source_tokens[first:], weights[first:, 1:first]


def words_figure(seen: Attention, title: str) -> Figure:
    """Plots an attention map for each word of a question or caption; see `words_of`."""
    pixels, (words, weights) = _picture(seen).pixels, words_of(seen)
    names, style = labels_of([word.removeprefix(WORD_MARK) for word in words], SMALL + 1)
    figure, panels = _grid(-(-len(words) // MAX_ACROSS), min(len(words), MAX_ACROSS), title)
    for axes, name, of_word in zip(panels.flat, names, weights, strict=False):
        _draw(axes, pixels, of_word)
        axes.set_title(name, pad=2, **style)
    for axes in panels.flat[len(words) :]:
        axes.axis("off")
    return figure


def examples_figure(
    items: Sequence[LabelledPicture],
    pixels: UInt8[np.ndarray, "pictures S S C"],
    answers: Sequence[str],
    looks: Sequence[Float[np.ndarray, "layers H P"]],
    head: tuple[int, int],
) -> Figure:
    """Plots images, each above the class token's attention in `head`: (layer, head) from 1.

    Boxes mark the objects that determine the answer. `answers` are the predicted classes.
    """
    name = f"class token, layer {head[0]}, head {head[1]}"
    figure, panels = _grid(2, len(items), name)
    rows = zip(panels.T, items, answers, looks, strict=True)
    for (above, below), item, answer, look in rows:
        _show(above, pixels[item.picture])
        _draw(below, pixels[item.picture], look[head[0] - 1, head[1] - 1])
        for x0, y0, x1, y1 in item.boxes:
            corner, sides = (x0 - 0.5, y0 - 0.5), (x1 - x0, y1 - y0)
            below.add_patch(Rectangle(corner, *sides, fill=False, color="white", linewidth=0.8))
        truth = f" (true: {item.label})" * (item.label != answer)
        question = textwrap.wrap(item.question, 19, break_on_hyphens=False)
        above.set_title("\n".join([*question, answer + truth]), fontsize=SMALL, pad=2, **AS_TEXT)
    return figure


def _picture(seen: Attention) -> GridPicture:
    assert seen.picture is not None, "the attention is over a text alone"
    return seen.picture


def _grid(down: int, across: int, title: str) -> tuple[Figure, Any]:
    """Returns a titled figure and its square subplots, as an array indexed by row and column."""
    figure = new_figure(max(across * PANEL, 3.0), down * (PANEL + GAP) + TITLE)
    figure.set_layout_engine("compressed", w_pad=PAD, h_pad=PAD, wspace=0, hspace=0)
    figure.suptitle(title, fontsize=9, **AS_TEXT)
    return figure, figure.subplots(down, across, squeeze=False)


def _show(axes: Axes, picture: np.ndarray) -> None:
    axes.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(linewidth=0.4, color="0.5")


def _draw(axes: Axes, pixels: Pixels, weights: Float[np.ndarray, "P"]) -> None:
    """Draws an image in which patches with larger weights are brighter."""
    grid = round(len(weights) ** 0.5)
    largest = max(float(weights.max()), 1e-9)
    bright = DIM + (1 - DIM) * (weights / largest).reshape(grid, grid)
    size = len(pixels) // grid
    factors = np.kron(bright, np.ones((size, size)))[..., None]
    # Black stays black at any brightness, so patches of greyscale images are tinted as well.
    tint = np.multiply(TINT, factors - DIM) if pixels.shape[-1] == 1 else 0.0
    _show(axes, np.minimum(pixels * factors + tint, 255).astype(np.uint8))
    axes.text(
        0.03, 0.97, f"{largest:.2f}", transform=axes.transAxes, va="top", fontsize=6, color="white"
    )
