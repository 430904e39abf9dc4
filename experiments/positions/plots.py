"""The `positions` mode: figures of every positional encoding, and a page of phasors.

All values are computed by the hooks of the classes in `transformer.model.positions`. Encodings
that are added to the REGISTRY of that package are plotted automatically.

Rotating phasors explain the heat map of sinusoids. Two dimensions that are the sine and the cosine
of an angle define a point on a circle. The hand from the centre to this point rotates by a fixed
angle per position: one radian for the first pair of dimensions, and less for each later pair. The
pairing of the dimensions is determined from the encoding itself.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, Real
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer.model.config import ModelConfig
from transformer.model.positions.registry import acts_in, fitting_names
from transformer.runs.run import CHECKPOINTS, Run
from ..display import plotting
from ..display.web_page import encode_array, write_page
from . import values
from .values import PAIRS, Encoding, offset_errors, offset_rotation

MAX_POSITIONS = 128
WIDTH = 7.0  # inches
# A weight of e^-8 (0.03%) is practically zero, so larger negative biases look the same.
MAX_BIAS = 8.0
MAX_HEADS = 16  # maximum number of curves
POSITION, DIMENSION = "position, from 0", "dimension, from 0"
DISTANCE = "distance, key minus query (tokens)"
OFFSET = 5  # tokens
ROTATION_SIZE = 7.0, 7.2  # inches
SHOWN_WIDTH = 16  # side of the drawn matrices, small enough to see each cell
EPSILON = float(np.finfo(np.float32).eps)
# Phasors have few dimensions, so that each hand and cell is visible. Their frequencies span the
# same range as in a wider model, which has more frequencies.
PHASOR_WIDTH, PHASOR_POSITIONS = 16, 48
ON_CIRCLE = 1e-4  # tolerance for rounding errors
SHADES = 33  # number of colours; odd, so that zero has its own colour


def positions(run: Run) -> Iterator[Path]:
    """Plots each positional encoding at the dimensions of the run's model; yields file paths.

    The encodings that the model uses have their trained parameters if there is a checkpoint. All
    other encodings have initial parameters.
    """
    run.check_same()
    trained = run.load_trained() if (run.folder / CHECKPOINTS).is_dir() else None
    model = values.model_config(run.config.model)
    count = min(MAX_POSITIONS, model.max_length)
    place = run.folder / "figures" / "positions"
    every = list(values.encodings(model, run.config.seed, trained))
    yield from draw(every, count, place)
    if model.d_model % 2 == 0:  # dimensions rotate in pairs
        yield draw_rotation(every, count, place / "rotation_by_offset.png")
    yield write_phasors(phasors_of(model), place / "positions.html")


def draw(encodings: Iterable[Encoding], count: int, folder: Path) -> Iterator[Path]:
    """Plots encodings to `<folder>/<name>_<hook>[_<place>].png`; yields the paths."""
    for encoding in encodings:
        for hook in encoding.hooks:
            parts = filter(None, (encoding.name, hook, re.sub(r"\W+", "_", encoding.place)))
            with matplotlib.rc_context({"axes.titlesize": "medium"}):
                figure = FIGURES[hook](encoding, count)
            yield plotting.save_figure(figure, folder / f"{'_'.join(parts)}.png")


def added_figure(encoding: Encoding, count: int) -> Figure:
    """Plots the vectors that are added to the embeddings, and dot products of these vectors."""
    figure, top, left, right = _three_panels(encoding)
    table = encoding.table(count)
    _draw_matrix(top, table, aspect="auto")
    top.set(xlabel=DIMENSION, ylabel=POSITION, title="added to the embedding: pe(p)")
    _draw_products(left, right, table @ table.T)
    left.set(xlabel="position q, from 0", ylabel="position p, from 0")
    left.set_title("product pe(p) · pe(q)")
    right.set(xlabel="distance k (tokens)", ylabel="pe(p) · pe(p + k)")
    return figure


def rotated_figure(encoding: Encoding, count: int) -> Figure:
    """Plots an all-ones vector rotated to each position, and dot products between positions."""
    figure, top, left, right = _three_panels(encoding)
    width = encoding.config.head_width
    rotated = encoding.rotated(np.ones((1, width)), count)[0]
    _draw_matrix(top, rotated, aspect="auto")
    top.set(xlabel=f"{DIMENSION}, of a head", ylabel=POSITION)
    top.set_title("a query or key of ones, as it is rotated")
    _draw_products(left, right, rotated @ rotated.T / width)
    left.set(xlabel="key's position, from 0", ylabel="query's position, from 0")
    left.set_title("product over K, all ones")
    right.set(xlabel="distance (tokens)", ylabel="product over K")
    return figure


def bias_figure(encoding: Encoding, count: int) -> Figure:
    """Plots each head's attention biases against distance, and the first head's as a matrix."""
    biases = encoding.bias(count)
    figure = _captioned(encoding, 3.4)
    left, right = figure.subplots(1, 2)
    past = slice(count if encoding.past_only else None)
    curves = np.stack([by_distance(matrix)[1, past] for matrix in biases[:MAX_HEADS]])
    _draw_curves(left, by_distance(biases[0])[0, past], curves)
    left.set(xlabel=DISTANCE, ylabel="added to the score")
    left.set_ylim(max(-MAX_BIAS, curves.min()) - 0.25, curves.max() + 0.25)
    matrix = np.clip(biases[0], -MAX_BIAS, MAX_BIAS)
    _draw_matrix(right, np.where(np.tri(count), matrix, np.nan) if encoding.past_only else matrix)
    right.set(xlabel="key's position, from 0", ylabel="query's position, from 0", title="head 1")
    right.set_facecolor("0.85")  # masked keys
    return figure


def vectors_figure(encoding: Encoding, count: int, hook: str) -> Figure:
    """Plots the vectors of a `score` or `value_bias` hook, their dot products, and their norms."""
    figure, top, left, right = _three_panels(encoding)
    distances, vectors = encoding.vectors(hook, count)
    use = {"score": "is added to the key for the score", "value_bias": "is added to the value"}
    first, last = distances[0] - 0.5, distances[-1] + 0.5
    _draw_matrix(top, vectors[0], (-0.5, vectors.shape[-1] - 0.5, last, first), aspect="auto")
    top.set(xlabel=f"{DIMENSION}, of a head", ylabel=DISTANCE, title=f"v(k), which {use[hook]}")
    _draw_matrix(left, vectors[0] @ vectors[0].T, (first, last, last, first))
    left.set(title="product v(j) · v(k)", xlabel="distance k", ylabel="distance j")
    _draw_curves(right, distances, np.linalg.norm(vectors[:1], axis=-1))
    right.set(xlabel=DISTANCE, ylabel="norm of v(k)", ylim=(0, None), title="norm by distance")
    return figure


FIGURES = {
    "add": added_figure,
    "bias": bias_figure,
    "rotate": rotated_figure,
    "score": lambda encoding, count: vectors_figure(encoding, count, "score"),
    "value_bias": lambda encoding, count: vectors_figure(encoding, count, "value_bias"),
}


def by_distance(matrix: Real[np.ndarray, "L L"]) -> Real[np.ndarray, "4 N"]:
    """Returns the distance (column minus row), mean, minimum and maximum of each diagonal."""
    distances = np.arange(1 - len(matrix), len(matrix))
    lines = [np.diagonal(matrix, distance) for distance in distances]
    return np.array([distances, *([f(line) for line in lines] for f in (np.mean, np.min, np.max))])


def _draw_matrix(
    axes: Axes, matrix: np.ndarray, extent: tuple | None = None, aspect: str = "equal"
) -> None:
    """Plots a matrix with a diverging colour map and a colour bar."""
    limit = float(np.nanmax(np.abs(matrix))) or 1.0
    style = {"vmin": -limit, "vmax": limit, "aspect": aspect, "extent": extent}
    image = plotting.heat_map(axes, matrix, cmap=plotting.SIGNED, **style)
    place = {"ax": axes, "fraction": 0.046, "pad": 0.02 if aspect == "equal" else 0.01}
    plotting.add_colour_bar(image, [-limit, 0, limit], format="{x:.3g}", **place)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_products(left: Axes, right: Axes, products: Real[np.ndarray, "L L"]) -> None:
    """Plots dot products between positions as a matrix, and their mean and range by distance."""
    _draw_matrix(left, products)
    _, mean, low, high = by_distance(products)[:, len(products) - 1 :]  # keys after the query
    plotting.curve(right, range(len(mean)), mean, (low, high), color=plotting.COLOURS[0])
    right.set_title("mean over positions, and range")


def _draw_curves(axes: Axes, x: np.ndarray, curves: np.ndarray) -> None:
    """Plots one curve per head, with different lightness and line styles."""
    colours = plotting.layer_colours(len(curves))
    for head, curve in enumerate(curves):
        style = {"color": colours[head], "linestyle": plotting.DASHES[head % 4]}
        plotting.curve(axes, x, curve, label=f"head {head + 1}", **style)
    if len(curves) > 1:
        axes.legend(**plotting.LEGEND, loc="center left", bbox_to_anchor=(1, 0.5))


def _three_panels(encoding: Encoding) -> tuple[Figure, Axes, Axes, Axes]:
    """Returns a captioned figure with one wide subplot above two smaller subplots."""
    figure = _captioned(encoding, 6.4)
    axes = figure.subplot_mosaic([["top", "top"], ["left", "right"]], height_ratios=[1.15, 1])
    return figure, axes["top"], axes["left"], axes["right"]


def _captioned(encoding: Encoding, height: float) -> Figure:
    """Returns a figure titled with the encoding, its place and the origin of its parameters."""
    figure = plotting.new_figure(WIDTH, height)
    origin = ", ".join(filter(None, (encoding.place, encoding.origin)))
    name = f"{encoding.name} ({origin})" if origin else encoding.name
    figure.suptitle(name, fontsize=10)
    return figure


# -- the rotation by an offset


def draw_rotation(encodings: Iterable[Encoding], count: int, picture: Path) -> Path:
    """Plots the matrix M_k for both PAIRS, and each table's `offset_errors`; returns `picture`."""
    figure, offset = plotting.new_figure(*ROTATION_SIZE), min(OFFSET, count - 1)
    what = "one M for every position p, which turns pairs of dimensions"
    figure.suptitle(f"pe(p + {offset}) = M pe(p): {what}", fontsize=10)
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=[1.1, 1])
    half = SHOWN_WIDTH // 2
    titles = (
        "sinusoidal: dimension 2i turns with 2i + 1",
        f"split: dimension i turns with i + {half}",
    )
    for axes, pairs, title in zip(above.subplots(1, 2), PAIRS, titles, strict=True):
        _draw_matrix(axes, offset_rotation(pairs, SHOWN_WIDTH, offset))
        axes.set_title(f"{title}\n(here d_model = {SHOWN_WIDTH})", fontsize=9)
        axes.set(xlabel="dimension of pe(p), from 0", ylabel=f"dimension of pe(p + {offset})")
    axes = below.subplots()
    for number, encoding in enumerate(each for each in encodings if "add" in each.hooks):
        name = " ".join((encoding.name, encoding.place)).strip()
        for pairs, style in zip(PAIRS, ("-", "--"), strict=True):
            largest = offset_errors(encoding.table(count), pairs, offset)
            colour, label = plotting.look(number)["color"], f"{name}, pairs {pairs}"
            axes.plot(largest / EPSILON, color=colour, linestyle=style, label=label)
    angle = np.arange(offset, count)  # times eps: its rounding error
    plotting.curve(axes, angle - offset, angle, color="0.3", ls=":", label=f"angle, p + {offset}")
    axes.set_yscale("log")
    axes.set(xlabel="position p, from 0", ylabel="largest error (eps of float32)")
    axes.legend(**plotting.LEGEND, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return plotting.save_figure(figure, picture)


# -- phasors


class Phasors(NamedTuple):
    """An encoding that consists of circles: its vectors by position, and a hand for each circle."""

    name: str
    table: Float[np.ndarray, "L D"]
    hands: list[tuple[int, int]]  # dimensions (sine, cosine), fastest rotation first


def phasors_of(config: ModelConfig) -> list[Phasors]:
    """Returns additive encodings that consist of circles, with PHASOR_WIDTH dimensions."""
    sizes = {"d_model": PHASOR_WIDTH, "max_length": max(PHASOR_POSITIONS, config.max_length)}
    sizes |= {"num_heads": 1, "num_kv_heads": 0, "head_size": 0}
    drawn = []
    for name in (name for name in fitting_names(config) if acts_in(name, ["add"])):
        small = values.with_one_encoding(config, name, **sizes)
        encoding = Encoding(name, small, values.initial_params(small, name, 0))
        table = encoding.table(PHASOR_POSITIONS)
        if hands := hands_of(table):
            drawn.append(Phasors(name, table, hands))
    return drawn


def hands_of(table: Float[np.ndarray, "L D"]) -> list[tuple[int, int]]:
    """Returns the first of PAIRS that puts all points on a unit circle, or an empty list."""
    for pairs in PAIRS.values():
        hands = pairs(table.shape[1])
        if np.allclose(np.square(table[:, hands]).sum(axis=-1), 1, rtol=0, atol=ON_CIRCLE):
            return [(int(sine), int(cosine)) for sine, cosine in hands]
    return []


def write_phasors(drawn: Sequence[Phasors], page: Path) -> Path:
    """Writes a page that shows the hands, with a slider for the position; returns `page`."""
    encodings = [{**phasor._asdict(), "table": encode_array(phasor.table)} for phasor in drawn]
    shades = map(to_hex, matplotlib.colormaps[plotting.SIGNED](np.linspace(0, 1, SHADES)))
    return write_page(
        page,
        "positions.html",
        title="Positional encodings as rotating phasors",
        width=PHASOR_WIDTH,
        last=PHASOR_POSITIONS - 1,
        phasors={"shades": list(shades), "encodings": encodings},
    )
