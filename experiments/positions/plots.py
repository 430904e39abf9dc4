"""Pictures of positional encodings: additions, rotations and biases, and their use of distance.

Everything is asked of the classes in `transformer.model.positions` through their hooks, so that an
encoding that is added to their REGISTRY has its pictures, too.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float, Int, Real
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.display.figure_files import save_figure
from experiments.display.training_curves import COLOURS, light_grid, new_figure
from experiments.positions.values import Encoding

WIDTH, CAPTION = 7.0, 96  # inches, characters
SIGNED, CYCLIC = (
    "RdBu_r",
    "twilight_shifted",
)  # blue is below zero, red above; angles end where they begin
# A weight of e^-8, 0.03%, is practically zero, so biases beyond it need not be distinguishable.
MAX_BIAS = 8.0
MAX_HEADS = 16  # panels
ROUND_FIGURES = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
LINE_STYLES = ("-", "--", "-.", ":")
RANDOM_VECTORS = 256
POSITION, DIMENSION = "position, from 0", "dimension, from 0"
DISTANCE = "distance, key minus query (tokens)"


def draw(encodings: Iterable[Encoding], count: int, folder: Path) -> Iterator[Path]:
    """Draws encodings, `<folder>/<name>_<hook>[_<place>].png`; yields the pictures.

    One that acts in no hook has `<name>.png`, which says so.

    Args:
      count: of positions, from zero.
      folder: made if missing. Files of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for encoding in encodings:
        for hook in encoding.hooks or [""]:
            parts = filter(None, (encoding.name, hook, re.sub(r"\W+", "_", encoding.place)))
            picture = folder / f"{'_'.join(parts)}.png"
            with matplotlib.rc_context({"axes.titlesize": "medium"}):
                save_figure(FIGURES[hook](encoding, count), picture)
            yield picture


def added_figure(encoding: Encoding, count: int) -> Figure:
    """The vectors added to embeddings, position by dimension, and the products of any two rows."""
    figure, top, left, right = _three_panels(encoding)
    table = encoding.table(count)
    heat_map(top, table)
    top.set(xlabel=DIMENSION, ylabel=POSITION, title="added to the embedding: pe(p)")
    products = table @ table.T
    _matrix(left, products, "product pe(p) · pe(q)", "position q, from 0", "position p, from 0")
    distances, mean, low, high = by_distance(products)
    ahead = distances >= 0
    right.fill_between(
        distances[ahead], low[ahead], high[ahead], color=COLOURS[0], alpha=0.25, lw=0
    )
    right.plot(distances[ahead], mean[ahead], color=COLOURS[0])
    right.set(
        xlabel="distance k (tokens)",
        ylabel="pe(p) · pe(p + k)",
        title="mean over p, and range",
    )
    light_grid(right)
    return figure


def rotated_figure(encoding: Encoding, count: int) -> Figure:
    """The angles by which pairs of dimensions turn, and their effect on a query and a key."""
    figure, top, left, right = _three_panels(encoding)
    _draw_angles(top, *turning_angles(encoding, count))
    ones = encoding.rotated(np.ones((1, encoding.config.head_width)), count)[0]
    products = ones @ ones.T / encoding.config.head_width
    axes = ("key's position, from 0", "query's position, from 0")
    _matrix(left, products, "product over K, all ones", *axes)
    drawn = np.random.default_rng(0).normal(size=(RANDOM_VECTORS, encoding.config.head_width))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    rotated = encoding.rotated(drawn, count)
    random = np.einsum("NK,NLK->NL", rotated[:, 0], rotated)
    low, high = np.quantile(random, [0.1, 0.9], axis=0)
    right.fill_between(range(count), low, high, color=COLOURS[1], alpha=0.25, lw=0)
    right.plot(products[0], color=COLOURS[0], label="all ones, over K")
    style: dict[str, Any] = {"color": COLOURS[1], "linestyle": "--"}
    right.plot(random.mean(axis=0), label="random unit vectors,\nmean and middle 80%", **style)
    right.set(xlabel="distance (tokens)", title="product of equal query and key")
    right.legend(frameon=False, fontsize=8)
    light_grid(right)
    return figure


def bias_figure(encoding: Encoding, count: int) -> Figure:
    """The numbers added to the scores, by distance and as a matrix for each head."""
    biases = encoding.bias(count)
    shown = biases[:MAX_HEADS]
    across = min(len(shown), 4)
    down = math.ceil(len(shown) / across)
    figure = new_figure(WIDTH, 2.9 + 1.9 * down)
    _caption(figure, encoding)
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=[2.6, 1.9 * down])
    _bias_curves(above.subplots(), encoding, shown)
    limit = min(MAX_BIAS, _limit(shown))
    panels = below.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(shown) :]:
        axes.axis("off")
    for head, (axes, matrix) in enumerate(zip(panels.flat, shown, strict=False), 1):
        if encoding.past_only:
            matrix = np.where(np.tri(count, dtype=bool), matrix, np.nan)
        image = axes.imshow(matrix, cmap=_masked(SIGNED), vmin=-limit, vmax=limit)
        axes.set_title(f"head {head}", fontsize=9)
    below.supxlabel("key's position, from 0", fontsize=9)
    below.supylabel("query's position, from 0", fontsize=9)
    beyond = "both" if np.abs(shown).max() > limit else "neither"
    bar = below.colorbar(image, ax=panels, extend=beyond, ticks=[-limit, 0, limit], pad=0.01)
    bar.set_label("added to the score")
    return figure


def vectors_figure(encoding: Encoding, count: int, hook: str) -> Figure:
    """The vectors for each distance: `score` compares queries with them, `value_bias` adds them."""
    figure, top, left, right = _three_panels(encoding)
    distances, vectors = encoding.vectors(hook, count)
    what = {
        "score": "is added to the key for the score",
        "value_bias": "is added to the value",
    }
    ends = (-0.5, vectors.shape[-1] - 0.5, distances[-1] + 0.5, distances[0] - 0.5)
    heat_map(top, vectors[0], ends)
    top.set(xlabel=f"{DIMENSION}, of a head", ylabel=DISTANCE, title=f"v(k), which {what[hook]}")
    products = vectors[0] @ vectors[0].T
    square = (distances[0] - 0.5, distances[-1] + 0.5, distances[-1] + 0.5, distances[0] - 0.5)
    _matrix(left, products, "product v(j) · v(k)", "distance k", "distance j", square)
    norms = np.linalg.norm(vectors, axis=-1)
    equal = np.allclose(norms, norms[0])
    _curves_of_heads(right, distances, norms[:1] if equal else norms[:MAX_HEADS])
    right.set(xlabel=DISTANCE, ylabel="norm of v(k)", ylim=(0, None))
    right.set_title("norm by distance" + (", of all heads" if equal else ""))
    return figure


def nothing_figure(encoding: Encoding, count: int) -> Figure:
    """The heat map of an encoding that tells nothing, which says so."""
    figure = new_figure(WIDTH, 2.6)
    _caption(figure, encoding)
    axes = figure.subplots()
    heat_map(axes, encoding.table(count))
    axes.set(xlabel=DIMENSION, ylabel=POSITION, title="added to the embedding: nothing")
    words = "no information about positions:\nno hook changes anything"
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center")
    return figure


FIGURES = {
    "add": added_figure,
    "bias": bias_figure,
    "rotate": rotated_figure,
    "score": lambda encoding, count: vectors_figure(encoding, count, "score"),
    "value_bias": lambda encoding, count: vectors_figure(encoding, count, "value_bias"),
    "": nothing_figure,
}


def by_distance(
    matrix: Real[np.ndarray, "L L"],
) -> tuple[
    Int[np.ndarray, "N"], Float[np.ndarray, "N"], Real[np.ndarray, "N"], Real[np.ndarray, "N"]
]:
    """Returns the distances, column minus row, and mean, smallest and largest of each diagonal."""
    distances = np.arange(1 - len(matrix), len(matrix))
    lines = [np.diagonal(matrix, distance) for distance in distances]
    mean, low, high = ([f(line) for line in lines] for f in (np.mean, np.min, np.max))
    return distances, np.array(mean), np.array(low), np.array(high)


def turning_angles(
    encoding: Encoding, count: int
) -> tuple[Float[np.ndarray, "L pairs"], list[tuple[int, int]]]:
    """Returns radians, and the pairs of dimensions that turn into one another.

    Which they are is read off what becomes of unit vectors: a dimension's partner is the one that
    most of it goes to, and the first of a pair is the lower.
    """
    width = encoding.config.head_width
    rotated = encoding.rotated(np.eye(width), count)  # [from, position, to]
    shares = np.einsum("JLK,JLK->JK", rotated, rotated)
    np.fill_diagonal(shares, 0)
    partner = shares.argmax(axis=1)
    # Of one that mixes no dimensions, all angles are 0.
    pairs = [(j, int(k)) for j, k in enumerate(partner) if j < k] or [(0, 0)]
    angles = [np.arctan2(rotated[j, :, k], rotated[j, :, j]) for j, k in pairs]
    return np.stack(angles, axis=1), pairs


def heat_map(
    axes: Axes, table: Real[np.ndarray, "rows columns"], ends: tuple | None = None
) -> None:
    """Draws a table in signed colours, -1 to 1 if that fits its numbers.

    Args:
      ends: left, right, bottom and top of the axes; None counts rows and columns from zero.
    """
    limit = _limit(table)
    style = {"cmap": SIGNED, "vmin": -limit, "vmax": limit, "interpolation": "nearest"}
    image = axes.imshow(table, aspect="auto", extent=ends, **style)
    axes.figure.colorbar(image, ax=axes, ticks=[-limit, 0, limit], pad=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_angles(axes: Axes, angles: np.ndarray, pairs: list[tuple[int, int]]) -> None:
    style = {"cmap": CYCLIC, "vmin": -math.pi, "vmax": math.pi, "interpolation": "nearest"}
    image = axes.imshow(angles, aspect="auto", **style)
    bar = axes.figure.colorbar(image, ax=axes, ticks=[-math.pi, 0, math.pi], pad=0.01)
    bar.ax.set_yticklabels(["−π", "0", "π"])
    bar.set_label("radians")
    ends = ", to ".join(f"{first} and {second}" for first, second in (pairs[0], pairs[-1]))
    axes.set(
        xlabel=f"pair of dimensions, from 0: {ends}",
        ylabel=POSITION,
        title="angle by which a query or key is rotated",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _bias_curves(axes: Axes, encoding: Encoding, biases: np.ndarray) -> None:
    distances = by_distance(biases[0])[0]
    shown = distances <= 0 if encoding.past_only else np.ones(len(distances), bool)
    curves = np.stack([by_distance(matrix)[1] for matrix in biases])[:, shown]
    _curves_of_heads(axes, distances[shown], curves)
    axes.set(xlabel=DISTANCE, ylabel="added to the score")
    if curves.min() < -MAX_BIAS:
        axes.set_ylim(-MAX_BIAS, max(0.25, curves.max()))
    if len(encoding.bias(1)) > len(biases):
        axes.set_title(f"the first {len(biases)} heads")


def _curves_of_heads(axes: Axes, x: np.ndarray, curves: np.ndarray) -> None:
    """A curve per head, distinguished by lightness and dashes."""
    colours = colormaps["viridis"](np.linspace(0, 0.85, len(curves)))
    for head, curve in enumerate(curves):
        style = {"color": colours[head], "linestyle": LINE_STYLES[head % len(LINE_STYLES)]}
        axes.plot(x, curve, linewidth=1.3, label=f"head {head + 1}", **style)
    if len(curves) > 1:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    light_grid(axes)


def _matrix(
    axes: Axes, matrix: np.ndarray, title: str, columns: str, rows: str, ends: tuple | None = None
) -> None:
    limit = _limit(matrix)
    image = axes.imshow(matrix, cmap=SIGNED, vmin=-limit, vmax=limit, extent=ends)
    axes.figure.colorbar(image, ax=axes, ticks=[-limit, 0, limit], fraction=0.046, pad=0.02)
    axes.set(title=title, xlabel=columns, ylabel=rows)


def _limit(values: np.ndarray) -> float:
    """The end of a scale of both signs: 1, or a round figure that the largest number fits."""
    largest = float(np.abs(values).max())
    if 0.5 < largest <= 1.001 or largest == 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(m * power for m in ROUND_FIGURES if m * power >= 0.999 * largest)


def _masked(name: str):
    return colormaps[name].with_extremes(bad="0.85")


def _three_panels(encoding: Encoding) -> tuple[Figure, Axes, Axes, Axes]:
    """A captioned figure with a wide panel above two."""
    figure = new_figure(WIDTH, 6.4)
    _caption(figure, encoding)
    axes = figure.subplot_mosaic([["top", "top"], ["left", "right"]], height_ratios=[1.15, 1])
    return figure, axes["top"], axes["left"], axes["right"]


def _caption(figure: Figure, encoding: Encoding) -> None:
    """Names the encoding, its place and the origin of its numbers, and describes it."""
    told = ", ".join(filter(None, (encoding.place, encoding.origin)))
    name = f"{encoding.name} ({told})" if told else encoding.name
    lines = [name, *textwrap.wrap(encoding.summary, CAPTION)]
    figure.suptitle("\n".join(lines), fontsize=10, parse_math=False)
