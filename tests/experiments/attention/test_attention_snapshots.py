"""Snapshots are read back as they were written, and drawn as they are."""

import numpy as np
import pytest
from attention_examples import write_snapshot

from experiments.attention import snapshots
from experiments.attention.draw import read_examples
from experiments.attention.snapshots import SavedSnapshot, read_snapshots, tracked_sentences
from transformer.analysis.attention import Attention

LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7
SOURCE = [f"▁s{i}" for i in range(KEYS - 1)] + ["</s>"]
TARGET = ["<s>"] + [f"▁$t_{i}$" for i in range(QUERIES - 1)]


def snapshot(step: int, source=SOURCE, **statistics: float) -> SavedSnapshot:
    """A snapshot of one sentence; of each statistic, the last head has what is given."""
    rng = np.random.default_rng(step)
    own = {name: np.full((LAYERS, HEADS), 0.9, np.float32) for name in statistics}
    for name, value in statistics.items():
        own[name][-1, -1] = value
    weights = rng.dirichlet(np.ones(KEYS), (LAYERS, HEADS, QUERIES)).astype(np.float32)
    sentence = Attention({"cross": weights}, {}, source, TARGET)
    return SavedSnapshot(step, [sentence], {"cross": own} if own else {})


def test_snapshots_come_back_in_order_and_damaged_files_are_named(tmp_path, caplog, monkeypatch):
    assert snapshots.draw(tmp_path) == []
    for step in (900, 20, 100):
        write_snapshot(tmp_path, snapshot(step, aer=0.25, distance=1.5))
    content = write_snapshot(tmp_path, snapshot(40)).read_bytes()
    (tmp_path / "attention_snapshots" / "00000050.npz").write_bytes(content[: len(content) // 2])
    (tmp_path / "attention_snapshots" / "mine.npz").write_bytes(content)
    read = read_snapshots(tmp_path)
    assert [each.step for each in read] == [20, 40, 100, 900]
    [line] = [line for line in caplog.messages if "it is left out" in line]
    assert "00000050.npz is damaged" in line
    [sentence] = snapshot(100).sentences
    assert read[2].sentences[0][2:4] == (SOURCE, TARGET)
    np.testing.assert_array_equal(read[2].sentences[0].weights["cross"], sentence.weights["cross"])
    assert read[2].statistics["cross"]["aer"][-1, -1] == 0.25
    assert read[2].statistics["cross"].keys() == {"aer", "distance"}
    monkeypatch.setattr(snapshots, "MAX_READ", 2)  # of 5 files, each third from the last
    assert [each.step for each in read_snapshots(tmp_path) if each.sentences] == [40, 900]


def test_a_kind_has_a_column_and_a_statistic_a_panel_with_a_line_a_head():
    steps = {20: 0.4, 40: 0.2, 60: 0.3}
    figure = snapshots.curves_figure(
        [snapshot(step, aer=rate, end_fraction=0.5) for step, rate in steps.items()]
    )
    panels = {axes.get_ylabel(): axes for axes in figure.axes if axes.lines}
    assert panels.keys() == {"fraction on </s>", snapshots.PANEL_TITLES["aer"]}
    rates = panels[snapshots.PANEL_TITLES["aer"]]
    assert len(rates.lines) == LAYERS * HEADS
    assert [line.get_ydata()[1] for line in rates.lines] == pytest.approx([0.9] * 5 + [0.2])
    assert rates.get_title(loc="right") == "best 0.20: layer 2, head 3, step 40"


def test_a_sentence_is_tracked_over_the_steps_that_have_its_tokens():
    other = snapshot(5, source=["▁else", *SOURCE[1:]])
    [by_step] = tracked_sentences([other, *(snapshot(10 * step) for step in range(1, 4))])
    assert list(by_step) == [10, 20, 30]


@pytest.mark.full
def test_a_run_leaves_snapshots_of_its_evaluations_and_their_pictures(tiny):
    first, last = read_snapshots(tiny.workdir)
    assert (first.step, last.step) == (20, 40)
    assert last.statistics["cross"]["aer"].shape == (1, 2)
    examples = read_examples(tiny.workdir)
    assert [example.labels for example in examples] == [("step 20", "step 40")] * 3
    for example, sentence in zip(examples, last.sentences, strict=True):
        np.testing.assert_array_equal(example.frames[1].weights["cross"], sentence.weights["cross"])
    pictures = sorted((tiny.workdir / "figures" / "attention_snapshots").glob("*.png"))
    assert [picture.stem for picture in pictures] == ["curves"]
