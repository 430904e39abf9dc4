"""The linear map from a position's encoding to that of the position k tokens later.

For sines and cosines of angles w p there is one for all positions p: it turns each pair by w k,

    sin(w (p + k)) =  cos(w k) sin(w p) + sin(w k) cos(w p)
    cos(w (p + k)) = -sin(w k) sin(w p) + cos(w k) cos(w p)

Source: Vaswani et al. 2017, section 3.5: "for any fixed offset k, PE_{pos+k} can be represented as
a linear function of PE_pos".
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from matplotlib.axes import Axes

from experiments.display.figure_files import save_figure
from experiments.display.training_curves import COLOURS, light_grid, new_figure
from experiments.positions.plots import SIGNED, WIDTH
from transformer.model.positions.additive import MAX_WAVELENGTH

OFFSET = 5  # tokens
SHOWN_WIDTH = 16  # dimensions of the matrices that are drawn: each of their cells can be seen
EPSILON = float(np.finfo(np.float32).eps)
LINE_STYLES = ("-", "--", ":", "-.")
# By the name of the encoding and the pairs of dimensions; of each position from zero.
Errors = Mapping[str, Mapping[str, Float[np.ndarray, "_"]]]


def offset_rotation(width: int, offset: int) -> Float64[np.ndarray, "D D"]:
    """Returns M_k for sines at dimensions 2i and their cosines at 2i + 1."""
    even = np.arange(0, width, 2)
    angles = offset / MAX_WAVELENGTH ** (even / width)
    rotation = np.zeros((width, width))
    rotation[even, even] = rotation[even + 1, even + 1] = np.cos(angles)
    rotation[even, even + 1] = np.sin(angles)
    rotation[even + 1, even] = -np.sin(angles)
    return rotation


def split_rotation(width: int, offset: int) -> Float64[np.ndarray, "D D"]:
    """Returns the same map for sines at dimensions i below D / 2 and their cosines at i + D / 2."""
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    return offset_rotation(width, offset)[np.ix_(order, order)]


# By the pairs of dimensions that turn.
ROTATIONS = {"2i and 2i + 1": offset_rotation, "i and i + D/2": split_rotation}


def offset_errors(
    table: Float[np.ndarray, "L D"], rotation: Float[np.ndarray, "D D"], offset: int
) -> Float[np.ndarray, "L-{offset}"]:
    """Returns for each p the largest error, over dimensions, of pe(p + k) = M_k pe(p).

    Args:
      table: an encoding of positions from zero.
      rotation: M_k.
      offset: k, in tokens, less than L.
    """
    table = np.asarray(table, np.float64)
    return np.abs(table[offset:] - table[:-offset] @ rotation.T).max(axis=1)


def errors_of(tables: Mapping[str, Float[np.ndarray, "L D"]], offset: int) -> Errors:
    """Returns the errors by position of each encoding with each of ROTATIONS."""
    return {
        name: {
            pairs: offset_errors(table, rotation(table.shape[1], offset), offset)
            for pairs, rotation in ROTATIONS.items()
        }
        for name, table in tables.items()
    }


def describe(errors: Errors, offset: int) -> Iterable[str]:
    """Yields lines that tell the largest errors over all positions."""
    last = len(next(iter(next(iter(errors.values())).values()))) - 1
    yield (
        f"pe(p + {offset}) = M pe(p), where M turns each pair of dimensions: the largest error for "
        f"p from 0 to {last}, in eps of float32 ({EPSILON:.2e})"
    )
    yield f"{'':24}{''.join(f'{pairs:>26}' for pairs in ROTATIONS)}"
    for name, found in errors.items():
        largest = (found[pairs].max() for pairs in ROTATIONS)
        cells = (f"{error:.1e} = {error / EPSILON:.3g} eps" for error in largest)
        yield f"{name:24}{''.join(f'{cell:>26}' for cell in cells)}"
    angle = last + offset
    yield f"rounding the largest angle, {angle} radians, may move it by {angle / 2:.0f} eps"


def draw(errors: Errors, offset: int, picture: Path) -> Path:
    """Draws the map in both orders of dimensions, and the errors; returns `picture`."""
    figure = new_figure(WIDTH, 7.2)
    title = (
        f"pe(p + {offset}) = M pe(p): one M for every position p, which turns pairs of dimensions"
    )
    figure.suptitle(title, fontsize=10)
    [above], [below] = figure.subfigures(2, squeeze=False, height_ratios=[1.1, 1])
    panels = above.subplots(1, 2)
    half = SHOWN_WIDTH // 2
    shown = (
        (offset_rotation, "sinusoidal: dimension 2i turns with 2i + 1"),
        (split_rotation, f"split: dimension i turns with i + {half}"),
    )
    for axes, (rotation, title) in zip(panels, shown, strict=True):
        matrix = rotation(SHOWN_WIDTH, offset)
        image = axes.imshow(matrix, cmap=SIGNED, vmin=-1, vmax=1)
        axes.set_title(f"{title}\n(here d_model = {SHOWN_WIDTH})", fontsize=9)
        axes.set_xticks(range(0, SHOWN_WIDTH, 2))
        axes.set_yticks(range(0, SHOWN_WIDTH, 2))
        axes.set_xticks(np.arange(SHOWN_WIDTH + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(SHOWN_WIDTH + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.85", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        axes.set(xlabel="dimension of pe(p), from 0", ylabel=f"dimension of pe(p + {offset})")
    bar = above.colorbar(image, ax=panels, ticks=[-1, 0, 1], pad=0.01, shrink=0.8)
    bar.set_label("entry of M")
    _draw_errors(below.subplots(), errors, offset)
    return save_figure(figure, picture)


def _draw_errors(axes: Axes, errors: Errors, offset: int) -> None:
    for number, (name, found) in enumerate(errors.items()):
        for pairs, style in zip(ROTATIONS, LINE_STYLES, strict=False):
            axes.plot(
                found[pairs] / EPSILON,
                color=COLOURS[number % len(COLOURS)],
                linestyle=style,
                label=f"{name}, pairs {pairs}",
            )
    positions = np.arange(len(found[pairs]))
    angle: dict[str, Any] = {"color": "0.3", "linestyle": ":"}
    axes.plot(positions + offset, label=f"eps times the angle, p + {offset}", **angle)
    axes.set_yscale("log")
    axes.set(xlabel="position p, from 0", ylabel="largest error (eps of float32)")
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    light_grid(axes)
