"""Reads and draws a run's attention snapshots, which record attention heads during training.

Each evaluation during training writes `attention_snapshots/<step, 8 digits>.npz` to the run's
folder. `np.load` reads this file without pickle. The file contains

- `step`: the training step;
- `statistics/<kind>/<name>`: float32 [layers, H], a statistic for each head of a kind over
  `evaluate.snapshot_statistics` validation sentences, NaN if no row is counted;
  `lens`: [layers, 1];
- `sentences/<n>/weights/<kind>`: float32 [layers, H, L, M], the attention weights of sentence n
  (from zero); the `evaluate.snapshot_sentences` sentences are the same at each evaluation;
- `sentences/<n>/value_norms/<kind>`: float32 [layers, H, M];
- `sentences/<n>/source_tokens` and `sentences/<n>/target_tokens`: strings; one of them is empty
  if the model has only one input text.

The statistics are defined in `transformer.analysis.snapshots`. If gold word links are known,
`cross` also has `aer`, `precision` and `recall`. They cover only the tracked validation pairs, and
a word's links are those of the rows that output the word. `--mode=align` scores the whole test set,
with rows by output and by input, so its scores are different.

In `figures/attention_snapshots/`, `curves.png` has a column for each kind of attention and a row of
subplots for each statistic, with a line per head, coloured by layer. The explorer shows the weights
of the sentences at each checkpoint.
"""

import itertools
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from transformer.analysis.attention import KINDS, Attention
from transformer.files import open_arrays
from transformer.runs.logs import snapshot_files
from ..display import plotting

logger = logging.getLogger(__name__)

MAX_READ = 32  # maximum number of checkpoints with sentences, enough for a slider
# Subplot title of each statistic, with the unit.
PANEL_TITLES = {
    "relative_entropy": "entropy / largest possible",
    "diagonality": "diagonality",
    "end_fraction": "fraction on </s>",
    "distance": "mean distance (tokens)",
    # Computed on the tracked pairs; `--mode=align` scores the test set.
    "lens": "loss after each layer (nats)",
    "aer": "alignment error rate\n(tracked pairs, by output)",
}
# Statistics in each row of the figure. A kind with none of them has no subplot in that row.
ROWS = "relative_entropy", "diagonality", "end_fraction", "distance aer", "lens"
PANEL_ROWS = tuple(map(str.split, ROWS))
PANEL_WIDTH, PANEL_HEIGHT = 3.1, 1.75  # inches: subplot with labels
FEW = 30  # maximum number of checkpoints for which markers are drawn


class SavedSnapshot(NamedTuple):
    """The snapshot at a training step. `sentences` is empty if the sentences were not read."""

    step: int
    sentences: list[Attention]
    statistics: dict[str, dict[str, Float[np.ndarray, "layers H"]]]  # keyed by kind and name


def read_snapshots(folder: Path) -> list[SavedSnapshot]:
    """Returns the snapshots in a run's folder, sorted by step; damaged files are skipped.

    Sentences are read for at most `MAX_READ` evenly spaced snapshots, since the sentences of all
    checkpoints of a long run would not fit in memory.
    """
    snapshots, files = [], snapshot_files(folder)
    with_sentences = files[:: -max(1, math.ceil(len(files) / MAX_READ))]
    for path in files:
        try:
            with open_arrays(path) as arrays:
                sentences = _read_sentences(arrays) if path in with_sentences else []
                by_kind = {kind: _read_below(f"statistics/{kind}/", arrays) for kind in KINDS}
                statistics = {kind: of_kind for kind, of_kind in by_kind.items() if of_kind}
                snapshots.append(SavedSnapshot(int(arrays["step"]), sentences, statistics))
        except ValueError as error:
            logger.warning(f"{path} is damaged ({error}): it is left out")
    return snapshots


def _read_sentences(arrays: Any) -> list[Attention]:
    numbers = {name.split("/")[1] for name in arrays if name.startswith("sentences/")}
    return [
        Attention(
            _read_below(f"sentences/{n}/weights/", arrays),
            _read_below(f"sentences/{n}/value_norms/", arrays),
            arrays[f"sentences/{n}/source_tokens"].tolist(),
            arrays[f"sentences/{n}/target_tokens"].tolist(),
        )
        for n in sorted(numbers, key=int)
    ]


def _read_below(place: str, arrays: Any) -> dict[str, np.ndarray]:
    """Returns the arrays with the name prefix `place`, keyed by the rest of the name."""
    return {name.removeprefix(place): arrays[name] for name in arrays if name.startswith(place)}


def tracked_sentences(snapshots: Sequence[SavedSnapshot]) -> list[dict[int, Attention]]:
    """Returns each sentence's attention keyed by step; steps with other tokens are omitted."""

    def identity(sentence: Attention) -> tuple:
        return set(sentence.weights), sentence.source_tokens, sentence.target_tokens

    snapshots = [snapshot for snapshot in snapshots if snapshot.sentences]
    tracked = []
    for n, last in enumerate(snapshots[-1].sentences if snapshots else []):
        each = {s.step: s.sentences[n] for s in snapshots if len(s.sentences) > n}
        tracked.append({step: x for step, x in each.items() if identity(x) == identity(last)})
    return tracked


def draw(folder: Path) -> list[Path]:
    """Draws the statistics of a run's snapshots, if there are any; returns [path of the figure]."""
    snapshots = read_snapshots(folder)
    if not any(snapshot.statistics for snapshot in snapshots):
        return []
    place = folder / "figures" / "attention_snapshots" / "curves.png"
    return [plotting.save_figure(curves_figure(snapshots), place)]


# -- curves


def curves_figure(snapshots: Sequence[SavedSnapshot]) -> Figure:
    """Returns a figure of all heads' statistics over the steps, with a column per kind."""
    curves = {}  # steps and values [steps, layers, H]
    for kind, name in itertools.product(KINDS, PANEL_TITLES):
        if having := [s for s in snapshots if name in s.statistics.get(kind, {})]:
            values = np.stack([snapshot.statistics[kind][name] for snapshot in having])
            curves[kind, name] = [snapshot.step for snapshot in having], values
    kinds = list(dict.fromkeys(kind for kind, _ in curves))
    rows = [{kind: name for kind, name in curves if name in names} for names in PANEL_ROWS]
    rows = [row for row in rows if row]
    depth = max(values.shape[1] for _, values in curves.values())  # number of layers
    figure = plotting.new_figure(PANEL_WIDTH * len(kinds) + 0.2, PANEL_HEIGHT * len(rows) + 0.7)
    grid = figure.subplots(len(rows), len(kinds), sharex=True, squeeze=False)
    colours = plotting.layer_colours(depth)
    for axes, (row, kind) in zip(grid.flat, itertools.product(rows, kinds), strict=True):
        if kind in row:
            _draw_heads(axes, *curves[kind, row[kind]], name=row[kind], colours=colours)
        else:
            axes.set_axis_off()
    for axes, kind in zip(grid[0], kinds, strict=True):
        axes.set_title(KINDS[kind].title, fontsize=10, pad=8)
    figure.supxlabel("training step", fontsize=8)
    figure.align_ylabels(grid)
    layers = [Line2D([], [], color=c, label=f"layer {i}") for i, c in enumerate(colours, 1)]
    place = {"loc": "outside upper center", "ncols": min(depth, 3 * len(kinds))}
    figure.legend(handles=layers, **plotting.LEGEND, **place)
    return figure


def _draw_heads(axes: Axes, steps: list[int], values: np.ndarray, name: str, colours) -> None:
    marker = "o" if len(steps) <= FEW else None
    for layer in range(values.shape[1]):
        style = {"color": colours[layer], "linewidth": 1.1, "alpha": 0.85, "markersize": 2.5}
        plotting.curve(axes, steps, values[:, layer], marker=marker, **style)
    axes.set_ylabel(PANEL_TITLES[name], fontsize=8)
    axes.set_ylim(0, None if name in ("distance", "lens") else 1.02)
    axes.tick_params(labelsize=7, labelbottom=True)
    plotting.count_steps(axes, 5)
    if name == "aer" and not np.isnan(values).all():
        place, layer, head = np.unravel_index(np.nanargmin(values), values.shape)
        best = f"best {values[place, layer, head]:.2f}: layer {layer + 1}, head {head + 1}, "
        axes.set_title(f"{best}step {steps[place]:,}", fontsize=7, loc="right", pad=2)
