"""The curves of a run show its metrics file's numbers, whatever state a run left it in."""

import json
import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.display.training_curves import build_figure, draw, read_curves

EVENTS = [
    {"step": 100, "split": "train", "nll": 5.0, "learning_rate": 1e-4, "seconds": 1.5},
    {"step": 200, "split": "train", "nll": 4.0, "learning_rate": 2e-4},
    {"step": 200, "split": "validation", "nll": 4.5, "bleu": 3.0, "chrf": 11.0, "accuracy": 0.3},
    {"step": 300, "split": "train", "nll": 3.0, "learning_rate": 3e-4},
    {"step": 300, "split": "validation", "nll": 4.7, "bleu": 7.0, "chrf": 19.0},
]


def write(path, events, end="\n"):
    path.write_text("\n".join(json.dumps(event) for event in events) + end, encoding="utf-8")
    return path


def lines(figure):
    """The drawn values by the y label of the panel: a list of (steps, values)."""
    return {
        axes.get_ylabel(): [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        for axes in figure.axes
    }


@pytest.fixture
def metrics_file(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_every_panel_shows_the_numbers_of_the_file(metrics_file):
    figure = build_figure(read_curves(write(metrics_file, EVENTS)), "file")
    assert lines(figure) == {
        "loss (nats)": [([100, 200, 300], [5.0, 4.0, 3.0]), ([200, 300], [4.5, 4.7])],
        "score (0 to 100)": [([200, 300], [3.0, 7.0]), ([200, 300], [11.0, 19.0])],
        "accuracy (0 to 1)": [([200], [0.3])],
        "learning rate": [([100, 200, 300], [1e-4, 2e-4, 3e-4])],
    }
    assert figure.axes[-1].get_xlabel() == "training step"


def test_training_and_validation_are_drawn_by_the_same_loss(metrics_file):
    """Label smoothing is in the training's loss alone: validation's is its nll."""
    events = [
        {**event, "loss": event["nll"] + 0.7 * (event["split"] == "train")} for event in EVENTS
    ]
    figure = build_figure(read_curves(write(metrics_file, events)), "file")
    axes = figure.axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["train nll", "validation nll (best 4.50 at step 200)"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[5.0, 4.0, 3.0], [4.5, 4.7]]


def test_the_picture_is_written_and_returned(metrics_file, tmp_path):
    picture = tmp_path / "figures" / "curves.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw(write(metrics_file, EVENTS), picture) == picture
    assert np.ptp(imread(picture)[..., :3]) > 0.5


@pytest.mark.parametrize("tail", ['{"step": 400, "split": "tr', "[1]"])
def test_unreadable_lines_are_passed_over(metrics_file, tail):
    expected = read_curves(write(metrics_file, EVENTS))
    assert expected  # the control: there is something to compare
    assert read_curves(write(metrics_file, EVENTS, end="\n" + tail)) == expected


@pytest.mark.parametrize("hole", ["null", '"high"'])
def test_a_value_that_is_no_finite_number_leaves_a_gap(metrics_file, hole):
    text = '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": HOLE}\n{"step": 3, "loss": 1.0}\n'
    metrics_file.write_text(text.replace("HOLE", hole))
    steps, values = read_curves(metrics_file)["loss", "train"]
    assert steps == [1, 2, 3]
    np.testing.assert_array_equal(values, [2.0, np.nan, 1.0])


def test_a_resumed_run_overwrites_the_steps_it_repeats(metrics_file):
    repeated = [{"step": step, "split": "train", "loss": float(step)} for step in (1, 2, 3, 2)]
    repeated[-1]["loss"] = 20.0
    steps, values = read_curves(write(metrics_file, repeated))["loss", "train"]
    assert (steps, values) == ([1, 2, 3], [1.0, 20.0, 3.0])


@pytest.mark.parametrize("text", ["", '{"step": 1}'])
def test_a_file_with_nothing_to_draw_is_named(metrics_file, tmp_path, text):
    metrics_file.write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.jsonl: .*nothing to draw"):
        draw(metrics_file, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()
