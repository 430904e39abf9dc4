"""A sweep's numbers equal a hand count or sacreBLEU; scores that are not comparable are refused."""

import csv
import io
import itertools
import json
import math
import re

import numpy as np
import pytest
import sacrebleu

from experiments.results.notes import sweep_notes
from experiments.results.reading import read_sweep
from experiments.results.statistics import score_of, spread
from experiments.results.systems import Trial
from experiments.results.table import build_table, label, to_csv
from experiments.results.texts import bleu_of_sums, count_ngrams, length_buckets
from sweeps import markdown, sentences, translations, write_language_model, write_trial
from transformer.errors import UserError

REFERENCES = sentences(60)
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def counted(errors, seed=0):
    return count_ngrams(translations(REFERENCES, errors, seed), [REFERENCES])


def write_seeds(root, settings, seeds=(0, 1, 2)):
    """Complete trials of `settings` {name: errors}, each with all the seeds."""
    plan = [(name, errors, seed) for name, errors in settings.items() for seed in seeds]
    return [
        write_trial(root, number, {"model.positions": name, "seed": seed}, errors)
        for number, (name, errors, seed) in enumerate(plan)
    ]


def test_spread_of_three_numbers_is_that_of_a_hand_calculation():
    # Deviations -2, -1 and 3 from the mean: 14 over n - 1 is 7. t(0.975, 2) is 4.302653.
    found = spread([1.0, 2.0, 6.0])
    assert (found.n, found.mean) == (3, 3.0)
    np.testing.assert_allclose(found.deviation, math.sqrt(7), rtol=1e-12)
    np.testing.assert_allclose(found.interval, 4.302653 * math.sqrt(7 / 3), rtol=1e-6)


def test_one_number_has_no_spread_equal_ones_have_none_and_nan_stays_nan():
    assert spread([5.0]).mean == 5.0
    assert math.isnan(spread([5.0]).deviation)
    assert math.isnan(spread([5.0]).interval)
    assert (spread([5.0, 5.0]).deviation, spread([5.0, 5.0]).interval) == (0.0, 0.0)
    assert math.isnan(spread([5.0, math.nan]).mean)


def test_counts_of_a_sentence_are_those_of_a_hand_count():
    # a b c x e: words a, b, c, e; pairs ab, bc; the triple abc.
    counts = count_ngrams(["a b c x e"], [["a b c d e f"]])
    np.testing.assert_array_equal(counts, [[5, 6, 4, 2, 1, 0, 5, 4, 3, 2]])


@pytest.mark.parametrize(
    "texts",
    [["wrong"] * 3, ["the old", "old", "a"], ["the old letter x"] * 3, ["", "", ""], ["the"] * 3],
)
def test_bleu_of_few_or_no_matches_is_that_of_sacrebleu(texts):
    references = ["the old letter on this", "chair was read by a friend", "who never came home"]
    expected = sacrebleu.corpus_bleu(texts, [references]).score
    found = score_of(count_ngrams(texts, [references]), bleu_of_sums)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_all_complete_seeds_are_compared_whichever_they_are(tmp_path):
    trials = write_seeds(tmp_path, {"none": 0.4, "split": 0.1})
    trials[4] = write_trial(tmp_path / "other", 4, trials[4].values, state="waiting")
    sweep = read_sweep("translation", trials, baseline=0)
    scores = [
        json.loads((p.folder / "results.json").read_text())["test"]["bleu"]
        for p in trials
        if p.number != 4
    ]
    found = sweep.comparisons[1]
    assert found.seeds == (2, 3)
    np.testing.assert_allclose(found.mean, np.mean(scores[3:]) - np.mean(scores[:3]))
    assert found.p_value < 0.05
    assert sweep.comparisons[0] is None
    # With no common seed too.
    apart = read_sweep("translation", [trials[0], trials[5]], baseline=0)
    assert apart.comparisons[1].seeds == (1, 1)


def test_settings_stand_in_order_of_first_appearance_and_hold_their_seeds(tmp_path):
    trials = write_seeds(tmp_path, {"split": 0.2, "none": 0.3}, seeds=(5, 6))
    sweep = read_sweep("translation", [trials[3], trials[0], trials[1], trials[2]], baseline=1)
    assert [setting.values["model.positions"] for setting in sweep.systems] == ["none", "split"]
    assert [[o.trial.seed for o in s.runs] for s in sweep.systems] == [[6, 5], [5, 6]]
    assert sweep.baseline is sweep.systems[1]
    assert read_sweep("translation", trials, None).baseline is None
    assert read_sweep("translation", trials, None).comparisons == [None, None]


def test_a_setting_that_a_search_draws_again_is_no_second_seed(tmp_path):
    values = {"model.positions": "split"}
    texts = translations(sentences(40), 0.2, 0)
    drawn = [write_trial(tmp_path, n, values, hypotheses=texts) for n in (0, 1)]
    drawn.append(write_trial(tmp_path, 2, values, state="pruned"))
    sweep = read_sweep("translation", drawn)
    row = dict(zip(build_table(sweep).head, build_table(sweep).rows[0], strict=True))
    assert row["n"] == "1"
    assert row["95% interval"] == "-"
    assert "±" not in row["BLEU"]
    assert not sweep.systems[0].lost  # the pruned one is the same training, too
    assert any("same seed are left out: 1." in line for line in sweep_notes(sweep))
    first, again, _ = csv.DictReader(io.StringIO(to_csv(sweep)))
    assert again["test_bleu"] == first["test_bleu"] != ""
    # The control: seeds are counted.
    seeds = write_seeds(tmp_path / "seeds", {"split": 0.2}, seeds=(0, 1))
    sweep = read_sweep("translation", seeds)
    assert build_table(sweep).rows[0][1] == "2"
    assert not any("left out" in line for line in sweep_notes(sweep))


def test_a_baseline_that_failed_leaves_the_others_without_comparison(tmp_path):
    trials = [
        write_trial(tmp_path, 0, {"a.b": 1}, state="failed"),
        write_trial(tmp_path, 1, {"a.b": 2}),
    ]
    sweep = read_sweep("translation", trials, baseline=0)
    assert (sweep.baseline, sweep.comparisons) == (None, [None])


def test_curves_have_the_steps_that_every_seed_has(tmp_path):
    trials = write_seeds(tmp_path, {"split": 0.2}, seeds=(0, 1))
    for trial, lines in zip(trials, ([(1, 4.0), (2, 3.0)], [(2, 5.0), (3, 1.0)]), strict=True):
        text = "".join(f'{{"step": {s}, "split": "validation", "loss": {v}}}\n' for s, v in lines)
        (trial.folder / "metrics.jsonl").write_text(text + '{"step": 3, "loss": 9.0}\n')
    steps, values = read_sweep("translation", trials).systems[0].curve("loss")
    assert steps == [2]
    np.testing.assert_array_equal(values, [[3.0], [5.0]])
    assert read_sweep("translation", trials).systems[0].curve("bleu")[0] == []


def test_buckets_hold_like_lengths_and_about_like_numbers():
    lengths = np.array([9, 1, 2, 3, 4, 5, 6, 7, 8, 10])
    found = [sorted(lengths[rows].tolist()) for rows in length_buckets(lengths)]
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert [rows.tolist() for rows in length_buckets(np.array([3, 3, 3]))] == [[0, 1, 2]]
    found = length_buckets(np.array([2, 2, 2, 2, 2, 2, 2, 9]))
    assert [rows.tolist() for rows in found] == [[0, 1, 2, 3, 4, 5, 6], [7]]


@pytest.mark.parametrize(
    ("split", "metric"), [("test", "chrf"), ("test", "bleu"), ("length_generalization", "bleu")]
)
def test_different_signatures_are_refused_by_both_trials_and_signatures(tmp_path, split, metric):
    other = SIGNATURE.replace("mixed", "lc")
    trials = []
    for number, signature in enumerate((SIGNATURE, other)):
        changes = {split: {f"{metric}_signature": signature}}
        trials.append(write_trial(tmp_path, number + 3, {"a.b": number}, **changes))
    with pytest.raises(UserError, match=f"trials 3 and 4 .*{split} {metric}") as error:
        read_sweep("translation", trials)
    assert SIGNATURE in str(error.value)
    assert other in str(error.value)
    assert len(read_sweep("translation", trials[:1]).systems) == 1  # the control


def test_different_test_sets_are_refused_by_both_trials(tmp_path):
    trials = [write_trial(tmp_path, number, {"a.b": number}) for number in range(2)]
    assert len(read_sweep("translation", trials).systems) == 2  # the control
    source = trials[1].folder / "translations" / "test.source.txt"
    source.write_text(source.read_text().replace("letter", "word"))
    with pytest.raises(UserError, match=r"trials 0 and 1 .*test\.source\.txt"):
        read_sweep("translation", trials)
    trials[1] = write_trial(tmp_path, 7, {"a.b": 2}, references=REFERENCES)
    with pytest.raises(UserError, match="trials 0 and 7 have different test sets"):
        read_sweep("translation", trials)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"test": 1}', '{"test": {"bleu": 1}}']
)
def test_a_damaged_results_file_is_named(tmp_path, text):
    trial = write_trial(tmp_path, 4, {"a.b": 1})
    path = trial.folder / "results.json"
    path.write_text(text) if text is not None else path.unlink()
    with pytest.raises(UserError, match=r"trial_4/results\.json (cannot be read|is missing)"):
        read_sweep("translation", [trial])


def test_a_missing_metrics_file_is_named(tmp_path):
    trial = write_trial(tmp_path, 4, {"a.b": 1})
    (trial.folder / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"trial_4/metrics\.jsonl.*restore"):
        read_sweep("translation", [trial])


def test_line_separators_inside_a_sentence_end_no_line(tmp_path):
    texts = ["one two three four\x85five", "six seven\u2028eight nine\rten"]
    trial = write_trial(tmp_path, 0, {}, references=texts, hypotheses=texts)
    (trial.folder / "translations" / "test.txt").write_bytes("\n".join([*texts, ""]).encode())
    outputs = read_sweep("translation", [trial]).systems[0].runs[0].texts
    assert outputs.counts("exact_match").tolist() == [[1, 1], [1, 1]]


def test_no_complete_trial_and_an_unknown_baseline_are_said(tmp_path):
    waiting = Trial(0, {"a.b": 1}, tmp_path, "waiting")
    with pytest.raises(UserError, match="no trial is complete yet"):
        read_sweep("translation", [waiting])
    with pytest.raises(UserError, match="the baseline, trial 9, is not a trial"):
        read_sweep("translation", [waiting, write_trial(tmp_path, 1, {"a.b": 2})], baseline=9)


def test_a_label_names_the_last_part_of_a_key_unless_two_end_alike(tmp_path):
    values = {"optimizer.name": "adam", "name": "", "model.dropout_residual": 0.1, "seed": 3}
    sweep = read_sweep("translation", [write_trial(tmp_path, 0, values)])
    expected = 'optimizer.name=adam, name="", dropout_residual=0.1'
    # `name` is the last part of two keys, so both are written out.
    assert label(sweep.systems[0], sweep.keys) == expected
    assert label(sweep.systems[0], []) == "as configured"


def test_the_csv_has_a_row_for_every_trial_and_every_score(tmp_path):
    longer = {"bleu": 7.5, "exact_match": 1.0, "bleu_signature": SIGNATURE}
    trials = [
        write_trial(
            tmp_path,
            0,
            {"a.b": [1, 2], "seed": 1},
            length_generalization=longer,
            tokens_per_second=5.5,
        ),
        write_trial(tmp_path, 1, {"a.b": 'x,"y"', "seed": 2}, state="pruned"),
    ]
    rows = list(csv.DictReader(io.StringIO(to_csv(read_sweep("translation", trials)))))
    results = json.loads((trials[0].folder / "results.json").read_text())
    first = rows[0]
    assert (first["number"], first["a.b"], first["seed"], first["state"]) == (
        "0",
        "[1, 2]",
        "1",
        "complete",
    )
    assert float(first["test_bleu"]) == results["test"]["bleu"]
    assert float(first["validation_chrf"]) == results["validation"]["chrf"]
    assert first["test_chrf_signature"] == results["test"]["chrf_signature"]
    assert (first["length_generalization_bleu"], first["tokens_per_second"], first["step"]) == (
        "7.5",
        "5.5",
        "1200",
    )
    assert (rows[1]["a.b"], rows[1]["state"], rows[1]["test_bleu"]) == ('x,"y"', "pruned", "")


def test_the_table_shows_the_numbers_of_its_trials(tmp_path):
    trials = write_seeds(tmp_path, {"split": 0.2, "none": 0.6}, seeds=(0, 1))
    sweep = read_sweep("translation", trials, baseline=1)
    table = build_table(sweep)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    scores = [o.score("test.bleu") for o in sweep.systems[1].runs]
    mean, half = sum(scores) / 2, abs(scores[0] - scores[1]) / 2
    assert rows[1]["positions"] == "none"
    assert rows[1]["n"] == "2"
    assert rows[1]["BLEU"] == f"{mean:.2f} ± {half * math.sqrt(2):.2f}"
    # t(0.975, 1) is 12.7062; the standard error of two numbers is half their distance.
    low, high = (float(end) for end in rows[1]["95% interval"].split(" to "))
    assert mean - 12.7062 * half < low == 0  # there is no BLEU below
    assert "its ends are cut at 0, and at 100" in sweep_notes(sweep)[0]
    assert high == pytest.approx(mean + 12.7062 * half, abs=0.006)
    difference = mean - sweep.systems[0].over_seeds("test.bleu").mean
    assert rows[1]["difference"] == f"{difference:+.2f}"
    assert float(rows[1]["p"]) == pytest.approx(sweep.comparisons[1].p_value, abs=0.0006)
    assert sweep.comparisons[1].p_value < 0.05
    low, high = (float(end) for end in rows[1]["its 95% interval"].split(" to "))
    assert (low + high) / 2 == pytest.approx(difference, abs=0.01)
    assert high < 0
    assert (rows[0]["difference"], rows[0]["p"]) == ("baseline", "-")
    assert (rows[0]["minutes"], rows[0]["parameters"]) == ("1.5", "123,456")
    assert not {"tokens/s", "GFLOP/token", "length generalization: BLEU"} & set(table.head)


def test_costs_and_longer_sentences_have_columns_where_there_are_numbers(tmp_path):
    longer = {"bleu": 7.5, "exact_match": 1.0, "bleu_signature": "another"}
    changes = {
        "length_generalization": longer,
        "tokens_per_second": 1234.5,
        "flops_per_token": 4.26e6,
    }
    trials = [write_trial(tmp_path, 0, {"a.b": 1}, **changes), write_trial(tmp_path, 1, {"a.b": 2})]
    sweep = read_sweep("translation", trials)
    table = build_table(sweep)
    first, second = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (
        first["length generalization: BLEU"],
        first["length generalization: exact (%)"],
    ) == ("7.50", "1.00")
    assert (first["tokens/s"], first["GFLOP/token"]) == ("1,234", "0.00426")
    assert (second["length generalization: BLEU"], second["tokens/s"]) == ("-", "-")
    assert "length generalization: BLEU: `another`" in markdown(sweep, "", "")


def test_markdown_marks_the_baseline_says_how_and_lists_what_is_missing(tmp_path):
    trials = write_seeds(tmp_path, {"a|b": 0.2, "none": 0.5, "split": 0.4}, seeds=(0,))
    trials.append(write_trial(tmp_path, 9, {"model.positions": "x", "seed": 4}, state="failed"))
    text = markdown(
        read_sweep("translation", trials, baseline=0), "Positions", "python launch.py --sweep"
    )
    assert text.startswith("# Positions\n\n```\npython launch.py --sweep\n```\n")
    lines = text.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 5
    assert table[2].startswith("| **a\\|b** | **1** |")
    assert table[3].startswith("| none | 1 |")
    assert text.count(SIGNATURE) == 1
    assert "these two trained models, on other sentences" in text
    assert "corrected for the 2 comparisons" in text
    assert "- trial 9, failed: model.positions=x, seed=4" in lines


def test_a_score_that_is_no_number_is_shown_and_sorted_last(tmp_path):
    trials = [write_language_model(tmp_path, n, {"a.b": n}, math.nan) for n in range(2)]
    table = build_table(read_sweep("language_model", trials, baseline=0))
    second = dict(zip(table.head, table.rows[1], strict=True))
    assert second["perplexity"] == "nan"
    assert (second["95% interval"], second["difference"]) == ("-", "-")


FORMULAS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1"]


def test_no_cell_of_the_csv_is_a_formula_and_numbers_stay_numbers(tmp_path):
    trials = [
        write_trial(
            tmp_path, n, {"model.architecture": text, "=a.key": -0.5}, test={"nll": -1.25e-7}
        )
        for n, text in enumerate(FORMULAS)
    ]
    trials.append(write_trial(tmp_path, 9, {"model.architecture": "-1e-3"}))
    text = to_csv(read_sweep("translation", trials))
    titles, *rows = csv.reader(io.StringIO(text))
    for cell in itertools.chain(titles, *rows):
        if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
            float(cell)
    kinds = [row[titles.index("model.architecture")] for row in rows]
    assert kinds == [*(f"'{text}" for text in FORMULAS[:4]), "\\t=1", "\\r=1", "-1e-3"]
    assert "'=a.key" in titles
    assert float(rows[0][titles.index("'=a.key")]) == -0.5
    assert float(rows[0][titles.index("test_nll")]) == -1.25e-7


TORN = "one\ntwo|three\r\nfour\u2028five\\|six"


def test_a_value_of_several_lines_and_bars_stays_one_cell_of_the_markdown(tmp_path):
    trials = [write_trial(tmp_path, n, {"model.architecture": f"{n}{TORN}"}) for n in range(2)]
    lost = write_trial(tmp_path, 2, {"model.architecture": TORN}, state="failed")
    trials.append(lost._replace(note="it broke\n| here"))
    text = markdown(read_sweep("translation", trials, 0), "A\ntitle", "a\n```\ncommand")
    lines = text.splitlines()
    assert lines[:6] == ["# A title", "", "````", "a", "```", "command"]
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    # Bars that are not escaped divide cells.
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert r"one\\ntwo\|three\\r\\nfour" in table[3]
    assert "(it broke | here)" in lines[-1]
    assert lines[-1].startswith("- trial 2, failed: ")
