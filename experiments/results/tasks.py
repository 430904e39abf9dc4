"""The measures by which systems of each task are compared; a task is an entry of `REGISTRY`."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from transformer import tasks
from transformer.metrics.registry import SWEEPS, Metric, find, metrics_of
from transformer.tasks.base import PICTURES
from . import texts
from .statistics import OfSums, ratio_of_sums
from .texts import Texts

# Suffix of a path that stands for all numbers whose path starts the same way; its title has {}
# for the rest of the path.
ANY = "*"
NO_KINDS = ("_signature", "_ci")  # suffixes of names that describe another number


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number at a path of the results, multiplied by `scale`, with its format."""

    path: str
    title: str
    scale: float = 1.0
    format: str = ",.2f"
    spread: bool = True  # with the standard deviation; costs have the mean alone

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.split(".")[-1]

    def show(self, number: float) -> str:
        """Returns a number of the results as text."""
        return format(number * self.scale, self.format)

    def expand(self, results: Iterable[dict[str, Any]]) -> "list[Measure]":
        """Returns this measure; or, if its path ends in `ANY`, one for each matching number."""
        if not self.path.endswith(ANY):
            return [self]
        split, start = self.path.removesuffix(ANY).split(".")
        names = {name for own in results for name in own.get(split) or {}}
        return [
            dataclasses.replace(self, path=f"{split}.{name}", title=self.title.format(kind))
            for name in sorted(names)
            if not name.endswith(NO_KINDS) and (kind := name.removeprefix(start)) != name
        ]


@dataclasses.dataclass(frozen=True)
class TaskMeasures:
    """The measures by which systems of one task are judged, see `measures_of`."""

    main_metric: str  # ranks and compares the settings of a sweep
    panels: tuple[str, ...]  # metrics in the figure of scores; for another split, `split.name`
    curves: tuple[str, ...]  # validation metrics with curves over training
    made: str  # the name of the outputs, a key of `outputs.REGISTRY`
    read: Callable[[Path, Any], Texts]  # from the folder of a test set and `config.data`
    of_sums: dict[str, OfSums]  # scores of any set of texts by metric, the main one first
    changes: str  # the metric that compares single texts
    per_token: str = ""  # the metric in `of_sums` that is a mean over tokens
    by_length: tuple[str, ...] = ()  # metrics that a sweep draws over length
    length: str = "words"
    all_texts: bool = True  # whether a run saves all texts of its test set
    same: str = "compare runs of one test set, or name a set that all were scored on with --set"
    others: tuple[str, ...] = ()  # further columns, as `panels`; `name_*` matches prefixes
    curves_note: str = ""  # appended to "Validation while training"
    other_notes: dict[str, str] = dataclasses.field(default_factory=dict)  # on some of `others`
    splits: tuple[str, ...] = ("test",)
    task: str = ""
    noun: str = ""  # the name of a text in the test set
    unit: str = ""  # the unit of the speed
    split: str = "test"  # the compared split: the first of `splits` that all runs have scores of

    @property
    def scored(self) -> str:
        """The name of its metrics in `metrics.registry.REGISTRY`."""
        return tasks.REGISTRY[self.task].metrics

    def metric(self, name: str) -> Metric:
        """Returns a metric of the task."""
        return find(name, self.scored)

    @property
    def main(self) -> Measure:
        """The measure by which settings are ranked and compared."""
        return self.measure(self.main_metric)

    @property
    def further(self) -> list[Measure]:
        """The other columns of scores."""
        metrics = [name for name in metrics_of(self.scored, SWEEPS) if name != self.main_metric]
        return [self.measure(name) for name in (*metrics, *self.others)]

    @property
    def about(self) -> dict[str, str]:
        """Notes on the numbers in the table, by path."""
        metrics = metrics_of(self.scored, SWEEPS).items()
        return {f"{self.split}.{n}": m.about for n, m in metrics if m.about} | self.other_notes

    def measure(self, name: str, panel: bool = False) -> Measure:
        """Returns a metric's measure for a column, or for a panel, which has a longer title."""
        split, _, name = name.rpartition(".")
        metric = self.metric(name.removesuffix(f"_{ANY}"))
        title = metric.label if panel else metric.column
        title = f"{{}}: {title}" if name.endswith(ANY) else title
        title = f"{split.replace('_', ' ')}: {title}" if split else title
        title += " (lower is better)" if panel and not metric.higher_is_better else ""
        return Measure(f"{split or self.split}.{name}", title, metric.scale, metric.format)


TRANSLATION = TaskMeasures(
    main_metric="bleu",
    panels=("bleu", "exact_match", "length_generalization.bleu"),
    curves=("loss", "bleu"),
    made="translations",
    read=texts.read_translations,
    of_sums={
        "bleu": texts.bleu_of_sums,
        "chrf": texts.chrf_of_sums,
        "exact_match": functools.partial(ratio_of_sums, scale=100.0),
    },
    changes="chrf",
    by_length=("bleu", "exact_match"),
    length="words of the source",
    others=("length_generalization.bleu", "length_generalization.exact_match"),
    curves_note=", with the search of the evaluations during training",
    other_notes={
        "length_generalization.bleu": "length generalization: sentences longer than those of the "
        "training."
    },
)
LANGUAGE_MODEL = TaskMeasures(
    main_metric="perplexity",
    panels=("perplexity", "bits_per_byte"),
    curves=("nll", "accuracy"),
    made="likelihoods",
    read=texts.read_likelihoods,
    of_sums={"bits_per_byte": ratio_of_sums, "nll": ratio_of_sums},
    changes="bits_per_byte",
    per_token="nll",
    all_texts=False,
    same="models are compared on segments of the same text, so train them with the same tokenizer "
    "and data.context",
    curves_note=" (nll is the natural logarithm of perplexity)",
    splits=("test", "validation"),
)
CLASSIFICATION = TaskMeasures(
    main_metric="accuracy",
    panels=("accuracy", "macro_f1"),
    curves=("loss", "accuracy"),
    made="predictions",
    read=texts.read_predictions,
    of_sums={"accuracy": ratio_of_sums},
    changes="accuracy",
    by_length=("accuracy",),
    others=("accuracy_*",),
)
MEASURES = {"translations": TRANSLATION, "texts": LANGUAGE_MODEL, "classes": CLASSIFICATION}


def measures_of(name: str) -> TaskMeasures:
    """Returns the measures of a task: those of its metrics, with its nouns."""
    task = tasks.REGISTRY[name]
    unit = task.unit.removeprefix("target ")
    measures = dataclasses.replace(MEASURES[task.metrics], task=name, noun=task.noun, unit=unit)
    # The source of a picture has no length.
    return dataclasses.replace(measures, by_length=()) if task.reads == PICTURES else measures


REGISTRY = {name: measures_of(name) for name in tasks.REGISTRY}
