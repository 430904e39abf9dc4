"""Pictures and heat maps of a report; those that cannot be read are named."""

import numpy as np
import pytest
from PIL import Image
from report_examples import Reader

from experiments.results import report_page as report
from experiments.results.outputs import MAX_DRAWN_TOKENS, cross_attention
from transformer.runs.run import TrainedRun

pytestmark = pytest.mark.full


# -- heat maps of attention


def test_the_heat_map_is_the_mean_of_the_last_layer_and_long_texts_are_never_read():
    reader, long = Reader(), "a " * MAX_DRAWN_TOKENS
    sources, translations = ["a b", long, "a", "a b c d"], ["a", "a", long, "a b"]
    maps = cross_attention(TrainedRun(reader, {}), sources, translations)
    assert [drawn is not None for drawn in maps] == [True, False, False, True]
    assert reader.read == [(2, MAX_DRAWN_TOKENS)]
    assert maps[0].rows == ["x", "</s>"]
    assert maps[3].columns == ["x"] * 4 + ["</s>"]
    np.testing.assert_allclose(maps[3].weights, [[0.0, 0.05, 0.1, 0.15, 0.2]] * 3)


def test_no_heat_map_is_drawn_without_attention():
    for attention, drawn in (("none", False), ("additive", True)):
        [found] = cross_attention(TrainedRun(Reader("recurrent", attention), {}), ["a"], ["b"])
        assert (found is not None) == drawn


# -- pictures


def test_pictures_are_in_the_order_of_their_numbers_and_those_that_cannot_be_read_are_named(
    tmp_path,
):
    figures = tmp_path / "figures"
    (figures / "attention_snapshots").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (20, 2800, 3), np.uint8)
    for number in (10, 2, 1):
        Image.fromarray(noise).save(figures / f"attention_snapshots/strip_{number}.png")
    whole = (figures / "attention_snapshots/strip_1.png").read_bytes()
    (figures / "map.png").write_bytes(whole[: len(whole) // 2])
    (figures / "reading.png").write_bytes(b"")
    shown, damaged = report._pictures(figures)
    assert [picture.caption[-9:] for picture in shown] == [": strip 1", ": strip 2", " strip 10"]
    assert damaged == ["figures/map.png", "figures/reading.png"]
    for picture in shown:
        assert (picture.width, picture.height) == (2800 * report.SHOWN // report.DRAWN, 11)
