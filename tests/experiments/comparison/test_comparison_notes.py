"""The notes of a comparison say what each p is of, and how low it can be."""

import itertools
import re

import numpy as np
import pytest

from experiments.comparison.differences import compare
from experiments.comparison.figures import draw_differences
from experiments.comparison.outputs import TASKS, Measure, Outputs, ratio_of_sums
from experiments.comparison.systems import Run, System
from experiments.comparison.table import TITLES, notes, table_rows
from experiments.measures.significance import least_exchange_p, run_exchange_test

MEAN = Measure("mean", ratio_of_sums)


def system(name, *scores):
    """A system whose runs have these scores on each of seven texts."""
    runs = []
    for score in scores:
        counts = np.stack([np.full(7, score), np.ones(7)], 1)
        outputs = Outputs({}, {}, [""] * 7, np.ones(7, np.int64), {"mean": counts})
        runs.append(Run(None, {}, outputs))
    return System(name, runs)


def told(*systems):
    """The notes of a comparison, joined, and the p-values of the exchanges in its order."""
    comparisons = compare([MEAN], systems, draws=20)
    p_values = [found.p_exchange for found in comparisons[0].differences[1:]]
    return " ".join(notes("translation", systems, comparisons)), p_values


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (1, 3), (2, 3), (4, 2), (5, 5)])
def test_the_lowest_p_of_exchanges_is_that_of_the_scores_that_differ_most(sizes):
    # All of one system are above, and no two divisions have the same difference but by exchange.
    scores = [float(2**i) for i in range(sum(sizes))]
    everything = set(range(sum(sizes)))
    found = []
    for chosen in itertools.combinations(range(sum(sizes)), sizes[0]):
        rest = sorted(everything - {*chosen})
        found.append(run_exchange_test([scores[i] for i in chosen], [scores[i] for i in rest]))
    assert min(found) == pytest.approx(least_exchange_p(*sizes))
    assert least_exchange_p(*sizes) == pytest.approx(least_exchange_p(*reversed(sizes)))
    assert run_exchange_test([0.0] * 9, [1.0] * 9) >= least_exchange_p(9, 9) > 0


def floors(text):
    """The numbers of the note about the lowest p."""
    [note] = re.findall(r"is never below (.*?)[.:] ", f"{text} ")
    return [float(number) for number in re.findall(r"0\.\d+", note)]


def test_the_note_has_the_lowest_p_after_the_correction():
    worst, best = [1.0, 2.0, 4.0], [64.0, 128.0, 256.0]
    text, p_values = told(system("a", *worst), system("b", *best))
    assert "is never below 0.100: above 0.05, so only p bootstrap" in text
    assert p_values == pytest.approx(floors(text), abs=1e-3) == [0.1]
    # Of three comparisons it is three times as much.
    others = [system(name, *best) for name in "bcd"]
    text, p_values = told(system("a", *worst), *others)
    assert "is never below 0.300 after Holm's correction" in text
    assert p_values == pytest.approx([0.3] * 3)


def test_of_different_numbers_of_seeds_each_comparison_has_its_own_lowest_p():
    systems = [
        system("a", 1.0, 2.0, 4.0),
        system("five", 1000.0, 1001.0, 1002.0, 1003.0, 1004.0),
        system("two", 1000.0, 1001.0),
    ]
    text, p_values = told(*systems)
    assert "never below 0.036 (five) and 0.100 (two) after Holm's correction: above" in text
    assert "above 0.05, so only p bootstrap can show a difference of two." in text
    assert p_values == pytest.approx([2 / 56, 1 / 10])
    assert p_values == pytest.approx(floors(text), abs=1e-3)
    # With many seeds there is nothing to say.
    many = [float(i) for i in range(9)]
    assert "never below" not in told(system("a", *many), system("b", *many))[0]
    assert "so only p bootstrap" not in told(system("a", *many[:5]), system("b", *many[:5]))[0]


def test_each_p_is_said_to_be_of_seeds_or_of_trained_models():
    one, other, three = system("one", 1.0), system("other", 2.0), system("three", 1.0, 2.0, 4.0)
    text, _ = told(one, other)
    assert "With one seed each: " in text
    assert "All p are of these trained models" in text
    assert "new seeds" not in text
    text, _ = told(three, system("more", 2.0, 3.0))
    assert "With several seeds each: p bootstrap is of new seeds of these settings on other" in text
    assert "it is of new seeds on these sentences" in text
    assert "trained models" not in text
    text, _ = told(three, one)
    assert "With one seed against several: " in text
    assert "if both vary as much over seeds as the one that has several" in text
    assert "several seeds each" not in text
    text, _ = told(one, other, three)
    assert "With one seed each (other): " in text
    assert "With one seed against several (three): " in text
    assert "is never below 0.250 (three)" in text


def test_a_table_and_a_figure_show_no_interval_of_a_single_text():
    def shown(texts):
        systems = []
        for name, scores in (("a", [30.0, 10.0]), ("b", [20.0, 30.0])):
            counts = np.stack([scores, np.ones(2)], 1)[:texts]
            outputs = Outputs({}, {}, [""] * texts, np.ones(texts, np.int64), {"bleu": counts})
            systems.append(System(name, [Run(None, {}, outputs)]))
        comparisons = compare([Measure("bleu", ratio_of_sums)], systems, draws=200)
        _, row = table_rows("translation", systems, comparisons[0])
        cells = dict(zip(TITLES, row, strict=True))
        [axes] = draw_differences("translation", systems, comparisons).axes
        [mark] = axes.containers
        return cells, " ".join(notes("translation", systems, comparisons)), mark.has_xerr

    cells, text, has_bar = shown(1)
    assert [cells[name] for name in TITLES[3:]] == ["-10.00", "-", "-", "1.000"]
    assert "such as that of a single sentence, has no interval and no p bootstrap" in text
    assert not has_bar
    cells, text, has_bar = shown(2)  # the control
    assert " to +" in cells["95% interval"]
    assert float(cells["p bootstrap"]) > 0.05
    assert "single sentence" not in text
    assert has_bar


def test_the_noun_of_a_task_is_in_its_notes():
    systems = [system("a", 1.0, 2.0), system("b", 3.0, 4.0)]
    comparisons = compare([MEAN], systems, draws=20)
    for task, known in TASKS.items():
        assert f"on other {known.noun}s" in " ".join(notes(task, systems, comparisons))
