"""The `intervene` mode: what a model loses if single places are changed.

Each row of the table has the scores of the model with one change, minus those without a change, on
the run's test set or the text of `--input`. `--places` names the places, by default the outputs of
all heads; `--change` says what is done there: see `transformer.inference.interventions`. With the
change `alone`, the other heads of the same attention are set to zero.

Losses and accuracies are means over all tokens, or over all texts for classifiers. For translators,
the first `evaluate.max_sentences` sentences are translated greedily, for BLEU and the percentage of
exact matches; with gold links, AER is that of the head that aligns best without a change. For the
grammar, contrasts show which errors become more probable than right translations.

If the outputs of heads are set to zero, gradients predict the effect. Let each output be multiplied
by a gate of 1, and let L_x be the loss of text x, a sum over tokens. With n tokens in total,

    importance = sum_x |dL_x / dgate| / n,    estimate = -sum_x dL_x / dgate / n.

The importance is the expectation of Michel et al. divided by the mean text length. The estimate is
the first-order approximation of the change in mean loss when the gate changes from 1 to 0.

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", sections 2.3
(gates) and 3.2 (ablating a single head), and equation 2 (importance).
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from transformer import tasks
from transformer.analysis.alignment import GoldLinks
from transformer.data.synthetic.contrasts import contrasts
from transformer.errors import UserError
from transformer.files import write_json
from transformer.inference import interventions
from transformer.inference.base import Variables
from transformer.inference.interventions import Changes, Place
from transformer.model.build import has_heads
from transformer.model.interventions import Change
from transformer.runs.checkpoint import check_fingerprint
from transformer.runs.run import Run, TrainedRun
from transformer.tasks.base import Task
from transformer.tasks.pair_scores import score_contrasts
from transformer.tasks.translation import TranslationTask
from transformer.training.progress import line_progress
from ..display import plotting
from ..evaluate.other_text import read_given
from ..process.modes import Options
from ..results.table import Table, print_rows
from .links import best_of, score_heads

Done = Callable[[int], None]  # called with the number of texts processed since the last call
HEADS, ALONE = "*.head.*.output", "alone"
GRADIENTS = ("importance", "estimate")


class Measure(NamedTuple):
    """A measure of effects: title, number format, factor, and whether more of it is better."""

    title: str
    number: str
    factor: int = 1
    is_good: bool = False


MEASURES = {
    "importance": Measure("importance by gradient\n(nats a {unit})", "{:.4f}"),
    "estimate": Measure("estimate by gradient\n(nats a {unit})", "{:+.4f}"),
    "loss": Measure("change of loss\n(nats a {unit})", "{:+.4f}"),
    "accuracy": Measure("change of accuracy\n(%)", "{:+.2f}", 100, True),
    "bleu": Measure("change of BLEU\n(of 100)", "{:+.2f}", 1, True),
    "exact": Measure("change of exact matches\n(%)", "{:+.1f}", 100, True),
    "aer": Measure("change of AER\n(from 0 to 1)", "{:+.3f}"),
    **{
        name: Measure(f"change of {name}\n(% of contrasts)", "{:+.1f}", 100, True)
        for name in ("number", "case", "gender", "order", "tense", "negation")
    },
}
CONTRASTED = 100  # number of sentences with contrasts
MIN_HEADS = 3  # minimum number of heads for a rank correlation
MAP_CELL, MIN_SIDE, MAX_SIDE = 0.48, 2.0, 4.0  # inches
BAR_HEIGHT, WIDEST_NUMBER = 0.9, 0.4  # inches: of colour bars; minimum side of cells with numbers


class Effects(NamedTuple):
    """The effects of one change at several places.

    Attributes:
      change: what is done, as in `--change`.
      tokens, unit: the number of units over which losses are averaged, and their name.
      base: the scores without a change, by measure.
      changes: place -> the differences from them, by measure.
    """

    change: str
    split: str
    tokens: int
    unit: str
    base: dict[str, float]
    changes: dict[str, dict[str, float]]

    def column(self, name: str) -> list[float]:
        """Returns the changes of a measure at all places."""
        return [of_place[name] for of_place in self.changes.values()]

    @property
    def measures(self) -> list[str]:
        """The names of the measures; the first two only if gradients predict the effects."""
        return [name for name in MEASURES if name in next(iter(self.changes.values()))]


def intervene(run: Run, options: Options) -> list[Path]:
    """Prints, draws and writes the effects of a change at each place; returns the files."""
    trained, task = open_task(run, options)
    change, patterns = options.change or "zero", (options.places or HEADS).split(",")
    names = interventions.select(patterns, task.predictor.model)
    with line_progress(work(task, len(names)), hidden=False, what="text") as advance:
        effects = measure_effects(task, trained.variables, names, change, advance)
    print_effects(effects, options.input or f"{effects.split} set")
    stem, place = re.sub(r"\W+", "_", change), run.folder / "figures" / "interventions"
    picture, numbers = (place / f"{stem}.{end}" for end in ("png", "json"))
    plotting.save_figure(build_figure(effects), picture)
    write_json(numbers, effects._asdict())
    return [picture, numbers]


def open_task(run: Run, options: Options) -> tuple[TrainedRun[Any], Any]:
    """Returns the trained run, and its task on the run's text or the text of `--input`."""
    config, folder = run.config, run.folder
    if not has_heads(config.model):
        raise UserError(
            f"config.model.architecture={config.model.architecture} has no heads: this mode is for "
            "runs trained with --config.model.architecture=transformer"
        )
    trained = run.load_trained()
    text = read_given(options.input, run, options).text if options.input else None
    task: Any = tasks.REGISTRY[config.task].from_folder(folder, config, text)
    check_fingerprint(trained.progress, task.fingerprint(), folder / "checkpoints")
    return trained, task


def print_effects(effects: Effects, text: str) -> None:
    """Prints the places by decreasing change in loss, and the rank correlations."""
    forms = {name: MEASURES[name].number for name in effects.measures}
    rows = [
        [place, *(forms[m].format(MEASURES[m].factor * changes[m]) for m in forms)]
        for place, changes in effects.changes.items()
    ]
    order = np.argsort([-change for change in effects.column("loss")], kind="stable")
    names = [name if name in GRADIENTS else f"Δ {name}" for name in forms]
    shown = ", ".join(f"{name} {value:.4f}" for name, value in effects.base.items())
    title = f"{effects.change} at each place: {text}, {effects.tokens:,} {effects.unit}"
    print_rows(
        Table(f"{title}\nwithout a change: {shown}", ["place", *names], [rows[i] for i in order])
    )
    pairs = itertools.product(GRADIENTS, ("loss", "bleu"))
    for name, other in (each for each in pairs if forms.keys() >= {*each}):
        rho = rank_correlation(effects.column(name), effects.column(other))
        shown = "none" if rho is None else f"{rho:.3f}"
        print(f"Spearman's rank correlation of {name} and Δ {other}, {len(rows)} heads: {shown}")


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Spearman's rho, or None for fewer than MIN_HEADS pairs or for a constant input."""
    if len(first) < MIN_HEADS or min(len(set(first)), len(set(second))) < 2:
        return None
    from scipy.stats import spearmanr  # the import takes half a second

    return float(cast(Any, spearmanr(first, second)).statistic)


# -- the effects


def measure_effects(
    task: Any, variables: Variables, names: Sequence[str], change: str, done: Done
) -> Effects:
    """Returns the effects of a change at each of the named places."""
    rows = [{}, *rows_of(task, variables, names, change)]
    (base, *scores), tokens = measure(task, variables, rows, done)
    changes = [{name: of_row[name] - base[name] for name in base} for of_row in scores]
    if change == "zero" and all(name.endswith(".output") for name in names):
        named = interventions.places(task.predictor.model)
        places = [named[name] for name in names]
        for name, slopes in zip(GRADIENTS, _gradients(task, variables, places, done), strict=True):
            for (key, layer, head), of_row in zip(places, changes, strict=True):
                of_row[name] = float(slopes[key, layer][head]) / tokens
    by_name = dict(zip(names, changes, strict=True))
    return Effects(change, split_of(task), tokens, task.unit, base, by_name)


def rows_of(task: Any, variables: Variables, names: Sequence[str], what: str) -> list[Changes]:
    """Returns the changes of each place."""
    predictor, named = task.predictor, interventions.places(task.predictor.model)
    specs: list[Any] = [what] * len(names)
    model, places = (predictor, variables), [named[name] for name in names]
    if what.startswith("patch:"):
        batches = interventions.read(*model, [what.removeprefix("patch:")])
        [specs, *_] = interventions.capture(*model, batches, places)
    elif what == "mean":
        specs = interventions.means(*model, task.held_out_batches(split_of(task)), places)
    elif re.fullmatch(r"-?\d+(\.\d+)?", what):
        specs = [float(what)] * len(names)
    rows: list[dict[str, Any]] = [{name: spec} for name, spec in zip(names, specs, strict=True)]
    if what == ALONE:
        heads = interventions.select([HEADS], predictor.model)
        siblings = [[x for x in heads if named[x][:2] == named[name][:2]] for name in names]
        rows = [
            {other: "zero" for other in others if other != name}
            for name, others in zip(names, siblings, strict=True)
        ]
    return [interventions.resolve(row, predictor, variables) for row in rows]


def split_of(task: Task) -> str:
    """Returns the split on which effects are measured: the test set, or else the validation set."""
    return "test" if "test" in task.splits else "validation"


def work(task: Task, places: int) -> int:
    """Returns the number of texts that `measure_effects` reports to `done`."""
    batches = task.held_out_batches(split_of(task))
    texts = sum(len(jax.tree.leaves(batch)[0]) for batch in batches)
    return (places + 1) * (texts + len(decoded(task)) + len(_linked(task))) + texts


def measure(
    task: Any, variables: Variables, rows: Sequence[Changes], done: Done
) -> tuple[list[dict[str, float]], int]:
    """Returns the scores of the model with each row of changes, and the number of tokens."""
    of_rows = [
        interventions.add({}, row, task.predictor.model) for row in interventions.uniform(rows)
    ]
    compiled = jax.jit(lambda own, changes, batch: task.held_out_sums({**own, **changes}, batch))
    sums: list[Any] = [0.0] * len(rows)
    for batch in task.held_out_batches(split_of(task)):
        for i, changes in enumerate(of_rows):
            of_batch = jax.device_get(compiled(variables, changes, batch))
            new = np.array([of_batch.nll, of_batch.correct, of_batch.weight], np.float64)
            sums[i] = sums[i] + new
            done(len(jax.tree.leaves(batch)[0]))
    scores = [{"loss": nll / tokens, "accuracy": right / tokens} for nll, right, tokens in sums]
    pairs, linked = decoded(task), _linked(task)
    gold = [GoldLinks(pair.alignment) for pair in linked]
    sources, best = [pair.source for pair in pairs], None
    for changes, of_row in zip(of_rows, scores, strict=True):
        if pairs:
            group = jax.tree.map(lambda array: np.asarray(array)[None], changes)
            [lists] = task.predictor.translate_stacked(
                group, sources, beam_size=1, shared=variables
            )
            texts = [translations[0].text for translations in lists]
            of_row["bleu"] = task.text_scores(texts, pairs, final=False)["bleu"]
            same = [text == pair.target for text, pair in zip(texts, pairs, strict=True)]
            of_row["exact"] = sum(same) / len(same)
            done(len(pairs))
        if linked:
            changed = TrainedRun(task.predictor, {**variables, **changes})
            heads = score_heads(changed, linked, gold, done).scores
            best = best or best_of(heads)
            of_row["aer"] = heads[best].error_rate
            if task.config.data.source == "grammar":
                rates = score_contrasts(task.predictor, changed.variables, contrasts(0, CONTRASTED))
                of_row |= {name: x["passed"] / x["lines"] for name, x in rates.items()}
    return scores, int(sums[0][2])


def decoded(task: Any) -> list[Any]:
    """Returns the sentence pairs to translate, or [] if the task is not translation."""
    translates = isinstance(task, TranslationTask)
    return task.decoded_pairs(split_of(task), final=False) if translates else []


def _linked(task: Any) -> list[Any]:
    """Returns the sentence pairs with gold links."""
    has_cross = getattr(task.predictor.model.config, "has_encoder", False)
    return [pair for pair in decoded(task) if has_cross and pair.alignment]


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


def _group(names: Iterable[str]) -> dict[str, dict[tuple[str, str], str]]:
    """Returns places by kind, and by layer and head or kind of sub-layer."""
    groups: dict[str, dict[tuple[str, str], str]] = {}
    for name in names:
        side, *rest = name.split(".")
        if "head" in rest:
            layer, short, _, head, what = rest
            groups.setdefault(f"{side} {short}-attention: {what}", {})[layer, head] = name
        else:
            layer, what = rest if len(rest) == 2 else ("0", *rest)
            groups.setdefault(side, {})[layer, what.replace("_", "\n")] = name
    return groups


def build_figure(effects: Effects) -> Figure:
    """Returns a figure of heat maps, with a row per kind of place and a column per measure.

    The maps of a measure share one colour scale: red places help the model, and blue ones harm it.
    The colour scale is a square root, because a few heads matter much more than the other heads.
    """
    groups = _group(effects.changes)
    axes_of = [
        [list(dict.fromkeys(x)) for x in zip(*cells, strict=True)] for cells in groups.values()
    ]
    across = max(len(columns) for _, columns in axes_of)
    side = min(max(MAP_CELL * across, MIN_SIDE), MAX_SIDE)
    heights = [side / across * len(rows) + 0.3 for rows, _ in axes_of]
    figure = plotting.new_figure(
        (side + 0.6) * len(effects.measures), sum(heights) + 0.3 * len(heights) + BAR_HEIGHT
    )
    shape = len(groups), len(effects.measures)
    grid = figure.subplots(*shape, squeeze=False, height_ratios=heights)
    root = (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda y: np.sign(y) * np.square(y))
    for name, column in zip(effects.measures, grid.T, strict=True):
        measure = MEASURES[name]
        largest = max(map(abs, effects.column(name))) * measure.factor or 1.0
        colours = "RdBu" if measure.is_good else plotting.SIGNED
        style = {"cmap": colours, "norm": FuncNorm(root, -largest, largest)}
        for (title, cells), (rows, columns), axes in zip(
            groups.items(), axes_of, column, strict=True
        ):
            values = np.full((len(rows), len(columns)), np.nan)
            for (row, head), place in cells.items():
                at = rows.index(row), columns.index(head)
                values[at] = measure.factor * effects.changes[place][name]
            fits = side / len(columns) >= WIDEST_NUMBER
            texts = (
                np.vectorize(lambda x, form=measure.number: "" if np.isnan(x) else form.format(x))(
                    values
                )
                if fits
                else None
            )
            mesh = plotting.heat_map(axes, values, texts, 6, aspect="auto", **style)
            axes.set_title(title, fontsize=7)
            step = 1 if side / len(columns) > 0.2 else 5
            axes.set_yticks(range(len(rows)), labels=rows)
            axes.set_xticks(range(0, len(columns), step), labels=columns[::step])
            axes.tick_params(length=0, labelsize=6)
        # Ticks are at the ends of the scale, at zero, and half-way between them in colour.
        ticks = largest * np.array([-1, -0.25, 0, 0.25, 1])
        place = {"location": "top", "shrink": 0.8, "aspect": 16, "pad": 0.02, "format": "{x:.2g}"}
        title = measure.title.format(unit=effects.unit.split()[-1].removesuffix("s"))
        bar = plotting.add_colour_bar(mesh, ticks, title, ax=column, **place)
        bar.ax.tick_params(labelsize=6.5)
    for axes in grid[:, 0]:
        axes.set_ylabel("layer", fontsize=8)
    return figure
