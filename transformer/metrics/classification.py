"""Metrics of classifiers: accuracy, F1, confusion matrix and calibration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from transformer.metrics.registry import proportion_interval

BINS = 15  # as in Guo et al. 2017
ROC_POINTS = 101  # points of a curve in the results


class Reliability(NamedTuple):
    """Predictions in bins of confidence, the probability of the predicted class.

    Attributes:
      confidence, accuracy: means over the texts of each bin; zero for an empty bin.
      count: number of texts in each bin.
    """

    confidence: Float[np.ndarray, "bins"]
    accuracy: Float[np.ndarray, "bins"]
    count: Int[np.ndarray, "bins"]

    @property
    def error(self) -> float:
        """The expected calibration error: the mean gap of confidence and accuracy over texts.

        Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.
        """
        gaps = np.abs(self.accuracy - self.confidence)
        return float(gaps @ self.count / max(1, self.count.sum()))


def reliability(
    truth: Int[np.ndarray, "N"], probabilities: Float[np.ndarray, "N C"], bins: int = BINS
) -> Reliability:
    """Returns the statistics of each of the bins ((m - 1) / bins, m / bins], m from one.

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
    """Returns the number of texts of each class (rows) predicted as each class (columns)."""
    pairs = np.bincount(truth * num_classes + predicted, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes)


def roc_curve(
    positive: Bool[np.ndarray, "N"], score: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "2 points"]:
    """Returns the rates of false and of true positives above each score, from none to all.

    Source: Fawcett 2006, "An Introduction to ROC Analysis", algorithm 1.
    """
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.diff(score[order], append=np.inf))  # the last of equal scores
    true = np.append(0, positive[order].cumsum()[last])
    false = np.append(0, last + 1) - true
    return np.stack([false / max(1, false[-1]), true / max(1, true[-1])])


def class_report(
    confusion: Int[np.ndarray, "C C"], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns precision, recall, F1 and number of texts of each class; a ratio 0 / 0 is zero."""
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
      truth: the class number of each text, from zero.
      probabilities: the class probabilities of each text; a row sums to one.
      labels: class names.
      interval: whether to add `accuracy_ci`, the bounds of the 95% interval of the accuracy, see
        `proportion_interval`.

    Returns:
      `accuracy`, `macro_f1` and `ece`, from 0 to 1; `nll`, the mean negative log-likelihood in nats
      per text; `texts`; `classes`, see `class_report`; `confusion`, rows of true classes; `roc`,
      points of the ROC curve of each class against the others, and `auc`, the mean area under
      them; and `reliability`, the lists of `Reliability`. `macro_f1` is the mean F1 of the classes
      that a text has or is predicted to have, as by default in scikit-learn. A class without texts,
      or with all texts, has no curve.
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
        # The smallest float32 replaces probabilities that float32 rounds to zero.
        "nll": float(-np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean()),
        "ece": curve.error,
        "texts": len(truth),
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
