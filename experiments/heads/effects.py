"""The `intervene` mode: what a model loses if single places are changed.

Each row of the table has the scores of the model with one change, minus those without a change, on
the run's test set or the text of `--input`. `--places` names the places, by default the outputs of
all heads; `--change` says what is done there: see `transformer.inference.interventions`. With the
change `alone`, the other heads of the same attention are set to zero.

Losses and accuracies are means over all tokens. For translators, the first `evaluate.max_sentences`
sentences are translated greedily, for BLEU and the percentage of exact matches; with gold links,
AER is the alignment error rate of the head that aligns best without a change.

Source of the ablation of single heads: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really
Better than One?", section 3.2.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

from transformer import tasks
from transformer.analysis.alignment import GoldLinks
from transformer.errors import UserError
from transformer.files import write_json
from transformer.inference import interventions
from transformer.inference.base import Variables
from transformer.inference.interventions import Changes
from transformer.model.build import has_heads
from transformer.runs.checkpoint import check_fingerprint
from transformer.runs.run import Run, TrainedRun
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask
from transformer.training.progress import line_progress
from ..display import plotting
from ..evaluate.other_text import read_given
from ..process.modes import Options
from ..results.table import Table, print_rows
from .links import best_of, score_heads

Done = Callable[[int], None]  # called with the number of texts processed since the last call
HEADS, ALONE = "*.head.*.output", "alone"
# Measure -> (number format, factor of the number, whether a larger value is better).
MEASURES = {
    "loss": ("{:+.4f}", 1, False),
    "accuracy": ("{:+.2f}%", 100, True),
    "bleu": ("{:+.2f}", 1, True),
    "exact": ("{:+.1f}%", 100, True),
    "aer": ("{:+.3f}", 1, False),
}
MAX_LINKED = 200  # maximum number of pairs whose links are scored


class Effects(NamedTuple):
    """Scores without a change, and for each place the scores with its change, by measure."""

    base: dict[str, float]
    changed: dict[str, dict[str, float]]


def intervene(run: Run, options: Options) -> list[Path]:
    """Prints, draws and writes the effect of a change at each place; returns the files."""
    trained, task = open_task(run, options)
    what, patterns = options.change or "zero", (options.places or HEADS).split(",")
    names = interventions.select(patterns, trained.predictor.model)
    rows = [{}, *rows_of(task, trained.variables, names, what)]
    linked = _linked(task)
    total = work(task, len(rows), len(linked))
    with line_progress(total, hidden=False, what="text") as advance:
        (base, *scores), _ = measure(task, trained.variables, rows, linked, advance)
    effects = Effects(base, dict(zip(names, scores, strict=True)))
    title = f"{what} at each place: {options.input or f'{split_of(task)} set'}"
    shown = ", ".join(f"{name} {value:.4f}" for name, value in base.items())
    table = [
        [name, *(_text(effects, name, each) for each in base)]
        for name in sorted(names, key=lambda name: -effects.changed[name]["loss"])
    ]
    head = ["place", *(f"Δ {name}" for name in base)]
    print_rows(Table(f"{title}\nwithout a change: {shown}", head, table))
    folder, stem = run.folder / "figures" / "interventions", re.sub(r"\W+", "_", what)
    picture, numbers = (folder / f"{stem}.{end}" for end in ("png", "json"))
    plotting.save_figure(build_figure(effects, title), picture)
    write_json(numbers, {"change": what, **effects._asdict()})
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
    task = tasks.REGISTRY[config.task].from_folder(folder, config, text)
    check_fingerprint(trained.progress, task.fingerprint(), folder / "checkpoints")
    return trained, task


def rows_of(task: Any, variables: Variables, names: Sequence[str], what: str) -> list[Changes]:
    """Returns the changes of each place."""
    predictor, named = task.predictor, interventions.places(task.predictor.model)
    specs: list[Any] = [what] * len(names)
    model, places = (predictor, variables), [named[name] for name in names]
    if what.startswith("patch:"):
        [specs] = interventions.capture(*model, [what.removeprefix("patch:")], places)
    elif what == "mean":
        if not isinstance(task, TranslationTask):
            raise UserError("--change=mean is for translators: use zero")
        specs = interventions.means(*model, [pair[:2] for pair in decoded(task)], places)
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


def work(task: Task, rows: int, linked: int = 0) -> int:
    """Returns the number of texts that `measure` reports to `done` for this many rows."""
    batches = task.held_out_batches(split_of(task))
    texts = sum(len(jax.tree.leaves(batch)[0]) for batch in batches)
    return rows * (texts + len(decoded(task)) + linked)


def measure(
    task: Any, variables: Variables, rows: Sequence[Changes], linked: Sequence[Any], done: Done
) -> tuple[list[dict[str, float]], int]:
    """Returns the scores of the model with each row of changes, and the number of tokens.

    Args:
      linked: pairs with gold links for AER.
    """
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
    pairs = decoded(task)
    gold = [GoldLinks(pair.alignment) for pair in linked]
    sources, best = [pair.source for pair in pairs], None
    for changes, of_row in zip(of_rows, scores, strict=True):
        if pairs:
            group = jax.tree.map(lambda array: np.asarray(array)[None], changes)
            [found] = task.predictor.translate_stacked(
                group, sources, beam_size=1, shared=variables
            )
            texts = [translations[0].text for translations in found]
            of_row["bleu"] = task.text_scores(texts, pairs, final=False)["bleu"]
            same = [text == pair.target for text, pair in zip(texts, pairs, strict=True)]
            of_row["exact"] = sum(same) / len(same)
            done(len(pairs))
        if linked:
            changed = TrainedRun(task.predictor, {**variables, **changes})
            heads = score_heads(changed, linked, gold, done).scores
            best = best or best_of(heads)
            of_row["aer"] = heads[best].error_rate
    return scores, int(sums[0][2])


def decoded(task: Any) -> list[Any]:
    """Returns the sentence pairs to translate, or [] if the task is not translation."""
    translates = isinstance(task, TranslationTask)
    return task.decoded_pairs(split_of(task), final=False) if translates else []


def _linked(task: Any) -> list[Any]:
    """Returns the sentence pairs with gold links."""
    has_cross = getattr(task.predictor.model.config, "has_encoder", False)
    pairs = decoded(task)[:MAX_LINKED] if has_cross else []
    return [pair for pair in pairs if pair.alignment]


def _text(effects: Effects, name: str, measure: str) -> str:
    form, factor, _ = MEASURES[measure]
    return form.format(factor * (effects.changed[name][measure] - effects.base[measure]))


def build_figure(effects: Effects, title: str) -> Figure:
    """Returns a heat map, a row per place and a column per measure; red is worse.

    Each column has its own colour scale, whose end is the column's largest change.
    """
    names, measures = list(effects.changed), list(effects.base)
    changes = np.array([[effects.changed[n][m] - effects.base[m] for m in measures] for n in names])
    signs = np.array([-1.0 if MEASURES[m][2] else 1.0 for m in measures])
    largest = np.maximum(np.abs(changes).max(axis=0), 1e-12)
    figure = plotting.new_figure(2.2 + 0.7 * len(measures), 0.8 + 0.19 * len(names))
    axes = figure.subplots()
    texts = np.array([[_text(effects, n, m) for m in measures] for n in names])
    style: dict[str, Any] = {
        "cmap": plotting.SIGNED,
        "norm": CenteredNorm(halfrange=1),
        "aspect": "auto",
    }
    plotting.heat_map(axes, changes * signs / largest, texts, 6, **style)
    axes.set_xticks(range(len(measures)), labels=[f"Δ {m}" for m in measures])
    axes.set_yticks(range(len(names)), labels=names)
    axes.tick_params(
        length=0, labelsize=6.5, top=True, bottom=False, labeltop=True, labelbottom=False
    )
    axes.set_title(title, fontsize=8)
    return figure
