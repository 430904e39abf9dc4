"""The measures by which sweeps of each task are compared; each task adds an entry of `REGISTRY`."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measures.predictions import read_predictions
from experiments.measures.significance import OfSums, ratio_of_sums, score_of
from experiments.measures.texts import Texts, exact_fraction
from experiments.measures.translations import bleu_of_sums, read_translations
from transformer.metrics.registry import SWEEPS, find, metrics_of

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

    def show(self, number: float, sign: str = "") -> str:
        """A number of the results as this measure is read; with "+" also a positive one's sign."""
        return format(number * self.scale, sign + self.format)

    def expand(self, results: Iterable[dict[str, Any]]) -> "list[Measure]":
        """This measure, or, if it stands for any, those of these results in its place."""
        if not self.path.endswith(ANY):
            return [self]
        split, start = self.path.removesuffix(ANY).split(".")
        kinds = {
            name.removeprefix(start)
            for result in results
            for name in result.get(split) or {}
            if name.startswith(start) and not name.endswith(NO_KINDS)
        }
        return [
            dataclasses.replace(self, path=f"{split}.{start}{kind}", title=self.title.format(kind))
            for kind in sorted(kinds)
        ]


@dataclasses.dataclass(frozen=True)
class TextScores:
    """How runs are compared by their outputs for each text of the test set, if they keep them.

    Attributes:
      noun: a text.
      made: the outputs for them.
      length: the length of a text, in words.
      read: takes a run's folder and its test scores; raises `texts.UnreadableError`.
      of_sums: the main measure, as the results have it, of sums of counts.
      by_length: titles of the panels over length, and the number of a panel from rows of texts.
    """

    noun: str
    made: str
    length: str
    read: Callable[[Path, dict[str, Any]], Texts]
    of_sums: OfSums
    by_length: dict[str, Callable[[Texts, np.ndarray], float]]


@dataclasses.dataclass(frozen=True)
class TaskMeasures:
    """The measures by which a sweep of one task is judged.

    Attributes:
      task: its name.
      main_metric: by which settings are ranked and compared.
      panels: metrics of the picture of scores; of another split, `split.name`.
      curves: metrics that are drawn of the validation while training.
      others: columns after the task's metrics: of another split, or `name_*` for all numbers whose
        name starts so.
      curves_note: about the curves, after "Validation while training".
      other_notes: a sentence for each of `others` that needs one.
      splits: the first that all runs have scores of is the one that is compared.
      texts: None if a run keeps only sums over all of its text.
      unit: that speed counts.
      split: the one that is compared.
    """

    task: str
    main_metric: str
    panels: tuple[str, ...]
    curves: tuple[str, ...]
    others: tuple[str, ...] = ()
    curves_note: str = ""
    other_notes: dict[str, str] = dataclasses.field(default_factory=dict)
    splits: tuple[str, ...] = ("test",)
    texts: TextScores | None = None
    unit: str = "tokens"
    split: str = "test"

    @property
    def main(self) -> Measure:
        """The measure by which settings are ranked and compared."""
        return self._measure(self.main_metric)

    @property
    def higher_is_better(self) -> bool:
        """Whether it is so of `main`."""
        return find(self.main_metric, self.task).higher_is_better

    @property
    def further(self) -> list[Measure]:
        """The other columns of scores."""
        metrics = [name for name in metrics_of(self.task, SWEEPS) if name != self.main_metric]
        return [self._measure(name) for name in (*metrics, *self.others)]

    @property
    def score_panels(self) -> list[Measure]:
        """Of the picture of scores."""
        return [self._labelled(name) for name in self.panels]

    @property
    def curve_panels(self) -> list[Measure]:
        """Of the validation while training; their paths are keys of `metrics.jsonl`."""
        metrics = [find(name, self.task) for name in self.curves]
        return [Measure(m.name, f"validation {m.label}", m.scale, m.format) for m in metrics]

    @property
    def about(self) -> dict[str, str]:
        """A sentence for each path whose number is in the table."""
        metrics = metrics_of(self.task, SWEEPS)
        own = {f"{self.split}.{name}": m.about for name, m in metrics.items() if m.about}
        return own | self.other_notes

    def of_split(self, split: str) -> "TaskMeasures":
        """The same measures of another split, in place of the test set."""
        return dataclasses.replace(self, split=split)

    def _measure(self, name: str) -> Measure:
        """A column: a metric of `split`, of another split, or for all whose name starts so."""
        split, _, name = name.rpartition(".")
        metric = find(name.removesuffix(f"_{ANY}"), self.task)
        title = f"{{}}: {metric.column}" if name.endswith(ANY) else metric.column
        title = f"{split.replace('_', ' ')}: {title}" if split else title
        return Measure(f"{split or self.split}.{name}", title, metric.scale, metric.format)

    def _labelled(self, name: str) -> Measure:
        """A column as a panel's, which has room for more words."""
        split, _, last = name.rpartition(".")
        metric = find(last, self.task)
        title = f"{split.replace('_', ' ')}: {metric.label}" if split else metric.label
        title += "" if metric.higher_is_better else " (lower is better)"
        return dataclasses.replace(self._measure(name), title=title)


TRANSLATIONS = TextScores(
    noun="sentence",
    made="translations",
    length="words of the source",
    read=read_translations,
    of_sums=bleu_of_sums,
    by_length={
        "BLEU": lambda texts, rows: score_of(texts.counts[rows], bleu_of_sums),
        "exact matches (%)": exact_fraction,
    },
)
PREDICTIONS = TextScores(
    noun="text",
    made="predictions",
    length="words",
    read=read_predictions,
    of_sums=ratio_of_sums,
    by_length={"accuracy (%)": exact_fraction},
)
REGISTRY = {
    measures.task: measures
    for measures in (
        TaskMeasures(
            task="translation",
            main_metric="bleu",
            panels=("bleu", "exact_match", "length_generalization.bleu"),
            curves=("loss", "bleu"),
            others=("length_generalization.bleu", "length_generalization.exact_match"),
            curves_note=", with the search of the evaluations during training",
            other_notes={
                "length_generalization.bleu": "length generalization: sentences "
                "longer than those of the training.",
            },
            texts=TRANSLATIONS,
        ),
        TaskMeasures(
            task="language_model",
            main_metric="perplexity",
            panels=("perplexity", "bits_per_byte"),
            curves=("nll", "accuracy"),
            curves_note=" (nll is the natural logarithm of perplexity)",
            splits=("test", "validation"),
        ),
        TaskMeasures(
            task="classification",
            main_metric="accuracy",
            panels=("accuracy", "macro_f1"),
            curves=("loss", "accuracy"),
            others=("accuracy_*",),
            texts=PREDICTIONS,
            unit="texts",
        ),
    )
}
