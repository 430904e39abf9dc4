"""Predicted labels of a sweep's runs."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.measures.texts import Texts, count_words, digest, read_rows

PREDICTIONS = "predictions/test.tsv"
COLUMNS = 4  # true label, predicted label, its probability, text


def read_predictions(folder: Path, scores: dict[str, Any]) -> Texts:
    """The predictions of a run for its test set; `counts` are of right labels and of labels.

    Args:
      folder: the run's.
      scores: of its test set; nothing of them is needed.

    Raises:
      UnreadableError: the file is missing or damaged.
    """
    truth, predicted, _, texts = zip(*read_rows(folder / PREDICTIONS, COLUMNS), strict=True)
    right = np.array([a == b for a, b in zip(truth, predicted, strict=True)])
    given = digest(f"{label}\t{text}" for label, text in zip(truth, texts, strict=True))
    counts = np.stack([right, np.ones_like(right)], 1).astype(np.int64)
    return Texts(counts, right, count_words(texts), {PREDICTIONS: given})
