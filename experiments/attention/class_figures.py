"""Figures of a classifier: confusion matrix, calibration, map of texts, and pooling weights.

Each function returns a figure outside pyplot, with an Agg canvas; `savefig` writes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer.metrics.classification import Reliability
from ..display import plotting
from ..display.labels import AS_TEXT, fonts_for, text_widths, visible
from ..display.vector_space import tsne

CONFUSION_CELL, CONFUSION_SIDE = 0.75, 16.0  # inches: a cell of the matrix, its maximum side
MAX_NUMBERED = 20  # with more classes, the cells have no numbers
ROW, LINE = 0.24, 6.0  # inches: height of a row of tokens, and its maximum width
ROW_OF_NEXT = 1.4  # rows from the last row of a text to the first of the next
TOKEN_FONT = 8.5  # points
TOKEN_GAP, BOX_GAP, MARGIN = 0.04, 0.02, 0.1  # inches


def confusion_figure(confusion: Int[np.ndarray, "C C"], labels: Sequence[str]) -> Figure:
    """Draws the confusion matrix, true classes in rows: fractions as colours, counts as numbers."""
    size = min(max(2.0, CONFUSION_CELL * len(labels)), CONFUSION_SIDE)
    figure = plotting.new_figure(size + 1.9, size + 0.9, "compressed")  # cells are square
    axes = figure.subplots()
    fractions = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    mesh = axes.imshow(fractions, cmap=plotting.SEQUENTIAL, vmin=0, vmax=1)
    if len(labels) <= MAX_NUMBERED:
        texts = np.vectorize("{:,}\n{:.1%}".format)(confusion, fractions)
        plotting.write_in_cells(axes, texts, fractions, 9 if len(labels) < 8 else 6)
    names = [visible_label(label) for label in labels]
    style = _text_style(labels)
    axes.set_xticks(range(len(labels)), names, rotation=0 if len(labels) < 4 else 90, **style)
    axes.set_yticks(range(len(labels)), names, **style)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.tick_params(length=0)
    place = {"ax": axes, "fraction": 0.046, "format": "{x:.0%}"}
    plotting.add_colour_bar(mesh, [0, 0.5, 1], "fraction of the true class", **place)
    return figure


def roc_figure(curves: Mapping[str, Any], scores: Mapping[str, Any]) -> Figure:
    """Draws ROC curves, each class against all others, with areas; a single curve for two classes.

    If there are many classes, only those with the smallest areas have colours and names.
    """
    figure = plotting.new_figure(4.2, 4.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="chance (50%)")
    shown = list(curves)[len(curves) == 2 :]
    named = sorted(shown, key=lambda label: scores[label]["auc"])[: len(plotting.COLOURS)]
    for label in shown:
        axes.plot(*curves[label], color="0.8", linewidth=0.8)
    for colour, label in zip(plotting.COLOURS, named, strict=False):
        name = f"{visible_label(label)} ({scores[label]['auc']:.1%})"
        axes.plot(*curves[label], color=colour, linewidth=1.3, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="false positive rate")
    axes.set_ylabel("true positive rate")
    plotting.light_grid(axes)
    title = "class (area)" + f": the least of {len(shown)}" * (len(shown) > len(named))
    legend = axes.legend(**plotting.LEGEND, loc="lower right", title=title)
    for text in legend.get_texts():
        text.set(**_text_style(named))
    return figure


def reliability_figure(curve: Reliability) -> Figure:
    """Draws the reliability diagram: accuracy over confidence, above the number of texts per bin.

    Below the diagonal a classifier is overconfident, above it underconfident.

    Source: Guo et al. 2017, figure 1.
    """
    figure = plotting.new_figure(4.2, 4.8)
    above, below = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    above.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated")
    filled, look = curve.count > 0, plotting.look(0)
    points, label = (curve.confidence[filled], curve.accuracy[filled]), f"error {curve.error:.1%}"
    above.plot(*points, label=label, linewidth=1.3, markersize=4, **look)
    edges = np.linspace(0, 1, len(curve.count) + 1)
    below.stairs(curve.count / curve.count.sum(), edges, color=look["color"], linewidth=1.3)
    above.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    below.set(xlabel="confidence", ylabel="fraction of texts", ylim=(0, None))
    above.legend(**plotting.LEGEND, loc="upper left")
    for axes in (above, below):
        plotting.light_grid(axes)
    return figure


def embedding_map(
    embeddings: Float[np.ndarray, "N E"], classes: Int[np.ndarray, "N"], labels: Sequence[str]
) -> Figure:
    """Draws a t-SNE map of at least three texts by a classifier's pooled vectors, see `tsne`.

    `classes` has the class index of each text, from zero.
    """
    points = tsne(np.asarray(embeddings, np.float32))
    figure = plotting.new_figure(5.2, 4.6)
    axes = figure.subplots()
    style: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0, "alpha": 0.6}
    style["markersize"] = 3 if len(points) > 300 else 5
    for number, label in enumerate(labels):
        of_class = points[classes == number]
        name = f"{visible_label(label)} ({len(of_class):,})"
        axes.plot(*of_class.T, label=name, **style, **plotting.look(number))
    for text in plotting.finish_scatter(axes, "upper").get_texts():
        text.set(**_text_style(labels))
    return figure


class ReadText(NamedTuple):
    """A text with its attention pooling weights."""

    tokens: Sequence[str]
    weights: Float[np.ndarray, "N"]  # per token; they sum to one
    truth: str  # the true class; '' if it is unknown
    predicted: str


class _Box(NamedTuple):
    """A token's box: left edge and width in inches, row from zero, and fraction of the scale."""

    x: float
    row: float
    width: float
    name: str
    fraction: float


def reading_figure(texts: Sequence[ReadText]) -> Figure:
    """Draws texts as rows of boxes; a token's box is darker the larger its weight is.

    The scale of each text goes from zero to its largest weight, which is printed above it after
    the true and the predicted class; these are bold if they differ. A long text takes several rows.
    """
    words = [word for text in texts for word in (*text.tokens, text.truth, text.predicted)]
    style = {"fontsize": TOKEN_FONT, **_text_style(words)}
    covered = fonts_for(frozenset("".join(words)))[1]
    boxes: list[_Box] = []
    headings: list[tuple[float, str, bool]] = []  # row, text, and whether the prediction is wrong
    row = 0.0
    for text in texts:
        weights = np.asarray(text.weights, np.float64)
        true = f"true {visible_label(text.truth)}, " if text.truth else ""
        heading = f"{true}predicted {visible_label(text.predicted)}"
        wrong = text.truth not in ("", text.predicted)
        headings.append((row, f"{heading}, largest weight {weights.max():.2f}", wrong))
        names = [visible(token, covered) for token in text.tokens]
        boxes += _wrap(names, weights / max(weights.max(), 1e-9), row + 1, style)
        row = boxes[-1].row + ROW_OF_NEXT
    widths = text_widths([heading for _, heading, _ in headings], {**style, "fontweight": "bold"})
    width, height = max(*widths, *(box.x + box.width for box in boxes)), row * ROW
    # In inches from the upper left corner, inside a margin.
    figure = plotting.new_figure(width + 2 * MARGIN, height + 2 * MARGIN, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, width + MARGIN), ylim=(height + MARGIN, -MARGIN))
    axes.axis("off")
    for row, heading, wrong in headings:
        weight = "bold" if wrong else "normal"
        axes.text(0, (row + 0.5) * ROW, heading, va="center", fontweight=weight, **style)
    for box in boxes:
        corner = (box.x, (box.row + 0.08) * ROW)
        colour = colormaps[plotting.SEQUENTIAL](box.fraction)
        axes.add_patch(Rectangle(corner, box.width, 0.84 * ROW, color=colour, linewidth=0))
        axes.text(
            box.x + box.width / 2,
            (box.row + 0.5) * ROW,
            box.name,
            ha="center",
            va="center_baseline",
            color="white" if box.fraction > plotting.DARK else "black",
            **style,
        )
    return figure


def visible_label(label: str) -> str:
    """Returns the name of a class with every character visible."""
    return visible(label, fonts_for(frozenset(label))[1] | {" "}).replace("␣", " ")


def _text_style(texts: Sequence[str]) -> dict[str, Any]:
    """Returns matplotlib's options for these texts: plain text in fonts that have the letters."""
    return {"fontfamily": fonts_for(frozenset("".join(texts)))[0], **AS_TEXT}


def _wrap(names: list[str], fractions: np.ndarray, row: float, style: dict) -> list[_Box]:
    """Returns the boxes of one text, which starts in this row."""
    boxes, x = [], 0.0
    for name, width, fraction in zip(names, text_widths(names, style), fractions, strict=True):
        if x and x + width > LINE:
            x, row = 0.0, row + 1
        boxes.append(_Box(x, row, width + 2 * TOKEN_GAP, name, float(fraction)))
        x += width + 2 * TOKEN_GAP + BOX_GAP
    return boxes
