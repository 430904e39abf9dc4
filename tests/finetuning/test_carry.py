"""Parameters go over by name, rows of tables by piece, and what does not fit is named."""

import numpy as np

from source_settings import refused
from transformer.training.start import carry

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


def test_rows_follow_their_pieces_and_new_pieces_keep_the_rows_of_the_seed():
    found, record = carried()
    # By hand: <pad> is row 0 there, ▁cat row 1; ▁new is in no row.
    expected = [[100, 101], [2, 3], [102, 103]]
    np.testing.assert_array_equal(found["embedding/table"], expected)
    tables = {"embedding/table": {"carried": 2, "new": 1}}
    assert record == {"loaded": 2 * 2 + 10 + 14, "new": [], "tables": tables}
    # Control: by number, as other parameters go, they would be others.
    assert not np.array_equal(expected, params(100.0, 4)["embedding/table"][:3])


def test_only_names_that_match_are_loaded_and_the_rest_is_the_seeds():
    found, record = carried("^(?!output/)")
    np.testing.assert_array_equal(found["output/kernel"], params()["output/kernel"])
    np.testing.assert_array_equal(found["layers_0/kernel"], table(5, 100.0))
    assert record["new"] == ["output/kernel"]
    assert carried("layers")[1]["tables"] == {}


def test_a_table_of_the_same_tokens_goes_over_as_a_whole():
    rows = {"table": HERE}
    whole, record = carry({"table": table(5, 0.0)}, {"table": table(5, 100.0)}, rows, rows, ".*")
    np.testing.assert_array_equal(whole["table"], table(5, 100.0))  # also the rows of bigrams
    assert (record["loaded"], record["tables"]) == (10, {})


def test_another_width_is_refused_with_the_parameter_and_both_shapes():
    wide = params() | {"layers_0/kernel": np.zeros((5, 3))}
    says = ("layers_0/kernel is (5, 3) here and (5, 2) in that", "init_pattern='^(?!layers_0/)'")
    with refused(*says):
        carried(fresh=wide)
    assert carried("^(?!layers_0/kernel$)", fresh=wide)[1]["new"] == ["layers_0/kernel"]
    wide = params() | {"embedding/table": np.zeros((3, 9))}
    with refused("embedding/table is (3, 9) here and (4, 2)"):
        carried(fresh=wide)


def test_layers_of_one_model_alone_are_refused_with_a_pattern_that_leaves_them_out():
    deep = params(**{"layers_1/kernel": np.ones(3), "layers_1/bias": np.ones(2)})
    says = ("layers_1/kernel is (3,) here and absent in that run (1 more differ)",
            "init_pattern='^(?!layers_1/)'")  # fmt: skip
    with refused(*says):
        carried(fresh=deep)
    found, _ = carried("^(?!layers_1/)", fresh=deep)
    np.testing.assert_array_equal(found["layers_1/bias"], np.ones(2))
