"""The one test of differences: its numbers by hand, how often it errs, and what it finds."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.results.statistics import (
    LEVEL,
    Scores,
    compare_scores,
    holm,
    ratio_of_sums,
    text_values,
)
from experiments.results.tasks import bleu_of_sums
from sweeps import sentences, translations
from transformer.metrics.text import corpus_scores

REFERENCES = sentences(60)


def scores(values) -> Scores:
    """The scores of a mean over texts, [runs, texts]."""
    values = np.asarray(values, np.float64)
    return Scores(values.mean(1).tolist(), values)


def compared(ours, baseline):
    [found] = compare_scores(scores(baseline), [scores(ours)])
    return found


def test_a_difference_of_two_runs_each_on_two_texts_is_that_of_a_hand_calculation():
    found = compared([[1, 3], [3, 7]], [[0, 2], [2, 0]])
    # Over runs: means 2, 5 and 1, 1, so squares of 4.5, over 2 degrees, times 1/2 + 1/2.
    # Over texts: 1 and 4, a variance of 4.5, over 2 texts. What is in both: 0.5, 0.5, 2 and 2 over
    # 2 degrees and 2 texts, times 1/2 + 1/2.
    over_runs, over_texts, both = 2.25, 2.25, 1.25
    t = 2.5 / math.sqrt(over_runs + over_texts - both)
    one, two = 1 - 2 * math.atan(t) / math.pi, 1 - t / math.sqrt(2 + t**2)  # tails of Student's t
    assert found.mean == 2.5
    assert found.p_value == pytest.approx((2.25 * two + 1 * one) / 3.25, rel=1e-9)
    assert found.signature == "t|two-sided|seeds:2,2|texts:2"


def test_of_one_run_each_it_is_students_paired_test_over_texts():
    ours, theirs = [3.0, 1.0, 4.0, 1.5], [2.5, 1.0, 2.0, 0.0]
    found, expected = compared([ours], [theirs]), stats.ttest_rel(ours, theirs)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    # p < 0.05 in four of five cases: the critical value, and the one that a fifth falls short of.
    errors = stats.t.ppf(0.975, 3) + stats.t.ppf(0.8, 3)
    deviation = np.subtract(ours, theirs).std(ddof=1)
    assert found.detectable == pytest.approx(errors * deviation / 2, rel=1e-6)


@pytest.mark.parametrize("texts", [None, 1, 7])
def test_of_texts_that_are_unknown_or_never_vary_it_is_students_test_over_runs(texts):
    ours, theirs = [31.2, 30.1], [30.0, 29.5]
    made = [
        Scores(own, texts and np.repeat(own, texts).reshape(-1, texts)) for own in (ours, theirs)
    ]
    [found], expected = compare_scores(made[1], [made[0]]), stats.ttest_ind(ours, theirs)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.texts == (7 if texts == 7 else 0)  # a single text is none to test over


def test_the_interval_ends_at_zero_if_p_is_at_the_level():
    rng = np.random.default_rng(3)
    ours, theirs = rng.normal(0, 1, (2, 3, 40))
    low = compared(ours, theirs).low
    assert compared(ours - low, theirs).p_value == pytest.approx(LEVEL, rel=1e-6)


def test_the_variance_of_text_values_is_that_of_the_score_on_resampled_texts():
    texts = [translations(REFERENCES, 0.25, seed) for seed in (1, 2)]
    counts = [corpus_scores(own, REFERENCES, final=True)["counts"]["bleu"] for own in texts]
    apart = np.subtract(*(text_values(own, bleu_of_sums) for own in counts))
    rows = np.random.default_rng(0).integers(60, size=(4000, 60))
    drawn = np.subtract(*(bleu_of_sums(own[rows].sum(1)) for own in counts))
    assert apart.std(ddof=1) / math.sqrt(60) == pytest.approx(drawn.std(), rel=0.07)
    # Of a mean they are the values themselves.
    pairs = np.stack([np.arange(5), np.ones(5)], 1)
    np.testing.assert_allclose(text_values(pairs, ratio_of_sums), np.arange(5))


def test_what_never_varies_has_neither_interval_nor_p():
    assert not compared([[3.7]], [[1.1]]).has_interval  # one text
    assert not compared([[0.1] * 3] * 2, [[0.0] * 3] * 2).has_interval  # but for rounding
    assert not compare_scores(Scores([1.0]), [Scores([2.0])])[0].has_interval
    assert not compare_scores(Scores([1.0, 2.0]), [Scores([math.nan, 2.0])])[0].has_interval
    assert compared([[1.0, 1.0, 0.9]], [[0.0] * 3]).has_interval  # the control
    right = [1.0] * 5 + [0.0] * 45
    for same in (right, [0.0] * 50):  # means of the first differ by rounding; no exact matches
        found = compared([same] * 3, [same] * 2)
        assert (found.mean, found.has_interval) == (0, False)
        assert math.isnan(found.low)
    one = [0.0, *right[1:]]
    assert compared([right], [one]).p_value > 0.3  # one text is no evidence


def test_p_values_are_corrected_for_all_systems_if_some_have_none():
    values = [[35.0, 36.0, 37.0], [31.0], [math.nan, 2.0]]
    several, one, lost = compare_scores(Scores([30.0]), [Scores(own) for own in values])
    assert not one.has_interval
    assert not lost.has_interval
    assert several.corrected == pytest.approx(3 * several.p_value)
    assert several.p_value < 0.1
    # Times 4, 3, 2, 1 by rank, never less than the one before, never more than 1.
    assert holm([0.04, 0.01, 0.3, 0.02]) == pytest.approx([0.08, 0.04, 0.3, 0.06])
    assert holm([0.7, 0.6]) == [1.0, 1.0]


# -- calibration


def found(rng, seeds, times, of_seeds, of_texts=0.3, texts=100, better=0.0) -> float:
    """The fraction of comparisons with p < 0.05, in percent.

    Args:
      of_seeds: the standard deviation over seeds, in those of a score by its text and seed; or
        that of each system.
      of_texts: that over texts of what a setting does to them; of text and seed together it is 1.
      better: the true difference, in its standard deviations.
    """
    below, deviations = 0, np.broadcast_to(of_seeds, 2)
    variance = of_texts**2 * 2 + sum((1 + deviations**2) / seeds)
    for _ in range(times):
        shared, values = rng.normal(0, 1, texts), []
        for n, deviation in zip(seeds, deviations / math.sqrt(texts), strict=True):
            runs = rng.normal(0, deviation, (n, 1)) + rng.normal(0, 1, (n, texts))
            values.append(shared + rng.normal(0, of_texts, texts) + runs)
        values[0] += better * math.sqrt(variance / texts)
        below += compared(*values).p_value < LEVEL
    return 100 * below / times


@pytest.mark.full
@pytest.mark.parametrize("seeds", [(1, 1), (2, 2), (5, 5), (2, 5)])
def test_equal_systems_differ_one_time_in_twenty_with_and_without_an_effect_of_seeds(seeds):
    rng = np.random.default_rng(1)
    for of_seeds in (0.0, 3.0):
        percent = found(rng, seeds, 400, of_seeds)
        if max(seeds) > 1 or of_seeds == 0:
            assert 2 <= percent <= 8  # the standard error is 1.1
        else:  # of two models the seed is a part: this is no test of settings
            assert percent > 30


def test_of_unequal_numbers_of_seeds_it_is_welchs_test_or_that_of_cochran_and_cox():
    ours, theirs = [31.2, 30.1, 32.0, 31.5], [30.0, 29.5, 31.9]
    [found] = compare_scores(Scores(theirs), [Scores(ours)])
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    assert 3 < expected.df < 4  # rounded down
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(expected.statistic), 3), rel=1e-9)
    assert found.signature == "welch|two-sided|seeds:4,3|texts:0"
    [found] = compare_scores(Scores(theirs[:2]), [Scores(ours)])
    parts = [np.var(own, ddof=1) / len(own) for own in (ours, theirs[:2])]
    t = (np.mean(ours) - np.mean(theirs[:2])) / math.sqrt(sum(parts))
    tails = 2 * stats.t.sf(t, [3, 1])  # each with the freedom of its variance
    assert found.p_value == pytest.approx(np.average(tails, weights=parts), rel=1e-9)
    assert found.signature == "cochran-cox|two-sided|seeds:4,2|texts:0"
