"""Parameters go over by name, rows of tables by piece, and what does not fit is named."""

import numpy as np
import pytest

from transformer.errors import UserError
from transformer.training.start import carry, carry_rows

# Three pieces here, four there; two are in both, and stand elsewhere.
HERE, THERE = ("<pad>", "▁new", "▁cat"), ("<pad>", "▁cat", "▁dog", "s")


def table(rows, first):
    return first + np.arange(rows * 2.0, dtype=np.float32).reshape(rows, 2)


def params(first=0.0, pieces=3, **further):
    return {
        "embedding/table": table(pieces, first),
        "layers_0/kernel": table(5, first),
        "output/kernel": table(7, first),
        **further,
    }


def carried(pattern=".*", fresh=None, source=None):
    fresh = params(0.0) if fresh is None else fresh
    source = params(100.0, len(THERE)) if source is None else source
    return carry(fresh, source, {"embedding/table": HERE}, {"embedding/table": THERE}, pattern)


def refused(says, **arguments):
    with pytest.raises(UserError) as error:
        carried(**arguments)
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in says), error.value


def test_rows_follow_their_pieces_and_new_pieces_keep_the_rows_of_the_seed():
    found = carried()
    # By hand: <pad> is row 0 there, ▁cat row 1; ▁new is in no row.
    expected = [[100, 101], [2, 3], [102, 103]]
    np.testing.assert_array_equal(found.params["embedding/table"], expected)
    assert found.tables == {"embedding/table": (2, 1)}
    assert found.loaded == 2 * 2 + 10 + 14
    assert found.new == ()
    # Control: by number, as other parameters go, they would be others.
    assert not np.array_equal(expected, params(100.0, 4)["embedding/table"][:3])


def test_only_names_that_match_are_loaded_and_the_rest_is_the_seeds():
    found = carried("^(?!output/)")
    np.testing.assert_array_equal(found.params["output/kernel"], params()["output/kernel"])
    np.testing.assert_array_equal(found.params["layers_0/kernel"], table(5, 100.0))
    assert found.new == ("output/kernel",)
    assert carried("layers").new == ("embedding/table", "output/kernel")
    assert carried("layers").tables == {}


def test_rows_of_bigrams_behind_the_pieces_go_over_if_every_piece_keeps_its_id():
    grown = (*THERE, "▁new")
    found, rows = carry_rows(table(5 + 3, 0.0), table(4 + 3, 100.0), grown, THERE)
    np.testing.assert_array_equal(found[:4], table(7, 100.0)[:4])
    np.testing.assert_array_equal(found[4], table(8, 0.0)[4])
    np.testing.assert_array_equal(found[5:], table(7, 100.0)[4:])
    assert rows == 4 + 3
    found, rows = carry_rows(table(3 + 3, 0.0), table(4 + 3, 100.0), HERE, THERE)
    np.testing.assert_array_equal(found[3:], table(6, 0.0)[3:])
    assert rows == 2


def test_another_width_is_refused_with_the_parameter_and_both_shapes():
    wide = params() | {"layers_0/kernel": np.zeros((5, 3))}
    says = ("layers_0/kernel is 5 × 3 here and 5 × 2 in that run", "init_pattern='^(?!layers_0/)'")
    refused(says, fresh=wide)
    assert carried("^(?!layers_0/kernel$)", fresh=wide).new == ("layers_0/kernel",)
    wide = params() | {"embedding/table": np.zeros((3, 9))}
    refused(("embedding/table is 3 × 9 here and 4 × 2",), fresh=wide)
    # Rows that are not of pieces: as many as there are.
    long = params() | {"embedding/table": np.zeros((3 + 1, 2))}
    refused(("embedding/table is 4 × 2 here and 4 × 2",), fresh=long)


def test_layers_of_one_model_alone_are_refused_with_a_pattern_that_leaves_them_out():
    deep = params(**{"layers_1/kernel": np.ones(3), "layers_1/bias": np.ones(2)})
    says = ("layers_1/kernel is 3 here and absent in that run (1 more differ)",
            "init_pattern='^(?!layers_1/)'")  # fmt: skip
    refused(says, fresh=deep)
    found = carried("^(?!layers_1/)", fresh=deep)
    np.testing.assert_array_equal(found.params["layers_1/bias"], np.ones(2))
    says = ("layers_1/kernel is absent here and 3 in that run", "'^(?!layers_1/)'")
    source = params(100.0, 4, **{"layers_1/kernel": np.ones(3)})
    refused(says, source=source)
    assert "layers_1/kernel" not in carried("^(?!layers_1/)", source=source).params


def test_a_pattern_that_matches_nothing_is_refused_with_the_modules():
    refused(("train.init_pattern has 'layer_0'", "embedding, layers_N"), pattern="layer_0")
