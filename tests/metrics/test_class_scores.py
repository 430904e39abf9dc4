"""Scores of a classifier are those of the definitions, by hand."""

import json

import numpy as np
import pytest
from sklearn import metrics

from transformer.metrics.classification import (
    Reliability,
    class_scores,
    reliability,
)

LABELS = ("bad", "fair", "good")


def draws(count=211, classes=3, seed=0):
    """True classes, and probabilities that lean to them."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, count, p=[0.6, 0.3, 0.1])
    scores = rng.normal(size=(count, classes)) + 1.5 * np.eye(classes)[truth]
    return truth, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def test_the_curve_of_a_class_has_the_area_of_the_class():
    truth, probabilities = draws()
    scores = class_scores(truth, probabilities, LABELS)
    points = np.array(scores["roc"]["fair"])
    assert points[:, [0, -1]].tolist() == [[0, 1], [0, 1]]
    area = np.diff(points[0]) @ (points[1][1:] + points[1][:-1]) / 2
    assert area == pytest.approx(scores["classes"]["fair"]["auc"], abs=0.01)


def test_a_class_without_texts_has_no_area_and_does_not_lower_the_mean():
    truth, probabilities = draws()
    two = truth < 2
    scores = class_scores(truth[two], probabilities[two], LABELS)
    assert "auc" not in scores["classes"]["good"]
    areas = [metrics.roc_auc_score(truth[two] == c, probabilities[two, c]) for c in range(2)]
    assert scores["auc"] == pytest.approx(np.mean(areas))
    assert "auc" not in class_scores(truth[truth == 1], probabilities[truth == 1], LABELS)


def test_the_calibration_error_is_that_of_an_example_by_hand():
    # Confidences 0.6 (wrong), 0.6 (right), 0.9 (right), 1.0 (right); with five bins, 0.6 is the
    # upper end of the third and 0.9 lies with 1.0 in the fifth.
    probabilities = np.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9], [0.0, 1.0]])
    curve = reliability(np.array([1, 0, 1, 1]), probabilities, bins=5)
    np.testing.assert_array_equal(curve.count, [0, 0, 2, 0, 2])
    np.testing.assert_allclose(curve.confidence, [0, 0, 0.6, 0, 0.95])
    np.testing.assert_allclose(curve.accuracy, [0, 0, 0.5, 0, 1])
    assert curve.error == pytest.approx(0.5 * 0.1 + 0.5 * 0.05)


def test_macro_f1_leaves_out_a_class_that_is_neither_there_nor_predicted_as_scikit_learn_does():
    truth, predicted = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 3])
    scores = class_scores(truth, np.eye(4)[predicted], ("a", "b", "lacks", "predicted"))
    # F1 of 2/3, 2/3 and 0, which is predicted once: a mean over three of four classes.
    assert (scores["accuracy"], scores["macro_f1"]) == pytest.approx((3 / 5, 4 / 9))
    assert scores["confusion"][:2] == [[1, 1, 0, 0], [0, 2, 0, 1]]
    assert [scores["classes"]["b"][name] for name in ("precision", "recall")] == [2 / 3, 2 / 3]
    assert scores["classes"]["lacks"]["f1"] == 0.0


def test_scores_are_json_even_where_the_true_class_has_no_probability():
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    scores = class_scores(np.array([1, 1]), probabilities, ("a", "b"), interval=True)
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores
    assert 40 < scores["nll"] < 50
    assert Reliability(*map(np.array, scores["reliability"].values())).error == scores["ece"] == 0.5
