"""The mode `heads`: a table, files and a figure of head importance."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from transformer import tasks
from transformer.analysis.attention import KINDS
from transformer.errors import UserError
from transformer.files import write_json
from transformer.model.build import has_heads
from transformer.runs.checkpoint import check_fingerprint
from transformer.runs.run import Run
from transformer.training.progress import line_progress
from ..display import plotting
from ..evaluate.other_text import read_given
from ..process.modes import Options
from ..results.table import Table, print_rows
from .ranking import MIN_HEADS, HeadScores, Ranking, rank, work

# Models with one ablated head each that run in parallel on an accelerator. On a CPU they run one
# by one, which takes 0.6 of the time, both for losses and for translations.
AT_ONCE = 16


class MapColumn(NamedTuple):
    """A column of maps: its title, number format, and colour map, in which red is harmful."""

    title: str
    number: str
    colours: str = plotting.SIGNED


MEASURES = {
    "importance": MapColumn("importance by gradient\n(nats a {unit})", "{:.3f}"),
    "loss": MapColumn("change of loss, head off\n(nats a {unit})", "{:+.3f}"),
    "bleu": MapColumn("change of BLEU, head off\n(of 100)", "{:+.1f}", "RdBu"),
}
MAP_CELL, MIN_SIDE, MAX_SIDE = 0.48, 2.0, 4.0  # inches
BAR_HEIGHT = 0.9  # inches
WIDEST_NUMBER = 0.4  # inches: maximum width of a number in a cell


def heads(run: Run, options: Options) -> list[Path]:
    """Ranks all heads of a run's model; prints the ranking and returns the files.

    The text is the run's test set, or that of `--input`, as for `evaluate`.
    """
    config, folder = run.config, run.folder
    if not has_heads(config.model):
        raise UserError(
            f"config.model.architecture={config.model.architecture} has no heads to rank: "
            "--mode=heads is for runs trained with --config.model.architecture=transformer"
        )
    trained = run.load_trained()
    text = read_given(options.input, run, options).text if options.input else None
    task = tasks.REGISTRY[config.task].from_folder(folder, config, text)
    check_fingerprint(trained.progress, task.fingerprint(), folder / "checkpoints")
    place = folder / "figures" / "heads"
    place.mkdir(parents=True, exist_ok=True)
    at_once = 1 if jax.default_backend() == "cpu" else AT_ONCE
    with line_progress(work(task), hidden=False, what="text") as advance:
        ranking = rank(task, trained.variables, advance, at_once)
    print_ranking(ranking)
    return write(ranking, place)


def print_ranking(ranking: Ranking) -> None:
    """Prints the heads, largest rise of the loss first, and the rank correlations."""
    scores = f"with all on: loss {ranking.loss:.4f}, accuracy {ranking.accuracy:.2%}"
    if ranking.bleu is not None:
        scores += f", greedy BLEU {ranking.bleu:.2f} of the first {ranking.decoded} sentences"
    texts = f"{ranking.split} set, {ranking.tokens:,} {ranking.unit}"
    names = ["attention", "layer", "head", "importance", "estimate", "loss", "accuracy"]
    by_loss = {"importance": ranking.by_importance, "estimate": ranking.by_estimate}
    correlations = [(name, "loss", number) for name, number in by_loss.items()]
    if ranking.bleu is not None:
        names.append("BLEU")
        correlations.append(("importance", "BLEU", ranking.bleu_by_importance))
    rows = [
        [
            KINDS[head.kind].title,
            str(head.layer),
            str(head.head),
            f"{head.importance:.4f}",
            f"{head.estimate:+.4f}",
            f"{head.loss:+.4f}",
            f"{head.accuracy:+.2%}",
            *([] if head.bleu is None else [f"{head.bleu:+.2f}"]),
        ]
        for head in sorted(ranking.heads, key=lambda head: -head.loss)
    ]
    print_rows(Table(f"Ablation of each head: {texts}\n{scores}", names, rows))
    missing = "too few heads" if len(ranking.heads) < MIN_HEADS else "all heads are equal"
    for name, change, correlation in correlations:
        number = f"none: {missing}" if correlation is None else f"{correlation:.3f}"
        print(
            f"Spearman's rank correlation of {name}, by gradient, and change of {change}, over "
            f"{len(ranking.heads)} heads: {number}"
        )


def write(ranking: Ranking, folder: Path) -> list[Path]:
    """Writes the figure and its numbers as JSON; returns the files."""
    picture, numbers = (folder / f"head_importance.{end}" for end in ("png", "json"))
    plotting.save_figure(build_figure(ranking), picture)
    write_json(numbers, dataclasses.asdict(ranking))
    return [picture, numbers]


# -- the figure


def build_figure(ranking: Ranking) -> Figure:
    """Returns a row of maps per kind of attention.

    All maps of a measure have one colour scale: red heads help the model, blue heads harm it. A few
    heads matter more than all others, so colours follow the square root.
    """
    heads, unit = ranking.heads, ranking.unit.split()[-1].removesuffix("s")
    by_kind = {kind: [head for head in heads if head.kind == kind] for kind in KINDS}
    by_kind = {kind: of_kind for kind, of_kind in by_kind.items() if of_kind}
    measures = [name for name in MEASURES if getattr(heads[0], name) is not None]
    across = max(head.head for head in heads)
    depths = [max(head.layer for head in of_kind) for of_kind in by_kind.values()]
    side = min(max(MAP_CELL * across, MIN_SIDE), MAX_SIDE)
    cell = side / across
    height = sum(cell * depth + 0.55 for depth in depths) + BAR_HEIGHT
    figure = plotting.new_figure((side + 0.6) * len(measures), height)
    grid = figure.subplots(len(by_kind), len(measures), squeeze=False, height_ratios=depths)
    for name, column in zip(measures, grid.T, strict=True):
        largest = max(abs(getattr(head, name)) for head in heads) or 1.0
        for (kind, of_kind), axes in zip(by_kind.items(), column, strict=True):
            mesh = _draw_map(axes, of_kind, name, largest, cell)
            axes.set_title(KINDS[kind].title, fontsize=8)
        column[-1].set_xlabel("head", fontsize=8)
        # Ticks at the ends of the scale, at zero, and half-way between them by colour.
        ticks, title = largest * np.array([-1, -0.25, 0, 0.25, 1]), MEASURES[name].title
        place = {"location": "top", "shrink": 0.8, "aspect": 16, "pad": 0.02, "format": "{x:.2g}"}
        bar = plotting.add_colour_bar(mesh, ticks, title.format(unit=unit), ax=column, **place)
        bar.ax.tick_params(labelsize=6.5)
        bar.ax.set_xlim(0 if name == "importance" else -largest, largest)  # never negative
    for axes in grid[:, 0]:
        axes.set_ylabel("layer", fontsize=8)
    return figure


def _draw_map(axes: Axes, heads: Sequence[HeadScores], name: str, largest: float, cell: float):
    """Draws the heads of one kind of attention in a measure's colours, with numbers if they fit."""
    measure = MEASURES[name]
    shape = max(head.layer for head in heads), max(head.head for head in heads)
    values = np.zeros(shape)
    for head in heads:
        values[head.layer - 1, head.head - 1] = getattr(head, name)
    root = (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda y: np.sign(y) * np.square(y))
    norm = FuncNorm(root, -largest, largest)
    mesh = axes.imshow(values, cmap=measure.colours, norm=norm)
    if cell >= WIDEST_NUMBER:
        texts = np.vectorize(measure.number.format)(values)
        plotting.write_in_cells(axes, texts, np.sqrt(abs(values) / largest), 6.5)
    step = 1 if cell > 0.2 else 5
    for axis, count in ((axes.yaxis, shape[0]), (axes.xaxis, shape[1])):
        axis.set_ticks(range(0, count, step), labels=map(str, range(1, count + 1, step)))
    axes.tick_params(length=0, labelsize=7)
    return mesh
