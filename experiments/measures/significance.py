"""Significance tests over runs and over texts, with correction for their number."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Real

LEVEL = 0.05
EQUAL = 1e-9  # of the largest: differences this close to one another are rounding
EXCHANGES, RESAMPLES, SEED = 10_000, 10_000, 12345  # as many exchanges, and the seed, of sacreBLEU
ROUNDING = 1e-9  # of a score
# Exchanges or resamples at once, and the numbers drawn for them, for memory's sake.
AT_ONCE, DRAWN_AT_ONCE = 1000, 4_000_000

# The score of each corpus with these sums of the counts of its texts.
OfSums = Callable[[Real[np.ndarray, "corpora n"]], Float[np.ndarray, "corpora"]]


def paired_t_test(differences: Sequence[float]) -> tuple[float, str]:
    """The two-sided p-value of a mean difference over seeds, and the signature of the test.

    An exact permutation test, the other choice, cannot fall below 2 / 2^n: with the two to five
    seeds that people train it never finds anything. The price is that differences are taken for
    normally distributed. Where all differences are the same number, as happens with scores that
    count a few texts, there is no deviation to measure by, and p is that of the permutation test.

    Args:
      differences: at least two, one for each seed.

    Source: Student 1908, "The probable error of a mean".
    """
    from scipy import stats  # which takes half a second

    values = np.asarray(differences, np.float64)
    n, mean = len(values), float(values.mean())
    deviation = float(values.std(ddof=1))
    if not np.any(values):
        p_value = 1.0
    elif deviation <= EQUAL * np.abs(values).max():
        p_value = 2 / 2**n
    else:
        p_value = float(2 * stats.t.sf(abs(mean) / (deviation / math.sqrt(n)), n - 1))
    return p_value, f"t-test|paired|two-sided|seeds:{n}"


def needed_deviations(n: int) -> float:
    """The mean difference over n seeds at which p is 0.05, in standard deviations of theirs."""
    from scipy import stats

    return float(stats.t.isf(LEVEL / 2, n - 1)) / math.sqrt(n)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in the same order.

    If no setting differs, the chance that any of them falls below a level is at most that level.
    A p-value that is not known, NaN, remains so and counts as one of them.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    count, corrected, largest = len(p_values), [math.nan] * len(p_values), 0.0
    known = [i for i in range(count) if not math.isnan(p_values[i])]
    for rank, i in enumerate(sorted(known, key=lambda i: p_values[i])):
        largest = max(largest, (count - rank) * p_values[i])
        corrected[i] = min(1.0, largest)
    return corrected


def randomisation_test(
    counts: Real[np.ndarray, "N n"],
    baseline: Real[np.ndarray, "N n"],
    of_sums: OfSums,
    exchanges: int = EXCHANGES,
) -> tuple[float, str]:
    """The two-sided p-value of a difference on one test set, and the signature of the test.

    If two systems were equally good, what they made of a text could be exchanged. The p-value is
    the fraction of random exchanges in which the score differs at least so much, whichever is
    ahead. `sacrebleu --paired-ar` counts only those in which it differs more: two systems that
    differ in one sentence, of which every exchange differs by as much, then have the least p there
    is.

    Args:
      counts: of each text; the baseline's is of the same texts.
      exchanges: how many are drawn.

    Source: Riezler and Maxwell 2005, "On some pitfalls in automatic evaluation and significance
    testing for MT".
    """
    rng = np.random.default_rng(SEED)
    both, apart = (counts + baseline).sum(0), (counts - baseline).astype(np.float64)
    observed = abs(np.subtract(*of_sums(np.stack([counts.sum(0), baseline.sum(0)]))))
    as_far = 0
    at_once = _at_once(len(counts))
    for start in range(0, exchanges, at_once):
        shape = min(at_once, exchanges - start), len(counts)
        # Sums of whole numbers, and so exact.
        moved = (2.0 * rng.integers(2, size=shape) - 1) @ apart
        ours, theirs = (of_sums((both + sign * moved) / 2) for sign in (1, -1))
        as_far += int((np.abs(ours - theirs) >= observed - ROUNDING).sum())
    return (as_far + 1) / (exchanges + 1), f"ar:{exchanges}|two-sided|seed:{SEED}"


def run_exchange_test(scores: Sequence[float], baseline: Sequence[float]) -> float:
    """The two-sided p-value of a difference between the mean scores of two systems' runs.

    If two systems were equal, each division of all their runs into two groups of these sizes would
    be equally likely. The p-value is the fraction of divisions in which the means differ at least
    so much: of all, or of `EXCHANGES` random ones if there are more. It is never below
    2 / C(2n, n) for n runs each: 0.33 for two, 0.1 for three, 0.03 for four, 0.008 for five.

    Source: Fisher 1935, "The Design of Experiments"; Pitman 1937.
    """
    values, size = np.array([*scores, *baseline], np.float64), len(scores)
    if math.comb(len(values), size) <= EXCHANGES:
        groups = np.array(list(itertools.combinations(range(len(values)), size)))
        drawn_too = 0  # the division that was observed is among them
    else:
        rng = np.random.default_rng(SEED)
        order = np.tile(np.arange(len(values)), (EXCHANGES, 1))
        groups, drawn_too = rng.permuted(order, axis=1)[:, :size], 1
    ours = values[groups].sum(1)
    apart = np.abs(ours / size - (values.sum() - ours) / (len(values) - size))
    observed = abs(np.mean(scores) - np.mean(baseline))
    as_far = int((apart >= observed - ROUNDING).sum())
    return (as_far + drawn_too) / (len(apart) + drawn_too)


def least_exchange_p(runs: int, baseline: int) -> float:
    """The lowest p-value that `run_exchange_test` can return for these numbers of runs.

    With equal numbers the observed division counts twice, as its two groups can be exchanged: 0.33
    for two runs each, 0.1 for three, 0.03 for four, 0.008 for five.
    """
    divisions = math.comb(runs + baseline, runs)
    if divisions > EXCHANGES:
        return 1 / (EXCHANGES + 1)
    return (2 if runs == baseline else 1) / divisions


def resample(
    counts: Real[np.ndarray, "N n"], resamples: int = RESAMPLES
) -> Float[np.ndarray, "resamples n"]:
    """The sums of the counts of texts that are drawn with replacement, as many as there are.

    The columns may belong to several systems: then each resample has the same texts of all.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    rng, texts = np.random.default_rng(SEED), len(counts)
    counts, parts = counts.astype(np.float64), []
    at_once = _at_once(texts)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        parts.append(rng.multinomial(texts, np.full(texts, 1 / texts), size=size) @ counts)
    return np.concatenate(parts)


def _at_once(texts: int) -> int:
    return max(1, min(AT_ONCE, DRAWN_AT_ONCE // texts))


def p_text(p_value: float) -> str:
    """A p-value as people read it, with three decimals."""
    text = f"{p_value:.3f}"
    return "<0.001" if text == "0.000" else text
