"""Ranks attention heads by gradients and by ablation.

The output of each head is multiplied by a gate of 1, see `transformer.model.stack`. One backward
pass over the test set gives the derivative of every text's loss L_x, a sum over its tokens, with
respect to every gate. With n tokens in total,

    importance = sum_x |dL_x / dgate| / n,    estimate = -sum_x dL_x / dgate / n,

The first is the expectation of Michel et al. divided by the mean length of a text; the second is
the first-order estimate of the change of the mean loss if the gate goes from 1 to 0. Both are
compared with the ablation of each single head: the changes of mean loss, accuracy and, for
translators, the BLEU of greedy translations of the first `evaluate.max_sentences`.

A text is a sentence pair of a translator, a row of `data.context` tokens of a language model, or a
text of a classifier, whose loss has a single term, that of its class.

Source: Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", sections 2.3
(gates) and 3.2 (ablating one), and equation 2 (importance).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from transformer.inference.base import Variables
from transformer.model.classifier import Classifier
from transformer.model.losses import TokenSums
from transformer.model.stack import gate_variables, unit_gates
from transformer.tasks.base import Task
from transformer.tasks.translation import TranslationTask

Done = Callable[[int], None]  # called with the number of texts read since the last call
MIN_HEADS = 3  # minimum number of heads for a rank correlation


@dataclasses.dataclass(frozen=True)
class HeadScores:
    """A head's importance by gradients, and the changes of scores if it is ablated.

    Losses are in nats per token, or per text of a classifier; accuracies are fractions.
    """

    kind: str  # kind of attention, a key of `transformer.analysis.attention.KINDS`
    layer: int  # from 1
    head: int  # from 1
    importance: float
    estimate: float
    loss: float
    accuracy: float
    bleu: float | None  # 0 to 100; None unless the model translates


@dataclasses.dataclass(frozen=True)
class Ranking:
    """All heads of a model, its scores without ablation, and Spearman's rank correlations.

    Correlations are with the change of loss or BLEU; None for few heads or equal numbers.
    """

    split: str
    unit: str  # the losses are means over these units
    tokens: int  # number of these units
    decoded: int  # sentences in the BLEU score
    loss: float
    accuracy: float
    bleu: float | None
    by_importance: float | None
    by_estimate: float | None
    bleu_by_importance: float | None
    heads: tuple[HeadScores, ...]


def split_of(task: Task) -> str:
    """Returns the split that heads are ranked on: the test set, if the task has one."""
    return "test" if "test" in task.splits else "validation"


def work(task: Task) -> int:
    """Returns the number of texts that `rank` reads and reports to `done`."""
    batches = task.held_out_batches(split_of(task))
    texts = sum(len(jax.tree.leaves(batch)[0]) for batch in batches)
    models = 1 + sum(gates.size for gates in unit_gates(task.predictor.model.config).values())
    return texts * (1 + models) + models * len(_decoded(task))


def rank(task: Task, variables: Variables, done: Done, at_once: int) -> Ranking:
    """Returns the importance of all heads; ablates `at_once` heads in parallel, one per model."""
    ones = unit_gates(task.predictor.model.config)
    places = [(kind, *place) for kind, own in ones.items() for place in np.ndindex(own.shape)]
    # The first model has no ablated head.
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
    importances, estimates, changes, changes_of_bleu = (
        [getattr(head, name) for head in scores]
        for name in ("importance", "estimate", "loss", "bleu")
    )
    return Ranking(
        split=split_of(task),
        unit=task.unit,
        tokens=int(tokens),
        decoded=len(_decoded(task)),
        loss=float(loss[0]),
        accuracy=float(accuracy[0]),
        bleu=bleus[0] if bleus else None,
        by_importance=rank_correlation(importances, changes),
        by_estimate=rank_correlation(estimates, changes),
        bleu_by_importance=rank_correlation(importances, changes_of_bleu) if bleus else None,
        heads=scores,
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Spearman's rho; None for fewer than MIN_HEADS pairs, or if a side is constant."""
    if len(first) < MIN_HEADS or min(len(set(first)), len(set(second))) < 2:
        return None
    from scipy.stats import spearmanr  # takes half a second

    return float(cast(Any, spearmanr(first, second)).statistic)


def _gated(task: Task, variables: Variables, gates: Any) -> dict[str, Any]:
    """Returns the variables with gates."""
    model = task.predictor.model
    part = "encoder" if isinstance(model, Classifier) else ""
    return {**variables, "gates": gate_variables(gates, model.config, part)}


def _sum(task: Task, of_batch: Callable[[Any], Any], done: Done, models: int) -> Any:
    """Returns the sums over the batches of the split, in float64."""
    totals = []
    for batch in task.held_out_batches(split_of(task)):
        totals.append(jax.device_get(of_batch(batch)))
        done(models * len(jax.tree.leaves(batch)[0]))
    return jax.tree.map(lambda *sums: np.sum(sums, axis=0, dtype=np.float64), *totals)


def _gradients(task: Task, variables: Variables, ones: Any, done: Done) -> tuple[dict, dict]:
    """Returns the sums over texts of |dL_x / dgate| and of dL_x / dgate, for all gates."""

    @jax.jit
    def of_batch(variables, batch):
        rows = len(jax.tree.leaves(batch)[0])
        # Each text has its own gates, so that one backward pass gives gradients per text.
        gates = jax.tree.map(lambda gate: jnp.repeat(gate[:, None], rows, axis=1), ones)
        gradient = jax.grad(
            lambda gates: task.held_out_sums(_gated(task, variables, gates), batch).loss
        )(gates)
        absolute = {kind: jnp.abs(slopes).sum(axis=1) for kind, slopes in gradient.items()}
        return absolute, {kind: slopes.sum(axis=1) for kind, slopes in gradient.items()}

    return _sum(task, functools.partial(of_batch, variables), done, 1)


def _sums(task: Task, variables: Variables, stacked: Any, done: Done, at_once: int) -> TokenSums:
    """Returns the sums over the split for all models, each with its gates."""
    models = len(jax.tree.leaves(stacked)[0])

    @jax.jit
    def of_batch(variables, stacked, batch):
        return jax.lax.map(
            lambda gates: task.held_out_sums(_gated(task, variables, gates), batch),
            stacked,
            batch_size=min(at_once, models),
        )

    return _sum(task, functools.partial(of_batch, variables, stacked), done, models)


def _decoded(task: Task) -> list[Any]:
    """Returns the sentence pairs for BLEU; none if the task does not translate."""
    translates = isinstance(task, TranslationTask)
    return task.decoded_pairs(split_of(task), final=False) if translates else []


def _bleus(task: Any, variables: Variables, stacked: Any, done: Done, at_once: int) -> list[float]:
    """Returns BLEU of all models' greedy translations; none if the task does not translate."""
    pairs = _decoded(task)
    if not pairs:
        return []
    sources = [pair.source for pair in pairs]
    models = len(jax.tree.leaves(stacked)[0])
    at_once = min(at_once, models)
    # The last group is filled up with models without ablation, or it would be compiled for its own
    # size.
    padded = jax.tree.map(
        lambda gates: jnp.pad(gates, [(0, -models % at_once), (0, 0), (0, 0)], constant_values=1.0),
        stacked,
    )
    collections = jax.vmap(lambda gates: _gated(task, {}, gates))(padded)
    bleus = []
    for first in range(0, models, at_once):
        group = jax.tree.map(lambda gates, i=first: gates[i : i + at_once], collections)
        outputs = task.predictor.translate_stacked(group, sources, beam_size=1, shared=variables)
        for best in outputs[: models - first]:
            hypotheses = [translations[0].text for translations in best]
            bleus.append(task.text_scores(hypotheses, pairs, final=False)["bleu"])
            done(len(pairs))
    return bleus
