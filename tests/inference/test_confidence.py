"""Words are matched with tokens and references by hand, and probabilities follow the tokens."""

import numpy as np
import pytest

from transformer.errors import UserError
from transformer.inference import confidence

PLACES = {  # text, text of the model, offsets of its tokens; tokens of each word
    "pieces of words": ("Er schläft.", "Er schläft.", [0, 2, 5, 10], [[0], [1, 2], [3]]),
    "case": ("ER SCHLÄFT.", "Er schläft.", [0, 2, 5, 10], [[0], [1, 2], [3]]),
    "a copied name of two words": (
        *("Er sah Mia Ruiz.", "Er sah <copy:0>.", [0, 2, 6, 7, 15]),
        [[0], [1], [2, 3], [2, 3], [4]],
    ),
    "no spaces": ("他在睡觉。", "他在睡觉。", [0, 1, 2], [[0], [1], [2], [2], [2]]),
    "bytes of a character": ("a ł", "a ł", [0, 1, 2, 2], [[0], [1, 2, 3]]),
    "a token over two words": ("Don't.", "Don't.", [0], [[0], [0]]),
}


@pytest.mark.parametrize("name", PLACES)
def test_words_are_matched_with_tokens_by_their_position(name):
    text, written, starts, places = PLACES[name]
    assert confidence.token_places(text, written, starts) == places


def test_each_word_of_a_reference_matches_once():
    expected = [True, True, False, True, True]
    assert confidence.match_words("the the the 3.50 .", "The the 3.50. the") == expected


def test_the_calibration_error_is_the_mean_gap_of_ten_bins():
    tenths, halves = np.arange(10) / 10, np.full(20, 0.5)
    assert confidence.calibration_error(tenths, np.ones(10, bool)) == pytest.approx(0.55)
    assert confidence.calibration_error(halves, np.arange(20) % 2 == 0) == pytest.approx(0)
    # Of the first bin, with 0.1 and 0.3, one is right: a gap of 0.3. The others have 0 and no gap.
    pairs = np.array([0.0] * 18 + [0.1, 0.3])
    assert confidence.calibration_error(pairs, pairs == 0.3) == pytest.approx(0.03)


@pytest.fixture(scope="module")
def sample():
    """Words of one or two tokens, whether they are right, and the probability of that."""
    rng = np.random.default_rng(5)
    groups = [(-rng.exponential(size=rng.integers(1, 3))).tolist() for _ in range(4000)]
    chances = np.array([0.1 + 0.8 * np.exp(np.mean(group)) for group in groups])
    return groups, rng.random(4000) < chances, chances


def test_fitted_probabilities_are_calibrated_and_shuffled_ones_are_not(sample):
    groups, right, chances = sample
    weights = confidence.fit(groups[:2000], right[:2000].tolist(), "words")
    probabilities = confidence.predict(weights, groups[2000:])
    assert np.abs(probabilities - chances[2000:]).mean() < 0.03
    assert confidence.calibration_error(probabilities, right[2000:]) < 0.05
    shuffled = np.random.default_rng(6).permutation(probabilities)
    assert confidence.calibration_error(shuffled, right[2000:]) > 0.1


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_less_probable_token_never_makes_a_word_more_sure(sample, is_reversed):
    groups, right, _ = sample
    weights = confidence.fit(groups, (right != is_reversed).tolist(), "words")
    ramp = np.linspace(-9, 0, 50).tolist()
    for pairs in ([[x] for x in ramp], [[x, -9.0] for x in ramp]):
        probabilities = confidence.predict(weights, pairs)
        assert (np.diff(probabilities) >= 0).all()
        assert is_reversed or probabilities[-1] > probabilities[0]


def test_words_that_are_all_wrong_are_refused(sample):
    with pytest.raises(UserError, match="all 3 validation words are wrong: hold out more text"):
        confidence.fit(sample[0][:3], [False] * 3, "words")
