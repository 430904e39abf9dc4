"""The mode `positions`: pictures of every positional encoding, and a page with phasors.

Everything is asked of the classes in `transformer.model.positions` through their hooks, so that an
encoding that is added to their REGISTRY has its pictures, too.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float, Real
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer.runs.run import CHECKPOINTS, Run
from ..display import plotting
from . import phasors
from .values import PAIRS, Encoding, encodings, model_config, offset_errors, offset_rotation

MAX_POSITIONS = 128
WIDTH, CAPTION = 7.0, 96  # inches, characters
CYCLIC = "twilight_shifted"  # angles end where they begin
# A weight of e^-8, 0.03%, is practically zero, so biases beyond it need not be distinguishable.
MAX_BIAS = 8.0
MAX_HEADS = 16  # panels
ROUND_FIGURES = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
LINE_STYLES = ("-", "--", "-.", ":")
RANDOM_VECTORS = 256
POSITION, DIMENSION = "position, from 0", "dimension, from 0"
DISTANCE = "distance, key minus query (tokens)"
OFFSET = 5  # tokens
ROTATION_SIZE = 7.0, 7.2  # inches
SHOWN_WIDTH = 16  # dimensions of the matrices that are drawn: each of their cells can be seen
EPSILON = float(np.finfo(np.float32).eps)
# By the name of the encoding and the pairs of dimensions; of each position from zero.
Errors = Mapping[str, Mapping[str, Float[np.ndarray, "_"]]]


def positions(run: Run) -> Iterator[Path]:
    """Draws every encoding in a model of this size; yields the files.

    Encodings that the run's model has are drawn with its parameters, if it has a checkpoint; all
    others as they are initialised.
    """
    run.check_same()
    trained = run.load_trained() if (run.folder / CHECKPOINTS).is_dir() else None
    model = model_config(run.config.model)
    count = min(MAX_POSITIONS, model.max_length)
    place = run.folder / "figures" / "positions"
    every = list(encodings(model, run.config.seed, trained))
    yield from draw(every, count, place)
    if model.d_model % 2 == 0:  # dimensions turn in pairs
        tables = {
            " ".join((encoding.name, encoding.place)).strip(): encoding.table(count)
            for encoding in every
            if "add" in encoding.hooks
        }
        offset = min(OFFSET, count - 1)
        yield draw_rotation(tables, offset, place / "rotation_by_offset.png")
    drawn = phasors.phasors_of(model)
    for phasor in drawn:
        yield phasors.draw_gif(phasor, place / f"phasors_{phasor.name}.gif")
    yield phasors.write_phasors(drawn, place / "positions.html")


def draw(encodings: Iterable[Encoding], count: int, folder: Path) -> Iterator[Path]:
    """Draws encodings, `<folder>/<name>_<hook>[_<place>].png`; yields the pictures.

    One that acts in no hook has `<name>.png`, which says so.
    """
    for encoding in encodings:
        for hook in encoding.hooks or [""]:
            parts = filter(None, (encoding.name, hook, re.sub(r"\W+", "_", encoding.place)))
            with matplotlib.rc_context({"axes.titlesize": "medium"}):
                picture = folder / f"{'_'.join(parts)}.png"
                plotting.save_figure(FIGURES[hook](encoding, count), picture)
            yield picture
        if encoding.config.patch_size and "add" in encoding.hooks and not encoding.past_only:
            picture = folder / f"{encoding.name}_grid.png"
            yield plotting.save_figure(similarity_figure(encoding), picture)


def added_figure(encoding: Encoding, count: int) -> Figure:
    """Returns the vectors added to embeddings, position by dimension, and products of any two."""
    figure, top, left, right = _three_panels(encoding)
    table = encoding.table(count)
    _draw_matrix(top, table, aspect="auto")
    top.set(xlabel=DIMENSION, ylabel=POSITION, title="added to the embedding: pe(p)")
    products = table @ table.T
    _draw_matrix(left, products)
    left.set(xlabel="position q, from 0", ylabel="position p, from 0")
    left.set_title("product pe(p) · pe(q)")
    _, (mean, low, high) = by_distance(products)
    mean, low, high = (each[count - 1 :] for each in (mean, low, high))  # of keys ahead
    _draw_band(right, mean, low, high, color=plotting.COLOURS[0])
    right.set(xlabel="distance k (tokens)", ylabel="pe(p) · pe(p + k)")
    right.set_title("mean over p, and range")
    return figure


def similarity_figure(encoding: Encoding) -> Figure:
    """Returns how similar the vector of each patch is to those of all, one map for each patch.

    Source: Dosovitskiy et al. 2021, figure 7, center.
    """
    side = encoding.config.picture_size // encoding.config.patch_size
    vectors = encoding.table(1 + side**2)[1:]  # without the class token's
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), EPSILON)
    maps = (vectors @ vectors.T).reshape(4 * [side])
    maps = np.pad(maps, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=np.nan)  # lines between
    figure = _captioned(encoding, WIDTH)
    axes = figure.subplots()
    whole = maps.swapaxes(1, 2).reshape(2 * [side * (side + 1)])[:-1, :-1]
    _draw_matrix(axes, whole)
    ticks = np.arange(side) * (side + 1) + (side - 1) / 2
    names = [str(number + 1) for number in range(side)]
    axes.set(xlabel="column of the patch", ylabel="row of the patch")
    axes.set(xticks=ticks, yticks=ticks, xticklabels=names, yticklabels=names)
    axes.set_title("cosine of pe(patch) and pe(q), for all patches q in the place of q")
    return figure


def rotated_figure(encoding: Encoding, count: int) -> Figure:
    """Returns the angles by which pairs of dimensions turn, and their effect on query and key."""
    figure, top, left, right = _three_panels(encoding)
    width = encoding.config.head_width
    angles, pairs = turning_angles(encoding, count)
    style: dict[str, Any] = {"cmap": CYCLIC, "vmin": -math.pi, "vmax": math.pi}
    image = top.imshow(angles, aspect="auto", interpolation="nearest", **style)
    bar = plotting.add_colour_bar(image, [-math.pi, 0, math.pi], "radians", ax=top, pad=0.01)
    bar.ax.set_yticklabels(["−π", "0", "π"])
    ends = ", to ".join(f"{first} and {second}" for first, second in (pairs[0], pairs[-1]))
    top.set(xlabel=f"pair of dimensions, from 0: {ends}", ylabel=POSITION)
    top.set_title("angle by which a query or key is rotated")
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    ones = encoding.rotated(np.ones((1, width)), count)[0]
    products = ones @ ones.T / width
    _draw_matrix(left, products)
    left.set(xlabel="key's position, from 0", ylabel="query's position, from 0")
    left.set_title("product over K, all ones")
    vectors = np.random.default_rng(0).normal(size=(RANDOM_VECTORS, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rotated = encoding.rotated(vectors, count)
    random = np.einsum("NK,NLK->NL", rotated[:, 0], rotated)
    low, high = np.quantile(random, [0.1, 0.9], axis=0)
    right.plot(products[0], color=plotting.COLOURS[0], label="all ones, over K")
    style = {"linestyle": "--", "label": "random unit vectors,\nmean and middle 80%"}
    _draw_band(right, random.mean(axis=0), low, high, color=plotting.COLOURS[1], **style)
    right.set(xlabel="distance (tokens)", title="product of equal query and key")
    right.legend(**plotting.LEGEND)
    return figure


def bias_figure(encoding: Encoding, count: int) -> Figure:
    """Returns the numbers added to the scores, by distance and as a matrix for each head."""
    biases = encoding.bias(count)
    shown = biases[:MAX_HEADS]
    across = min(len(shown), 4)
    down = math.ceil(len(shown) / across)
    figure = _captioned(encoding, 2.9 + 1.9 * down)
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=[2.6, 1.9 * down])
    axes = above.subplots()
    past = slice(count if encoding.past_only else None)
    curves = np.stack([by_distance(matrix)[1][0, past] for matrix in shown])
    _draw_curves(axes, by_distance(shown[0])[0][past], curves)
    axes.set(xlabel=DISTANCE, ylabel="added to the score")
    if curves.min() < -MAX_BIAS:
        axes.set_ylim(-MAX_BIAS, max(0.25, curves.max()))
    if len(biases) > len(shown):
        axes.set_title(f"the first {len(shown)} heads")
    limit = min(MAX_BIAS, _limit(shown))
    panels = below.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(shown) :]:
        axes.axis("off")
    colours = colormaps[plotting.SIGNED].with_extremes(bad="0.85")
    for head, (axes, matrix) in enumerate(zip(panels.flat, shown, strict=False), 1):
        if encoding.past_only:
            matrix = np.where(np.tri(count, dtype=bool), matrix, np.nan)
        image = axes.imshow(matrix, cmap=colours, vmin=-limit, vmax=limit)
        axes.set_title(f"head {head}", fontsize=9)
    below.supxlabel("key's position, from 0", fontsize=9)
    below.supylabel("query's position, from 0", fontsize=9)
    beyond = "both" if np.abs(shown).max() > limit else "neither"
    place = {"ax": panels, "extend": beyond, "pad": 0.01}
    plotting.add_colour_bar(image, [-limit, 0, limit], "added to the score", **place)
    return figure


def vectors_figure(encoding: Encoding, count: int, hook: str) -> Figure:
    """Returns the vectors for each distance: `score` compares queries, `value_bias` adds them."""
    figure, top, left, right = _three_panels(encoding)
    distances, vectors = encoding.vectors(hook, count)
    use = {"score": "is added to the key for the score", "value_bias": "is added to the value"}
    first, last = distances[0] - 0.5, distances[-1] + 0.5
    _draw_matrix(top, vectors[0], (-0.5, vectors.shape[-1] - 0.5, last, first), aspect="auto")
    top.set(xlabel=f"{DIMENSION}, of a head", ylabel=DISTANCE, title=f"v(k), which {use[hook]}")
    _draw_matrix(left, vectors[0] @ vectors[0].T, (first, last, last, first))
    left.set(title="product v(j) · v(k)", xlabel="distance k", ylabel="distance j")
    norms = np.linalg.norm(vectors, axis=-1)
    equal = np.allclose(norms, norms[0])
    _draw_curves(right, distances, norms[:1] if equal else norms[:MAX_HEADS])
    right.set(xlabel=DISTANCE, ylabel="norm of v(k)", ylim=(0, None))
    right.set_title("norm by distance" + (", of all heads" if equal else ""))
    return figure


def nothing_figure(encoding: Encoding, count: int) -> Figure:
    """Returns the heat map of an encoding that tells nothing, which says so."""
    figure = _captioned(encoding, 2.6)
    axes = figure.subplots()
    _draw_matrix(axes, encoding.table(count), aspect="auto")
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


def by_distance(matrix: Real[np.ndarray, "L L"]) -> tuple[np.ndarray, Real[np.ndarray, "3 N"]]:
    """Returns the distances, column minus row, and mean, smallest and largest of each diagonal."""
    distances = np.arange(1 - len(matrix), len(matrix))
    lines = [np.diagonal(matrix, distance) for distance in distances]
    return distances, np.array([[f(line) for line in lines] for f in (np.mean, np.min, np.max)])


def turning_angles(
    encoding: Encoding, count: int
) -> tuple[Float[np.ndarray, "L pairs"], list[tuple[int, int]]]:
    """Returns radians, and the pairs of dimensions that turn into one another.

    Which they are is read off what becomes of unit vectors: a dimension's partner is the one that
    most of it goes to, and the first of a pair is the lower.
    """
    rotated = encoding.rotated(np.eye(encoding.config.head_width), count)  # [from, position, to]
    shares = np.einsum("JLK,JLK->JK", rotated, rotated)
    np.fill_diagonal(shares, 0)
    # Of an encoding that mixes no dimensions, all angles are 0.
    pairs = [(j, int(k)) for j, k in enumerate(shares.argmax(axis=1)) if j < k] or [(0, 0)]
    angles = [np.arctan2(rotated[j, :, k], rotated[j, :, j]) for j, k in pairs]
    return np.stack(angles, axis=1), pairs


def _draw_matrix(
    axes: Axes, matrix: np.ndarray, extent: tuple | None = None, aspect: str = "equal"
) -> None:
    """A matrix in signed colours, -1 to 1 if that fits its numbers, and its colour bar."""
    limit = _limit(matrix)
    style = {"vmin": -limit, "vmax": limit, "aspect": aspect, "interpolation": "nearest"}
    image = axes.imshow(matrix, cmap=plotting.SIGNED, extent=extent, **style)
    place = {"ax": axes, "fraction": 0.046, "pad": 0.02 if aspect == "equal" else 0.01}
    plotting.add_colour_bar(image, [-limit, 0, limit], **place)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_band(axes: Axes, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **style) -> None:
    """A curve by distance, in a band."""
    axes.fill_between(range(len(mean)), low, high, color=style["color"], alpha=0.25, lw=0)
    axes.plot(mean, **style)
    plotting.light_grid(axes)


def _draw_curves(axes: Axes, x: np.ndarray, curves: np.ndarray) -> None:
    """A curve per head, distinguished by lightness and dashes."""
    colours = plotting.layer_colours(len(curves))
    for head, curve in enumerate(curves):
        style = {"color": colours[head], "linestyle": LINE_STYLES[head % len(LINE_STYLES)]}
        axes.plot(x, curve, linewidth=1.3, label=f"head {head + 1}", **style)
    if len(curves) > 1:
        axes.legend(**plotting.LEGEND, loc="center left", bbox_to_anchor=(1, 0.5))
    plotting.light_grid(axes)


def _limit(values: np.ndarray) -> float:
    """The end of a scale of both signs: 1, or a round figure that the largest number fits."""
    largest = float(np.nanmax(np.abs(values)))
    if 0.5 < largest <= 1.001 or largest == 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(m * power for m in ROUND_FIGURES if m * power >= 0.999 * largest)


def _three_panels(encoding: Encoding) -> tuple[Figure, Axes, Axes, Axes]:
    """A captioned figure with a wide panel above two."""
    figure = _captioned(encoding, 6.4)
    axes = figure.subplot_mosaic([["top", "top"], ["left", "right"]], height_ratios=[1.15, 1])
    return figure, axes["top"], axes["left"], axes["right"]


def _captioned(encoding: Encoding, height: float) -> Figure:
    """A figure that names the encoding, its place and the origin of its numbers."""
    figure = plotting.new_figure(WIDTH, height)
    origin = ", ".join(filter(None, (encoding.place, encoding.origin)))
    name = f"{encoding.name} ({origin})" if origin else encoding.name
    lines = [name, *textwrap.wrap(encoding.summary, CAPTION)]
    figure.suptitle("\n".join(lines), fontsize=10, parse_math=False)
    return figure


# -- the rotation by an offset


def describe_errors(errors: Errors, offset: int) -> Iterable[str]:
    """Yields lines that tell the largest errors over all positions."""
    last = len(next(iter(next(iter(errors.values())).values()))) - 1
    yield (
        f"pe(p + {offset}) = M pe(p), where M turns each pair of dimensions: the largest error for "
        f"p from 0 to {last}, in eps of float32 ({EPSILON:.2e})"
    )
    yield f"{'':24}{''.join(f'{pairs:>26}' for pairs in PAIRS)}"
    for name, by_pairs in errors.items():
        largest = (values.max() for values in by_pairs.values())
        cells = (f"{error:.1e} = {error / EPSILON:.3g} eps" for error in largest)
        yield f"{name:24}{''.join(f'{cell:>26}' for cell in cells)}"
    angle = last + offset
    yield f"rounding the largest angle, {angle} radians, may move it by {angle / 2:.0f} eps"


def draw_rotation(
    tables: Mapping[str, Float[np.ndarray, "L D"]], offset: int, picture: Path
) -> Path:
    """Draws M_k for both PAIRS, and prints and draws the errors; returns `picture`."""
    errors = {
        name: {pairs: offset_errors(table, pairs, offset) for pairs in PAIRS}
        for name, table in tables.items()
    }
    print(*describe_errors(errors, offset), sep="\n")
    figure = plotting.new_figure(*ROTATION_SIZE)
    what = "one M for every position p, which turns pairs of dimensions"
    figure.suptitle(f"pe(p + {offset}) = M pe(p): {what}", fontsize=10)
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=[1.1, 1])
    panels = above.subplots(1, 2)
    half = SHOWN_WIDTH // 2
    titles = (
        "sinusoidal: dimension 2i turns with 2i + 1",
        f"split: dimension i turns with i + {half}",
    )
    for axes, pairs, title in zip(panels, PAIRS, titles, strict=True):
        rotation = offset_rotation(pairs, SHOWN_WIDTH, offset)
        image = axes.imshow(rotation, cmap=plotting.SIGNED, vmin=-1, vmax=1)
        axes.set_title(f"{title}\n(here d_model = {SHOWN_WIDTH})", fontsize=9)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(range(0, SHOWN_WIDTH, 2))
            axis.set_ticks(np.arange(SHOWN_WIDTH + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.85", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        axes.set(xlabel="dimension of pe(p), from 0", ylabel=f"dimension of pe(p + {offset})")
    plotting.add_colour_bar(image, [-1, 0, 1], "entry of M", ax=panels, pad=0.01, shrink=0.8)
    axes = below.subplots()
    for number, (name, by_pairs) in enumerate(errors.items()):
        for (pairs, values), style in zip(by_pairs.items(), ("-", "--"), strict=True):
            colour, label = plotting.look(number)["color"], f"{name}, pairs {pairs}"
            axes.plot(values / EPSILON, color=colour, linestyle=style, label=label)
    angle = {"color": "0.3", "linestyle": ":", "label": f"eps times the angle, p + {offset}"}
    axes.plot(np.arange(len(values)) + offset, **angle)
    axes.set_yscale("log")
    axes.set(xlabel="position p, from 0", ylabel="largest error (eps of float32)")
    axes.legend(**plotting.LEGEND, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    plotting.light_grid(axes)
    return plotting.save_figure(figure, picture)
