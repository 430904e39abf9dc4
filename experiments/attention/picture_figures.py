"""Attention over a picture, with a panel for each head or word.

Each function returns a figure outside pyplot, with an Agg canvas. A patch is brighter the larger
its weight is: the largest weight of a panel is fully bright, and printed on it.
"""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer.analysis.attention import Attention, GridPicture
from transformer.analysis.pointing import Box, rollout
from ..display.labels import AS_TEXT, fonts_for, visible
from ..display.plotting import new_figure

PANEL, GAP, TITLE, PAD = 1.2, 0.15, 0.35, 0.03  # inches: panel side, gap, space above and around
SMALL = 7.5  # points
DIM = 0.25  # brightness of a patch without weight
TINT = 120, 60, 0  # colour of the patch with the largest weight in a grey picture
MAX_ACROSS = 8  # panels in a row
WORD_MARK = "▁"  # begins a word's first token

Pixels = UInt8[np.ndarray, "S S C"]


class Example(NamedTuple):
    """A picture, its question or '', true and predicted class, and the class token's attention."""

    pixels: Pixels
    question: str
    label: str
    predicted: str
    boxes: Sequence[Box]
    looks: Float[np.ndarray, "layers H P"]


def heads_figure(seen: Attention, title: str) -> Figure:
    """Draws the class token's attention: a row of heads per layer, and the rollout at the end."""
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
    """Returns the words of a question or caption, and their mean attention to patches, last layer.

    A caption's word has the attention of the step that writes it.
    """
    first = 1 + _picture(seen).grid ** 2
    if seen.target_tokens:
        return seen.written_tokens, seen.weights["cross"][-1].mean(axis=0)[:, 1:first]
    weights = seen.weights["encoder_self"][-1].mean(axis=0)
    return seen.source_tokens[first:], weights[first:, 1:first]


def words_figure(seen: Attention, title: str) -> Figure:
    """Draws the attention of each word of a question or a caption, see `words_of`."""
    pixels, (words, weights) = _picture(seen).pixels, words_of(seen)
    family, covered = fonts_for(frozenset("".join(words)))
    figure, panels = _grid(-(-len(words) // MAX_ACROSS), min(len(words), MAX_ACROSS), title)
    for axes, word, of_word in zip(panels.flat, words, weights, strict=False):
        _draw(axes, pixels, of_word)
        name = visible(word.removeprefix(WORD_MARK), covered)
        axes.set_title(name, fontsize=SMALL + 1, pad=2, fontfamily=family, **AS_TEXT)
    for axes in panels.flat[len(words) :]:
        axes.axis("off")
    return figure


def examples_figure(examples: Sequence[Example], head: tuple[int, int]) -> Figure:
    """Draws pictures, plain and with the class token's attention in a head (layer, head), from one.

    Boxes mark the objects that determine the answer.
    """
    name = f"class token, layer {head[0]}, head {head[1]}"
    figure, panels = _grid(2, len(examples), name)
    for column, each in enumerate(examples):
        _show(panels[0][column], each.pixels)
        _draw(panels[1][column], each.pixels, each.looks[head[0] - 1, head[1] - 1])
        for x0, y0, x1, y1 in each.boxes:
            corner, sides = (x0 - 0.5, y0 - 0.5), (x1 - x0, y1 - y0)
            panels[1][column].add_patch(
                Rectangle(corner, *sides, fill=False, color="white", linewidth=0.8)
            )
        wrong = each.label != each.predicted
        answer = each.predicted + f" (true: {each.label})" * wrong
        question = textwrap.wrap(each.question, 19, break_on_hyphens=False)
        panels[0][column].set_title(
            "\n".join([*question, answer]), fontsize=SMALL, pad=2, **AS_TEXT
        )
    return figure


def _picture(seen: Attention) -> GridPicture:
    assert seen.picture is not None, "the attention is over a text alone"
    return seen.picture


def _grid(down: int, across: int, title: str) -> tuple[Figure, Any]:
    """Returns a figure of square panels below a title, and its panels by row and column."""
    figure = new_figure(max(across * PANEL, 3.0), down * (PANEL + GAP) + TITLE)
    figure.set_layout_engine("compressed", w_pad=PAD, h_pad=PAD, wspace=0, hspace=0)
    figure.suptitle(title, fontsize=9, **AS_TEXT)
    return figure, figure.subplots(down, across, squeeze=False)


def _show(axes: Axes, picture: np.ndarray) -> None:
    axes.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(linewidth=0.4, color="0.5")


def _draw(axes: Axes, pixels: Pixels, weights: Float[np.ndarray, "P"]) -> None:
    """Draws a picture with the brightness of each patch by its weight."""
    grid = round(len(weights) ** 0.5)
    largest = max(float(weights.max()), 1e-9)
    bright = DIM + (1 - DIM) * (weights / largest).reshape(grid, grid)
    size = len(pixels) // grid
    factors = np.kron(bright, np.ones((size, size)))[..., None]
    # Black stays black at any brightness, so patches of grey pictures get a colour as well.
    tint = np.multiply(TINT, factors - DIM) if pixels.shape[-1] == 1 else 0.0
    _show(axes, np.minimum(pixels * factors + tint, 255).astype(np.uint8))
    axes.text(
        0.03, 0.97, f"{largest:.2f}", transform=axes.transAxes, va="top", fontsize=6, color="white"
    )
