"""Notes below the tables of a sweep or comparison, on the method and limits of each number."""

from transformer.metrics.registry import SWEEPS, metrics_of
from ..display.web_page import paragraphs
from .statistics import CONFIDENCE, LEVEL, POWER, TESTS, test_of
from .systems import Comparison


def write_notes(comparison: Comparison) -> list[str]:
    """Returns sentences that explain the numbers in the tables; `notes.txt` has their texts."""
    measures = comparison.measures
    compared = [each for row in comparison.differences.values() for each in row if each]
    tested = [each for each in compared if each.has_interval]
    tests = {test_of(each.seeds) for each in tested}
    paths = {measure.path for measure in comparison.scores if comparison.has(measure.path)}
    metrics = metrics_of(measures.scored, SWEEPS).values()
    return paragraphs(
        "notes.txt",
        comparison=comparison,
        measures=measures,
        baseline=comparison.baseline,
        texts=len(comparison.runs[0].lengths),
        compared=compared,
        tested=tested,
        tests=[name for test, name in TESTS.items() if test in tests],
        systems=len(compared) // len(comparison.metrics),  # that are compared
        several=any(max(each.seeds) > 1 for each in tested),
        over_texts=any(each.texts for each in tested),
        one_seed=any(max(each.seeds) == 1 for each in compared),
        one_seed_tested=any(max(each.seeds) == 1 for each in tested),
        about=[m.about for m in metrics if m.about and f"{measures.split}.{m.name}" in paths],
        **{"confidence": CONFIDENCE, "level": LEVEL, "power": POWER},
    )
