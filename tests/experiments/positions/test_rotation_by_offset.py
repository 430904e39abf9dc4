"""Moving by an offset rotates the pairs of sinusoids, to float precision."""

import numpy as np
import pytest
from position_examples import encoding

from experiments.positions.plots import EPSILON
from experiments.positions.values import PAIRS, offset_errors, offset_rotation


def test_the_rotation_of_one_pair_is_that_of_a_table():
    # sin 1 = .841471, cos 1 = .540302.
    expected = [[0.540302, 0.841471], [-0.841471, 0.540302]]
    interleaved, split = PAIRS
    np.testing.assert_allclose(offset_rotation(interleaved, 2, 1), expected, atol=1e-6)
    apart = offset_rotation(split, 6, 5)
    assert [(i, j) for i, j in np.argwhere(apart) if i != j] == [
        *((0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2))
    ]


@pytest.mark.parametrize("offset", [1, 5])
def test_the_offset_is_a_rotation_to_float_precision_in_each_encodings_own_pairs(offset):
    count = 32
    tables = {name: encoding(name).table(count) for name in ("sinusoidal", "split", "learned")}
    # Rounding moves an angle of a radians by eps a / 2 at most, on either side of the equation.
    allowed = 2 * EPSILON * (1 + np.arange(offset, count))
    for name, pairs, others in zip(("sinusoidal", "split"), PAIRS, [*PAIRS][::-1], strict=True):
        assert (offset_errors(tables[name], pairs, offset) < allowed).all()
        # Controls: the other encoding's pairs, another offset, and what is no sinusoid.
        assert (offset_errors(tables[name], others, offset) > 0.1).all()
        later = offset_rotation(pairs, 26, offset + 1)
        wrong = tables[name][offset:] - tables[name][:-offset] @ later.T
        assert (np.abs(wrong).max(axis=1) > 0.1).all()
        assert (offset_errors(tables["learned"], pairs, offset) > 0.1).all()
