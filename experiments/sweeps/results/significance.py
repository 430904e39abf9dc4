"""Significance tests between settings of a sweep, with correction for their number."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVEL = 0.05
EQUAL = 1e-9  # of the largest: differences this close to one another are rounding


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
    return float(stats.t.isf(LEVEL / 2, n - 1)) / math.sqrt(n)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in the same order.

    If no setting differs, the chance that any of them falls below a level is at most that level.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    count, corrected, largest = len(p_values), [1.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, (count - rank) * p_values[i])
        corrected[i] = min(1.0, largest)
    return corrected
