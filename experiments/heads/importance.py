"""The `heads` mode: ranks attention heads by gradients and by ablation.

The output of each head is multiplied by a gate of 1 (see `transformer.model.interventions`).
One backward pass over the test set computes the derivatives of each text's loss L_x, which is a sum
over tokens, with respect to all gates. With n tokens in total,

    importance = sum_x |dL_x / dgate| / n,    estimate = -sum_x dL_x / dgate / n,

The importance is the expectation of Michel et al. divided by the mean text length. The estimate is
the first-order approximation of the change in mean loss when the gate changes from 1 to 0. Both are
compared with the ablation of each single head: the changes in mean loss, in accuracy and, for
translation, in BLEU of greedy translations of the first `evaluate.max_sentences` sentences.

A text is a sentence pair for a translation model, a window of `data.context` tokens for a language
model, or a text for a classifier, in which case the loss has a single term for the class.

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", sections 2.3
(gates) and 3.2 (ablating a single head), and equation 2 (importance).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from transformer.analysis.attention import KINDS
from transformer.files import write_json
from transformer.inference import interventions
from transformer.inference.base import Variables
from transformer.inference.interventions import Place
from transformer.model.interventions import ATTENTIONS, Change
from transformer.runs.run import Run
from transformer.tasks.base import Task
from transformer.training.progress import line_progress
from ..display import plotting
from ..process.modes import Options
from ..results.table import Table, print_rows
from .effects import HEADS, Done, decoded, measure, open_task, rows_of, split_of, work

MIN_HEADS = 3  # minimum number of heads for a rank correlation


class MapColumn(NamedTuple):
    """A column of heat maps: title, number format, and colour map (red if ablation hurts)."""

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
WIDEST_NUMBER = 0.4  # inches: minimum side of the cells for numbers to be shown


@dataclasses.dataclass(frozen=True)
class HeadScores:
    """A head's gradient-based importance, and the changes in scores when the head is ablated.

    Losses are in nats per token, or per text for classifiers; accuracies are fractions.
    """

    kind: str  # kind of attention, a key of `transformer.analysis.attention.KINDS`
    layer: int  # from 1
    head: int  # from 1
    importance: float
    estimate: float
    loss: float
    accuracy: float
    bleu: float | None  # on a scale of 0 to 100, or None for tasks other than translation


@dataclasses.dataclass(frozen=True)
class Ranking:
    """All heads of a model, the scores without ablation, and Spearman's rank correlations.

    Correlations with the change in loss or BLEU are None for too few heads or constant values.
    """

    split: str
    unit: str  # the unit over which losses are averaged
    tokens: int  # number of these units
    decoded: int  # number of sentences in the BLEU score
    loss: float
    accuracy: float
    bleu: float | None
    by_importance: float | None
    by_estimate: float | None
    bleu_by_importance: float | None
    heads: tuple[HeadScores, ...]


def heads(run: Run, options: Options) -> list[Path]:
    """Ranks all heads of a run's model; prints the ranking and returns the output files.

    The heads are ranked on the run's test set or on the text of `--input`, as in `evaluate`.
    """
    trained, task = open_task(run, options)
    place = run.folder / "figures" / "heads"
    with line_progress(total_work(task), hidden=False, what="text") as advance:
        ranking = rank(task, trained.variables, advance)
    print_ranking(ranking, options.input or f"{ranking.split} set")
    picture, numbers = (place / f"head_importance.{end}" for end in ("png", "json"))
    plotting.save_figure(build_figure(ranking), picture)
    write_json(numbers, dataclasses.asdict(ranking))
    return [picture, numbers]


def print_ranking(ranking: Ranking, name: str) -> None:
    """Prints the heads by decreasing change in loss, and the rank correlations."""
    scores = f"with all on: loss {ranking.loss:.4f}, accuracy {ranking.accuracy:.2%}"
    if ranking.bleu is not None:
        scores += f", greedy BLEU {ranking.bleu:.2f} of the first {ranking.decoded} sentences"
    texts = f"{name}, {ranking.tokens:,} {ranking.unit}"
    names = ["attention", "layer", "head", "importance", "estimate", "Δ loss", "Δ accuracy"]
    by_loss = {"importance": ranking.by_importance, "estimate": ranking.by_estimate}
    correlations = [(name, "loss", number) for name, number in by_loss.items()]
    if ranking.bleu is not None:
        names.append("Δ BLEU")
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


# -- the ranking


def total_work(task: Task) -> int:
    """Returns the total number of texts that `rank` reports to `done`."""
    texts = sum(len(jax.tree.leaves(x)[0]) for x in task.held_out_batches(split_of(task)))
    return texts + work(task, 1 + len(interventions.select([HEADS], task.predictor.model)))


def rank(task: Task, variables: Variables, done: Done) -> Ranking:
    """Returns the importance of all heads by gradient and by ablation."""
    predictor: Any = task.predictor
    named, names = (
        interventions.places(predictor.model),
        interventions.select([HEADS], predictor.model),
    )
    places = [named[name] for name in names]
    absolute, negative = _gradients(task, variables, places, done)
    rows = [{}, *rows_of(task, variables, names, "zero")]
    (base, *scores), tokens = measure(task, variables, rows, (), done)
    changes, of_accuracy, of_bleu = (
        [each[name] - base[name] if name in base else None for each in scores]
        for name in ("loss", "accuracy", "bleu")
    )
    importances, estimates = (
        [float(slopes[key, layer][head]) / tokens for key, layer, head in places]
        for slopes in (absolute, negative)
    )
    kinds = {names: kind for kind, names in ATTENTIONS.items()}
    numbers = zip(importances, estimates, changes, of_accuracy, of_bleu, strict=True)
    return Ranking(
        split=split_of(task),
        unit=task.unit,
        tokens=tokens,
        decoded=len(decoded(task)),
        loss=base["loss"],
        accuracy=base["accuracy"],
        bleu=base.get("bleu"),
        by_importance=rank_correlation(importances, changes),
        by_estimate=rank_correlation(estimates, changes),
        bleu_by_importance=rank_correlation(importances, of_bleu) if "bleu" in base else None,
        heads=tuple(
            HeadScores(kinds[key[:2]], layer + 1, head + 1, *each)
            for (key, layer, head), each in zip(places, numbers, strict=True)
        ),
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Spearman's rho, or None for fewer than MIN_HEADS pairs or for a constant input."""
    if len(first) < MIN_HEADS or min(len(set(first)), len(set(second))) < 2:
        return None
    from scipy.stats import spearmanr  # the import takes half a second

    return float(cast(Any, spearmanr(first, second)).statistic)


def _gradients(
    task: Task, variables: Variables, places: Sequence[Place], done: Done
) -> tuple[dict, dict]:
    """Returns the sums over texts of |dL_x / dgate| and of -dL_x / dgate, keyed by attention."""
    model: Any = task.predictor.model
    keys = list(dict.fromkeys(place[:2] for place in places))

    @jax.jit
    def of_batch(variables, batch):
        # Each text has its own gates, so that one backward pass gives per-text gradients.
        ones = jnp.ones((len(jax.tree.leaves(batch)[0]), 1, model.config.num_heads, 1))

        def loss(gates):
            changes = {key: Change(gate) for key, gate in gates.items()}
            return task.held_out_sums(interventions.add(variables, changes, model), batch).loss

        return jax.grad(loss)(dict.fromkeys(keys, ones))

    absolute, negative = dict.fromkeys(keys, 0.0), dict.fromkeys(keys, 0.0)
    for batch in task.held_out_batches(split_of(task)):
        for key, slopes in jax.device_get(of_batch(variables, batch)).items():
            absolute[key] += np.abs(np.float64(slopes[:, 0, :, 0])).sum(axis=0)
            negative[key] -= np.float64(slopes[:, 0, :, 0]).sum(axis=0)
        done(len(jax.tree.leaves(batch)[0]))
    return absolute, negative


# -- the figure


def build_figure(ranking: Ranking) -> Figure:
    """Returns a figure of heat maps, with a row per kind of attention and a column per measure.

    The maps of a measure share one colour scale: red heads help the model, and blue heads harm it.
    The colour scale is a square root, because a few heads matter much more than the other heads.
    """
    heads, unit = ranking.heads, ranking.unit.split()[-1].removesuffix("s")
    by_kind = {kind: [head for head in heads if head.kind == kind] for kind in KINDS}
    by_kind = {kind: of_kind for kind, of_kind in by_kind.items() if of_kind}
    measures = [name for name in MEASURES if getattr(heads[0], name) is not None]
    across = max(head.head for head in heads)
    depths = [of_kind[-1].layer for of_kind in by_kind.values()]
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
        # Ticks are at the ends of the scale, at zero, and half-way between them in colour.
        ticks, title = largest * np.array([-1, -0.25, 0, 0.25, 1]), MEASURES[name].title
        place = {"location": "top", "shrink": 0.8, "aspect": 16, "pad": 0.02, "format": "{x:.2g}"}
        bar = plotting.add_colour_bar(mesh, ticks, title.format(unit=unit), ax=column, **place)
        bar.ax.tick_params(labelsize=6.5)
        bar.ax.set_xlim(0 if name == "importance" else -largest, largest)  # never negative
    for axes in grid[:, 0]:
        axes.set_ylabel("layer", fontsize=8)
    return figure


def _draw_map(axes: Axes, heads: Sequence[HeadScores], name: str, largest: float, cell: float):
    """Draws a measure of all heads of a kind, in order, as a heat map, with numbers if they fit."""
    measure = MEASURES[name]
    shape = heads[-1].layer, heads[-1].head
    values = np.reshape([getattr(head, name) for head in heads], shape)
    root = (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda y: np.sign(y) * np.square(y))
    texts = np.vectorize(measure.number.format)(values) if cell >= WIDEST_NUMBER else None
    norm = FuncNorm(root, -largest, largest)
    mesh = plotting.heat_map(axes, values, texts, 6.5, cmap=measure.colours, norm=norm)
    step = 1 if cell > 0.2 else 5
    for axis, count in ((axes.yaxis, shape[0]), (axes.xaxis, shape[1])):
        axis.set_ticks(range(0, count, step), labels=map(str, range(1, count + 1, step)))
    axes.tick_params(length=0, labelsize=7)
    return mesh
