"""Classification metrics: accuracy, F1, confusion matrix, ROC curves and calibration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer.metrics.registry import proportion_interval

BINS = 15  # as in Guo et al. 2017
ROC_POINTS = 101  # points per ROC curve in the results
MIN_PROBABILITY = np.finfo(np.float32).tiny  # replaces probabilities that underflow to zero


class Reliability(NamedTuple):
    """Statistics of predictions binned by confidence, the probability of the predicted class.

    Attributes:
      confidence, accuracy: means over the texts in each bin, or zero if a bin is empty.
      count: number of texts in each bin.
    """

    confidence: Float[np.ndarray, "bins"]
    accuracy: Float[np.ndarray, "bins"]
    count: Int[np.ndarray, "bins"]

    @property
    def error(self) -> float:
        """The expected calibration error: the weighted mean of |confidence - accuracy|.

        Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.
        """
        gaps = np.abs(self.accuracy - self.confidence)
        return float(gaps @ self.count / max(1, self.count.sum()))


def reliability(
    truth: Int[np.ndarray, "N"], probabilities: Float[np.ndarray, "N C"], bins: int = BINS
) -> Reliability:
    """Returns the statistics for the bins ((m - 1) / bins, m / bins], m = 1, ..., bins.

    Source: Guo et al. 2017, section 2, "Reliability Diagrams".
    """
    confidence = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == truth
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    means = [
        np.bincount(place, weights=values, minlength=bins) / np.maximum(count, 1)
        for values in (confidence, right)
    ]
    return Reliability(*means, count=count)


def class_scores(
    truth: Int[np.ndarray, "N"],
    probabilities: Float[np.ndarray, "N C"],
    labels: Sequence[str],
    interval: bool = False,
) -> dict[str, Any]:
    """Returns all scores of a classifier's predictions as JSON data.

    Args:
      truth: the true class id of each text, from zero.
      probabilities: the class probabilities of each text; each row sums to one.
      labels: class names.
      interval: whether to add `accuracy_ci`, the bounds of the accuracy's 95% confidence interval;
        see `proportion_interval`.

    Returns:
      `accuracy`, `macro_f1` and `ece`, from 0 to 1; `nll`, the mean negative log-likelihood in nats
      per text; `classes`, the precision, recall, F1, AUC and number of texts of each class, where
      0 / 0 counts as zero; `confusion`, the confusion matrix (rows are true classes); `roc`, the
      one-vs-rest ROC curve of each class; `auc`, the mean area under these curves; and
      `reliability`, see `Reliability`. `macro_f1` is the mean F1 of the classes that occur as true
      or predicted labels, as by default in scikit-learn. A class with no texts or with all texts
      has no ROC curve.
    """
    from sklearn import metrics  # takes a second to import

    predicted, numbers = probabilities.argmax(axis=1), np.arange(len(labels))
    zero: Any = {"zero_division": 0.0}
    columns = metrics.precision_recall_fscore_support(truth, predicted, labels=numbers, **zero)
    rows = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    names = "precision", "recall", "f1", "texts"
    of_classes: Any = (dict(zip(names, row, strict=True)) for row in rows)
    report: dict[str, dict[str, float]] = dict(zip(labels, of_classes, strict=True))
    curve, curves = reliability(truth, probabilities), {}
    for number, label in enumerate(labels if np.isfinite(probabilities).all() else ()):
        if 0 < report[label]["texts"] < len(truth):
            column = probabilities[:, number]
            points = metrics.roc_curve(truth == number, column, drop_intermediate=False)[:2]
            curves[label], report[label]["auc"] = np.stack(points), float(metrics.auc(*points))
    likelihoods = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    hits = int((predicted == truth).sum())
    f1 = metrics.f1_score(truth, predicted, average="macro", **zero)
    scores: dict[str, Any] = {
        "accuracy": hits / len(truth),
        "macro_f1": float(f1),
        "nll": float(-np.log(np.maximum(likelihoods, MIN_PROBABILITY)).mean()),
        "ece": curve.error,
        "classes": report,
        "confusion": metrics.confusion_matrix(truth, predicted, labels=numbers).tolist(),
        "roc": {
            label: points[:, np.linspace(0, points.shape[1] - 1, ROC_POINTS).astype(int)].tolist()
            for label, points in curves.items()
        },
        "reliability": {name: values.tolist() for name, values in curve._asdict().items()},
    }
    if curves:
        scores["auc"] = float(np.mean([report[label]["auc"] for label in curves]))
    if interval:
        scores["accuracy_ci"] = proportion_interval(hits, len(truth))
    return scores
