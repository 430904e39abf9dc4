"""Equal settings rarely seem to differ, whatever their number, and lost seeds flatter none."""

import csv
import io
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from experiments.measures.registry import REGISTRY
from experiments.measures.significance import (
    holm,
    needed_deviations,
    paired_t_test,
    randomisation_test,
)
from experiments.measures.translations import bleu, bleu_of_sums, count_ngrams
from experiments.sweeps.results.figures import MAX_TOLD_APART, OTHERS, build_figures
from experiments.sweeps.results.notes import notes
from experiments.sweeps.results.outcomes import Outcome, Setting, Sweep, Trial
from experiments.sweeps.results.reading import read_sweep
from experiments.sweeps.results.table import build_table, to_csv
from sweeps import sentences, translations, write_language_model, write_trial

REFERENCES = sentences(60)


def counted(errors, seed=0, references=REFERENCES):
    return count_ngrams(translations(references, errors, seed), [references])


def row(sweep, number):
    """The texts of a row of the table, by title."""
    table = build_table(sweep)
    return {title: c.text for title, c in zip(table.titles, table.rows[number], strict=True)}


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


def scored(scores) -> Sweep:
    """A sweep of language models with these perplexities [settings, seeds]; the first is the
    baseline."""
    settings = [
        Setting(
            {"k": i},
            [
                Outcome(Trial(0, {"k": i, "seed": s}, Path(), "complete"), results, None, {})
                for s, results in enumerate({"test": {"perplexity": x}} for x in row)
            ],
        )
        for i, row in enumerate(scores)
    ]
    return Sweep([], settings, settings[0], REGISTRY["language_model"])


def share_below(p_values) -> float:
    return float(np.mean(np.array(p_values) < 0.05))


def test_the_p_value_over_seeds_is_that_of_students_paired_test():
    ours, theirs = [31.2, 30.1, 32.0], [30.0, 29.5, 29.9]
    found, signature = paired_t_test(np.subtract(ours, theirs).tolist())
    assert found == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, rel=1e-9)
    assert signature == "t-test|paired|two-sided|seeds:3"
    assert paired_t_test([0.0, 0.0])[0] == 1.0
    # Of mean 2.48 deviations over three seeds, by a table of t.
    assert needed_deviations(3) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    at_the_level = np.array([-1.0, 0.0, 1.0]) + needed_deviations(3)
    assert paired_t_test(at_the_level.tolist())[0] == pytest.approx(0.05)


def test_differences_without_deviation_have_the_p_value_of_all_changes_of_sign():
    # Student's t of them is infinite, although two seeds can tell next to nothing.
    assert paired_t_test([0.1 + 0.2, 0.3])[0] == 0.5
    assert paired_t_test([-1.0] * 6)[0] == 2 / 64


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_equal_settings_differ_over_seeds_one_time_in_twenty(seeds):
    rng = np.random.default_rng(seeds)
    shared = rng.normal(0, 1, (1000, seeds))  # what a seed does to both
    p_values, normal = [], []
    for common in shared:
        sweep = scored(common + rng.normal(30, 0.5, (2, seeds)))
        p_values.append(sweep.comparisons[1].p_value)
        found = sweep.comparisons[1].difference
        normal.append(2 * stats.norm.sf(abs(found.mean) / (found.deviation / math.sqrt(seeds))))
    assert 0.03 < share_below(p_values) < 0.07  # the standard error is 0.007
    # The control: without Student's correction so few seeds would find much more.
    assert share_below(normal) > 0.1


def test_equal_settings_scored_by_few_texts_rarely_differ_over_seeds():
    rng = np.random.default_rng(1)
    sweeps = [scored(rng.binomial(20, 0.9, (2, 2)) / 20) for _ in range(1000)]
    assert share_below([sweep.comparisons[1].p_value for sweep in sweeps]) <= 0.05
    # The control: equal differences alone, which have no deviation, would be one in twenty.
    equal = [s for s in sweeps if s.comparisons[1].difference.deviation < 1e-9]
    assert len(equal) > 100


def test_one_in_twenty_tables_of_equal_settings_has_a_difference():
    rng = np.random.default_rng(2)
    sweeps = [scored(rng.normal(30, 1, (9, 3))) for _ in range(400)]
    corrected = [min(c.corrected for c in s.comparisons[1:]) for s in sweeps]
    assert share_below(corrected) <= 0.08  # the standard error is 0.011
    # The control: as they were, some p of eight falls below in far more tables.
    assert share_below([min(c.p_value for c in s.comparisons[1:]) for s in sweeps]) > 0.15


def test_a_clear_difference_is_found_among_equal_settings():
    rng = np.random.default_rng(3)
    scores = rng.normal(30, 0.1, (5, 4))
    scores[2] += 3
    assert [c.corrected < 0.05 for c in scored(scores).comparisons[1:]] == [
        False,
        True,
        False,
        False,
    ]


def test_holms_correction_is_that_of_a_hand_calculation():
    # Times 4, 3, 2, 1 by rank, never less than the one before, never more than 1.
    assert holm([0.04, 0.01, 0.3, 0.02]) == pytest.approx([0.08, 0.04, 0.3, 0.06])
    assert holm([0.02, 0.021]) == pytest.approx([0.04, 0.04])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_equal_systems_differ_over_sentences_one_time_in_twenty_and_not_one_in_ten():
    references = sentences(40)
    p_values, bootstrap = [], []
    for i in range(300):
        pair = [counted(0.3, 2 * i + side, references) for side in (0, 1)]
        p_values.append(randomisation_test(*pair, bleu_of_sums, exchanges=200)[0])
        bootstrap.append(_bootstrap(*pair))
    # The standard error of a fraction of 300 is 0.013.
    assert 0.01 < share_below(p_values) < 0.1
    # The control: sacreBLEU's bootstrap, of the side that is ahead.
    assert share_below(bootstrap) > share_below(p_values) + 0.02


def _bootstrap(ours, theirs) -> float:
    """The fraction of 200 resamples whose difference is further from the mean than the real one."""
    rows = np.random.default_rng(5).integers(len(ours), size=(200, len(ours)))
    drawn = np.subtract(*(bleu_of_sums(counts[rows].sum(1)) for counts in (ours, theirs)))
    real = abs(bleu(ours) - bleu(theirs))
    return float(np.mean(np.abs(drawn) - np.abs(drawn).mean() > real))


def test_the_p_value_over_sentences_is_near_that_of_sacrebleus_randomisation():
    for seed in (1, 2):
        texts = [translations(REFERENCES, errors, seed) for errors in (0.2, 0.3)]
        named = list(zip("ab", texts, strict=True))
        expected = PairedTest(named, {"BLEU": sacrebleu.BLEU()}, [REFERENCES], "ar", 2000)()[1]
        counts = [count_ngrams(each, [REFERENCES]) for each in texts]
        found, signature = randomisation_test(*counts, bleu_of_sums)
        assert found == pytest.approx(expected["BLEU"][1].p_value, abs=0.03)
        assert randomisation_test(*reversed(counts), bleu_of_sums)[0] == pytest.approx(
            found, abs=0.02
        )
    assert signature == "ar:10000|two-sided|seed:12345"


def test_a_difference_in_one_sentence_is_no_evidence():
    ours, theirs = counted(0.3), counted(0.3)
    assert randomisation_test(ours, theirs, bleu_of_sums)[0] == 1.0
    theirs = theirs.copy()
    theirs[7] = counted(0.9)[7]
    assert bleu(ours) != bleu(theirs)
    assert randomisation_test(ours, theirs, bleu_of_sums, exchanges=500)[0] == 1.0
    # The control: many worse sentences are.
    assert randomisation_test(counted(0.1, 1), counted(0.4), bleu_of_sums, exchanges=1000)[0] < 0.01


def test_two_seeds_are_tested_over_seeds_and_one_over_sentences(tmp_path):
    two = read_sweep("translation", write_settings(tmp_path / "2", (0.1, 0.3), (0, 1)), 0)
    one = read_sweep("translation", write_settings(tmp_path / "1", (0.1, 0.3), (0,)), 0)
    assert two.comparisons[1].signature == "t-test|paired|two-sided|seeds:2"
    assert one.comparisons[1].signature.startswith("ar:10000|two-sided")
    assert float(row(two, 1)["p"]) == pytest.approx(two.comparisons[1].p_value, abs=0.0006)
    told = {n: " ".join(notes(sweep)) for n, sweep in ((1, one), (2, two))}
    assert "9.0 with 2 seeds" in told[2]
    assert "nothing about other seeds" not in told[2]
    assert "nothing about other seeds" in told[1]
    assert "approximate randomisation over sentences (ar:10000|two-sided|seed:12345" in told[1]
    for text in told.values():  # of a single comparison there is nothing to correct
        assert "Holm" not in text


def test_both_tests_can_stand_in_one_table_which_says_which_is_which(tmp_path):
    trials = write_settings(tmp_path, (0.1, 0.3, 0.3), (0, 1))
    trials[5] = Trial(5, trials[5].values, trials[5].folder, "running")
    sweep = read_sweep("translation", trials, 0)
    assert row(sweep, 2)["n"] == "1 of 2"
    assert row(sweep, 2)["p (Holm)"].endswith(" (sentences)")
    assert "sentences" not in row(sweep, 1)["p (Holm)"]
    text = " ".join(notes(sweep))
    assert "p of sentences, with one seed" in text
    assert "corrected for the 2 comparisons" in text


def test_the_csv_has_p_before_and_after_the_correction(tmp_path):
    sweep = read_sweep("translation", write_settings(tmp_path, (0.1, 0.3, 0.5), (0, 1)), 0)
    rows = list(csv.DictReader(io.StringIO(to_csv(sweep))))
    assert [row["p_raw"] for row in rows[:2]] == ["", ""]
    for number, found in ((1, sweep.comparisons[1]), (2, sweep.comparisons[2])):
        for line in rows[2 * number : 2 * number + 2]:
            assert float(line["p_raw"]) == found.p_value
            assert float(line["p_corrected"]) == found.corrected
            assert line["p_test"] == "t-test|paired|two-sided|seeds:2"
    corrected = [found.corrected for found in sweep.comparisons[1:]]
    assert corrected == holm([found.p_value for found in sweep.comparisons[1:]])


def test_language_models_of_one_seed_have_no_p_value_and_the_notes_say_why(tmp_path):
    trials = [
        write_language_model(tmp_path, i, {"model.architecture": i, "seed": 0}, 1.0 + i)
        for i in (0, 1)
    ]
    sweep = read_sweep("language_model", trials, 0)
    assert not {"p", "p (Holm)"} & set(row(sweep, 1))
    assert "With one seed there is no p" in " ".join(notes(sweep))


@pytest.mark.parametrize("state", ["pruned", "failed"])
def test_a_setting_that_lost_seeds_is_marked_and_not_compared(tmp_path, state):
    trials = write_settings(tmp_path, (0.3, 0.1), (0, 1, 2), lost={(1, 2)}, state=state)
    sweep = read_sweep("translation", trials, 0)
    cells = row(sweep, 1)
    assert cells["n"] == "2 of 3"
    assert cells["BLEU"].startswith("(")
    assert (cells["95% interval"], cells["difference"]) == ("-", "-")
    assert "p" not in cells
    table = build_table(sweep)
    assert table.rows[1][table.titles.index("BLEU")].order == ""  # and so it sorts last
    assert "In brackets: means over the remaining seeds" in " ".join(notes(sweep))
    names = [text.get_text() for text in build_figures(sweep)["scores"].axes[0].get_yticklabels()]
    assert names[1].replace("\n", " ") == "architecture=k1 (2 of 3 seeds)"
    # The control: all three are there.
    whole = read_sweep("translation", write_settings(tmp_path / "all", (0.3, 0.1), (0, 1, 2)), 0)
    assert row(whole, 1)["n"] == "3"
    assert row(whole, 1)["difference"].startswith("+")
    assert "In brackets" not in " ".join(notes(whole))


def test_nothing_is_compared_with_a_baseline_that_lost_seeds(tmp_path):
    trials = write_settings(tmp_path, (0.1, 0.3), (0, 1), lost={(0, 1)})
    sweep = read_sweep("translation", trials, 0)
    assert sweep.comparisons == [None, None]
    assert "Nothing is compared" in " ".join(notes(sweep))


def test_a_setting_that_lost_seeds_is_not_among_the_best(tmp_path):
    errors = [0.1 + 0.02 * i for i in range(12)]
    trials = write_settings(tmp_path, errors, (0, 1), lost={(0, 1)})
    lines = build_figures(read_sweep("translation", trials, 22))["curves"].axes[0].lines
    apart = [n for n, line in enumerate(lines) if line.get_color() != OTHERS]
    assert apart == [*range(1, MAX_TOLD_APART), 11]


def test_seeds_that_still_train_are_counted_and_the_rest_is_compared(tmp_path):
    trials = write_settings(tmp_path, (0.3, 0.1), (0, 1, 2), lost={(1, 2)}, state="running")
    sweep = read_sweep("translation", trials, 0)
    assert row(sweep, 1)["n"] == "2 of 3"
    assert sweep.comparisons[1].difference.n == 2
    scores = [
        json.loads((trials[i].folder / "results.json").read_text())["test"]["bleu"]
        for i in (0, 1, 3, 4)
    ]
    expected = (scores[2] + scores[3] - scores[0] - scores[1]) / 2
    np.testing.assert_allclose(sweep.comparisons[1].difference.mean, expected)
