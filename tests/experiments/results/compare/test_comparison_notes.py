"""The notes of a comparison say what intervals and p are of."""

import dataclasses
from pathlib import Path

import numpy as np

from experiments.results.figures import draw
from experiments.results.pages import write_notes
from experiments.results.statistics import ratio_of_sums, score_of
from experiments.results.systems import Comparison, ScoredRun, System
from experiments.results.table import build_tables
from experiments.results.tasks import REGISTRY


def system(name, *runs):
    """A system whose runs have these scores of each text."""
    scored = []
    for scores in runs:
        counts = {"bleu": np.stack([scores, np.ones(len(scores))], 1)}
        lengths = np.ones(len(scores), np.int64)
        results = {"test": {"bleu": score_of(counts["bleu"], ratio_of_sums)}}
        scored.append(ScoredRun(Path(), results, lengths=lengths, counts=counts))
    return System(name, scored, {"system": name})


def shown(*systems):
    """The cells of each system but the first, the notes joined, and the figure's marks."""
    measures = dataclasses.replace(REGISTRY["translation"], of_sums={"bleu": ratio_of_sums})
    comparison = Comparison([*systems], systems[0], measures, ["bleu"])
    [table] = build_tables(comparison)
    cells = [dict(zip(table.head, row, strict=True)) for row in table.rows[1:]]
    [axes] = draw(comparison)["differences"][0].axes
    return cells, " ".join(write_notes(comparison)), axes.containers


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


def test_a_table_and_a_figure_show_no_interval_of_a_single_text():
    [cells], text, [mark] = shown(system("a", [30.0]), system("b", [20.0]))
    assert cells == {"system": "b", "n": "1", "BLEU": "20.00", "difference": "-10.00"}
    assert "one seed each on one sentence" in text
    assert not mark.has_xerr
    [cells], text, [mark] = shown(system("a", [30.0, 10.0]), system("b", [20.0, 30.0]))
    assert " to +" in cells["its 95% interval"]  # the control
    assert float(cells["p"]) > 0.05
    assert "Without interval and p" not in text
    assert mark.has_xerr
