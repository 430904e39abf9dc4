"""Heat maps of a report."""

import numpy as np
import pytest
from report_examples import Reader

from experiments.results.outputs import MAX_DRAWN_TOKENS, cross_attention
from transformer.runs.run import TrainedRun

pytestmark = pytest.mark.full


def test_the_heat_map_is_the_mean_of_the_last_layer_and_long_texts_are_never_read():
    reader, long = Reader(), "a " * MAX_DRAWN_TOKENS
    sources, translations = ["a b", long, "a", "a b c d"], ["a", "a", long, "a b"]
    maps = cross_attention(TrainedRun(reader, {}), sources, translations)
    assert [drawn is not None for drawn in maps] == [True, False, False, True]
    assert reader.read == [(2, MAX_DRAWN_TOKENS)]
    assert maps[0].rows == ["x", "</s>"]
    assert maps[3].columns == ["x"] * 4 + ["</s>"]
    np.testing.assert_allclose(maps[3].weights, [[0.0, 0.05, 0.1, 0.15, 0.2]] * 3)
