"""Intervals and tests are those of other programs, and equal systems rarely differ."""

import itertools
import math

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from experiments.comparison.differences import comparable, compare
from experiments.comparison.outputs import TASKS, Measure, Outputs, ratio_of_sums
from experiments.comparison.systems import Run, System
from experiments.measures.significance import resample, run_exchange_test
from experiments.measures.translations import (
    bleu_of_sums,
    chrf_of_sums,
    count_characters,
    count_ngrams,
)
from sweeps import sentences, translations

REFERENCES = sentences(60)
OTHERS = [" ".join(reversed(text.split())) for text in REFERENCES]
BLEU, CHRF = TASKS["translation"].measures[:2]
MEAN = Measure("mean", ratio_of_sums)


def system(name, *counts, measure="bleu"):
    """A system whose runs have these counts of each text."""
    lengths = np.ones(len(counts[0]), np.int64)
    runs = [
        Run(None, {}, Outputs({}, {}, [""] * len(own), lengths, {measure: own})) for own in counts
    ]
    return System(name, runs)


def means(values):
    """Counts of texts whose mean is compared."""
    values = np.asarray(values, np.float64)
    return np.stack([values, np.ones_like(values)], 1)


def compared(ours, theirs, measure=MEAN, **options):
    """The difference of a system's runs to a baseline's, each given by counts."""
    systems = [system("a", *theirs, measure=measure.name)]
    systems.append(system("b", *ours, measure=measure.name))
    return compare([measure], systems, **options)[0].differences[1]


def translated(errors, seed, references=REFERENCES):
    return count_ngrams(translations(references, errors, seed), [references])


@pytest.mark.parametrize("references", [[REFERENCES], [OTHERS, REFERENCES]])
@pytest.mark.parametrize("rows", [slice(None), slice(10, 17), slice(3, 4)])
def test_scores_of_counts_are_those_of_sacrebleu_for_any_part_of_the_corpus(references, rows):
    texts = translations(REFERENCES, 0.3, 0)
    texts[11] = ""
    parts = [own[rows] for own in references]
    for metric, count, of_sums in (
        (sacrebleu.CHRF(), count_characters, chrf_of_sums),
        (sacrebleu.BLEU(), count_ngrams, bleu_of_sums),
    ):
        expected = metric.corpus_score(texts[rows], parts).score
        sums = count(texts, references)[rows].sum(0, keepdims=True)
        np.testing.assert_allclose(of_sums(sums), [expected], rtol=1e-12)


def test_chrf_of_no_text_or_no_match_is_that_of_sacrebleu():
    for text, reference in (("", "a b"), ("a b", "x y"), ("", "")):
        expected = sacrebleu.sentence_chrf(text, [reference]).score
        assert chrf_of_sums(count_characters([text], [[reference]]))[0] == expected


def test_a_resample_has_as_many_texts_and_the_same_ones_of_all_systems():
    values = np.arange(13.0)
    sums = resample(np.stack([np.ones(13), values, 3 * values], 1), 2003)
    assert sums.shape == (2003, 3)
    np.testing.assert_array_equal(sums[:, 0], 13)
    np.testing.assert_allclose(sums[:, 2], 3 * sums[:, 1])
    # Of all 13 ** 13 resamples the variance of the sum is 13 times that of the values.
    assert sums[:, 1].var() == pytest.approx(13 * values.var(), rel=0.1)
    np.testing.assert_allclose(sums[:, 1].mean(), values.sum(), rtol=0.02)


def test_the_interval_of_one_run_each_is_that_over_all_resamples():
    ours, theirs = [3.0, 1.0, 4.0, 1.5], [2.5, 1.0, 2.0, 0.0]
    gaps = np.subtract(ours, theirs)
    every = [gaps[list(rows)].mean() for rows in itertools.product(range(4), repeat=4)]
    found = compared([means(ours)], [means(theirs)])
    assert found.mean == pytest.approx(gaps.mean())
    half = stats.t.ppf(0.975, 3) * np.std(every)
    assert found.high - found.mean == pytest.approx(half, rel=0.03)
    assert found.mean - found.low == pytest.approx(half, rel=0.03)
    expected = 2 * stats.t.sf(gaps.mean() / np.std(every), 3)
    assert found.p_bootstrap == pytest.approx(expected, rel=0.05)


def test_tests_of_one_run_each_are_near_those_of_sacrebleu():
    for seed in (1, 2, 4):
        texts = [translations(REFERENCES, *each) for each in ((0.2, seed), (0.25, seed + 50))]
        named = list(zip("ab", texts, strict=True))
        found = []
        for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
            for kind in ("bs", "ar"):
                _, scores = PairedTest(named, {"x": metric}, [REFERENCES], kind, 2000)()
                found += [own[1].p_value for name, own in scores.items() if name != "System"]
        counts = [
            (count_ngrams(own, [REFERENCES]), count_characters(own, [REFERENCES])) for own in texts
        ]
        bleu = compared([counts[1][0]], [counts[0][0]], BLEU)
        chrf = compared([counts[1][1]], [counts[0][1]], CHRF)
        ours = [bleu.p_bootstrap, bleu.p_exchange, chrf.p_bootstrap, chrf.p_exchange]
        np.testing.assert_allclose(ours[1::2], found[1::2], atol=0.03)
        # sacreBLEU's is of the side that is ahead, and below ours.
        assert np.all(np.array(ours[::2]) > np.array(found[::2]) - 0.03)


def test_the_interval_of_bleu_is_near_the_percentiles_of_its_resamples():
    ours, theirs = translated(0.2, 1), translated(0.3, 2)
    found = compared([ours], [theirs], BLEU)
    sums = resample(np.concatenate([ours, theirs], 1))
    drawn = bleu_of_sums(sums[:, :10]) - bleu_of_sums(sums[:, 10:])
    low, high = np.percentile(drawn, (2.5, 97.5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_of_texts_without_variance_the_test_is_students_over_the_runs():
    ours, theirs = [31.2, 30.1, 32.0], [30.0, 29.5]
    flat = [[means([score] * 7) for score in scores] for scores in (ours, theirs)]
    found = compared(*flat)
    expected = stats.ttest_ind(ours, theirs)
    assert found.p_bootstrap == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_the_variances_of_texts_and_runs_add():
    rng = np.random.default_rng(1)
    texts = rng.normal(0, 1, 401)
    runs = [[means(shift + texts * side) for shift in (0.0, 0.3)] for side in (1, 0)]
    found = compared(*runs)
    over_texts, over_runs = texts.var() / 401, 2 * 0.3**2 / 2 / 2
    variance = over_texts + over_runs
    degrees = variance**2 / (over_texts**2 / 400 + over_runs**2 / 2)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    assert found.high - found.mean == pytest.approx(half, rel=0.03)


def test_equal_outputs_do_not_differ():
    counts = translated(0.3, 1)
    found = compared([counts], [counts], BLEU)
    assert found == (0, 0, 0, 1, 1)
    assert compared([counts, counts], [counts, counts], BLEU) == (0, 0, 0, 1, 1)
    # A difference in one sentence is no evidence.
    other = counts.copy()
    other[7] = translated(0.9, 1)[7]
    found = compared([counts], [other], BLEU)
    assert found.mean > 0.1
    assert found.p_bootstrap > 0.2
    assert found.p_exchange == 1


@pytest.mark.parametrize("measure", [MEAN, BLEU])
def test_one_text_of_one_run_each_has_no_interval_and_is_no_evidence(measure):
    ours, theirs = means([3.7]), means([1.1])
    if measure is BLEU:
        ours, theirs = (translated(errors, 1)[:1] for errors in (0.1, 0.9))
    found = compared([ours], [theirs], measure)
    assert abs(found.mean) > 1
    assert np.isnan([found.low, found.high, found.p_bootstrap]).all()
    assert not found.has_interval
    assert found.p_exchange == 1
    # Nor are equal outputs of one text evidence that the systems are equal.
    assert not compared([ours], [ours], measure).has_interval
    # The control: of two runs each the interval is that over the runs.
    runs = [[means([score]) for score in scores] for scores in ([31.2, 30.1], [30.0, 29.5])]
    found, expected = compared(*runs), stats.ttest_ind([31.2, 30.1], [30.0, 29.5])
    assert found.has_interval
    assert found.p_bootstrap == pytest.approx(expected.pvalue, rel=1e-9)


def test_a_difference_that_never_varies_has_no_interval():
    # The second is the same in all resamples but for rounding.
    for scores in ([1.0, 1.0, 1.0], [0.1, 0.1, 0.1]):
        ours, theirs = means(scores), means(np.zeros(3))
        assert not compared([ours], [theirs]).has_interval
        assert not compared([ours, ours], [theirs, theirs]).has_interval
    # The control: a little variance is enough.
    assert compared([means([1.0, 1.0, 0.9])], [theirs]).has_interval


@pytest.mark.parametrize("right", [5, 9, 18])
def test_equal_outputs_of_three_and_of_two_seeds_do_not_differ(right):
    counts = means([1.0] * right + [0.0] * (50 - right))
    # Their means do, by rounding.
    assert np.mean([right / 50] * 3) != np.mean([right / 50] * 2)
    found = compared([counts] * 3, [counts] * 2)
    assert found.mean == 0
    assert found.p_bootstrap == found.p_exchange == 1
    assert found.low <= 0 <= found.high < 1e-9


def test_p_values_are_corrected_for_all_systems_if_some_have_none():
    runs = [[means([score])] for score in (30.0, 31.0)]
    several = [means([score]) for score in (35.0, 36.0, 37.0)]
    groups = zip("abc", (*runs, several), strict=True)
    systems = [system(name, *own, measure="mean") for name, own in groups]
    _, one, three = compare([MEAN], systems)[0].differences
    assert not one.has_interval
    alone = compared(several, runs[0])
    assert three.p_bootstrap == pytest.approx(2 * alone.p_bootstrap)
    assert 0 < alone.p_bootstrap < 0.5


def test_exchanges_of_runs_are_all_divisions_into_two_groups():
    ours, theirs = [3.0, 5.0, 4.5], [1.0, 3.5]
    observed = abs(np.mean(ours) - np.mean(theirs))
    everyone = [*ours, *theirs]
    apart = []
    for chosen in itertools.combinations(range(5), 3):
        rest = [everyone[i] for i in range(5) if i not in chosen]
        apart.append(abs(np.mean([everyone[i] for i in chosen]) - np.mean(rest)))
    expected = np.mean(np.array(apart) >= observed - 1e-9)
    assert run_exchange_test(ours, theirs) == pytest.approx(expected)
    assert run_exchange_test(theirs, ours) == pytest.approx(expected)
    # The least there is.
    assert run_exchange_test([1, 2], [3, 4]) == pytest.approx(2 / 6)
    assert run_exchange_test([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert run_exchange_test([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_of_too_many_divisions_random_ones_are_drawn():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.6, 1, 9), rng.normal(0, 1, 9)
    found = run_exchange_test(ours.tolist(), theirs.tolist())
    expected = stats.permutation_test(
        (ours, theirs), lambda a, b: np.mean(a) - np.mean(b), n_resamples=100_000
    ).pvalue
    assert found == pytest.approx(expected, abs=0.02)
    assert run_exchange_test([0.0] * 9, [1.0] * 9) < 0.001


def test_p_values_are_corrected_for_the_number_of_systems():
    baseline, others = translated(0.3, 0), [translated(0.28, n) for n in (1, 2, 3)]
    systems = [system("0", baseline), *(system(str(n), own) for n, own in enumerate(others, 1))]
    found = compare([BLEU], systems)[0].differences[1:]
    alone = [compared([own], [baseline], BLEU) for own in others]
    for kind in ("p_bootstrap", "p_exchange"):
        raw = [getattr(each, kind) for each in alone]
        least = int(np.argmin(raw))
        assert getattr(found[least], kind) == pytest.approx(min(1, 3 * raw[least]), rel=0.05)
        assert max(getattr(each, kind) for each in found) >= max(raw) - 0.02
    assert found[0].mean == pytest.approx(alone[0].mean)


def test_accuracies_are_tested_by_mcnemars_exact_test():
    [measure] = TASKS["classification"].measures
    ours, theirs = np.ones((40, 2), np.int64), np.ones((40, 2), np.int64)
    theirs[:8, 0] = 0
    ours[39, 0] = 0
    found = compared([ours], [theirs], measure)
    assert found.p_exchange == pytest.approx(stats.binomtest(8, 9).pvalue)
    assert found.mean == pytest.approx(7 / 40)


def test_losses_of_a_token_need_the_same_tokens_and_bits_of_a_byte_do_not():
    measures = TASKS["language_model"].measures
    first = {"bits_per_byte": means([1.0, 2]), "nll": np.array([[3.0, 2], [4, 5]])}
    other = {**first, "nll": np.array([[3.0, 2], [4, 4]])}

    def models(*counts):
        lengths = np.ones(2, np.int64)
        return [System("x", [Run(None, {}, Outputs({}, {}, [], lengths, own))]) for own in counts]

    assert comparable(measures, models(first, first)) == list(measures)
    assert comparable(measures, models(first, other)) == [measures[0]]


# -- calibration


def share_below(p_values) -> float:
    return float(np.mean(np.array(p_values) < 0.05))


def test_equal_translators_differ_one_time_in_twenty_and_different_ones_do():
    references = sentences(101)
    equal, different = [], []
    for n in range(200):
        ours, theirs, worse = (
            translated(errors, 3 * n + i, references) for i, errors in enumerate((0.3, 0.3, 0.42))
        )
        equal.append(compared([ours], [theirs], BLEU, draws=300))
        if n < 50:
            different.append(compared([ours], [worse], BLEU, draws=300))
    for kind in ("p_bootstrap", "p_exchange"):
        # The standard error of a fraction of 200 is 0.015.
        assert share_below([getattr(each, kind) for each in equal]) < 0.095
        assert share_below([getattr(each, kind) for each in different]) > 0.7


@pytest.mark.parametrize("seeds", [2, 3])
def test_equal_systems_of_unequal_seeds_rarely_differ_over_seeds_and_often_over_texts(seeds):
    rng = np.random.default_rng(seeds)
    over_seeds, over_texts, different = [], [], []
    for _ in range(300):
        # 3 standard deviations over seeds is about one over texts.
        texts = rng.normal(0, 1, 101)
        runs = [means(texts + rng.normal(0, 0.3) + rng.normal(0, 1, 101)) for _ in range(2 * seeds)]
        ours, theirs = runs[:seeds], runs[seeds:]
        over_seeds.append(compared(ours, theirs, draws=300).p_bootstrap)
        better = [own + [1.5, 0] for own in ours]
        different.append(compared(better, theirs, draws=300).p_bootstrap)
        # The control: the mean over seeds, as if it were one model.
        joined = [np.mean(own, 0) for own in (ours, theirs)]
        over_texts.append(compared(joined[:1], joined[1:], draws=300).p_bootstrap)
    assert share_below(over_seeds) < 0.08  # the standard error is 0.013
    assert share_below(over_texts) > 0.3
    assert share_below(different) > 0.6
