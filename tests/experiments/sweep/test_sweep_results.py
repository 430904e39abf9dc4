"""A sweep's numbers equal a hand count or sacreBLEU; scores that are not comparable are refused."""

import csv
import io
import json
import math
import re
from unittest import mock

import numpy as np
import pytest

from configs import quickstart
from experiments.results.systems import read_sweep
from experiments.results.table import to_csv, write_notes
from experiments.results.tasks import length_buckets
from experiments.sweep import sweep as sweep_module
from experiments.sweep.study import Study
from sweeps import cells, markdown, write_trial
from transformer.errors import UserError

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def write_seeds(root, settings, seeds=(0, 1, 2), last="complete"):
    """Trials of `settings` {name: errors}, each with all the seeds, and the last one's state."""
    plan = [(name, errors, seed) for name, errors in settings.items() for seed in seeds]
    trials = [
        write_trial(root, number, {"model.positions": name, "seed": seed}, errors)
        for number, (name, errors, seed) in enumerate(plan)
    ]
    return [*trials[:-1], trials[-1]._replace(state=last)]


def test_a_setting_that_a_search_draws_again_is_no_second_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_module, "_changes", lambda study, number: "")
    for number in range(3):
        trial = write_trial(tmp_path, number, {}, 0.1 + 0.2 * (number == 2))
        (tmp_path / "trials").mkdir(exist_ok=True)
        trial.folder.rename(tmp_path / f"trials/{number:03d}")
    values = [{"model.positions": name} for name in ("split", "split", "none")]
    study = mock.Mock(Study, config=quickstart.get_config(), folder=tmp_path, trials=None)
    study.states.return_value = dict.fromkeys(range(3), "complete")
    study.notes.return_value, study.values.return_value = {}, dict(enumerate(values))
    sweep_module._write(study)
    written = csv.DictReader((tmp_path / "results.csv").read_text().splitlines())
    assert [line["state"] for line in written] == ["complete", "repeated", "complete"]
    text = (tmp_path / "results.md").read_text()
    assert "- trial 1, repeated: model.positions=split (the same as trial 0)" in text
    assert "| split | 1 |" in text


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


def test_different_signatures_are_refused_by_both_trials_and_signatures(tmp_path):
    other, split, metric = SIGNATURE.replace("mixed", "lc"), "length_generalization", "bleu"
    trials = []
    for number, signature in enumerate((SIGNATURE, other)):
        changes = {split: {f"{metric}_signature": signature}}
        trials.append(write_trial(tmp_path, number + 3, {"a.b": number}, **changes))
    with pytest.raises(UserError, match=f"trials 3 and 4 .*{split} {metric}") as error:
        read_sweep("translation", trials)
    assert f"{SIGNATURE!r} and {other!r}" in str(error.value)
    assert len(read_sweep("translation", trials[:1]).systems) == 1  # the control
    with pytest.raises(UserError, match="no trial is complete yet"):
        read_sweep("translation", [trials[0]._replace(state="failed")])


def test_line_separators_inside_a_sentence_end_no_line(tmp_path):
    texts = ["one two three four\x85five", "six seven\u2028eight nine\rten"]
    trial = write_trial(tmp_path, 0, {}, references=texts, hypotheses=texts)
    run = read_sweep("translation", [trial]).systems[0].runs[0]
    assert run.texts.outputs == texts
    assert run.lengths.tolist() == [5, 5]


def test_the_table_shows_the_numbers_of_its_trials(tmp_path):
    trials = write_seeds(tmp_path, {"split": 0.2, "none": 0.6}, seeds=(0, 1))
    sweep = read_sweep("translation", trials, baseline=1)
    first, second = cells(sweep)
    scores = [o.score("test.bleu") for o in sweep.systems[1].runs]
    mean, half = sum(scores) / 2, abs(scores[0] - scores[1]) / 2
    assert second["positions"] == "none"
    assert second["n"] == "2"
    assert second["BLEU"] == f"{mean:.2f} ± {half * math.sqrt(2):.2f}"
    # t(0.975, 1) is 12.7062; the standard error of two numbers is half their distance.
    low, high = (float(end) for end in second["95% interval"].split(" to "))
    assert mean - 12.7062 * half < low == 0  # there is no BLEU below
    assert high == pytest.approx(mean + 12.7062 * half, abs=0.006)
    difference = mean - sweep.systems[0].over_seeds("test.bleu").mean
    assert second["difference"] == f"{difference:+.2f}"
    assert float(second["p"]) == pytest.approx(sweep.main_differences[1].p_value, abs=0.0006)
    low, high = (float(end) for end in second["its 95% interval"].split(" to "))
    assert (low + high) / 2 == pytest.approx(difference, abs=0.01)
    assert high < 0
    assert (first["difference"], first["p"]) == ("baseline", "-")
    assert (first["minutes"], first["parameters"]) == ("1.5", "123,456")
    assert not {"tokens/s", "GFLOP/token", "length generalization: BLEU"} & set(second)


def test_the_csv_has_every_trial_and_score_and_the_table_columns_with_numbers(tmp_path):
    longer = {"bleu": 7.5, "exact_match": 1.0, "bleu_signature": "another"}
    # `name` is the last part of two keys, so both are written out.
    values = {"optimizer.name": [1, 2], "name": "", "seed": 1}
    costs = {"tokens_per_second": 1234.5, "flops_per_token": 4.26e6}
    changed = {"optimizer.name": 'x,"y"\n', "name": "b", "seed": 2}
    trials = [
        write_trial(tmp_path, 0, values, length_generalization=longer, **costs),
        write_trial(tmp_path, 1, changed)._replace(state="pruned"),
        write_trial(tmp_path, 2, values | {"name": "c"}),
    ]
    sweep = read_sweep("translation", trials)
    first, second, _ = csv.DictReader(io.StringIO(to_csv(sweep)))
    results = json.loads((trials[0].folder / "results.json").read_text())
    shown = [first[name] for name in ("number", "optimizer.name", "seed", "state", "step")]
    assert shown == ["0", "[1, 2]", "1", "complete", "1200"]
    assert float(first["test_bleu"]) == results["test"]["bleu"]
    assert float(first["validation_chrf"]) == results["validation"]["chrf"]
    assert first["test_chrf_signature"] == results["test"]["chrf_signature"]
    assert (first["length_generalization_bleu"], first["tokens_per_second"]) == ("7.5", "1234.5")
    shown = [second[name] for name in ("optimizer.name", "state", "test_bleu")]
    assert shown == ['x,"y"\n', "pruned", ""]
    first, second = cells(sweep)
    assert list(first)[:2] == ["optimizer.name", "name"]
    assert first["name"] == '""'
    assert first["length generalization: BLEU"] == "7.50"
    assert (first["tokens/s"], first["GFLOP/token"]) == ("1,234", "0.00426")
    assert (second["length generalization: BLEU"], second["tokens/s"]) == ("-", "-")
    assert "length generalization: BLEU: `another`" in markdown(sweep, "", "")


TORN = "one\ntwo|three\r\nfour\u2028five\\|six"


def test_markdown_marks_the_baseline_says_how_and_lists_what_is_missing(tmp_path):
    trials = write_seeds(tmp_path, {TORN: 0.2, "none": 0.5, "split": 0.4}, seeds=(0,))
    lost = write_trial(tmp_path, 9, {"model.positions": "x", "seed": 4})
    trials.append(lost._replace(state="failed", note="it broke\n| here"))
    text = markdown(read_sweep("translation", trials, baseline=0), "A\ntitle", "a\n```\ncommand")
    lines = text.splitlines()
    assert lines[:5] == ["# A title", "", "```", "a ``` command", "```"]
    assert "corrected for the 2 comparisons" in text
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 5
    # Bars that are not escaped divide cells.
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert table[2].startswith(r"| **one\\ntwo\|three\\r\\nfour")
    assert table[3].startswith("| none | 1 |")
    assert text.count(SIGNATURE) == 1
    assert "- trial 9, failed: model.positions=x, seed=4 (it broke | here)" in lines


def test_the_csv_has_p_before_and_after_the_correction(tmp_path):
    sweep = read_sweep(
        "translation", write_seeds(tmp_path, {"a": 0.1, "b": 0.3, "c": 0.5}, (0, 1)), 0
    )
    lines = list(csv.DictReader(io.StringIO(to_csv(sweep))))
    assert [line["p_raw"] for line in lines[:2]] == ["", ""]
    for line, number in zip(lines[2:], (1, 1, 2, 2), strict=True):
        found = sweep.main_differences[number]
        assert float(line["p_raw"]) == found.p_value
        assert float(line["p_corrected"]) == found.corrected
        assert line["p_test"] == "t|two-sided|seeds:2,2|texts:40"


def test_a_setting_that_lost_seeds_is_marked_and_not_compared(tmp_path):
    trials = write_seeds(tmp_path, {"a": 0.3, "b": 0.1}, last="failed")
    sweep = read_sweep("translation", trials, 0)
    row = cells(sweep)[1]
    assert row["n"] == "2 of 3"
    assert row["BLEU"].startswith("(")
    assert (row["95% interval"], row["difference"]) == ("-", "-")
    assert "p" not in row
    assert "In brackets: means over the remaining seeds" in " ".join(write_notes(sweep))
    # Nothing is compared with it.
    sweep = read_sweep("translation", trials, 3)
    assert sweep.main_differences == [None, None]
    assert "Nothing is compared" in " ".join(write_notes(sweep))


def test_seeds_that_still_train_are_counted_and_the_rest_is_compared(tmp_path):
    trials = write_seeds(tmp_path, {"a": 0.3, "b": 0.1}, last="running")
    sweep = read_sweep("translation", trials, 0)
    assert cells(sweep)[1]["n"] == "2 of 3"
    assert sweep.main_differences[1].seeds == (2, 3)
    scores = [run.score("test.bleu") for run in sweep.runs]
    expected = np.mean(scores[3:]) - np.mean(scores[:3])
    np.testing.assert_allclose(sweep.main_differences[1].mean, expected)
