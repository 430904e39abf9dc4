"""Predicted labels of a sweep's runs: accuracy, and a significance test of two classifiers."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from experiments.measures.texts import Texts, count_words, digest, read_rows

PREDICTIONS = "predictions/test.tsv"
COLUMNS = 4  # true label, predicted label, its probability, text


def read_predictions(folder: Path, scores: dict[str, Any]) -> Texts:
    """The predictions of a run for its test set; `counts` are 1 of a right label, else 0.

    Args:
      folder: the run's.
      scores: of its test set; nothing of them is needed.

    Raises:
      UnreadableError: the file is missing or damaged.
    """
    truth, predicted, _, texts = zip(*read_rows(folder / PREDICTIONS, COLUMNS), strict=True)
    right = np.array([a == b for a, b in zip(truth, predicted, strict=True)])
    given = digest(f"{label}\t{text}" for label, text in zip(truth, texts, strict=True))
    return Texts(right[:, None].astype(np.int64), right, count_words(texts), {PREDICTIONS: given})


def accuracy(counts: Int[np.ndarray, "N 1"]) -> float:
    """The fraction of right labels, 0 to 1, of texts with these counts."""
    return float(counts.mean())


def mcnemar_test(
    counts: Int[np.ndarray, "N 1"], baseline: Int[np.ndarray, "N 1"]
) -> tuple[float, str]:
    """The two-sided p-value of a difference in accuracy on one test set, and the test's signature.

    If two classifiers were equally good, each would be right on half of the texts that only one has
    right.

    Args:
      counts: 1 of a right label, else 0; the baseline's is of the same texts.

    Source: McNemar 1947, exact as in Fagerland et al. 2013.
    """
    from scipy import stats  # which takes half a second

    won, lost = int((counts > baseline).sum()), int((counts < baseline).sum())
    p_value = float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0
    return p_value, "exact|two-sided"
