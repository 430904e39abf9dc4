"""The measures by which systems of each task are compared; a task is an entry of `REGISTRY`."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from transformer import tasks
from transformer.metrics.registry import SWEEPS, Metric, find, metrics_of
from . import texts
from .statistics import OfSums, ratio_of_sums
from .texts import Texts

# Ends the path of a measure that stands for all numbers whose path starts so; its title has {} for
# the rest of the path.
ANY = "*"
NO_KINDS = ("_signature", "_ci")  # ends of names that are of a number, not one


@dataclasses.dataclass(frozen=True)
class Measure:
    """The number at a path of the results, times `scale`, in this format."""

    path: str
    title: str
    scale: float = 1.0
    format: str = ",.2f"
    spread: bool = True  # with the standard deviation; costs are but means

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.split(".")[-1]

    def show(self, number: float) -> str:
        """Returns a number of the results as it is read."""
        return format(number * self.scale, self.format)

    def expand(self, results: Iterable[dict[str, Any]]) -> "list[Measure]":
        """Returns this measure, or, if its path ends in `ANY`, those of these results."""
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
    """The measures by which systems of one task are judged."""

    task: str
    main_metric: str  # by which settings of a sweep are ranked and compared
    panels: tuple[str, ...]  # metrics of the picture of scores; of another split, `split.name`
    curves: tuple[str, ...]  # metrics that are drawn of the validation while training
    noun: str  # a text of the test set
    made: str  # the outputs for them
    read: Callable[[Path, Any], Texts]  # of the folder of a test set and `config.data`
    of_sums: dict[str, OfSums]  # scores of any of the texts by their metric, the main one first
    changes: str  # the metric by which single texts are compared
    per_token: str = ""  # that of `of_sums` which counts tokens, of which a text has as many in all
    by_length: tuple[str, ...] = ()  # metrics that a sweep draws over length
    length: str = "words"
    all_texts: bool = True  # whether a run keeps all texts of its test set
    same: str = "compare runs of one test set, or name a set that all were scored on with --set"
    others: tuple[str, ...] = ()  # further columns, as `panels`; `name_*` for all that start so
    curves_note: str = ""  # after "Validation while training"
    other_notes: dict[str, str] = dataclasses.field(default_factory=dict)  # on some of `others`
    splits: tuple[str, ...] = ("test",)
    unit: str = "tokens"  # that speed counts
    split: str = "test"  # that is compared: the first of `splits` that all runs have scores of

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
        """A sentence for each path whose number is in the table."""
        metrics = metrics_of(self.scored, SWEEPS).items()
        return {f"{self.split}.{n}": m.about for n, m in metrics if m.about} | self.other_notes

    def measure(self, name: str, panel: bool = False) -> Measure:
        """Returns a column, or a panel of the picture of scores, whose title has more room."""
        split, _, name = name.rpartition(".")
        metric = self.metric(name.removesuffix(f"_{ANY}"))
        title = metric.label if panel else metric.column
        title = f"{{}}: {title}" if name.endswith(ANY) else title
        title = f"{split.replace('_', ' ')}: {title}" if split else title
        title += " (lower is better)" if panel and not metric.higher_is_better else ""
        return Measure(f"{split or self.split}.{name}", title, metric.scale, metric.format)


TRANSLATION = TaskMeasures(
    task="translation",
    main_metric="bleu",
    panels=("bleu", "exact_match", "length_generalization.bleu"),
    curves=("loss", "bleu"),
    noun="sentence",
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
    task="language_model",
    main_metric="perplexity",
    panels=("perplexity", "bits_per_byte"),
    curves=("nll", "accuracy"),
    noun="segment",
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
    task="classification",
    main_metric="accuracy",
    panels=("accuracy", "macro_f1"),
    curves=("loss", "accuracy"),
    noun="text",
    made="predictions",
    read=texts.read_predictions,
    of_sums={"accuracy": ratio_of_sums},
    changes="accuracy",
    by_length=("accuracy",),
    others=("accuracy_*",),
    unit="texts",
)
PICTURES = dataclasses.replace(
    CLASSIFICATION, task="image_classification", noun="picture", by_length=(), unit="pictures"
)
QUESTIONS = dataclasses.replace(
    PICTURES, task="visual_question_answering", noun="question", unit="questions"
)
CAPTIONS = dataclasses.replace(TRANSLATION, task="captioning", noun="picture", by_length=())
REGISTRY = {
    each.task: each
    for each in (TRANSLATION, CAPTIONS, LANGUAGE_MODEL, CLASSIFICATION, PICTURES, QUESTIONS)
}
