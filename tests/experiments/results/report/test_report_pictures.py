"""Pictures in a report are small, readable and of the same colours; those left out are named."""

import base64
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report_examples import Reader

from experiments.results import report_page as report
from experiments.results.report_attention import MAX_DRAWN_TOKENS, attention_map, cross_attention
from transformer.runs.run import TrainedRun

pytestmark = pytest.mark.full

WIDE = 2800  # pixels of a picture


def embedded(picture) -> Image.Image:
    """A picture as the page holds it."""
    return Image.open(io.BytesIO(base64.b64decode(picture.source.partition(",")[2])))


# -- heat maps of attention


def test_a_heat_map_has_a_cell_for_each_weight_that_shows():
    weights = np.array([[0.7, 0.3, 0.0], [0.004, 0.5, 0.496]])
    drawn = attention_map(weights, ["a", "\n"], ["x", "", "y" * 40])
    assert [token for _, token in drawn.rows] == ["a", "⟨000A⟩"]
    assert [token for _, token in drawn.columns] == ["x", "∅", "y" * 19 + "…"]
    places = {(y, x): share for x, y, share in drawn.cells}
    rows, columns = ([place - drawn.cell / 2 for place, _ in side] for side in drawn[5:7])
    seen = [[places.get((y, x), 0.0) for x in columns] for y in rows]
    assert seen == [[0.7, 0.3, 0.0], [0.0, 0.5, 0.5]]


def test_the_heat_map_is_the_mean_of_the_last_layer_and_long_texts_are_never_read():
    reader, long = Reader(), "a " * MAX_DRAWN_TOKENS
    sources, translations = ["a b", long, "a", "a b c d"], ["a", "a", long, "a b"]
    maps = cross_attention(TrainedRun(reader, {}), sources, translations)
    assert [drawn is not None for drawn in maps] == [True, False, False, True]
    assert reader.read == [(2, MAX_DRAWN_TOKENS)]
    assert [token for _, token in maps[0].rows] == ["x", "</s>"]
    assert [token for _, token in maps[3].columns] == ["x"] * 4 + ["</s>"]
    assert [share for *_, share in maps[3].cells] == [0.05, 0.1, 0.15, 0.2] * 3


def test_no_heat_map_is_drawn_without_attention():
    for attention, drawn in (("none", False), ("additive", True)):
        [found] = cross_attention(TrainedRun(Reader("recurrent", attention), {}), ["a"], ["b"])
        assert (found is not None) == drawn


# -- pictures


def test_the_colours_of_a_heat_map_stay_what_they_were(tmp_path):
    figure = Figure(figsize=(4, 4), dpi=200)
    axes = figure.add_axes((0, 0, 1, 1))
    weights = np.random.default_rng(0).random((40, 40)) ** 6
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    figure.savefig(tmp_path / "map.png")
    [picture], _ = report._pictures(tmp_path)
    with Image.open(tmp_path / "map.png") as before:
        apart = np.array(before.convert("RGB"), int) - np.array(embedded(picture).convert("RGB"))
    assert np.abs(apart).max() <= 12


def test_pictures_are_made_small_and_those_that_cannot_be_read_are_named(tmp_path):
    figures = tmp_path / "figures"
    (figures / "attention_snapshots").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (20, WIDE, 3), np.uint8)
    for number in (10, 2, 1):
        Image.fromarray(noise).save(figures / f"attention_snapshots/strip_{number}.png")
    whole = (figures / "attention_snapshots/strip_1.png").read_bytes()
    (figures / "map.png").write_bytes(whole[: len(whole) // 2])
    (figures / "reading.png").write_bytes(b"")
    shown, damaged = report._pictures(figures)
    assert [picture.caption[-9:] for picture in shown] == [": strip 1", ": strip 2", " strip 10"]
    assert damaged == ["figures/map.png", "figures/reading.png"]
    for picture in shown:
        assert embedded(picture).size == (WIDE * report.HELD // report.DRAWN, 13)
        assert (picture.width, picture.height) == (WIDE * report.SHOWN // report.DRAWN, 11)
