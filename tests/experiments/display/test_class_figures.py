"""Pictures of a classifier show its numbers, and nothing in them overlaps or is cut off."""

import numpy as np

from experiments.attention.class_figures import (
    ReadText,
    confusion_figure,
    reading_figure,
    reliability_figure,
    roc_figure,
)
from transformer.metrics.classification import Reliability

CONFUSION = np.array([[7, 1, 0], [2, 1_500, 3], [0, 0, 0]])
LABELS = ("bad", "$so_so$", "中")
CURVE = Reliability(
    np.array([0.0, 0.3, 0.6, 0.9]), np.array([0.0, 0.5, 0.5, 1.0]), np.array([0, 2, 4, 14])
)
ARC = np.linspace(0, 1, 41)
ROC = {f"class number {i}": np.stack([ARC, ARC ** (0.1 + 0.02 * i)]) for i in range(31)}
AREAS = {label: {"auc": 1 / (1.1 + 0.02 * i)} for i, label in enumerate(ROC)}
READ = [
    ReadText(("▁the", "▁film", "</s>"), np.array([0.1, 0.6, 0.3]), "good", "good"),
    ReadText(("▁$x_1$", "", "中", "</s>"), np.array([0.25] * 4), "bad", "good"),
    ReadText(("▁a" * 9,) * 40, np.linspace(0, 0.05, 40), "bad", "bad"),
]


def test_a_confusion_matrix_shows_shares_of_rows_and_numbers_of_texts():
    axes, _ = confusion_figure(CONFUSION, LABELS).axes
    np.testing.assert_allclose(
        axes.images[0].get_array(), [[7 / 8, 1 / 8, 0], [2 / 1505, 1500 / 1505, 3 / 1505], [0] * 3]
    )
    texts = [text.get_text() for text in axes.texts]
    assert texts[:2] == ["7\n87.5%", "1\n12.5%"]
    assert texts[4] == "1,500\n99.7%"
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["predicted", "true"]
    # Light on dark, dark on light.
    assert [text.get_color() for text in axes.texts[:2]] == ["white", "black"]


def test_of_two_classes_one_curve_is_drawn_and_of_many_the_worst_are_named():
    def named(labels):
        axes = roc_figure({label: ROC[label] for label in labels}, AREAS).axes[0]
        return len(axes.lines), [text.get_text() for text in axes.get_legend().get_texts()]

    two = list(ROC)[:2]
    assert named(two) == (3, ["chance (50%)", "class number 1 (89.3%)"])
    lines, names = named(ROC)
    assert (lines, len(names)) == (38, 7)
    assert names[1:] == [
        f"class number {i} ({1 / (1.1 + 0.02 * i):.1%})" for i in range(30, 24, -1)
    ]
    assert roc_figure(ROC, AREAS).axes[0].get_legend().get_title().get_text().endswith("of 31")


def test_a_reliability_diagram_shows_the_filled_bins_and_the_error():
    above, below = reliability_figure(CURVE).axes
    diagonal, line = above.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    np.testing.assert_array_equal(line.get_xdata(), [0.3, 0.6, 0.9])
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.5, 1.0])
    # 0.1 of the texts are 0.2 off, 0.2 of them 0.1, and 0.7 of them 0.1.
    assert above.get_legend().get_texts()[1].get_text() == "error 11.0%"
    np.testing.assert_allclose(below.patches[0].get_data().values, [0, 0.1, 0.2, 0.7])


def test_tokens_are_boxes_whose_darkness_is_their_weight():
    axes = reading_figure(READ[:2]).axes[0]
    boxes = [text.get_bbox_patch() for text in axes.texts if text.get_bbox_patch()]
    shades = [1 - np.mean(box.get_facecolor()[:3]) for box in boxes]
    assert shades[1] > shades[2] > shades[0]
    assert np.ptp(shades[3:]) < 1e-6
    texts = {text.get_text(): text for text in axes.texts}
    assert {"▁film", "▁$x_1$", "∅"} <= set(texts)
    headings = {name: text.get_fontweight() for name, text in texts.items() if "weight" in name}
    assert headings == {
        "true good, predicted good, largest weight 0.60": "normal",
        "true bad, predicted good, largest weight 0.25": "bold",
    }
