"""The table, the CSV and the notes of a sweep say what p is of, and lost seeds flatter none."""

import csv
import io
import itertools
import json

import numpy as np
import pytest

from experiments.results.figures import MAX_TOLD_APART, OTHERS, sweep_figures
from experiments.results.notes import sweep_notes
from experiments.results.reading import read_sweep
from experiments.results.statistics import holm
from experiments.results.table import build_table, to_csv
from sweeps import write_language_model, write_trial


def row(sweep, number):
    """The texts of a row of the table, by title."""
    table = build_table(sweep)
    return dict(zip(table.head, table.rows[number], strict=True))


def write_settings(root, errors, seeds, lost=(), state="pruned", **changes):
    """Trials of a setting for each number of errors; `lost` are (setting, seed) of this state."""
    plan = itertools.product(range(len(errors)), seeds)
    return [
        write_trial(
            root,
            number,
            {"model.architecture": f"k{i}", "seed": seed},
            errors[i],
            state if (i, seed) in lost else "complete",
            **changes,
        )
        for number, (i, seed) in enumerate(plan)
    ]


def test_two_seeds_are_tested_over_seeds_and_one_over_sentences(tmp_path):
    two = read_sweep("translation", write_settings(tmp_path / "2", (0.1, 0.3), (0, 1)), 0)
    one = read_sweep("translation", write_settings(tmp_path / "1", (0.1, 0.3), (0,)), 0)
    assert two.comparisons[1].signature == "t|two-sided|seeds:2,2|texts:40"
    assert one.comparisons[1].signature == "t|two-sided|seeds:1,1|texts:40"
    assert float(row(two, 1)["p"]) == pytest.approx(two.comparisons[1].p_value, abs=0.0006)
    told = {n: " ".join(sweep_notes(sweep)) for n, sweep in ((1, one), (2, two))}
    assert "of new seeds of these settings, on other sentences" in told[2]
    assert "of these two trained models, on other sentences" not in told[2]
    assert "of these two trained models, on other sentences" in told[1]
    for text in told.values():  # of a single comparison there is nothing to correct
        assert "Holm" not in text


def test_the_csv_has_p_before_and_after_the_correction(tmp_path):
    sweep = read_sweep("translation", write_settings(tmp_path, (0.1, 0.3, 0.5), (0, 1)), 0)
    rows = list(csv.DictReader(io.StringIO(to_csv(sweep))))
    assert [row["p_raw"] for row in rows[:2]] == ["", ""]
    for number, found in ((1, sweep.comparisons[1]), (2, sweep.comparisons[2])):
        for line in rows[2 * number : 2 * number + 2]:
            assert float(line["p_raw"]) == found.p_value
            assert float(line["p_corrected"]) == found.corrected
            assert line["p_test"] == "t|two-sided|seeds:2,2|texts:40"
    corrected = [found.corrected for found in sweep.comparisons[1:]]
    assert corrected == holm([found.p_value for found in sweep.comparisons[1:]])


def test_language_models_of_one_seed_have_no_p_value_and_the_notes_say_why(tmp_path):
    trials = [
        write_language_model(tmp_path, i, {"model.architecture": i, "seed": 0}, 1.0 + i)
        for i in (0, 1, 2)
    ]
    sweep = read_sweep("language_model", trials, 0)
    assert "p" not in row(sweep, 1)
    text = " ".join(sweep_notes(sweep))
    assert "With one seed there is no p" in text
    assert "Holm" not in text  # nothing is corrected
    assert "p_raw" not in text


@pytest.mark.parametrize("state", ["pruned", "failed"])
def test_a_setting_that_lost_seeds_is_marked_and_not_compared(tmp_path, state):
    trials = write_settings(tmp_path, (0.3, 0.1), (0, 1, 2), lost={(1, 2)}, state=state)
    sweep = read_sweep("translation", trials, 0)
    cells = row(sweep, 1)
    assert cells["n"] == "2 of 3"
    assert cells["BLEU"].startswith("(")
    assert (cells["95% interval"], cells["difference"]) == ("-", "-")
    assert "p" not in cells
    assert "In brackets: means over the remaining seeds" in " ".join(sweep_notes(sweep))
    names = [text.get_text() for text in sweep_figures(sweep)["scores"].axes[0].get_yticklabels()]
    assert names[1].replace("\n", " ") == "architecture=k1 (2 of 3 seeds)"
    # The control: all three are there.
    whole = read_sweep("translation", write_settings(tmp_path / "all", (0.3, 0.1), (0, 1, 2)), 0)
    assert row(whole, 1)["n"] == "3"
    assert row(whole, 1)["difference"].startswith("+")
    assert "In brackets" not in " ".join(sweep_notes(whole))


def test_nothing_is_compared_with_a_baseline_that_lost_seeds(tmp_path):
    trials = write_settings(tmp_path, (0.1, 0.3), (0, 1), lost={(0, 1)})
    sweep = read_sweep("translation", trials, 0)
    assert sweep.comparisons == [None, None]
    assert "Nothing is compared" in " ".join(sweep_notes(sweep))


def test_a_setting_that_lost_seeds_is_not_among_the_best(tmp_path):
    errors = [0.1 + 0.02 * i for i in range(12)]
    trials = write_settings(tmp_path, errors, (0, 1), lost={(0, 1)})
    lines = sweep_figures(read_sweep("translation", trials, 22))["curves"].axes[0].lines
    apart = [n for n, line in enumerate(lines) if line.get_color() != OTHERS]
    assert apart == [*range(1, MAX_TOLD_APART), 11]


def test_seeds_that_still_train_are_counted_and_the_rest_is_compared(tmp_path):
    trials = write_settings(tmp_path, (0.3, 0.1), (0, 1, 2), lost={(1, 2)}, state="running")
    sweep = read_sweep("translation", trials, 0)
    assert row(sweep, 1)["n"] == "2 of 3"
    assert sweep.comparisons[1].seeds == (2, 3)
    scores = [
        json.loads((trials[i].folder / "results.json").read_text())["test"]["bleu"]
        for i in range(5)
    ]
    expected = np.mean(scores[3:]) - np.mean(scores[:3])
    np.testing.assert_allclose(sweep.comparisons[1].mean, expected)
