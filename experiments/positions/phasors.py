"""Sinusoids as rotating phasors, which explain the heat map of the encoding: a GIF and a page.

Two dimensions that are the sine and the cosine of one angle are a point on a circle. From one
position to the next, a hand from the centre to that point rotates by a fixed angle: one radian for
the first pair, less for each next one. The order of dimensions is found from the encoding itself.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, ConnectionPatch
from PIL import Image

from transformer.files import write_bytes
from transformer.model.config import ModelConfig
from transformer.model.positions.registry import acts_in, fitting_names
from ..display.plotting import COLOURS, SIGNED
from ..display.web_page import encode_array, write_page
from .values import PAIRS, Encoding, initial_params, with_one_encoding

# Dimensions: few enough to see each hand and each cell. Frequencies span the same range as in a
# wider model, which has more of them.
WIDTH = 16
POSITIONS = 48
POSITIONS_PER_SECOND = 4
INCHES, DOTS_PER_INCH, PALETTE = (6.4, 4.0), 100, 64  # PALETTE: colours per frame
ON_CIRCLE = 1e-4  # tolerance for rounding errors
SHADES = 33  # of the colour map: odd, so that zero has its own shade


class Phasors(NamedTuple):
    """An encoding of circles: its vectors at positions from zero, and a hand for each circle."""

    name: str
    summary: str
    table: Float[np.ndarray, "L D"]
    hands: list[tuple[int, int]]  # dimensions (sine, cosine), fastest first


def phasors_of(config: ModelConfig) -> list[Phasors]:
    """Returns the encodings in REGISTRY that add only circles, at WIDTH dimensions."""
    heads = {"num_heads": 1, "num_kv_heads": 0, "head_size": 0}
    length = max(POSITIONS, config.max_length)
    drawn = []
    for name in (name for name in fitting_names(config) if acts_in(name, ["add"])):
        small = with_one_encoding(config, name, d_model=WIDTH, max_length=length, **heads)
        encoding = Encoding(name, small, initial_params(small, name, 0))
        table = encoding.table(POSITIONS)
        if hands := hands_of(table):
            drawn.append(Phasors(name, encoding.summary, table, hands))
    return drawn


def hands_of(table: Float[np.ndarray, "L D"]) -> list[tuple[int, int]]:
    """Returns the pairs in PAIRS that all are points on a unit circle, or an empty list."""
    for pairs in PAIRS.values():
        hands = pairs(table.shape[1])
        if np.allclose(np.square(table[:, hands]).sum(axis=-1), 1, rtol=0, atol=ON_CIRCLE):
            return [(int(sine), int(cosine)) for sine, cosine in hands]
    return []


def draw_gif(phasor: Phasors, picture: Path) -> Path:
    """Writes a GIF of the hands, with a frame per position; returns `picture`."""
    _, _, table, hands = phasor
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH)
    canvas, frames = FigureCanvasAgg(figure), []
    strip = figure.add_axes((0.09, 0.6, 0.89, 0.06))
    rows = figure.add_axes((0.09, 0.12, 0.89, 0.46), sharex=strip)
    moving = [_draw_hand(figure, strip, number, hand) for number, hand in enumerate(hands)]
    style = {"cmap": SIGNED, "vmin": -1, "vmax": 1, "aspect": "auto", "interpolation": "nearest"}
    vector, image = strip.imshow(table[:1], **style), rows.imshow(table, **style)
    strip.set(yticks=[])
    strip.tick_params(bottom=False, labelbottom=False)
    strip.set_ylabel("pe(p)", rotation=0, ha="right", va="center")
    rows.set(xlabel="dimension, from 0", ylabel="position p, from 0", xticks=range(len(table[0])))
    heading = figure.text(0.535, 0.95, "", ha="center")
    for position in range(len(table)):
        for line, (sine, cosine) in zip(moving, hands, strict=True):
            line.set_data([0, table[position, cosine]], [0, table[position, sine]])
        vector.set_data(table[position : position + 1])
        image.set_data(np.where(np.arange(len(table))[:, None] <= position, table, np.nan))
        heading.set_text(f"{phasor.name}, position {position}")
        canvas.draw()
        frame = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
        frames.append(frame.quantize(PALETTE, dither=Image.Dither.NONE))
    picture.parent.mkdir(parents=True, exist_ok=True)
    pace, data = {"duration": 1000 // POSITIONS_PER_SECOND, "loop": 0}, io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], optimize=True, **pace)
    write_bytes(picture, data.getvalue())
    return picture


def write_phasors(drawn: Sequence[Phasors], page: Path) -> Path:
    """Writes a page of the hands, with a slider over positions; returns `page`."""
    encodings = [{**phasor._asdict(), "table": encode_array(phasor.table)} for phasor in drawn]
    shades = map(to_hex, colormaps[SIGNED](np.linspace(0, 1, SHADES)))
    values = {"title": "Positional encodings as rotating phasors", "width": WIDTH}
    data = {"shades": list(shades), "encodings": encodings}
    return write_page(page, "positions.html", phasors=data, last=POSITIONS - 1, **values)


def _draw_hand(figure: Figure, strip: Axes, number: int, hand: tuple[int, int]) -> Line2D:
    """Draws a circle above the strip, linked to its two cells; returns its hand."""
    box = strip.get_position()
    width = 2 * box.width / WIDTH
    axes = figure.add_axes((box.x0 + number * width, 0.73, width, 0.2), aspect="equal")
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    axes.axis("off")
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6"))
    for dimension in hand:
        ends = {"xyA": (0, -1), "coordsA": axes.transData, "xyB": (dimension, -0.5)}
        line = ConnectionPatch(**ends, coordsB=strip.transData, color="0.75", linewidth=0.8)
        figure.add_artist(line)
    end = {"marker": "o", "markersize": 6, "markevery": [1], "markerfacecolor": COLOURS[1]}
    [line] = axes.plot([], [], color=COLOURS[0], linewidth=2, markeredgecolor=COLOURS[1], **end)
    return line
