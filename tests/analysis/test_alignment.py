"""Links read off attention are where it is, and scores of links are what their definitions say."""

import numpy as np
import pytest

from transformer.analysis.alignment import (
    GoldLinks,
    Words,
    alignment_scores,
    most_attended,
    word_weights,
    words_of_text,
)
from transformer.data.characters import canonicalize, word_ends


def words(*of_tokens: int, count: int | None = None) -> Words:
    return Words(np.array(of_tokens, int), max(of_tokens) + 1 if count is None else count)


# -- words and their tokens


def test_blanks_alone_part_words_and_a_token_belongs_where_it_first_shows():
    ends = word_ends(" Der  Hund's\u00a0bellt. Ja.\n")
    starts = [0, 3, 6, 8, 10, 16, 17, 18]  # "Der", " Hu", "nd", "'s", a space and "bell", ...
    found = words_of_text(ends, starts)
    assert found.of_tokens.tolist() == [0, 1, 1, 1, 1, 1, 2, 2]
    assert found.count == 3
    assert words_of_text(word_ends("  "), [0]).count == 0
    assert words_of_text(word_ends("a b c"), [0]).count == 3  # what was cut off counts


@pytest.mark.parametrize(
    ("text", "ends"),
    [("a \u00ad b", [1, 1, 3]), ("\u00ad a\u2028b c", [0, 3, 5]), ("e\u00ad\u0301 \ufeff", [1, 1])],
)
def test_a_word_that_is_never_seen_counts_and_has_no_token(text, ends):
    assert word_ends(text) == ends
    assert canonicalize(text)[: ends[-1]] == canonicalize(text)
    assert words_of_text(ends, [*range(ends[-1])]).of_tokens.tolist()[-1] == ends.index(ends[-1])


# -- weights of words


def test_source_columns_are_added_and_target_rows_averaged():
    # Rows <s>, x, y, z; columns a, b, c, </s>. The target's words are xy and z, the source's a, bc.
    weights = np.array(
        [[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.1, 0.3], [0.0, 0.7, 0.2, 0.1], [1.0, 0.0, 0.0, 0.0]],
        np.float32,
    )
    source, target = words(0, 1, 1), words(0, 0, 1)
    made = word_weights(weights, source, target, "output")
    np.testing.assert_allclose(made, [[0.3, 0.35], [0.0, 0.9]], rtol=1e-6)
    read = word_weights(weights, source, target, "input")
    np.testing.assert_allclose(read, [[0.25, 0.55], [1.0, 0.0]], rtol=1e-6)


# -- links


def test_ties_share_a_link_however_float32_rounds_them():
    third = np.float32(1) / 3
    weights = np.array([[third, third * (1 + 1e-7), third], [0.2, 0.4, 0.4001], [0, 0, 0]])
    expected = [[1 / 3, 1 / 3, 1 / 3], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_allclose(most_attended(weights), expected)


# -- scores


def test_sure_and_possible_links_count_as_defined():
    # Found 0-0, 1-1, 3-2, 2-3; sure 0-0, 1-1, 2-2; possible besides 3-2 and 0-3.
    links = np.zeros((4, 4))
    links[[0, 1, 2, 3], [0, 1, 3, 2]] = 1
    gold = GoldLinks([(0, 0), (1, 1), (2, 2)], [(3, 2), (0, 3)])
    scores = alignment_scores([links], [gold])
    assert scores.precision == 3 / 4  # 0-0, 1-1 and 3-2 of four
    assert scores.recall == 2 / 3  # 0-0 and 1-1 of three
    assert scores.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))
    # A sure link that is called possible as well, or twice, counts once.
    again = GoldLinks([*gold.sure, (0, 0)], [*gold.possible, (1, 1)])
    assert alignment_scores([links], [again]) == scores


def test_heads_are_scored_side_by_side_and_sentences_by_their_size():
    gold = [GoldLinks([(0, 0), (1, 1), (2, 2)]), GoldLinks([(0, 0)])]
    right, wrong = np.eye(3), np.eye(3)[[1, 2, 0]]
    heads = np.array([[right, wrong]] * 5)
    scores = alignment_scores([heads, np.ones((5, 2, 1, 1))], gold)
    assert scores.error_rate.shape == (5, 2)
    np.testing.assert_allclose(scores.error_rate[4], [0, 3 / 4])


def test_where_there_is_nothing_to_count_there_is_no_score():
    nothing = alignment_scores([np.zeros((2, 3))], [GoldLinks([])])
    assert np.isnan(nothing[:3]).all()
    unfound = alignment_scores([np.zeros((2, 3))], [GoldLinks([(2, 1)])])
    assert (unfound.error_rate, unfound.recall) == (1, 0)
    assert np.isnan(unfound.precision)
