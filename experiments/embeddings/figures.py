"""Pictures of token embeddings on a plane: a mark per token, and as many names as fit."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from experiments.attention.labels import visible
from experiments.attention.maps import AS_TEXT, DOTS_PER_INCH, fonts_for
from experiments.display.training_curves import COLOURS
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

# Name, colour and marker of each kind of token.
KINDS = (
    ("begins a word", COLOURS[0], "o"),
    ("within a word", COLOURS[1], "^"),
    ("digits and signs", COLOURS[2], "s"),
    ("special", "black", "D"),
)
WORD, WITHIN, SIGNS, SPECIAL = range(len(KINDS))
WIDTH, LEAST_HEIGHT, MAX_HEIGHT = 7.0, 4.5, 7.5  # inches
FONT = 5.5  # points, of the names
OFFSET, GAP = 2.5, 1.0  # points: from a mark to its name, and between names
CANDIDATES, MAX_NAMES = 3000, 350  # tokens that may be named, and names that stay readable


class Map(NamedTuple):
    """Places of a table's first tokens on a plane.

    Attributes:
      method: "tsne" or "pca".
      points: of the tokens, by id.
      title: what is shown.
    """

    method: str
    points: Float[np.ndarray, "N 2"]
    title: str


def token_kinds(pieces: Sequence[str]) -> UInt8[np.ndarray, "V"]:
    """Returns each token's place in KINDS: by its text alone, special tokens by their ids."""
    kinds = [
        SIGNS
        if not any(character.isalpha() for character in piece)
        else WORD
        if piece.startswith("▁")
        else WITHIN
        for piece in pieces
    ]
    for token in (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        kinds[token] = SPECIAL
    return np.array(kinds, np.uint8)


def map_figure(shown: Map, pieces: Sequence[str]) -> Figure:
    """A mark a token, its shape and colour the token's kind; names if no other name is in the way.

    Tokens of low ids are named first: the most frequent, or the first that were merged.

    Args:
      pieces: the tokens' texts by id, at least those that are mapped.

    Returns:
      A figure outside pyplot, with an Agg canvas.
    """
    points, pieces = shown.points, pieces[: len(shown.points)]
    across, upwards = np.ptp(points, axis=0)
    height = np.clip(WIDTH * upwards / across, LEAST_HEIGHT, MAX_HEIGHT)
    figure = Figure(figsize=(WIDTH, height + 0.5), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    kinds = token_kinds(pieces)
    size = 4.0 if len(points) < 500 else 2.2 if len(points) < 3000 else 1.5
    for kind, (name, colour, marker) in enumerate(KINDS):
        mine = points[kinds == kind]
        style = {"marker": marker, "markersize": size, "alpha": 0.55, "zorder": 2}
        if kind == SPECIAL:
            style |= {"markersize": 1.6 * size, "alpha": 0.9, "zorder": 3}
        axes.plot(
            *mine.T,
            **style,
            linestyle="none",
            markeredgewidth=0,
            color=colour,
            label=f"{name} ({len(mine):,})",
        )
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    axes.spines[:].set_color("0.8")
    axes.set_title(shown.title, fontsize=9)
    legend = figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    for handle in filter(None, legend.legend_handles):
        handle.set(alpha=1, markersize=5)
    _name_tokens(axes, points[:CANDIDATES], pieces[:CANDIDATES])
    return figure


def _name_tokens(axes: Axes, points: np.ndarray, pieces: Sequence[str]) -> None:
    """Writes tokens next to their marks, the first first, if there is room for them."""
    families, covered = fonts_for(frozenset("".join(pieces)))
    font = FontProperties(family=families, size=FONT)
    canvas = cast(FigureCanvasAgg, axes.figure.canvas)
    canvas.figure.draw_without_rendering()  # the layout moves the axes
    renderer = canvas.get_renderer()
    pixels = DOTS_PER_INCH / 72
    places = axes.transData.transform(points)
    left, bottom, right, top = axes.bbox.extents
    taken = np.empty((0, 4))
    for piece, point, (x, y) in zip(pieces, points, places, strict=True):
        name = visible(piece, covered)
        width, height, _ = renderer.get_text_width_height_descent(name, font, False)
        for side, start in ((1, x + OFFSET * pixels), (-1, x - OFFSET * pixels - width)):
            box = np.array([start, y - height / 2, start + width, y + height / 2])
            inside = box[0] > left and box[1] > bottom and box[2] < right and box[3] < top
            apart = (taken[:, :2] > box[2:] + GAP * pixels) | (
                taken[:, 2:] < box[:2] - GAP * pixels
            )
            if inside and apart.any(axis=1).all():
                taken = np.vstack([taken, box])
                _write(axes, name, point, side, font)
                break
        if len(taken) == MAX_NAMES:
            return


def _write(axes: Axes, name: str, point: np.ndarray, side: int, font: FontProperties) -> None:
    """Writes a name to the right (1) or to the left (-1) of a point."""
    text = axes.annotate(
        name,
        (point[0], point[1]),
        (side * OFFSET, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        fontproperties=font,
        zorder=4,
        **AS_TEXT,
    )
    text.set_path_effects([patheffects.withStroke(linewidth=1.2, foreground="white", alpha=0.8)])
