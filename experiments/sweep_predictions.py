"""Predicted labels of a sweep's runs: which are right, and whether two classifiers differ."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.sweep_texts import Texts, UnreadableError, count_words, digest, read_lines

PREDICTIONS = "predictions/test.tsv"
COLUMNS = 4  # true label, predicted label, its probability, text


def read_predictions(folder: Path, scores: dict[str, Any]) -> Texts:
    """What a run made of its test set; `counts` [texts, 1] are 1 of a right label, else 0.

    Args:
      folder: the run's.
      scores: of its test set; nothing of them is needed.

    Raises:
      UnreadableError: the file is missing or damaged.
    """
    path = folder / PREDICTIONS
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, 1):
        if len(row) != COLUMNS:
            raise UnreadableError(
                path, f"line {number} has {len(row)} columns instead of {COLUMNS}"
            )
    truth, predicted, _, texts = zip(*rows, strict=True)
    right = np.array([a == b for a, b in zip(truth, predicted, strict=True)])
    given = digest(f"{label}\t{text}" for label, text in zip(truth, texts, strict=True))
    return Texts(right[:, None].astype(np.int64), right, count_words(texts), {PREDICTIONS: given})


def accuracy(counts: np.ndarray) -> float:
    """The share of right labels, 0 to 1, of texts with these counts [texts, 1]."""
    return float(counts.mean())


def exchange_test(counts: np.ndarray, baseline: np.ndarray) -> tuple[float, str]:
    """The p-value of a difference in accuracy on one test set, and the signature of the test.

    Were two settings alike, what each made of a text could as well have been the other's. Of all
    ways to exchange it for some texts, the p-value is the share in which the accuracies differ at
    least as much as they do, whichever is ahead. Of one seed that is McNemar's test.

    Args:
      counts: int64 [texts, 1]: right labels of a text, of all seeds together; the baseline's is
        of the same texts and seeds.

    Source: McNemar 1947, exact as in Fagerland et al. 2013; for the sums of several seeds Fisher
    1935, "The Design of Experiments", chapter 3.
    """
    differences = (counts - baseline).sum(1)
    sizes, texts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    # Of the sum of those differences that fall to the setting, from 0 to the sum of all.
    chances = np.ones(1)
    for size, number in zip(sizes.tolist(), texts.tolist(), strict=True):
        own = np.zeros(size * number + 1)
        own[::size] = stats.binom.pmf(np.arange(number + 1), number, 0.5)
        chances = np.convolve(chances, own)
    sums = np.arange(len(chances))
    as_far = np.abs(2 * sums - sums[-1]) >= abs(int(differences.sum()))
    return min(1.0, float(chances[as_far].sum())), "exact|two-sided"
