"""The notes of a comparison say what intervals and p are of."""

import dataclasses
from pathlib import Path

import numpy as np

from experiments.results.figures import draw_differences
from experiments.results.notes import comparison_notes
from experiments.results.statistics import ratio_of_sums
from experiments.results.systems import ScoredRun, System, compare
from experiments.results.table import COMPARISON_TITLES, comparison_table
from experiments.results.tasks import REGISTRY


def system(name, *runs):
    """A system whose runs have these scores of each text."""
    scored = []
    for scores in runs:
        counts = {"bleu": np.stack([scores, np.ones(len(scores))], 1)}
        lengths = np.ones(len(scores), np.int64)
        scored.append(ScoredRun(Path(), {}, lengths=lengths, counts=counts))
    return System(name, scored)


def shown(*systems, task="translation"):
    """The cells of each system but the first, the notes joined, and the figure's marks."""
    measures = dataclasses.replace(REGISTRY["translation"], of_sums={"bleu": ratio_of_sums})
    comparison = compare(measures, systems, "bleu")
    rows = comparison_table(measures, systems, comparison).rows[1:]
    cells = [dict(zip(COMPARISON_TITLES, row, strict=True)) for row in rows]
    [axes] = draw_differences(measures, systems, [comparison]).axes
    notes = comparison_notes(REGISTRY[task], systems, [comparison])
    return cells, " ".join(notes), axes.containers


ONE, OTHER = system("one", [1.0, 3.0]), system("other", [2.0, 2.0])
TWO = system("two", [1.0, 4.0], [2.0, 5.0])


def test_each_p_is_said_to_be_of_seeds_or_of_trained_models():
    _, text, _ = shown(ONE, OTHER)
    assert "With one seed each they are of these two trained models, on other sentences" in text
    assert "new seeds" not in text
    assert "Holm" not in text  # there is nothing to correct
    for other in (ONE, TWO):
        _, text, _ = shown(TWO, dataclasses.replace(other, name="again"))
        assert "they are of new seeds of these settings, on other sentences" in text
        assert "trained models" not in text
    _, text, _ = shown(ONE, OTHER, TWO)
    assert "With one seed each" in text
    assert "With several seeds" in text
    assert "corrected for the 2 comparisons with the baseline in each measure" in text


def test_the_variance_is_named_by_its_parts():
    over_seeds, over_texts = "over seeds (pooled over both systems)", "over sentences"
    for other, words in (
        (ONE, f"that {over_seeds} plus that {over_texts} (less what is in both)."),
        (system("short", [2.0], [5.0]), f"that {over_seeds}. With"),
    ):
        first = TWO if other is ONE else system("again", [1.0], [4.0])
        text = shown(first, other)[1]
        assert f"The variance is {words}" in text
        assert ("on other sentences" in text) == (other is ONE)
    assert f"The variance is that {over_texts}. With" in shown(ONE, OTHER)[1]


def test_the_test_is_named_if_systems_have_unequal_numbers_of_seeds():
    many = system("many", *([n % 3, n % 4] for n in range(5)))
    three = system("three", [1.0, 4.0], [2.0, 5.0], [3.0, 3.0])
    for other, name in ((three, "Welch's t (with"), (TWO, "Cochran and Cox's test (if")):
        text = shown(many, other)[1]
        assert f"Interval and p: two-sided, by {name}" in text
        assert "over seeds (pooled by Student's t alone) plus" in text


def test_a_table_and_a_figure_show_no_interval_of_a_single_text():
    [cells], text, [mark] = shown(system("a", [30.0]), system("b", [20.0]))
    assert [cells[name] for name in COMPARISON_TITLES[3:]] == ["-10.00", "-", "-", "-"]
    assert "one seed each on one sentence" in text
    assert not mark.has_xerr
    [cells], text, [mark] = shown(system("a", [30.0, 10.0]), system("b", [20.0, 30.0]))
    assert " to +" in cells["95% interval"]  # the control
    assert float(cells["p"]) > 0.05
    assert "Without interval and p" not in text
    assert mark.has_xerr
