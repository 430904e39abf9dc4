"""Differences between systems: intervals, significance tests, and their correction."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.comparison.outputs import Measure
from experiments.comparison.systems import System
from experiments.measures.significance import (
    EQUAL,
    RESAMPLES,
    ROUNDING,
    holm,
    resample,
    run_exchange_test,
)

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """The difference of a system to the baseline in a measure, in the unit of the results.

    Attributes:
      mean: between the mean scores of their runs.
      low, high: of its 95% interval; NaN if there is none.
      p_bootstrap, p_exchange: two-sided, see `compare`, and corrected for the number of systems;
        `p_bootstrap` is NaN if there is no interval.
    """

    mean: float
    low: float
    high: float
    p_bootstrap: float
    p_exchange: float

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.p_bootstrap)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The scores of systems in a measure, and their differences to the first, the baseline.

    Attributes:
      scores: of the runs of each system.
      differences: None for the baseline.
    """

    measure: Measure
    scores: list[list[float]]
    differences: list[Difference | None]


def comparable(measures: Sequence[Measure], systems: Sequence[System]) -> list[Measure]:
    """Returns the measures that count the same units in all runs."""
    runs = [run for system in systems for run in system.runs]

    def same_units(name: str) -> bool:
        units = [run.outputs.counts[name][:, 1] for run in runs]
        return all(np.array_equal(units[0], own) for own in units)

    return [measure for measure in measures if not measure.per_token or same_units(measure.name)]


def compare(
    measures: Sequence[Measure],
    systems: Sequence[System],
    rows: Int[np.ndarray, "texts"] | None = None,
    draws: int = RESAMPLES,
) -> list[Comparison]:
    """Compares systems with the first of them, over texts, and over seeds if there are several.

    The interval and `p_bootstrap` are those of Student's t with a standard error of two parts: the
    standard deviation of the difference over resamples of the texts (Koehn 2004), and the standard
    error of the difference over the runs, whose variance is pooled over both systems. The parts
    add, as for words and subjects in Clark 1973 (min F'), and so do their degrees of freedom by
    Satterthwaite's rule. Variation with the text and the seed together is in both, which makes
    the test a little conservative. With one run each there is no second part: the test then is
    of these two trained models, on other texts. A difference of one text between one run each has
    no standard error, and so neither interval nor `p_bootstrap`; nor has one other than zero that
    is the same in all resamples and runs.

    `p_exchange` is of exchanges: with one run each, of their outputs for each text; otherwise of
    whole runs, see `run_exchange_test`. Exchanges of texts between systems of several runs would
    take the models for given: systems that differ in their seeds alone would seem to differ.

    All p-values are corrected by Holm's method for the number of systems.

    Args:
      rows: numbers of the texts to compare, from zero; all by default.
      draws: resamples, and exchanges of texts.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation"; Clark
    1973, "The Language-as-Fixed-Effect Fallacy"; Riezler and Maxwell 2005; Clark et al. 2011,
    "Better Hypothesis Testing for Statistical Machine Translation".
    """
    chosen = slice(None) if rows is None else rows
    counts = [
        [[run.outputs.counts[measure.name][chosen] for run in s.runs] for s in systems]
        for measure in measures
    ]
    columns = [own for of_measure in counts for runs in of_measure for own in runs]
    ends = np.cumsum([own.shape[1] for own in columns])[:-1]
    drawn = iter(np.split(resample(np.concatenate(columns, 1), draws), ends, axis=1))
    return [
        _compare(
            measure,
            of_measure,
            [np.mean([measure.of_sums(next(drawn)) for _ in runs], 0) for runs in of_measure],
            draws,
        )
        for measure, of_measure in zip(measures, counts, strict=True)
    ]


def _compare(
    measure: Measure,
    counts: Sequence[Sequence[np.ndarray]],
    means: Sequence[Float[np.ndarray, "resamples"]],
    draws: int,
) -> Comparison:
    """A comparison in one measure.

    Args:
      counts: of each run of each system.
      means: over a system's runs, on each resample of the texts.
      draws: exchanges of texts.
    """
    scores = [[measure.score(own) for own in runs] for runs in counts]
    found = [
        _difference(measure, own, counts[0], mean - means[0], draws)
        for own, mean in zip(counts[1:], means[1:], strict=True)
    ]
    corrected = zip(
        holm([each.p_bootstrap for each in found]),
        holm([each.p_exchange for each in found]),
        strict=True,
    )
    differences = [
        each._replace(p_bootstrap=p, p_exchange=q)
        for each, (p, q) in zip(found, corrected, strict=True)
    ]
    return Comparison(measure, scores, [None, *differences])


def _difference(
    measure: Measure,
    counts: Sequence[np.ndarray],
    baseline: Sequence[np.ndarray],
    drawn: Float[np.ndarray, "resamples"],
    draws: int,
) -> Difference:
    """A difference before the correction; `drawn` are differences on resamples of the texts."""
    ours, theirs = ([measure.score(own) for own in runs] for runs in (counts, baseline))
    mean = float(np.mean(ours) - np.mean(theirs))
    if abs(mean) <= ROUNDING:  # the means of three and of two equal scores may differ by it
        mean = 0.0
    half, p_bootstrap = t_test(mean, float(drawn.var()), len(counts[0]), ours, theirs)
    if len(ours) == len(theirs) == 1:
        p_exchange = measure.test(counts[0], baseline[0], draws)
    else:
        p_exchange = run_exchange_test(ours, theirs)
    return Difference(mean, mean - half, mean + half, p_bootstrap, p_exchange)


def t_test(
    mean: float, over_texts: float, texts: int, ours: list[float], theirs: list[float]
) -> tuple[float, float]:
    """Half of the 95% interval of a difference, and its two-sided p-value; see `compare`.

    Both are NaN if there is nothing to estimate the standard error from.

    Args:
      over_texts: the variance of the difference over resamples of that many texts.
      ours, theirs: the scores of the runs.
    """
    from scipy import stats  # which takes half a second

    freedom = len(ours) + len(theirs) - 2
    squares = sum(float(np.square(np.subtract(s, np.mean(s))).sum()) for s in (ours, theirs))
    over_seeds = squares / max(1, freedom) * (1 / len(ours) + 1 / len(theirs))
    if texts < 2:
        over_texts = 0.0  # all resamples are the same, and differ by rounding alone
    variance = over_texts + over_seeds
    if math.sqrt(variance) <= EQUAL * abs(mean):
        equal = mean == 0 and (texts > 1 or freedom > 0)
        return (0.0, 1.0) if equal else (math.nan, math.nan)
    spent = over_texts**2 / max(1, texts - 1) + over_seeds**2 / max(1, freedom)
    degrees, error = variance**2 / spent, math.sqrt(variance)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees)) * error
    return half, float(2 * stats.t.sf(abs(mean) / error, degrees))
