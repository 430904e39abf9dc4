"""The differences of systems to the first of them, in each measure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from experiments.comparison.outputs import Measure
from experiments.comparison.systems import System
from experiments.measures.significance import Difference, compare_scores, scores_of_counts


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
    measure: Measure, systems: Sequence[System], rows: Int[np.ndarray, "texts"] | None = None
) -> Comparison:
    """Compares systems with the first of them by the test of `measures.significance`.

    Args:
      rows: numbers of the texts to compare, from zero; all by default.
    """
    chosen = slice(None) if rows is None else rows
    scores = [
        scores_of_counts(
            [run.outputs.counts[measure.name][chosen] for run in system.runs], measure.of_sums
        )
        for system in systems
    ]
    differences = compare_scores(scores[0], scores[1:])
    return Comparison(measure, [each.runs for each in scores], [None, *differences])
