"""Snapshots are read back as they were written, and drawn as they are."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from attention_examples import write_snapshot

from experiments.attention import snapshot_figures
from experiments.attention.snapshots import SavedSnapshot, read_snapshots
from tiny_run import shared_run
from transformer.analysis.attention import Attention
from transformer.errors import UserError

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


def test_snapshots_come_back_as_they_were_in_the_order_of_their_steps(tmp_path):
    for step in (900, 20, 100):
        write_snapshot(tmp_path, snapshot(step, aer=0.25, entropy=1.5))
    found = read_snapshots(tmp_path)
    assert [each.step for each in found] == [20, 100, 900]
    expected = snapshot(100, aer=0.25, entropy=1.5)
    assert found[1].sentences[0][2:4] == (SOURCE, TARGET)
    np.testing.assert_array_equal(
        found[1].sentences[0].weights["cross"], expected.sentences[0].weights["cross"]
    )
    assert found[1].statistics["cross"].keys() == {"aer", "entropy"}
    assert found[1].statistics["cross"]["aer"][-1, -1] == 0.25


def test_damaged_files_are_named_and_left_out_and_a_run_without_snapshots_has_none(
    tmp_path, caplog
):
    assert read_snapshots(tmp_path) == []
    assert snapshot_figures.draw(tmp_path) == []
    whole = write_snapshot(tmp_path, snapshot(40, aer=0.5)).read_bytes()
    for name, content in {
        "00000050.npz": whole[: len(whole) // 2],
        "00000060.npz": b"",
        "00000070.npz": b"no archive",
        "00000080.partial": whole,
        "mine.npz": whole,
    }.items():
        (tmp_path / "attention_snapshots" / name).write_bytes(content)
    np.savez(tmp_path / "attention_snapshots" / "00000090.npz", other=np.zeros(3))
    np.savez(
        tmp_path / "attention_snapshots" / "00000095.npz", step=np.array([{}], object)
    )  # a pickle
    damage(write_snapshot(tmp_path, snapshot(99, aer=0.5)), "statistics/cross/aer.npy")
    assert [each.step for each in read_snapshots(tmp_path)] == [40]
    damaged = [line for line in caplog.messages if "it is left out" in line]
    assert [line.split(".npz")[0][-2:] for line in damaged] == ["50", "60", "70", "90", "95", "99"]


def damage(path: Path, name: str) -> None:
    """Changes a byte of one array in a file."""
    with zipfile.ZipFile(path) as archive:
        place = archive.getinfo(name).header_offset + 30 + len(name) + 40
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(content)


def test_weights_are_read_when_they_are_asked_for(tmp_path):
    path = write_snapshot(tmp_path, snapshot(40, aer=0.5))
    damage(path, "sentences/0/weights/cross.npy")
    [found] = read_snapshots(tmp_path)
    assert found.statistics["cross"]["aer"][-1, -1] == 0.5
    weights = found.sentences[0].weights
    assert list(weights) == ["cross"]
    assert "cross" in weights
    with pytest.raises(UserError, match=f"{path} is damaged: remove it"):
        weights["cross"]


def test_a_kind_has_a_column_and_a_statistic_a_panel_with_a_line_a_head():
    given = [
        snapshot(step, aer=rate, end_fraction=0.5)
        for step, rate in ((20, 0.4), (40, 0.2), (60, 0.3))
    ]
    figure = snapshot_figures.curves_figure(given)
    panels = {axes.get_ylabel(): axes for axes in figure.axes if axes.lines}
    assert panels.keys() == {"fraction on </s>", snapshot_figures.PANEL_TITLES["aer"]}
    rates = panels[snapshot_figures.PANEL_TITLES["aer"]]
    assert len(rates.lines) == LAYERS * HEADS
    assert [line.get_ydata()[1] for line in rates.lines] == pytest.approx([0.9] * 5 + [0.2])
    assert rates.get_title(loc="right") == "best 0.20: layer 2, head 3, step 40"


def test_a_strip_shows_few_steps_from_the_first_to_the_last():
    given = [snapshot(10 * step) for step in range(1, 24)]
    axes = snapshot_figures.strip_figure(given, 0).axes[0]
    names = [text.get_text() for text in axes.texts]
    steps = [name for name in names if name.startswith("step")]
    assert len(steps) == snapshot_figures.STEPS
    assert (steps[0], steps[-1]) == ("step 10", "step 230")
    heads = [f"layer {layer}\nhead {head}" for layer in (1, 2) for head in (1, 2, 3)]
    assert names[len(steps) :] == heads
    image = axes.images[0].get_array()
    first, last = (each.sentences[0].weights["cross"] for each in (given[0], given[-1]))
    np.testing.assert_array_equal(image[:QUERIES, :KEYS], first[0, 0])
    np.testing.assert_array_equal(image[-QUERIES:, -KEYS:], last[1, 2])
    assert np.ma.is_masked(image[QUERIES, 0])  # between two maps


def test_a_strip_shows_the_heads_that_align_best_of_one_sentence_alone(monkeypatch):
    monkeypatch.setattr(snapshot_figures, "HEADS", 1)
    other = snapshot(20, source=["▁else", *SOURCE[1:]], aer=0.1)
    given = [other, snapshot(40, aer=0.3), snapshot(60, aer=0.2)]
    texts = snapshot_figures.strip_figure(given, 0).axes[0].texts
    assert [text.get_text() for text in texts] == ["step 40", "step 60", "layer 2\nhead 3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return shared_run(tmp_path_factory)


def test_a_run_leaves_snapshots_of_its_evaluations_and_their_pictures(run):
    found = read_snapshots(run.workdir)
    assert [each.step for each in found] == [20, 40]
    assert found[0].sentences[0][2:] == found[1].sentences[0][2:]
    assert found[1].statistics["cross"]["aer"].shape == (1, 2)
    pictures = sorted((run.workdir / "figures" / "attention_snapshots").glob("*.png"))
    assert [picture.name for picture in pictures] == [
        "curves.png", "strip_1.png", "strip_2.png", "strip_3.png"]  # fmt: skip
    told = (run.workdir.parent / "log.txt").read_text("utf-8")
    assert all(f"wrote {picture}" in told for picture in pictures)
