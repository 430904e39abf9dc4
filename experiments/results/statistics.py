"""System scores, their spread over seeds, and significance tests of their differences.

Sweeps and comparisons use the same test of whether a system differs from a baseline on a test
set; docs/comparisons.md explains why this test is used.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real
from scipy import special

LEVEL, CONFIDENCE, POWER = 0.05, 0.95, 0.8
TESTS = {  # tests over seeds, keyed by their names in signatures
    "t": "Student's t",
    "welch": "Welch's t (with unequal numbers of seeds)",
    "cochran-cox": "Cochran and Cox's test (if one of unequal numbers of seeds is two)",
}
STUDENT, WELCH, COCHRAN_COX = TESTS
EQUAL = 1e-9  # standard errors below this fraction of a difference are rounding errors
ROUNDING = 1e-9  # smaller score differences and standard errors are rounding errors

# Maps sums of per-text counts (one row per corpus) to the score of each corpus.
OfSums = Callable[[Real[np.ndarray, "corpora n"]], Float[np.ndarray, "corpora"]]


class Spread(NamedTuple):
    """The mean and sample standard deviation of n numbers, and the mean's 95% interval half-width.

    The deviation is NaN for a single number; the interval is also NaN for equal numbers.
    """

    n: int
    mean: float
    deviation: float
    interval: float


def spread(numbers: Sequence[float]) -> Spread:
    """Returns the mean, standard deviation and confidence interval (Student's t) of the numbers."""
    n, mean = len(numbers), float(np.mean(numbers))
    if n == 1:
        return Spread(n, mean, math.nan, math.nan)
    deviation = float(np.std(numbers, ddof=1))
    half = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(n)
    return Spread(n, mean, deviation, half if deviation > ROUNDING else math.nan)


class Scores(NamedTuple):
    """The scores of a system's runs, and the contribution of each text (see `text_values`)."""

    runs: list[float]
    texts: Float[np.ndarray, "runs texts"] | None = None  # None if only the scores are known


class Difference(NamedTuple):
    """The difference between a system and a baseline, in the unit of the scores."""

    mean: float  # mean score of the system minus mean score of the baseline
    low: float  # end of the 95% interval; NaN if the variance is 0 or cannot be estimated
    high: float
    p_value: float  # two-sided; NaN if `low` is NaN; below 0.05 exactly if the interval excludes 0
    corrected: float  # the p-value, corrected for the number of compared systems
    # The true difference for which the corrected p-value is below 0.05 with 80% probability, if no
    # other system differs.
    detectable: float
    seeds: tuple[int, int]  # numbers of runs of the system and of the baseline
    texts: int  # number of texts; 0 if only the variance over seeds is known

    @property
    def has_interval(self) -> bool:
        """Whether the difference has an interval and a p-value."""
        return not math.isnan(self.p_value)

    @property
    def signature(self) -> str:
        """The test and the numbers of seeds and texts from which the p-value is computed."""
        ours, theirs = self.seeds
        return f"{test_of(self.seeds)}|two-sided|seeds:{ours},{theirs}|texts:{self.texts}"


def ratio_of_sums(
    sums: Real[np.ndarray, "corpora 2"], scale: float = 1.0
) -> Float[np.ndarray, "corpora"]:
    """Returns the ratio of two sums, times `scale`. The second sum is a number of units."""
    return scale * sums[:, 0] / np.maximum(sums[:, 1], 1)


def score_of(counts: Real[np.ndarray, "texts n"], of_sums: OfSums) -> float:
    """Returns a corpus-level score from the counts of the texts in the corpus."""
    return float(of_sums(counts.sum(0, keepdims=True))[0])


def text_values(counts: Real[np.ndarray, "texts n"], of_sums: OfSums) -> Float[np.ndarray, "texts"]:
    """Returns each text's contribution to a score. For a mean, it is the text's own score.

    For other scores, such as BLEU, the contributions are jackknife pseudo-values. Their variance
    divided by the number of texts estimates the sampling variance of the score.

    Source: Tukey 1958, "Bias and confidence in not-quite large samples".
    """
    total, texts = counts.sum(0, keepdims=True), len(counts)
    return texts * of_sums(total) - (texts - 1) * of_sums(total - counts)


def compare_scores(baseline: Scores, systems: Sequence[Scores]) -> list[Difference]:
    """Returns each system's difference from a baseline, with Holm-corrected p-values."""
    differences = [_difference(system, baseline, len(systems)) for system in systems]
    corrected = holm([each.p_value for each in differences])
    return [each._replace(corrected=p) for each, p in zip(differences, corrected, strict=True)]


def _difference(ours: Scores, baseline: Scores, systems: int) -> Difference:
    """Returns the difference, with a p-value not yet corrected for the number of systems."""
    mean = float(np.mean(ours.runs) - np.mean(baseline.runs))
    if abs(mean) <= ROUNDING:  # equal scores may have means that differ by rounding
        mean = 0.0
    seeds = len(ours.runs), len(baseline.runs)
    texts = 0 if ours.texts is None or ours.texts.shape[1] < 2 else ours.texts.shape[1]
    parts = _variances(ours, baseline)
    error = math.sqrt(sum(variance for variance, _ in parts))
    half = p_value = detectable = math.nan  # they stay NaN if a score is NaN
    if error > max(ROUNDING, EQUAL * abs(mean)):
        half, p_value = error * _quantile(parts, LEVEL), _p_value(abs(mean) / error, parts)
        # Power counts one tail only, so the two-sided p-value is 2 * (1 - POWER).
        missed = _quantile(parts, 2 * (1 - POWER))
        detectable = error * (_quantile(parts, LEVEL / systems) + missed)
    return Difference(mean, mean - half, mean + half, p_value, p_value, detectable, seeds, texts)


def test_of(seeds: tuple[int, int]) -> str:
    """Returns the key in `TESTS` of the test that is valid for these numbers of seeds.

    The test is valid for unequal variances. A single seed is given the other system's variance.
    """
    if min(seeds) == 1 or seeds[0] == seeds[1]:
        return STUDENT
    return WELCH if min(seeds) > 2 else COCHRAN_COX


def _variances(ours: Scores, baseline: Scores) -> list[tuple[float, float]]:
    """Returns (variance, degrees of freedom) components of a difference, over runs and texts.

    Both components include the interaction of text and run, so it is subtracted once, from the
    variance over texts, as in an analysis of variance with crossed random effects.
    """
    systems, seeds = (ours, baseline), (len(ours.runs), len(baseline.runs))
    test, freedom = test_of(seeds), np.array(seeds) - 1
    pooled = sum(1 / n for n in seeds) / max(1, freedom.sum())
    scales = np.array([pooled if test == STUDENT else 1 / (n * (n - 1)) for n in seeds])
    variances = scales * [np.var(s.runs) * len(s.runs) for s in systems]
    parts = [(float(variances.sum()), float(freedom.sum()))] if freedom.any() else []
    if test == COCHRAN_COX:
        parts = [*zip(variances.tolist(), freedom.tolist(), strict=True)]
    elif test == WELCH and variances.any():  # Welch 1947; rounded down to be valid for three seeds
        number = variances.sum() ** 2 / (variances**2 / freedom).sum()
        parts = [(parts[0][0], math.floor(number + ROUNDING))]
    if ours.texts is None or baseline.texts is None or ours.texts.shape[1] < 2:
        return parts
    texts = ours.texts.shape[1]
    over_texts = float(np.var(ours.texts.mean(0) - baseline.texts.mean(0), ddof=1)) / texts
    rest = [s.texts - s.texts.mean(0) for s in systems if s.texts is not None]
    both = float(np.dot(scales, [np.var(x, axis=1, ddof=1).sum() for x in rest])) / texts
    return [*parts, (max(0.0, over_texts - both), texts - 1)]


def _p_value(t: float, parts: Sequence[tuple[float, float]]) -> float:
    """Returns an approximate two-sided p-value: the variance-weighted mean of the t-test p-values
    with the degrees of freedom of each variance component; see docs/results/comparisons.md.

    Source: after Cochran and Cox 1950, "Experimental designs", who weight critical values.
    """
    # With Satterthwaite's degrees of freedom, 8% of tests of equal two-seed systems would reject.
    total = sum(variance for variance, _ in parts)
    return float(sum(v * 2 * special.stdtr(freedom, -t) for v, freedom in parts) / total)


def _quantile(parts: Sequence[tuple[float, float]], level: float) -> float:
    """Returns the t statistic whose p-value is `level`."""
    limits = [float(special.stdtrit(freedom, 1 - level / 2)) for _, freedom in parts]
    low, high = min(limits), max(limits)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _p_value(middle, parts) > level else (low, middle)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values with Holm's correction; a NaN stays NaN, but counts as a test.

    If no system differs, the probability that any value is below a level is at most that level.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    count, corrected, largest = len(p_values), [math.nan] * len(p_values), 0.0
    order = [i for i in np.argsort(p_values) if not math.isnan(p_values[i])]
    for rank, i in enumerate(order):
        largest = max(largest, (count - rank) * p_values[i])
        corrected[i] = min(1.0, largest)
    return corrected
