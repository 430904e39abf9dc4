"""Pictures and heat maps of a report."""

import numpy as np
import pytest
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


# -- pictures


def test_pictures_are_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "attention_snapshots").mkdir()
    for number in (10, 2, 1):
        (tmp_path / f"attention_snapshots/strip_{number}.png").write_bytes(b"abc")
    pictures = report._pictures(tmp_path)
    assert [caption[-9:] for caption in pictures] == [": strip 1", ": strip 2", " strip 10"]
    assert {*pictures.values()} == {"data:image/png;base64,YWJj"}
