"""Heat maps of attention: one figure per layer and kind of attention, one panel per head.

Rows are queries, columns are keys, both named as `transformer.analysis.attention` says. The colour
scale is fixed at 0 to 1, so that panels, layers and figures are comparable.

Source: Vaswani et al. 2017, figures 3 to 5, which draw such maps for chosen heads.
"""

import contextlib
import dataclasses
import functools
import io
import logging
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from experiments.attention.arrays import KINDS, AttentionMaps
from experiments.attention.labels import visible
from experiments.display.figure_files import save_figure

logger = logging.getLogger(__name__)
# Zero is near the white of the page, and lightness falls evenly, so it also reads in grey print.
COLOUR_MAP = "Blues"
DOTS_PER_INCH = 200
# Inches a token asks for, and the sides a panel may have: titles need room over one token, and a
# sentence of a hundred may not fill a wall. Past the cap, labels shrink and then thin out.
CELL, MIN_SIDE, MAX_SIDE = 0.21, 1.35, 5.0
MIN_WIDTH = 3.2  # inches: the longest title, over a figure of one small panel
MAX_FONT, MIN_FONT, LINE_HEIGHT = 9.0, 5.0, 1.2  # points, points, multiple of the size
MAX_CELLS = 160  # a side: more would be smaller than the eye tells apart
# The first words of the names of letters that fonts of CJK have.
CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "HALFWIDTH", "FULLWIDTH")
# A token is text, never a formula: otherwise '$x_1$' would be typeset.
AS_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}
MARGIN, TITLE_HEIGHT, HEAD_HEIGHT, AXIS_LABEL, PANEL_GAP = 0.1, 0.36, 0.25, 0.27, 0.16  # inches
TICK, COLOUR_BAR, COLOUR_BAR_LABELS = 0.07, 0.13, 0.55  # inches; TICK: from a panel to its labels


class _ShownFigure(Figure):
    """A figure that notebooks show; they know those of pyplot alone."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DOTS_PER_INCH / 2)
        return picture.getvalue()


def draw(
    maps: AttentionMaps, folder: Path, layer: int | None = None, head: int | None = None
) -> list[Path]:
    """One picture a kind and layer, `<folder>/<kind>_layer_<n>.png`, n from 1.

    Args:
      maps: the maps to draw.
      folder: where to write; made if missing. Files of the same names are replaced.
      layer: the one layer to draw, from 1; None for all.
      head: the one head to draw, from 1, into `<kind>_layer_<n>_head_<m>.png`; None for all.

    Returns:
      The pictures' paths: all layers of `encoder_self`, then of `decoder_self`, then of `cross`,
      of these the kinds that have the layer and head.
    """
    pictures = []
    for kind in (kind for kind in KINDS if maps.has(kind, layer, head)):
        for number in range(1, len(maps.weights[kind]) + 1) if layer is None else [layer]:
            one = "" if head is None else f"_head_{head}"
            picture = Path(folder) / f"{kind}_layer_{number}{one}.png"
            pictures.append(save_figure(build_figure(maps, kind, number, head), picture))
    return pictures


def build_figure(
    maps: AttentionMaps, kind: str, layer: int, only_head: int | None = None
) -> Figure:
    """The figure of one layer: a panel per head, then one colour bar, which is the last axes.

    All heads share their tokens, so only the first panel of a row and the last of a column carry
    labels. Beyond some 60 tokens only every n-th token is named, and beyond `MAX_CELLS` a cell is
    the largest weight of a square of tokens; the title gives its side.

    Args:
      maps: the maps to draw from.
      kind: `encoder_self`, `decoder_self` or `cross`.
      layer: counted from 1.
      only_head: the one head to draw, from 1; None for all.

    Returns:
      A figure outside pyplot, with an Agg canvas: nothing global to close, no display needed. It
      shows itself in a notebook.
    """
    heads = np.asarray(maps.weights[kind][layer - 1], dtype=np.float32)
    first = 1
    if only_head is not None:
        heads, first = heads[only_head - 1 : only_head], only_head
    names = KINDS[kind]
    layout = _Layout.of(len(heads), *maps.tokens(kind))
    side = math.ceil(max(heads.shape[1:]) / MAX_CELLS)
    figure = _ShownFigure(figsize=layout.figure_size, dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    for head, image in enumerate(heads):
        axes = figure.add_axes(layout.panels[head])  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes arrays
        mesh = axes.imshow(_largest(image, side), cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto")
        rows, columns = side * np.array(mesh.get_array().shape)
        mesh.set_extent((-0.5, columns - 0.5, rows - 0.5, -0.5))  # in tokens
        axes.set(xlim=(-0.5, image.shape[1] - 0.5), ylim=(image.shape[0] - 0.5, -0.5))
        axes.set_title(f"head {first + head}", fontsize=9, pad=4)
        _rule(axes, image.shape)
        layout.rows.name_ticks(axes.yaxis, shown=head % layout.across == 0)
        lowest = head + layout.across >= len(heads)
        layout.columns.name_ticks(axes.xaxis, shown=lowest, rotation=90)
    bar_axes = figure.add_axes(layout.colour_bar)  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes arrays
    bar = figure.colorbar(mesh, cax=bar_axes, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.set_label("attention weight", fontsize=9)
    bar.ax.tick_params(labelsize=8, width=0.5)
    bar.outline.set_linewidth(0.5)
    (x, y), (middle_x, middle_y) = layout.corner, layout.middle
    figure.text(middle_x, y, f"{names.columns} (keys)", ha="center", va="bottom")
    figure.text(x, middle_y, f"{names.rows} (queries)", ha="left", va="center", rotation=90)
    title = f"{names.title}, layer {layer} of {len(maps.weights[kind])}"
    if side > 1:
        title += f" (a cell: the largest of {side} × {side} weights)"
    figure.suptitle(title, y=1 - y, va="top", fontsize=11)
    return figure


def _largest(weights: np.ndarray, side: int) -> np.ndarray:
    """The largest weight of each square of `side` rows and columns; the last may be cut."""
    rows, columns = (np.arange(0, count, side) for count in weights.shape)
    return np.maximum.reduceat(np.maximum.reduceat(weights, rows, axis=0), columns, axis=1)


def _rule(axes: Axes, shape: tuple[int, int]):
    """Hairlines between the cells, if cells are large enough to be distinguishable."""
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.5")
    axes.tick_params(length=2, width=0.5, pad=2)
    if max(shape) > 40:
        return
    axes.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    axes.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    axes.grid(which="minor", color="0.88", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


@dataclasses.dataclass(frozen=True)
class _Labels:
    """The labels of one axis: every `step`-th token, and the inches the longest of them takes."""

    texts: list[str]
    step: int
    font: FontProperties
    extent: float

    @classmethod
    def of(cls, tokens: Sequence[str], side: float) -> "_Labels":
        pitch = 72 * side / len(tokens)  # points from one token to the next
        size = min(max(pitch / LINE_HEIGHT, MIN_FONT), MAX_FONT)
        step = math.ceil(size * LINE_HEIGHT / pitch - 1e-6)
        families, covered = fonts_for(frozenset("".join(tokens)))
        font = FontProperties(family=families, size=size)
        texts = [visible(token, covered) for token in tokens[::step]]
        return cls(texts, step, font, max(text_width(text, font) for text in set(texts)))

    def name_ticks(self, axis, shown: bool, rotation: float = 0):
        # Letters line up on the tick by their baseline: the box of '▁a' reaches lower than that of
        # 'ed', and centred boxes would stagger them. The end of a label is what touches the axis.
        aligned = {"ha": "right", "va": "center_baseline", "rotation_mode": "anchor"}
        style = {"fontproperties": self.font, "rotation": rotation, **AS_TEXT, **aligned}
        positions = self.step * np.arange(len(self.texts))
        axis.set_ticks(positions, labels=self.texts if shown else [], **style)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where everything goes: sizes in inches, rectangles (x, y, width, height) in fractions.

    Matplotlib's own layout engines shrink the panels to fit what surrounds them; here a panel has
    the size its tokens need, and the figure grows around it.
    """

    rows: _Labels
    columns: _Labels
    across: int  # panels in a row
    figure_size: tuple[float, float]
    panels: list[np.ndarray]
    colour_bar: np.ndarray
    corner: np.ndarray  # of the axis labels
    middle: np.ndarray  # of the panels

    @classmethod
    def of(cls, heads: int, queries: Sequence[str], keys: Sequence[str]) -> "_Layout":
        # Never taller than wide: 4 heads stand 2 x 2, 8 heads 2 x 4, 16 heads 4 x 4.
        down = math.isqrt(heads)
        across = math.ceil(heads / down)
        cell = min(CELL, MAX_SIDE / max(len(queries), len(keys)))
        width, height = (max(cell * len(tokens), MIN_SIDE) for tokens in (keys, queries))
        rows, columns = _Labels.of(queries, height), _Labels.of(keys, width)
        left, bottom = (MARGIN + AXIS_LABEL + labels.extent + TICK for labels in (rows, columns))
        step_x, step_y = width + PANEL_GAP, height + HEAD_HEIGHT + PANEL_GAP
        right, top = left + across * step_x, bottom + down * step_y - PANEL_GAP
        total_width = right + COLOUR_BAR + COLOUR_BAR_LABELS + MARGIN
        size = np.array([max(total_width, MIN_WIDTH), top + TITLE_HEIGHT])
        scale = np.tile(size, 2)

        def panel(head: int) -> np.ndarray:
            row, column = divmod(head, across)
            x, y = left + column * step_x, bottom + (down - 1 - row) * step_y
            return np.array([x, y, width, height]) / scale

        # The colour bar is as tall as the first row of panels: a longer one says no more.
        bar = np.array([right, top - HEAD_HEIGHT - height, COLOUR_BAR, height]) / scale
        middle = np.array([left + right - PANEL_GAP, bottom + top - HEAD_HEIGHT]) / 2 / size
        panels = [panel(head) for head in range(heads)]
        return cls(rows, columns, across, tuple(size), panels, bar, MARGIN / size, middle)


def text_width(text: str, font: FontProperties) -> float:
    """The inches that a text takes when it is drawn."""
    figure = Figure(dpi=DOTS_PER_INCH)
    renderer = FigureCanvasAgg(figure).get_renderer()
    drawn = figure.text(0, 0, text, fontproperties=font, **AS_TEXT)
    return drawn.get_window_extent(renderer).width / DOTS_PER_INCH


@functools.lru_cache(maxsize=8)
def fonts_for(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """The font families that draw these characters, and those of them that they cover.

    DejaVu Sans comes with matplotlib and covers Latin, Greek, Cyrillic, Arabic, Hebrew and some
    emoji. Only for what it lacks are the machine's other fonts opened, one by one. What none of
    them has is logged, with a font to install.
    """
    families = ["DejaVu Sans"]
    covered = characters & _characters_of("DejaVu Sans")
    for family in _installed_families() if covered != characters else []:
        if more := (characters - covered) & _characters_of(family):
            families.append(family)
            covered |= more
    for letter in filter(str.isalpha, characters - covered):
        script = unicodedata.name(letter, "TANGUT").split()[0]  # which Python gives no names
        _name_font("CJK" if script in CJK else script.title())
    return families, covered


@functools.cache
def _name_font(script: str) -> None:
    """Logs, once, which font to install for the letters of a script."""
    logger.warning(
        f"warning: no installed font has the {script} letters of the text, so that pictures show "
        f"their code points: install Noto Sans {script} (on Debian `apt-get install fonts-noto-"
        f"{'cjk' if script == 'CJK' else 'core'}`), or open the HTML pages, which need no such font"
    )


@functools.cache
def _installed_families() -> list[str]:
    """The machine's upright regular fonts by name, Noto Sans first, without colour bitmaps."""
    # matplotlib's list of fonts is as old as its cache, and lacks what was installed since.
    listed = {str(entry.fname) for entry in font_manager.fontManager.ttflist}
    for path in {*font_manager.findSystemFonts()} - listed:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            font_manager.fontManager.addfont(path)
    # matplotlib's own other fonts are for formulas and map codes to glyphs in ways of their own.
    own = Path(matplotlib.get_data_path())
    names = {
        entry.name
        for entry in font_manager.fontManager.ttflist
        if (entry.weight, entry.style) == (400, "normal")
        and not Path(str(entry.fname)).is_relative_to(own)
        and not any(word in entry.name.lower() for word in ("color", "last resort"))
    }
    return sorted(names, key=lambda name: (not name.startswith("Noto Sans"), name))


@functools.cache
def _characters_of(family: str) -> frozenset[str]:
    """The characters that a family's regular face can draw; none if it cannot be opened."""
    try:
        path = font_manager.findfont(FontProperties(family=[family]), fallback_to_default=False)
        font = font_manager.get_font(path)
    except (OSError, RuntimeError, ValueError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
