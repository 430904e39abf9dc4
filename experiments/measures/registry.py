"""What the sweeps of each task are judged by: an entry of `REGISTRY` is all that a task adds."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.measures.predictions import accuracy, mcnemar_test, read_predictions
from experiments.measures.texts import Texts, exact_share
from experiments.measures.translations import bleu, randomisation_test, read_translations

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
        """This measure, or, where it stands for any, those of these results in its place."""
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
    """How runs that keep what they made of each text of the test set are compared by it.

    Attributes:
      noun: a text.
      made: what was made of them.
      length: what counts as length, in words.
      read: takes a run's folder and its test scores; raises `sweep_texts.UnreadableError`.
      score: the main measure of texts with these counts, as the results have it.
      test: takes the counts of a run and of the baseline's; returns the two-sided p-value of their
        difference and the test's signature. For settings that share a single seed.
      test_name: of that test, for people; "{signature}" stands in it for the signature.
      by_length: titles of the panels over length, and the number of a panel from rows of texts.
    """

    noun: str
    made: str
    length: str
    read: Callable[[Path, dict[str, Any]], Texts]
    score: Callable[[np.ndarray], float]
    test: Callable[[np.ndarray, np.ndarray], tuple[float, str]]
    test_name: str
    by_length: dict[str, Callable[[Texts, np.ndarray], float]]


@dataclasses.dataclass(frozen=True)
class TaskMeasures:
    """What a sweep of one task is judged by. All paths of scores are those of the test set.

    Attributes:
      main: what settings are ranked and compared by.
      further: the other columns of scores.
      panels: of the picture of scores.
      curves: of the validation while training; their paths are keys of `metrics.jsonl`.
      curves_note: what to know of them, after "Validation while training".
      about: a sentence for each path whose number is in the table.
      higher_is_better: whether it is so of `main`.
      splits: the first that all runs have scores of is the one that is compared.
      texts: None where a run keeps only sums over all of its text.
      unit: what speed counts.
    """

    main: Measure
    further: tuple[Measure, ...]
    panels: tuple[Measure, ...]
    curves: tuple[Measure, ...]
    curves_note: str = ""
    about: dict[str, str] = dataclasses.field(default_factory=dict)
    higher_is_better: bool = True
    splits: tuple[str, ...] = ("test",)
    texts: TextScores | None = None
    unit: str = "tokens"

    @property
    def split(self) -> str:
        """What is compared."""
        return self.main.path.split(".")[0]

    def of_split(self, split: str) -> "TaskMeasures":
        """The same measures of another split, in place of the test set."""

        def moved(path: str) -> str:
            return f"{split}.{path.removeprefix('test.')}" if path.startswith("test.") else path

        def move(measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
            return tuple(dataclasses.replace(m, path=moved(m.path)) for m in measures)

        return dataclasses.replace(
            self,
            main=move((self.main,))[0],
            further=move(self.further),
            panels=move(self.panels),
            about={moved(path): text for path, text in self.about.items()},
        )


TRANSLATIONS = TextScores(
    noun="sentence",
    made="translations",
    length="words of the source",
    read=read_translations,
    score=bleu,
    test=randomisation_test,
    test_name="approximate randomisation over sentences ({signature}; Riezler and Maxwell 2005)",
    by_length={
        "BLEU": lambda texts, rows: bleu(texts.counts[rows]),
        "exact matches (%)": exact_share,
    },
)
PREDICTIONS = TextScores(
    noun="text",
    made="predictions",
    length="words",
    read=read_predictions,
    score=accuracy,
    test=mcnemar_test,
    test_name="McNemar's test over texts ({signature})",
    by_length={"accuracy (%)": exact_share},
)
BLEU = Measure("test.bleu", "BLEU")
PERPLEXITY = Measure("test.perplexity", "perplexity", format=",.3f")
BITS = Measure("test.bits_per_byte", "bits/byte", format=",.4f")
ACCURACY = Measure("test.accuracy", "accuracy (%)", 100)
MACRO_F1 = Measure("test.macro_f1", "macro F1 (%)", 100)
LOSS_CURVE = Measure("loss", "validation loss (nats)")
ACCURACY_CURVE = Measure("accuracy", "validation accuracy (%)", 100)

REGISTRY = {
    "translation": TaskMeasures(
        main=BLEU,
        further=(
            Measure("test.bleu_moses_lowercase", "BLEU, Moses lowercase"),
            Measure("test.chrf", "chrF"),
            Measure("test.exact_match", "exact (%)"),
            Measure("longer.bleu", "longer: BLEU"),
            Measure("longer.exact_match", "longer: exact (%)"),
        ),
        panels=(
            BLEU,
            Measure("test.exact_match", "exact matches (%)"),
            Measure("longer.bleu", "longer: BLEU"),
        ),
        curves=(LOSS_CURVE, Measure("bleu", "validation BLEU")),
        curves_note=", with the search of the evaluations during training",
        about={"longer.bleu": "longer: sentences longer than those of the training."},
        texts=TRANSLATIONS,
    ),
    "language_model": TaskMeasures(
        main=PERPLEXITY,
        further=(
            Measure("test.word_perplexity", "word perplexity"),
            BITS,
            Measure("test.nll", "nll (nats)", format=",.4f"),
            ACCURACY,
        ),
        panels=(
            dataclasses.replace(PERPLEXITY, title="perplexity (lower is better)"),
            dataclasses.replace(BITS, title="bits/byte (lower is better)"),
        ),
        curves=(Measure("nll", "validation nll (nats)"), ACCURACY_CURVE),
        curves_note=" (nll is the natural logarithm of perplexity)",
        about={
            "test.perplexity": "nll: the mean negative log-likelihood of a token; perplexity: "
            "exp(nll); accuracy: the share of tokens that were found the most probable. Of all but "
            "accuracy lower is better.",
        },
        higher_is_better=False,
        splits=("test", "validation"),
    ),
    "classification": TaskMeasures(
        unit="texts",
        main=ACCURACY,
        further=(
            MACRO_F1,
            Measure("test.nll", "nll (nats)", format=",.4f"),
            Measure("test.ece", "ECE (%)", 100),
            Measure("test.accuracy_*", "{}: accuracy (%)", 100),
        ),
        panels=(ACCURACY, MACRO_F1),
        curves=(LOSS_CURVE, ACCURACY_CURVE),
        about={
            "test.macro_f1": "macro F1: the mean of the classes' F1.",
            "test.nll": "nll: the mean negative log-likelihood of the true label; lower is better.",
            "test.ece": "ECE: the expected calibration error, how far the probability of what is "
            "predicted is from how often that is right, on average; lower is better.",
        },
        texts=PREDICTIONS,
    ),
}
