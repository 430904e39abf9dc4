"""The linear map from a position's encoding to that of the position k tokens later.

For sines and cosines of angles w p there is one for all positions p: it turns each pair by w k,

    sin(w (p + k)) =  cos(w k) sin(w p) + sin(w k) cos(w p)
    cos(w (p + k)) = -sin(w k) sin(w p) + cos(w k) cos(w p)

Source: Vaswani et al. 2017, section 3.5: "for any fixed offset k, PE_{pos+k} can be represented as
a linear function of PE_pos".
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64

from experiments.display.plotting import COLOURS, SIGNED, light_grid, new_figure, save_figure
from transformer.model.positions.additive import MAX_WAVELENGTH

OFFSET = 5  # tokens
SIZE = 7.0, 7.2  # inches
SHOWN_WIDTH = 16  # dimensions of the matrices that are drawn: each of their cells can be seen
EPSILON = float(np.finfo(np.float32).eps)
LINE_STYLES = ("-", "--", ":", "-.")
PAIRS = {  # the dimensions (sine, cosine) that turn, at a width
    "2i and 2i + 1": lambda width: np.arange(width).reshape(-1, 2),
    "i and i + D/2": lambda width: np.arange(width).reshape(2, -1).T,
}
# By the name of the encoding and the pairs of dimensions; of each position from zero.
Errors = Mapping[str, Mapping[str, Float[np.ndarray, "_"]]]


def offset_rotation(pairs: str, width: int, offset: int) -> Float64[np.ndarray, "D D"]:
    """Returns M_k for an offset of k tokens and one of PAIRS."""
    sines, cosines = PAIRS[pairs](width).T
    angles = offset / MAX_WAVELENGTH ** (np.arange(0, width, 2) / width)
    rotation = np.zeros((width, width))
    rotation[sines, sines] = rotation[cosines, cosines] = np.cos(angles)
    rotation[sines, cosines] = np.sin(angles)
    rotation[cosines, sines] = -np.sin(angles)
    return rotation


def offset_errors(table: Float[np.ndarray, "L D"], pairs: str, offset: int) -> np.ndarray:
    """Returns for each p the largest error, over dimensions, of pe(p + k) = M_k pe(p)."""
    table = np.asarray(table, np.float64)
    rotation = offset_rotation(pairs, table.shape[1], offset)
    return np.abs(table[offset:] - table[:-offset] @ rotation.T).max(axis=1)


def describe(errors: Errors, offset: int) -> Iterable[str]:
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


def draw(tables: Mapping[str, Float[np.ndarray, "L D"]], offset: int, picture: Path) -> Path:
    """Draws M_k for both PAIRS, and prints and draws the errors; returns `picture`."""
    errors = {
        name: {pairs: offset_errors(table, pairs, offset) for pairs in PAIRS}
        for name, table in tables.items()
    }
    print(*describe(errors, offset), sep="\n")
    figure = new_figure(*SIZE)
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
        image = axes.imshow(rotation, cmap=SIGNED, vmin=-1, vmax=1)
        axes.set_title(f"{title}\n(here d_model = {SHOWN_WIDTH})", fontsize=9)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(range(0, SHOWN_WIDTH, 2))
            axis.set_ticks(np.arange(SHOWN_WIDTH + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.85", linewidth=0.4)
        axes.tick_params(which="minor", length=0)
        axes.set(xlabel="dimension of pe(p), from 0", ylabel=f"dimension of pe(p + {offset})")
    bar = above.colorbar(image, ax=panels, ticks=[-1, 0, 1], pad=0.01, shrink=0.8)
    bar.set_label("entry of M")
    axes = below.subplots()
    for number, (name, by_pairs) in enumerate(errors.items()):
        for (pairs, values), style in zip(by_pairs.items(), LINE_STYLES, strict=False):
            look = {"color": COLOURS[number % len(COLOURS)], "linestyle": style}
            axes.plot(values / EPSILON, label=f"{name}, pairs {pairs}", **look)
    angle = {"color": "0.3", "linestyle": ":", "label": f"eps times the angle, p + {offset}"}
    axes.plot(np.arange(len(values)) + offset, **angle)
    axes.set_yscale("log")
    axes.set(xlabel="position p, from 0", ylabel="largest error (eps of float32)")
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    light_grid(axes)
    return save_figure(figure, picture)
