"""The set-up that all figures share, and their files, which are whole or as they were."""

import io
from pathlib import Path
from typing import Any, Literal, cast

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from transformer.files import write_bytes

WIDTH, DOTS_PER_INCH = 6.5, 200  # inches: the text width of a page
# Okabe and Ito's colours are distinguishable for the colour-blind and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKER_SHAPES = "osD^vP"
# Zero is near the white of the page, and lightness falls evenly, so it also reads in grey print.
SEQUENTIAL = "Blues"
SIGNED = "RdBu_r"  # blue is below zero, red above, zero white
DARK = 0.6  # fraction of a scale from which text on a cell is white
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}


class _ShownFigure(Figure):
    """A figure that notebooks show; they know those of pyplot alone."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DOTS_PER_INCH / 2)
        return picture.getvalue()


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] | None = "constrained"
) -> Figure:
    """Returns an empty figure outside pyplot, with an Agg canvas; its sides are in inches."""
    figure = _ShownFigure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def light_grid(axes: Axes) -> None:
    """Draws a grid below the curves, and no frame above and to the right of them."""
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def look(number: int) -> dict[str, Any]:
    """Returns the colour and the marker of a curve or a cloud, counted from zero."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKER_SHAPES[number % len(MARKER_SHAPES)]
    return {"color": colour, "marker": marker}


def layer_colours(count: int) -> Float[np.ndarray, "N 4"]:
    """Returns colours of layers or heads, in their order, from dark to light."""
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.85, count))


def count_steps(axes: Axes, most: int) -> None:
    """Gives the axis of training steps round numbers, at most `most` of them."""
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10]))


def write_in_cells(
    axes: Axes, texts: np.ndarray, depths: Float[np.ndarray, "rows columns"], size: float
) -> None:
    """Writes in the cells of a heat map; `depths` are the fractions of its darkest colour."""
    for (row, column), text in np.ndenumerate(texts):
        colour = "white" if depths[row, column] > DARK else "black"
        style = {"ha": "center", "va": "center", "fontsize": size, "color": colour}
        axes.text(column, row, text, **style)


def add_colour_bar(image: AxesImage, ticks: Any, label: str = "", **place: Any) -> Any:
    """Draws the scale of a heat map next to it; `place` is for `Figure.colorbar`."""
    bar = cast(Figure, image.figure).colorbar(image, ticks=ticks, **place)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8, width=0.5)
    bar.outline.set_linewidth(0.5)
    return bar


def finish_map(axes: Axes, place: str) -> Legend:
    """Takes the axes off a map of points, and draws the legend above it or below it."""
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_color("0.8")
    legend = cast(Any, axes.figure).legend(loc=f"outside {place} center", ncols=4, **LEGEND)
    # Solid marks in the legend: at a few points' size, faint ones are not distinguishable.
    for handle in legend.legend_handles:
        handle.set(alpha=1, markersize=5)
    return legend


def save_figure(figure: Figure, picture: Path, **options: Any) -> Path:
    """Writes a figure whole, with options of `Figure.savefig`; returns `picture`.

    Its suffix (`.png`, `.pdf`, `.svg`) is the format; its folder is made if missing.
    """
    data = io.BytesIO()
    figure.savefig(data, format=picture.suffix.removeprefix("."), **options)
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(picture, data.getvalue())
    return picture
