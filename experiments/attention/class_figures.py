"""Figures for a classifier: confusion matrix, ROC curves, calibration, t-SNE, pooling weights.

Each function returns a figure that pyplot does not manage. `Figure.savefig` writes it to a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.figure import Figure

from transformer.metrics.classification import Reliability
from ..display import plotting
from ..display.labels import labels_of, text_widths
from ..display.vector_space import tsne

CONFUSION_CELL, CONFUSION_SIDE = 0.75, 16.0  # inches: cell side, maximum matrix side
MAX_NUMBERED = 20  # maximum number of classes for which cells show numbers
ROW, LINE = 0.24, 6.0  # inches: token row height, maximum row width
TOKEN_FONT = 8.5  # points
TOKEN_GAP, MARGIN = 0.1, 0.1  # inches


def confusion_figure(confusion: Int[np.ndarray, "C C"], labels: Sequence[str]) -> Figure:
    """Plots a row-normalised confusion matrix (rows are true classes) with counts in the cells."""
    size = min(max(2.0, CONFUSION_CELL * len(labels)), CONFUSION_SIDE)
    figure = plotting.new_figure(size + 1.9, size + 0.9, "compressed")  # cells are square
    axes = figure.subplots()
    fractions = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    is_numbered = len(labels) <= MAX_NUMBERED
    texts = np.vectorize("{:,}\n{:.1%}".format)(confusion, fractions) if is_numbered else None
    mesh = plotting.heat_map(axes, fractions, texts, 9 if len(labels) < 8 else 6)
    names, style = labels_of(labels, 10)
    axes.set_xticks(range(len(labels)), names, rotation=0 if len(labels) < 4 else 90, **style)
    axes.set_yticks(range(len(labels)), names, **style)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.tick_params(length=0)
    place = {"ax": axes, "fraction": 0.046, "format": "{x:.0%}"}
    plotting.add_colour_bar(mesh, [0, 0.5, 1], "fraction of the true class", **place)
    return figure


def roc_figure(curves: Mapping[str, Any], scores: Mapping[str, Any]) -> Figure:
    """Plots the one-vs-rest ROC curve and AUC of each class, or a single curve for two classes.

    If there are more classes than colours, only classes with the lowest AUC have colours and names.
    """
    figure = plotting.new_figure(4.2, 4.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="chance (50%)")
    shown = list(curves)[len(curves) == 2 :]
    named = sorted(shown, key=lambda label: scores[label]["auc"])[: len(plotting.COLOURS)]
    for label in shown:
        axes.plot(*curves[label], color="0.8", linewidth=0.8)
    names, style = labels_of(named, 8)
    for colour, label, name in zip(plotting.COLOURS, named, names, strict=False):
        name = f"{name} ({scores[label]['auc']:.1%})"
        plotting.curve(axes, *curves[label], color=colour, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="false positive rate")
    axes.set_ylabel("true positive rate")
    title = "class (AUC)" + f": the lowest of {len(shown)}" * (len(shown) > len(named))
    legend = axes.legend(**plotting.LEGEND, loc="lower right", title=title)
    for text in legend.get_texts():
        text.set(**style)
    return figure


def reliability_figure(curve: Reliability) -> Figure:
    """Plots a reliability diagram: accuracy against confidence, above a confidence histogram.

    A classifier is overconfident below the diagonal and underconfident above it.

    Source: Guo et al. 2017, figure 1.
    """
    figure = plotting.new_figure(4.2, 4.8)
    above, below = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    above.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated")
    filled, look = curve.count > 0, plotting.look(0)
    points, label = (curve.confidence[filled], curve.accuracy[filled]), f"error {curve.error:.1%}"
    plotting.curve(above, *points, label=label, markersize=4, **look)
    edges = np.linspace(0, 1, len(curve.count) + 1)
    below.stairs(curve.count / curve.count.sum(), edges, color=look["color"], linewidth=1.3)
    above.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    below.set(xlabel="confidence", ylabel="fraction of texts", ylim=(0, None))
    above.legend(**plotting.LEGEND, loc="upper left")
    plotting.light_grid(below)
    return figure


def embedding_map(
    embeddings: Float[np.ndarray, "N E"], classes: Int[np.ndarray, "N"], labels: Sequence[str]
) -> Figure:
    """Plots a t-SNE map of a classifier's pooled vectors for at least three texts (see `tsne`).

    `classes` contains the zero-based class index of each text.
    """
    points = tsne(np.asarray(embeddings, np.float32))
    figure = plotting.new_figure(5.2, 4.6)
    faint = {"alpha": 0.6, "markersize": 3 if len(points) > 300 else 5}
    styles = {label: {**faint, **plotting.look(number)} for number, label in enumerate(labels)}
    plotting.point_map(figure.subplots(), points, classes, styles, "upper")
    return figure


class ReadText(NamedTuple):
    """A text with its attention pooling weights."""

    tokens: Sequence[str]
    weights: Float[np.ndarray, "N"]  # one weight per token, with sum one
    truth: str  # the true class, or '' if it is unknown
    predicted: str


def reading_figure(texts: Sequence[ReadText]) -> Figure:
    """Draws texts as rows of tokens, with darker backgrounds for tokens with larger weights.

    The colour scale of a text goes from zero to the text's largest weight. A heading shows the true
    class, the predicted class and this weight, in bold if the classes differ. Long texts wrap.
    """
    words = [word for text in texts for word in (*text.tokens, text.truth, text.predicted)]
    style = {"va": "center_baseline", **labels_of(words, TOKEN_FONT)[1]}
    # Coordinates are in inches from the upper left corner.
    figure = plotting.new_figure(LINE, 1, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    width, y = LINE, MARGIN + ROW / 2
    for text in texts:
        (truth, predicted), largest = labels_of(text[2:], TOKEN_FONT)[0], max(text.weights)
        true = f"true {truth}, " if text.truth else ""
        heading = f"{true}predicted {predicted}, largest weight {largest:.2f}"
        weight = "bold" if text.truth not in ("", text.predicted) else "normal"
        axes.text(MARGIN, y, heading, fontweight=weight, **style)
        names = labels_of(text.tokens, TOKEN_FONT)[0]
        x, y = MARGIN, y + ROW
        for name, wide, weight in zip(names, text_widths(names, style), text.weights, strict=True):
            if x > MARGIN and x + wide > LINE:
                x, y = MARGIN, y + ROW
            shade = colormaps[plotting.SEQUENTIAL](weight / max(largest, 1e-9))
            box = {"facecolor": shade, "linewidth": 0, "pad": 1.5}  # points
            axes.text(x, y, name, color=plotting.text_colour(np.array(shade)), bbox=box, **style)
            x += wide + TOKEN_GAP
            width = max(width, x)
        y += 1.4 * ROW
    height = y - ROW / 2
    figure.set_size_inches(width, height)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure
