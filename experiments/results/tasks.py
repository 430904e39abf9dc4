"""Measures for comparing systems of a task, and functions that read the scored texts of a run.

The measures of each task are in `REGISTRY`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Float, Int, Int64, Real
from ml_collections import ConfigDict

from transformer import tasks
from transformer.data import documents
from transformer.data.corpora import Tagger
from transformer.errors import UserError
from transformer.files import read_file
from transformer.metrics.registry import SWEEPS, Metric, find, metrics_of
from transformer.tasks.base import PICTURES
from .statistics import OfSums, ratio_of_sums

TRANSLATIONS = "translations/test.txt"
PREDICTIONS, LIKELIHOODS = "predictions/test.tsv", "likelihoods/test.tsv"
COLUMNS = 4  # class, predicted class, probability, text; or log-probability, tokens, bytes, text
MAX_BUCKETS = 5
MAX_TEXTS = 2**30  # maximum size in bytes of the outputs on a test set
NO_KINDS = ("_signature", "_ci")  # suffixes of entries that describe another entry

Counts = Real[np.ndarray, "texts n"]


# -- texts of a test set, and the counts from which scores are computed


def unreadable(path: Path, reason: object) -> UserError:
    """Returns the error for a missing or damaged file of a run."""
    reason = reason.strerror if isinstance(reason, OSError) else reason
    return UserError(f"{path} cannot be read ({reason}): --mode=evaluate writes it again")


class Texts(NamedTuple):
    """The texts of a test set, and a run's outputs in the same order."""

    given: dict[str, list[str]]  # lines that must be equal in all runs, keyed by file
    shown: dict[str, list[str]]  # lines shown for each text, equal in all runs; inputs first
    outputs: list[str]  # as shown to the reader


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file that a run wrote, without line breaks."""
    try:
        # Read as bytes: text mode and `splitlines` treat some characters in texts as line ends.
        text = read_file(path, MAX_TEXTS).decode("utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return text.removesuffix("\n").split("\n")


def read_rows(path: Path) -> list[list[str]]:
    """Returns the rows of a table that a run wrote; the last column may contain tabs."""
    return [line.split("\t", COLUMNS - 1) for line in read_lines(path)]


def read_translations(folder: Path, data: ConfigDict | None, split: str = "test") -> Texts:
    """Returns the texts of a translation run, with source tags of `config.data` removed."""
    start = f"translations/{split}"
    names = [f"{start}.source.txt", f"{start}.reference.txt"]
    further = (f"{start}.reference.{number}.txt" for number in itertools.count(1))
    names += itertools.takewhile(lambda name: (folder / name).exists(), further)
    inputs = {name: read_lines(folder / name) for name in names}
    if data is not None:
        untag = Tagger(data, None).split
        inputs[names[0]] = [untag(source)[1].lstrip() for source in inputs[names[0]]]
    sources, first, *more = inputs.values()
    shown = {"source": sources, "reference": first}
    shown |= {f"reference {n}": lines for n, lines in enumerate(more, 2)}
    return Texts(inputs, shown, read_lines(folder / f"{start}.txt"))


def read_predictions(folder: Path, data: ConfigDict | None) -> Texts:
    """Returns the texts and predictions of a classifier."""
    rows = read_rows(folder / PREDICTIONS)
    truth, texts = [label for label, *_ in rows], [text for *_, text in rows]
    inputs = [f"{label}\t{text}" for label, _, _, text in rows]
    outputs = [f"{label} ({probability})" for _, label, probability, _ in rows]
    return Texts({PREDICTIONS: inputs}, {"text": texts, "class": truth}, outputs)


def read_likelihoods(folder: Path, data: ConfigDict | None) -> Texts:
    """Returns the segments that a language model scored, and the formatted scores."""
    rows = read_rows(folder / LIKELIHOODS)
    outputs = [f"{-float(n):.2f} nats, {t} tokens" for n, t, *_ in rows]
    texts = [text for *_, text in rows]
    return Texts({LIKELIHOODS: texts}, {"text": texts}, outputs)


def count_words(texts: Iterable[str]) -> Int64[np.ndarray, "texts"]:
    """Returns the number of words of each text."""
    return np.array([*map(documents.count_words, texts)], np.int64)


def bleu_of_sums(sums: Real[np.ndarray, "corpora 10"]) -> Float[np.ndarray, "corpora"]:
    """Returns the BLEU score (0 to 100) of each corpus, given its summed counts."""
    bleu = functools.partial(sacrebleu.BLEU.compute_bleu, smooth_method="exp")
    return np.array([bleu(row[2:6], row[6:], *row[:2]).score for row in sums.tolist()])


def chrf_of_sums(sums: Real[np.ndarray, "corpora 18"]) -> Float[np.ndarray, "corpora"]:
    """Returns the chrF score (0 to 100) of each corpus, given its summed counts."""
    return np.array([sacrebleu.CHRF()._compute_f_score(row) for row in sums.tolist()])


def length_buckets(lengths: Int[np.ndarray, "texts"]) -> list[Int[np.ndarray, "_"]]:
    """Returns the indices of texts in up to five equal-sized buckets, shortest texts first.

    Texts of equal length share a bucket, so there may be fewer buckets. No bucket is empty.
    """
    quantiles = np.quantile(lengths, np.arange(1, MAX_BUCKETS) / MAX_BUCKETS, method="lower")
    longest = np.unique(quantiles[quantiles < lengths.max()])  # maximum length of each bucket
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]


# -- measures


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number at a path in the results, with a title, a scale factor and a format."""

    path: str
    title: str
    scale: float = 1.0
    format: str = ",.2f"
    spread: bool = True  # whether to show the standard deviation, which costs do not have

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.split(".")[-1]

    def show(self, number: float) -> str:
        """Returns a scaled and formatted number of the results."""
        return format(number * self.scale, self.format)


@dataclasses.dataclass(frozen=True)
class TaskMeasures:
    """The measures by which systems of one task are judged; see `measures_of`."""

    main_metric: str  # ranks and compares the settings of a sweep
    panels: tuple[str, ...]  # metrics in the score figure, written `split.name` for another split
    curves: tuple[str, ...]  # validation metrics with training curves
    made: str  # the name of the outputs, a key of `outputs.REGISTRY`
    read: Callable[[Path, Any], Texts]  # called with a test set's folder and `config.data`
    of_sums: dict[str, OfSums]  # score functions keyed by metric, the main metric first
    changes: str  # the metric by which single texts are compared
    per_token: str = ""  # the metric in `of_sums` that is a mean over tokens
    by_length: tuple[str, ...] = ()  # metrics that a sweep plots by text length
    length: str = "words"
    all_texts: bool = True  # whether a run saves all texts of its test set
    same: str = "compare runs of one test set, or name a set that all were scored on with --set"
    others: tuple[str, ...] = ()  # further columns, named as in `panels`
    has_kinds: bool = False  # whether the main metric has results for kinds of texts: `name_kind`
    splits: tuple[str, ...] = ("test",)
    scored: str = ""  # the name of the task's metrics in `metrics.registry.REGISTRY`
    noun: str = ""  # the name of a text in the test set
    unit: str = ""  # the unit of the speed
    split: str = "test"  # the compared split: the first of `splits` for which all runs have scores

    def metric(self, name: str) -> Metric:
        """Returns a metric of the task."""
        return find(name, self.scored)

    @property
    def main(self) -> Measure:
        """The measure by which settings are ranked and compared."""
        return self.measure(self.main_metric)

    def further(self, results: Iterable[dict[str, Any]]) -> list[Measure]:
        """Returns the measures of the other score columns, with those of any kinds in results."""
        metrics = [name for name in metrics_of(self.scored, SWEEPS) if name != self.main_metric]
        measures, main = [self.measure(name) for name in (*metrics, *self.others)], self.main
        names = {name for each in results for name in each.get(self.split) or {}}
        for name in sorted(names) if self.has_kinds else ():
            kind = name.removeprefix(f"{main.name}_")
            if kind != name and not name.endswith(NO_KINDS):
                path, title = f"{self.split}.{name}", f"{kind}: {main.title}"
                measures.append(dataclasses.replace(main, path=path, title=title))
        return measures

    def measure(self, name: str, panel: bool = False) -> Measure:
        """Returns a metric's measure, titled for a column or, at more length, for a subplot."""
        split, _, name = name.rpartition(".")
        metric = self.metric(name)
        title = metric.label if panel else metric.column
        title = f"{split.replace('_', ' ')}: {title}" if split else title
        title += " (lower is better)" if panel and not metric.higher_is_better else ""
        return Measure(f"{split or self.split}.{name}", title, metric.scale, metric.format)


TRANSLATION = TaskMeasures(
    main_metric="bleu",
    panels=("bleu", "exact_match", "length_generalization.bleu"),
    curves=("loss", "bleu"),
    made="translations",
    read=read_translations,
    of_sums={
        "bleu": bleu_of_sums,
        "chrf": chrf_of_sums,
        "exact_match": functools.partial(ratio_of_sums, scale=100.0),
    },
    changes="chrf",
    by_length=("bleu", "exact_match"),
    length="words of the source",
    others=("length_generalization.bleu", "length_generalization.exact_match"),
)
LANGUAGE_MODEL = TaskMeasures(
    main_metric="perplexity",
    panels=("perplexity", "bits_per_byte"),
    curves=("nll", "accuracy"),
    made="likelihoods",
    read=read_likelihoods,
    of_sums={"bits_per_byte": ratio_of_sums, "nll": ratio_of_sums},
    changes="bits_per_byte",
    per_token="nll",
    all_texts=False,
    same="models are compared on segments of the same text, so train them with the same tokenizer "
    "and data.context",
    splits=("test", "validation"),
)
CLASSIFICATION = TaskMeasures(
    main_metric="accuracy",
    panels=("accuracy", "macro_f1"),
    curves=("loss", "accuracy"),
    made="predictions",
    read=read_predictions,
    of_sums={"accuracy": ratio_of_sums},
    changes="accuracy",
    by_length=("accuracy",),
    has_kinds=True,
)
MEASURES = {"translations": TRANSLATION, "texts": LANGUAGE_MODEL, "classes": CLASSIFICATION}


def measures_of(name: str) -> TaskMeasures:
    """Returns the measures for a task's metrics, with the task's noun and unit."""
    task = tasks.REGISTRY[name]
    about = {"scored": task.metrics, "noun": task.noun, "unit": task.unit.removeprefix("target ")}
    measures = dataclasses.replace(MEASURES[task.metrics], **about)
    # An image input has no length in words.
    return dataclasses.replace(measures, by_length=()) if task.reads == PICTURES else measures


REGISTRY = {name: measures_of(name) for name in tasks.REGISTRY}
