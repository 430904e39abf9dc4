"""The mode `heads`: ranks attention heads by gradient and by ablation.

The output of each head is multiplied by a gate of 1, see `transformer.model.stack`. One backward
pass over the test set gives the derivative of every text's loss L_x, a sum over its tokens, with
respect to every gate. With n tokens in total,

    importance = sum_x |dL_x / dgate| / n,    estimate = -sum_x dL_x / dgate / n,

where the first is the expectation of Michel et al. divided by the mean length of a text, and the
second is the first-order estimate of the change of the mean loss if the gate goes from 1 to 0. They
are compared with the ablation of each single head: the changes of mean loss, of accuracy and, for
translators, of the BLEU of greedy translations of the first `evaluate.max_sentences`.

A text is a sentence pair of a translator, a row of `data.context` tokens of a language model, or a
text of a classifier, whose loss is that of one class instead of tokens.

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", sections 2.3
(gates) and 3.2 (ablating one), and equation 2 (importance).
"""

import csv
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from rich.table import Table

from experiments.attention.arrays import KINDS
from experiments.display.figure_files import save_figure
from experiments.heads import figures
from experiments.text_io import print_table
from transformer import tasks
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.losses import TokenSums
from transformer.model.build import has_heads
from transformer.model.classifier import Classifier
from transformer.model.stack import gate_variables, unit_gates
from transformer.progress import line_progress
from transformer.storage.checkpoint import check_fingerprint
from transformer.storage.files import whole_file, write_json
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask
from transformer.workdir import load_trained, make_writable

Done = Callable[[int], None]  # called with the number of texts read since the last call
# Models with one head off that run together on an accelerator. On a CPU they take turns, which was
# measured at 0.6 of the time, both for losses and for translations.
AT_ONCE = 16
MIN_HEADS = 3  # heads that a rank correlation is of


@dataclasses.dataclass(frozen=True)
class HeadScores:
    """The importance of a head, predicted and measured.

    Losses are in nats per token, or per text of a classifier.

    Attributes:
      kind: of attention, a key of `KINDS`.
      layer, head: from 1.
      importance, estimate: from gradients, see this module.
      loss, accuracy: their changes if the head is ablated; accuracy is a fraction.
      bleu: its change, of 100; None of models that do not translate.
    """

    kind: str
    layer: int
    head: int
    importance: float
    estimate: float
    loss: float
    accuracy: float
    bleu: float | None


@dataclasses.dataclass(frozen=True)
class Ranking:
    """All heads of a model, and its scores with all of them on.

    Attributes:
      split, unit, tokens: the set that losses are means over, what they count of it, and how many.
      decoded: sentences that BLEU is of, 0 of models that do not translate.
      by_importance, by_estimate: Spearman's rank correlation with the change of the loss; None
        if there are too few heads, or all are equal.
      bleu_by_importance: the same of importance with the change of BLEU, which is below zero if
        they agree; None of models that do not translate, too.
    """

    split: str
    unit: str
    tokens: int
    decoded: int
    loss: float
    accuracy: float
    bleu: float | None
    by_importance: float | None
    by_estimate: float | None
    bleu_by_importance: float | None
    heads: tuple[HeadScores, ...]


def heads(config: ConfigDict, folder: Path) -> list[Path]:
    """Ranks all heads of a run's model on its test set; prints the ranking, returns the files.

    Raises:
      UserError: there is no checkpoint, or the model is not a Transformer.
    """
    if not has_heads(config.model):
        raise UserError(
            f"config.model.architecture={config.model.architecture} has no heads to rank: "
            "--mode=heads is for runs trained with --config.model.architecture=transformer"
        )
    run = load_trained(folder, config)
    task = tasks.REGISTRY[config.task].from_folder(folder, config)
    check_fingerprint(run.progress, task.fingerprint(), folder / "checkpoints")
    place = folder / "figures" / "heads"
    make_writable(place)
    at_once = 1 if jax.default_backend() == "cpu" else AT_ONCE
    with line_progress(work(task), hidden=False, what="text") as done:
        ranking = rank(task, run.variables, done, at_once)
    print_ranking(ranking)
    return write(ranking, place)


def split_of(task: Task) -> str:
    """Returns the split that heads are ranked on: the test set, if the task has one."""
    return "test" if "test" in task.splits else "validation"


def work(task: Task) -> int:
    """Returns how many texts `rank` reads, as it counts them to `done`."""
    batches = task.held_out_batches(split_of(task))
    texts = sum(len(jax.tree.leaves(batch)[0]) for batch in batches)
    models = 1 + sum(gates.size for gates in unit_gates(task.predictor.model.config).values())
    return texts * (1 + models) + models * len(_decoded(task))


def rank(task: Task, variables: Variables, done: Done, at_once: int) -> Ranking:
    """Returns the importance of every head.

    Args:
      variables: the trained ones, without gates.
      done: called with the number of texts read since the last call.
      at_once: models with one head off that run together.
    """
    ones = unit_gates(task.predictor.model.config)
    places = [(kind, *place) for kind, own in ones.items() for place in np.ndindex(own.shape)]
    # The first model has all heads on.
    models = [ones] + [
        {**ones, kind: ones[kind].at[layer, head].set(0.0)} for kind, layer, head in places
    ]
    stacked = jax.tree.map(lambda *gates: jnp.stack(gates), *models)
    absolute, signed = _gradients(task, variables, ones, done)
    sums = _sums(task, variables, stacked, done, at_once)
    bleus = _bleus(task, variables, stacked, done, at_once)
    tokens = sums.weight[0]
    loss, accuracy = sums.nll / tokens, sums.correct / tokens
    scores = tuple(
        HeadScores(
            kind=kind,
            layer=layer + 1,
            head=head + 1,
            importance=float(absolute[kind][layer, head] / tokens),
            estimate=float(-signed[kind][layer, head] / tokens),
            loss=float(loss[i] - loss[0]),
            accuracy=float(accuracy[i] - accuracy[0]),
            bleu=bleus[i] - bleus[0] if bleus else None,
        )
        for i, (kind, layer, head) in enumerate(places, 1)
    )
    importances = [head.importance for head in scores]
    changes = [head.loss for head in scores]
    changes_of_bleu = [head.bleu for head in scores if head.bleu is not None]
    return Ranking(
        split=split_of(task),
        unit=task.unit,
        tokens=int(tokens),
        decoded=len(_decoded(task)),
        loss=float(loss[0]),
        accuracy=float(accuracy[0]),
        bleu=bleus[0] if bleus else None,
        by_importance=rank_correlation(importances, changes),
        by_estimate=rank_correlation([head.estimate for head in scores], changes),
        bleu_by_importance=rank_correlation(importances, changes_of_bleu) if bleus else None,
        heads=scores,
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Spearman's; None of fewer than MIN_HEADS pairs, or if a side has but one value."""
    if len(first) < MIN_HEADS or min(len(set(first)), len(set(second))) < 2:
        return None
    from scipy.stats import spearmanr  # which takes half a second

    found: Any = spearmanr(first, second)
    return float(found.statistic)


def _gated(task: Task, variables: Variables, gates: Any) -> dict[str, Any]:
    """The variables with gates."""
    model = task.predictor.model
    part = "encoder" if isinstance(model, Classifier) else ""
    return {**variables, "gates": gate_variables(gates, model.config, part)}


def _gradients(task: Task, variables: Variables, ones: Any, done: Done) -> tuple[dict, dict]:
    """The sums over texts of |dL_x / dgate| and of dL_x / dgate, of all gates."""

    @jax.jit
    def of_batch(variables, batch):
        rows = len(jax.tree.leaves(batch)[0])
        # Each text has gates of its own, so that one backward pass tells them apart.
        gates = jax.tree.map(lambda own: jnp.repeat(own[:, None], rows, axis=1), ones)
        gradient = jax.grad(
            lambda gates: task.held_out_sums(_gated(task, variables, gates), batch).loss
        )(gates)
        return tuple(
            {kind: of(own).sum(axis=1) for kind, own in gradient.items()}
            for of in (jnp.abs, lambda own: own)
        )

    totals = []
    for batch in task.held_out_batches(split_of(task)):
        totals.append(jax.device_get(of_batch(variables, batch)))
        done(len(jax.tree.leaves(batch)[0]))
    return jax.tree.map(lambda *sums: np.sum(sums, axis=0, dtype=np.float64), *totals)


def _sums(task: Task, variables: Variables, stacked: Any, done: Done, at_once: int) -> TokenSums:
    """The sums over the split for all models, each with its gates: arrays of one number per
    model."""
    models = len(jax.tree.leaves(stacked)[0])

    @jax.jit
    def of_batch(variables, stacked, batch):
        return jax.lax.map(
            lambda gates: task.held_out_sums(_gated(task, variables, gates), batch),
            stacked,
            batch_size=min(at_once, models),
        )

    totals = []
    for batch in task.held_out_batches(split_of(task)):
        totals.append(jax.device_get(of_batch(variables, stacked, batch)))
        done(models * len(jax.tree.leaves(batch)[0]))
    return jax.tree.map(lambda *sums: np.sum(sums, axis=0, dtype=np.float64), *totals)


def _decoded(task: Task) -> list[Any]:
    """The sentence pairs that BLEU is of; none of a task that does not translate."""
    if not isinstance(task, TranslationTask):
        return []
    return task.decoded_pairs(split_of(task), final=False)


def _bleus(
    task: Any, variables: Variables, stacked: Any, done: Done, at_once: int
) -> list[float] | None:
    """BLEU of greedy translations of all models, or None of a task that does not translate."""
    pairs = _decoded(task)
    if not pairs:
        return None
    sources = [pair.source for pair in pairs]
    models = len(jax.tree.leaves(stacked)[0])
    at_once = min(at_once, models)
    # The last group is as large as the others, by models with all heads on, or it would be compiled
    # again.
    padded = jax.tree.map(
        lambda gates: jnp.pad(gates, [(0, -models % at_once), (0, 0), (0, 0)], constant_values=1.0),
        stacked,
    )
    collections = jax.vmap(lambda gates: _gated(task, {}, gates))(padded)
    bleus = []
    for first in range(0, models, at_once):
        own = jax.tree.map(lambda gates, i=first: gates[i : i + at_once], collections)
        found = task.predictor.translate_stacked(own, sources, beam_size=1, shared=variables)
        for best in found[: models - first]:
            hypotheses = [translations[0].text for translations in best]
            bleus.append(task.text_scores(hypotheses, pairs, final=False)["bleu"])
            done(len(pairs))
    return bleus


# -- what comes out


def print_ranking(ranking: Ranking) -> None:
    """Prints the heads, those first whose absence raises the loss most, and the correlations."""
    told = f"with all on: loss {ranking.loss:.4f}, accuracy {ranking.accuracy:.2%}"
    if ranking.bleu is not None:
        told += f", greedy BLEU {ranking.bleu:.2f} of the first {ranking.decoded} sentences"
    where = f"{ranking.split} set, {ranking.tokens:,} {ranking.unit}"
    table = Table(title=f"Ablation of each head: {where}\n{told}")
    for name in ("attention", "layer", "head", "importance", "estimate", "loss", "accuracy"):
        table.add_column(name, justify="left" if name == "attention" else "right")
    if ranking.bleu is not None:
        table.add_column("BLEU", justify="right")
    for head in sorted(ranking.heads, key=lambda head: -head.loss):
        table.add_row(
            KINDS[head.kind][0],
            str(head.layer),
            str(head.head),
            f"{head.importance:.4f}",
            f"{head.estimate:+.4f}",
            f"{head.loss:+.4f}",
            f"{head.accuracy:+.2%}",
            *([] if head.bleu is None else [f"{head.bleu:+.2f}"]),
        )
    print_table(table, keys=3)
    correlations = [
        ("importance", "loss", ranking.by_importance),
        ("estimate", "loss", ranking.by_estimate),
    ]
    if ranking.bleu is not None:
        correlations.append(("importance", "BLEU", ranking.bleu_by_importance))
    missing = "too few heads" if len(ranking.heads) < MIN_HEADS else "all heads are equal"
    for name, change, correlation in correlations:
        number = f"none: {missing}" if correlation is None else f"{correlation:.3f}"
        print(
            f"Spearman's rank correlation of {name}, by gradient, and change of {change}, over "
            f"{len(ranking.heads)} heads: {number}"
        )


def write(ranking: Ranking, folder: Path) -> list[Path]:
    """Writes the picture and the numbers behind it, as CSV and JSON; returns the files.

    Args:
      folder: is there.
    """
    picture, table, numbers = (folder / f"head_importance.{end}" for end in ("png", "csv", "json"))
    rows = [dataclasses.asdict(head) for head in ranking.heads]
    unit = ranking.unit.split()[-1].removesuffix("s")
    save_figure(figures.build_figure(rows, ranking.by_importance, unit), picture)
    with whole_file(table) as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_json(numbers, dataclasses.asdict(ranking))
    return [picture, table, numbers]
