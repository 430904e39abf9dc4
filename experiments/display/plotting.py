"""The set-up that all figures share, and their files, which are whole or as they were."""

import io
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from transformer.files import write_bytes

WIDTH, DOTS_PER_INCH = 6.5, 200  # inches: the text width of a page
# Okabe and Ito's colours are distinguishable for the colour-blind and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKER_SHAPES = "osD^vP"
# Zero is near the white of the page, and lightness falls evenly, so it also reads in grey print.
SEQUENTIAL = "Blues"
SIGNED = "RdBu_r"  # blue is below zero, red above, zero white


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


def save_figure(figure: Figure, picture: Path, **options: Any) -> Path:
    """Writes a figure whole, with options of `Figure.savefig`; returns `picture`.

    Its suffix (`.png`, `.pdf`, `.svg`) is the format; its folder is made if missing.
    """
    data = io.BytesIO()
    figure.savefig(data, format=picture.suffix.removeprefix("."), **options)
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(picture, data.getvalue())
    return picture
