"""Pictures of a classifier: confusion matrix, calibration, a map of texts, and pooling weights.

Each function returns a figure outside pyplot, with an Agg canvas; its `savefig` writes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer.metrics.classification import Reliability
from ..display import plotting
from ..display.labels import AS_TEXT, fonts_for, text_widths, visible
from ..display.vector_space import tsne

CONFUSION_CELL, CONFUSION_SIDE = 0.75, 16.0  # inches, of the confusion matrix
MAX_NUMBERED = 20  # classes whose cells have numbers
MAX_MAP = 2000  # points of a map: more hide one another, and t-SNE takes minutes
ROW, LINE = 0.24, 6.0  # inches: height of a row of tokens, and the width they may take
ROW_OF_NEXT = 1.4  # rows from the last of a text to the first of the next
TOKEN_FONT = 8.5  # points
TOKEN_GAP, BOX_GAP, COLUMN_GAP, MARGIN = 0.04, 0.02, 0.15, 0.1  # inches


def confusion_figure(confusion: Int[np.ndarray, "C C"], labels: Sequence[str]) -> Figure:
    """The confusion matrix, true classes in rows: fractions of each in colour, texts in figures."""
    size = min(max(2.0, CONFUSION_CELL * len(labels)), CONFUSION_SIDE)
    figure = plotting.new_figure(size + 1.9, size + 0.9, "compressed")  # square cells
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
    """The ROC curves of classes against all others, and their areas; of two classes one suffices.

    Of many classes, those of the smallest areas have colours and names.
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


def reliability_figure(curves: dict[str, Reliability]) -> Figure:
    """The reliability diagram: accuracy over confidence, and below how many texts each bin has.

    Below the diagonal a classifier, by its name, is surer than it is right, above it less sure.

    Source: Guo et al. 2017, figure 1.
    """
    figure = plotting.new_figure(4.2, 4.8)
    above, below = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    above.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="calibrated")
    for number, (name, curve) in enumerate(curves.items()):
        filled, bins = curve.count > 0, len(curve.count)
        style = {"linewidth": 1.3, "markersize": 4, **plotting.look(number)}
        points = curve.confidence[filled], curve.accuracy[filled]
        above.plot(*points, label=f"{name} (error {curve.error:.1%})", **style)
        shares, edges = curve.count / curve.count.sum(), np.arange(bins + 1) / bins
        below.stairs(shares, edges, color=style["color"], linewidth=1.3)
    above.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    below.set(xlabel="confidence", ylabel="fraction of texts", ylim=(0, None))
    for text in above.legend(**plotting.LEGEND, loc="upper left").get_texts():
        text.set(**AS_TEXT)
    for axes in (above, below):
        plotting.light_grid(axes)
    return figure


def embedding_map(
    embeddings: Float[np.ndarray, "N E"],
    truth: Int[np.ndarray, "N"],
    labels: Sequence[str],
    seed: int = 0,
) -> Figure:
    """A map of three texts or more by the vectors that a classifier pooled, see `tsne`.

    `truth` has the number of each text's class, from zero. Of many texts, `MAX_MAP` drawn at random
    are shown.
    """
    embeddings, classes = np.asarray(embeddings, np.float32), truth
    if len(embeddings) > MAX_MAP:
        shown = np.random.default_rng(seed).choice(len(embeddings), MAX_MAP, replace=False)
        embeddings, classes = embeddings[shown], classes[shown]
    points = tsne(embeddings, seed)
    figure = plotting.new_figure(5.2, 4.6)
    axes = figure.subplots()
    style: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0, "alpha": 0.6}
    style["markersize"] = 3 if len(points) > 300 else 5
    for number, label in enumerate(labels):
        of_class = points[classes == number]
        name = f"{visible_label(label)} ({len(of_class):,})"
        axes.plot(*of_class.T, label=name, **style, **plotting.look(number))
    for text in plotting.finish_map(axes, "upper").get_texts():
        text.set(**_text_style(labels))
    return figure


class ReadText(NamedTuple):
    """A text as attention pooling read it."""

    tokens: Sequence[str]
    weights: Float[np.ndarray, "N"]  # of the tokens; they sum to one
    truth: str  # name of a class; '' if it is unknown
    predicted: str


class _Box(NamedTuple):
    """A token's box: left edge and width in inches, row from zero, and fraction of the scale."""

    x: float
    row: float
    width: float
    name: str
    fraction: float


def reading_figure(texts: Sequence[ReadText]) -> Figure:
    """Texts as rows of boxes, each the darker the more of the weight its token has.

    The scale of each text goes from zero to its largest weight, which is printed next to it, after
    the true and the predicted class; a wrong one is printed in bold. A long text takes several
    rows.
    """
    words = [word for text in texts for word in (*text.tokens, text.truth, text.predicted)]
    covered = fonts_for(frozenset("".join(words)))[1]
    style = {"fontsize": TOKEN_FONT, **_text_style(words)}
    boxes: list[list[_Box]] = []
    row = 0.0
    for text in texts:
        names = [visible(token, covered) for token in text.tokens]
        boxes.append(_wrap(names, np.asarray(text.weights, np.float64), row, style))
        row = boxes[-1][-1].row + ROW_OF_NEXT
    columns = {
        "true": [text.truth and visible_label(text.truth) for text in texts],
        "predicted": [visible_label(text.predicted) for text in texts],
        "largest weight": [f"{np.max(text.weights):.2f}" for text in texts],
    }
    widths = [
        max(text_widths([name, *cells], style)) + COLUMN_GAP for name, cells in columns.items()
    ]
    left = sum(widths)
    right = max(
        *text_widths(["tokens"], style), *(box.x + box.width for line in boxes for box in line)
    )
    axes = _inches(left + right, (row + 1) * ROW)
    x = 0.0
    for width, (name, cells) in zip(widths, columns.items(), strict=True):
        axes.text(x, 0.5 * ROW, name, va="center", color="0.4", **style)
        for text, line, cell in zip(texts, boxes, cells, strict=True):
            wrong = name == "predicted" and text.truth not in ("", text.predicted)
            y = (line[0].row + 1.5) * ROW
            axes.text(x, y, cell, va="center", fontweight="bold" if wrong else None, **style)
        x += width
    axes.text(left, 0.5 * ROW, "tokens", va="center", color="0.4", **style)
    for box in (box for line in boxes for box in line):
        corner = (left + box.x, (box.row + 1.08) * ROW)
        colour = colormaps[plotting.SEQUENTIAL](box.fraction)
        axes.add_patch(Rectangle(corner, box.width, 0.84 * ROW, color=colour, linewidth=0))
        axes.text(
            corner[0] + box.width / 2,
            (box.row + 1.5) * ROW,
            box.name,
            ha="center",
            va="center_baseline",
            color="white" if box.fraction > plotting.DARK else "black",
            **style,
        )
    return cast(Figure, axes.figure)


def visible_label(label: str) -> str:
    """The name of a class, every character of which shows."""
    return visible(label, fonts_for(frozenset(label))[1] | {" "}).replace("␣", " ")


def _text_style(texts: Sequence[str]) -> dict[str, Any]:
    """How matplotlib draws these texts: as they are, in fonts that have their letters."""
    return {"fontfamily": fonts_for(frozenset("".join(texts)))[0], **AS_TEXT}


def _wrap(names: list[str], weights: np.ndarray, row: float, style: dict) -> list[_Box]:
    """The boxes of one text, which starts in this row."""
    boxes, x = [], 0.0
    shares = weights / max(weights.max(), 1e-9)
    for name, width, share in zip(names, text_widths(names, style), shares, strict=True):
        if x and x + width > LINE:
            x, row = 0.0, row + 1
        boxes.append(_Box(x, row, width + 2 * TOKEN_GAP, name, float(share)))
        x += width + 2 * TOKEN_GAP + BOX_GAP
    return boxes


def _inches(width: float, height: float) -> Axes:
    """An empty canvas measured in inches from its upper left corner, inside a margin."""
    figure = plotting.new_figure(width + 2 * MARGIN, height + 2 * MARGIN, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, width + MARGIN), ylim=(height + MARGIN, -MARGIN))
    axes.axis("off")
    return axes
