"""Pictures of heads as word aligners: the error rate of each, and the links of the best.

Colours are of Okabe and Ito 2008, "Color Universal Design", which people who see fewer colours
tell apart; the kind of line says the same.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from experiments.attention.labels import visible
from experiments.attention.maps import AS_TEXT, DOTS_PER_INCH, fonts_for, text_width
from experiments.heads.links import Head, HeadLinks, Score, best_of
from transformer.analysis.alignment import ROWS, GoldLinks
from transformer.data.pairs import Pair

CELL = 0.52  # inches
MAX_BESIDE = 8  # heads of a layer, for two panels to stand side by side
EXAMPLES = 4  # sentence pairs whose links are drawn
MAX_WORDS = 24  # of a side that is drawn; what follows is cut
FONT_SIZE = 9.0  # points
WORD_GAP, PAIR_HEIGHT, PAIR_GAP, LEGEND_HEIGHT, MARGIN = 0.14, 1.5, 0.35, 0.62, 0.15  # inches
MIN_WIDTH = 6.0  # inches: the title and the legend
TITLES = {
    "output": "rows by output\n(the step that writes a word)",
    "input": "rows by input\n(the next step, which reads it)",
}


class _Kind(NamedTuple):
    """How links of a kind are drawn."""

    label: str
    colour: str
    line: Literal["solid", "dashed", "dotted"]


RIGHT = _Kind("right", "#0072B2", "solid")
WRONG = _Kind("wrong", "#D55E00", "dashed")
MISSED = _Kind("missed", "#000000", "dotted")


def scores_figure(scores: dict[Head, Score]) -> Figure:
    """Returns the error rate of each head under each kind of rows; the best head is framed.

    The figure is outside pyplot, with an Agg canvas.
    """
    layers = max(head.layer or 0 for head in scores)
    heads = max(head.number or 0 for head in scores)
    across = len(ROWS) if heads <= MAX_BESIDE else 1
    down = len(ROWS) // across
    width, height = CELL * (heads + 1), CELL * (layers + 1)
    size = (max(MIN_WIDTH, across * (width + 0.7) + 1.0), down * (height + 0.9) + 0.3)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across).ravel()
    for axes, rows in zip(panels, ROWS, strict=True):
        mesh = _draw_rates(axes, scores, rows, (layers, heads))
    figure.suptitle("framed: the best head, chosen on these pairs", fontsize=9)
    bar = figure.colorbar(mesh, ax=panels, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.set_label("alignment error rate", fontsize=9)
    bar.ax.tick_params(labelsize=8, width=0.5)
    return figure


def _draw_rates(axes: Axes, scores: dict[Head, Score], rows: str, size: tuple[int, int]):
    """Draws a panel: heads across and then their mean, layers down and then the mean of all."""
    layers, heads = size
    rates = np.full((layers + 1, heads + 1), np.nan)
    for head, score in scores.items():
        if head.rows == rows:
            rates[(head.layer or 0) - 1, (head.number or 0) - 1] = score.error_rate
    mesh = axes.imshow(rates, cmap="Blues_r", vmin=0, vmax=1)
    for (i, j), rate in np.ndenumerate(rates):
        if not np.isnan(rate):
            colour = "white" if rate < 0.35 else "black"
            axes.text(j, i, f"{rate:.2f}", ha="center", va="center", fontsize=8, color=colour)
    best = best_of(scores)
    if best.rows == rows:
        layer, number = best.indices
        corner = number - 0.5, layer - 0.5
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, edgecolor=WRONG.colour, linewidth=2.5, zorder=3)
        )
    axes.axvline(heads - 0.5, color="black", linewidth=0.8)
    axes.axhline(layers - 0.5, color="black", linewidth=0.8)
    axes.set_title(TITLES[rows], fontsize=9)
    axes.set_xticks(range(heads + 1), labels=[*map(str, range(1, heads + 1)), "mean"], fontsize=8)
    axes.set_yticks(range(layers + 1), labels=[*map(str, range(1, layers + 1)), "mean"], fontsize=8)
    axes.tick_params(length=2, width=0.5)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.spines[:].set_visible(False)
    return mesh


def links_figure(pairs: Sequence[Pair], gold: Sequence[GoldLinks], found: HeadLinks) -> Figure:
    """Returns the links of the best head over a few pairs, spread over all.

    Source words stand above, target words below. A link that is true, sure or possible, is a
    solid line, one that is not is dashed, and a sure one that was not found is dotted.
    """
    chosen = list(range(len(pairs)))[:: max(1, len(pairs) // EXAMPLES)][:EXAMPLES]
    links = list(found.links(found.best))
    rows = [_PairOfRows.of(pairs[i]) for i in chosen]
    width = max(MIN_WIDTH, *(pair.width + 2 * MARGIN for pair in rows))
    height = LEGEND_HEIGHT + PAIR_HEIGHT * len(rows) - PAIR_GAP + MARGIN
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    for n, (pair, i) in enumerate(zip(rows, chosen, strict=True)):
        top = height - LEGEND_HEIGHT - n * PAIR_HEIGHT
        pair.draw(axes, width / 2, top, set(links[i]), gold[i])
    handles = [
        Line2D([], [], color=kind.colour, linestyle=kind.line, linewidth=1.5, label=kind.label)
        for kind in (RIGHT, WRONG, MISSED)
    ]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - 0.28 / height), "ncols": 3}
    axes.legend(handles=handles, frameon=False, fontsize=8, borderpad=0, **place)
    title = f"links by {found.best}, chosen on these pairs"
    axes.text(width / 2, height - 0.08, title, ha="center", va="top", fontsize=9)
    return figure


class _PairOfRows(NamedTuple):
    """The words of a pair, as they are drawn, and the middle of each from the row's, in inches."""

    words: tuple[list[str], list[str]]
    middles: tuple[np.ndarray, np.ndarray]
    font: FontProperties
    width: float

    @classmethod
    def of(cls, pair: Pair) -> "_PairOfRows":
        families, covered = fonts_for(frozenset(pair.source + pair.target))
        font = FontProperties(family=families, size=FONT_SIZE)
        words, middles, widths = [], [], []
        for text in (pair.source, pair.target):
            own = text.split()
            shown = [visible(word, covered) for word in own[:MAX_WORDS]]
            shown += ["…"] * (len(own) > MAX_WORDS)
            wide = np.array([text_width(word, font) + WORD_GAP for word in shown])
            words.append(shown)
            middles.append(np.cumsum(wide) - wide / 2 - wide.sum() / 2)
            widths.append(wide.sum())
        return cls(tuple(words), tuple(middles), font, max(widths))

    def draw(
        self, axes: Axes, middle: float, top: float, links: set[tuple[int, int]], gold: GoldLinks
    ) -> None:
        """Draws both rows and the links between them, below `top` and around `middle`."""
        heights = top - 0.2, top - PAIR_HEIGHT + PAIR_GAP + 0.1
        for words, middles, height in zip(self.words, self.middles, heights, strict=True):
            for word, x in zip(words, middles, strict=True):
                place = {"ha": "center", "va": "center_baseline"}
                axes.text(middle + x, height, word, fontproperties=self.font, **place, **AS_TEXT)
        sure, true = set(gold.sure), {*gold.sure, *gold.possible}
        kinds = {RIGHT: links & true, WRONG: links - true, MISSED: sure - links}
        ends = heights[0] - 0.11, heights[1] + 0.13
        for kind, own in kinds.items():
            for i, j in own:
                if max(i, j) < MAX_WORDS:
                    x = middle + self.middles[0][i], middle + self.middles[1][j]
                    axes.plot(x, ends, color=kind.colour, linestyle=kind.line, linewidth=1.4)
