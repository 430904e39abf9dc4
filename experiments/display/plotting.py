"""The style of all figures, and how they are saved."""

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
# Okabe and Ito's colours, distinguishable for the colour-blind and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKER_SHAPES = "osD^vP"
# Zero is near the page's white, and lightness falls evenly, so it is readable in grey print.
SEQUENTIAL = "Blues"
SIGNED = "RdBu_r"  # blue below zero, red above, white at zero
DARK = 0.6  # fraction of a scale above which text on a cell is white
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}


class _ShownFigure(Figure):
    """A figure that notebooks show; otherwise they show only pyplot's."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DOTS_PER_INCH / 2)
        return picture.getvalue()


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] | None = "constrained"
) -> Figure:
    """Returns an empty figure outside pyplot, with an Agg canvas; sizes are in inches."""
    figure = _ShownFigure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def light_grid(axes: Axes) -> None:
    """Draws a grid below the curves, and removes the upper and right spines."""
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def look(number: int) -> dict[str, Any]:
    """Returns the colour and the marker of a curve or point cloud, numbered from zero."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKER_SHAPES[number % len(MARKER_SHAPES)]
    return {"color": colour, "marker": marker}


def layer_colours(count: int) -> Float[np.ndarray, "N 4"]:
    """Returns colours for layers or heads, in order, from dark to light."""
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.85, count))


def count_steps(axes: Axes, most: int) -> None:
    """Gives the axis of training steps round numbers, at most `most`."""
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10]))


def write_in_cells(
    axes: Axes, texts: np.ndarray, depths: Float[np.ndarray, "rows columns"], size: float
) -> None:
    """Writes texts into the cells of a heat map; `depths` are fractions of its darkest colour."""
    for (row, column), text in np.ndenumerate(texts):
        colour = "white" if depths[row, column] > DARK else "black"
        style = {"ha": "center", "va": "center", "fontsize": size, "color": colour}
        axes.text(column, row, text, **style)


def add_colour_bar(image: AxesImage, ticks: Any, label: str = "", **place: Any) -> Any:
    """Draws the colour bar of a heat map; `place` has options of `Figure.colorbar`."""
    bar = cast(Figure, image.figure).colorbar(image, ticks=ticks, **place)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8, width=0.5)
    bar.outline.set_linewidth(0.5)
    return bar


def finish_scatter(axes: Axes, place: str) -> Legend:
    """Removes the axes of a map of points, and draws its legend at `place`, "upper" or "lower"."""
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_color("0.8")
    legend = cast(Any, axes.figure).legend(loc=f"outside {place} center", ncols=4, **LEGEND)
    # The legend's marks are opaque: small faint ones would not be distinguishable.
    for handle in legend.legend_handles:
        handle.set(alpha=1, markersize=5)
    return legend


def save_figure(figure: Figure, picture: Path, **options: Any) -> Path:
    """Saves a figure atomically, with options of `Figure.savefig`; returns `picture`.

    Its suffix (`.png`, `.pdf`, `.svg`) is the format; its folder is created if it is missing.
    """
    data = io.BytesIO()
    figure.savefig(data, format=picture.suffix.removeprefix("."), **options)
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(picture, data.getvalue())
    return picture
