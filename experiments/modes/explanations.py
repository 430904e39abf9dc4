"""The `lens` and `attribution` modes: heat maps of what layers would write, and what it is from."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from ..attention.draw import text_folder
from ..display.labels import labels_of
from ..display.plotting import SIGNED, add_colour_bar, heat_map, new_figure, save_figure
from ..process.modes import Options

logger = logging.getLogger(__name__)

WIDE, HIGH, AROUND, SIZE = 0.6, 0.25, 1.5, 7  # inches: cell with and without text, labels; points
UNTIED = "no lens of the encoder: only model.tied_embeddings=all gives its states a vocabulary"
POST_NORM = "model.norm_position=post: before the last layer, tokens may mean nothing"


def lens(run: Run, options: Options) -> Iterator[Path]:
    """Draws the most probable token after each layer; yields a figure for each stack."""
    loaded, texts, place = _open(run, options)
    lenses, config = loaded.lens(**texts), loaded.trained.predictor.model.config
    if config.has_encoder and not config.one_table:
        logger.info(UNTIED)
    if not config.normalizes_input:
        logger.info(POST_NORM)
    for stack, each in lenses.items():
        rows = ["embedding", *(f"layer {i}" for i in range(1, len(each.best)))]
        maps = np.exp(each.log_probs[..., 0]), rows, each.tokens, each.best[..., 0].ravel().tolist()
        figure = build_figure(*maps, "probability", origin="lower")
        side = "written" if stack == "decoder" else "read"
        figure.axes[0].set_xlabel(f"token {side}", fontsize=SIZE)
        yield save_figure(figure, place / f"lens_{stack}.png")


def attribution(run: Run, options: Options) -> Iterator[Path]:
    """Draws the integrated gradients of each token written; yields the figure."""
    loaded, texts, place = _open(run, options)
    each = loaded.attribution(**texts)
    maps = each.fractions, each.written_tokens, each.source_tokens + each.target_tokens, ()
    most = np.abs(each.fractions).max()
    figure = build_figure(*maps, "fraction", cmap=SIGNED, vmin=-most, vmax=most)
    figure.axes[0].axvline(len(each.source_tokens) - 0.5, color="black", linewidth=1)
    yield save_figure(figure, place / "attribution.png")


def _open(run: Run, options: Options) -> tuple[LoadedRun, dict[str, Any], Path]:
    text, target = options.needed("sentence"), options.translation
    texts = {"text": text, "target": target, "source_tag": options.source_tag}
    return LoadedRun(run), texts, text_folder(run.folder, text, target)


def build_figure(
    values: Float[np.ndarray, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[str],
    label: str,
    **style: Any,
) -> Figure:
    """Returns a heat map with the names of rows, of columns and, if there are any, of cells.

    Args:
      label: label of the colour bar.
      style: see `plotting.heat_map`.
    """
    labels, look = labels_of([*rows, *columns, *cells], SIZE)
    rows, columns, texts = map(list, np.split(np.array(labels), np.cumsum(values.shape)))
    wide = WIDE if cells else HIGH
    figure = new_figure(wide * len(columns) + 2 * AROUND, HIGH * len(rows) + AROUND)
    axes = figure.subplots()
    grid = np.reshape(texts, values.shape) if cells else None
    image = heat_map(axes, values, grid, aspect="auto", **style)
    for text in axes.texts:
        text.set(**look)
    axes.set_yticks(range(len(rows)), labels=rows, **look)
    axes.set_xticks(range(len(columns)), labels=columns, rotation=90, **look)
    low, high = image.get_clim()
    add_colour_bar(image, [low, (low + high) / 2, high], label, ax=axes, format="{x:.2g}")
    return figure
