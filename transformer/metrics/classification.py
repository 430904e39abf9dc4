"""Classification metrics: accuracy, F1, confusion matrix, ROC curves and calibration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

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


def confusion_matrix(
    truth: Int[np.ndarray, "N"], predicted: Int[np.ndarray, "N"], num_classes: int
) -> Int[np.ndarray, "C C"]:
    """Returns the confusion matrix: rows are true classes, columns are predicted classes."""
    pairs = np.bincount(truth * num_classes + predicted, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes)


def roc_curve(
    positive: Bool[np.ndarray, "N"], score: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "2 points"]:
    """Returns the false and true positive rates, in ascending order, for all score thresholds.

    Source: Fawcett 2006, "An Introduction to ROC Analysis", algorithm 1.
    """
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.diff(score[order], append=np.inf))  # last index of each score
    true = np.append(0, positive[order].cumsum()[last])
    false = np.append(0, last + 1) - true
    return np.stack([false / max(1, false[-1]), true / max(1, true[-1])])


def class_report(
    confusion: Int[np.ndarray, "C C"], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns precision, recall, F1 and number of texts for each class; 0 / 0 counts as zero."""
    hits, predicted, there = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    precision, recall = hits / np.maximum(predicted, 1), hits / np.maximum(there, 1)
    f1 = 2 * hits / np.maximum(predicted + there, 1)
    columns = (precision.tolist(), recall.tolist(), f1.tolist(), there.tolist())
    return {
        label: {"precision": p, "recall": r, "f1": f, "texts": n}
        for label, p, r, f, n in zip(labels, *columns, strict=True)
    }


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
      per text; `classes`, see `class_report`; `confusion`, the confusion matrix; `roc`, the
      one-vs-rest ROC curve of each class; `auc`, the mean area under these curves; and
      `reliability`, see `Reliability`. `macro_f1` is the mean F1 of the classes that occur as true
      or predicted labels, as by default in scikit-learn. A class with no texts or with all texts
      has no ROC curve.
    """
    predicted = probabilities.argmax(axis=1)
    confusion = confusion_matrix(truth, predicted, len(labels))
    report = class_report(confusion, labels)
    curve = reliability(truth, probabilities)
    curves = {
        label: roc_curve(truth == number, probabilities[:, number])
        for number, label in enumerate(labels)
        if 0 < report[label]["texts"] < len(truth)
    }
    for label, (false, true) in curves.items():
        report[label]["auc"] = float(np.diff(false) @ (true[1:] + true[:-1]) / 2)
    likelihoods = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    hits, there = int(confusion.trace()), confusion.sum(axis=0) + confusion.sum(axis=1) > 0
    f1 = [each["f1"] for each, is_there in zip(report.values(), there, strict=True) if is_there]
    scores: dict[str, Any] = {
        "accuracy": hits / len(truth),
        "macro_f1": float(np.mean(f1)),
        "nll": float(-np.log(np.maximum(likelihoods, MIN_PROBABILITY)).mean()),
        "ece": curve.error,
        "classes": report,
        "confusion": confusion.tolist(),
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
