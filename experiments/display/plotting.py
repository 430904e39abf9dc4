"""The style and shared elements of all figures, and a function that saves figures."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import matplotlib
import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from transformer.files import write_bytes
from .labels import labels_of

WIDTH, DOTS_PER_INCH = 6.5, 200  # WIDTH: text width of a page in inches
# Okabe and Ito's colour-blind-safe colours, which are also distinguishable in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKER_SHAPES = "osD^vP"
DASHES = ("-", "--", "-.", ":")  # line styles
# Zero is almost white and lightness decreases evenly, so maps are readable in grey print.
SEQUENTIAL = "Blues"
SIGNED = "RdBu_r"  # blue below zero, red above, white at zero
LUMA = 0.299, 0.587, 0.114  # luma coefficients of red, green and blue (ITU-R BT.601)
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}


class _ShownFigure(Figure):
    """A figure that notebooks display, although pyplot does not manage it."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DOTS_PER_INCH / 2)
        return picture.getvalue()


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] | None = "constrained"
) -> Figure:
    """Returns an empty Agg figure that pyplot does not manage; sizes are in inches."""
    figure = _ShownFigure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def light_grid(axes: Axes) -> None:
    """Draws a grid below the curves, and hides the top and right spines."""
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def curve(axes: Axes, x: Any, y: Any, band: tuple | None = None, **style: Any) -> None:
    """Draws a curve, or one per column, on a light grid, optionally with a band between two."""
    line, *_ = axes.plot(x, y, **{"linewidth": 1.3, **style})
    if band is not None:
        axes.fill_between(x, *band, color=line.get_color(), alpha=0.2, linewidth=0)
    light_grid(axes)


def look(number: int) -> dict[str, Any]:
    """Returns the colour and marker of the curve or group with this zero-based number."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKER_SHAPES[number % len(MARKER_SHAPES)]
    return {"color": colour, "marker": marker}


def layer_colours(count: int) -> Float[np.ndarray, "N 4"]:
    """Returns colours for layers or heads, in order, from dark to light."""
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.85, count))


def count_steps(axes: Axes, most: int) -> None:
    """Formats an x-axis of training steps with round ticks and at most `most` intervals."""
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10]))


def text_colour(background: Float[np.ndarray, "4"]) -> str:
    """Returns the text colour, white or black, that is readable on an RGBA background."""
    return "white" if background[:3] @ LUMA < 0.5 else "black"


def heat_map(
    axes: Axes,
    values: Float[np.ndarray, "rows columns"],
    texts: np.ndarray | None = None,
    size: float = 8,
    **style: Any,
) -> AxesImage:
    """Draws a matrix as a heat map, optionally with texts in its cells; returns the image.

    `size` is in points. `style` is passed to `Axes.imshow`; the default scale is from 0 to 1.
    """
    defaults: dict[str, Any] = {"cmap": SEQUENTIAL, "interpolation": "nearest"}
    defaults |= {} if "norm" in style else {"vmin": 0, "vmax": 1}
    image = axes.imshow(values, **{**defaults, **style})
    for (row, column), text in np.ndenumerate([] if texts is None else texts):
        colour = text_colour(np.array(image.to_rgba(values[row, column])))
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    return image


def add_colour_bar(image: AxesImage, ticks: Any, label: str = "", **place: Any) -> Any:
    """Draws the colour bar of a heat map; `place` is passed to `Figure.colorbar`."""
    bar = cast(Figure, image.figure).colorbar(image, ticks=ticks, **place)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8, width=0.5)
    bar.outline.set_linewidth(0.5)
    return bar


def point_map(
    axes: Axes,
    points: Float[np.ndarray, "N 2"],
    groups: Integer[np.ndarray, "N"],
    styles: Mapping[str, Mapping[str, Any]],
    place: str,
) -> None:
    """Draws a scatter plot of groups of points, without ticks, and a legend above or below it.

    Args:
      groups: the zero-based group index of each point.
      styles: options of `Axes.plot` for each group, keyed by group name and ordered by index.
      place: the position of the legend, "upper" or "lower".
    """
    names, text_style = labels_of(list(styles), LEGEND["fontsize"])
    for number, (name, style) in enumerate(zip(names, styles.values(), strict=True)):
        of_group = points[groups == number]
        label = f"{name} ({len(of_group):,})"
        axes.plot(*of_group.T, label=label, linestyle="none", markeredgewidth=0, **style)
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_color("0.8")
    legend = cast(Any, axes.figure).legend(loc=f"outside {place} center", ncols=4, **LEGEND)
    # Markers in the legend are opaque, since small faint ones would be hard to distinguish.
    for handle in legend.legend_handles:
        handle.set(alpha=1, markersize=5)
    for text in legend.get_texts():
        text.set(**text_style)


def save_figure(figure: Figure, picture: Path) -> Path:
    """Saves a figure atomically to `picture`; returns `picture`.

    The suffix (`.png`, `.pdf`, `.svg`) sets the format. Missing parent folders are created.
    """
    data = io.BytesIO()
    figure.savefig(data, format=picture.suffix.removeprefix("."))
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(picture, data.getvalue())
    return picture
