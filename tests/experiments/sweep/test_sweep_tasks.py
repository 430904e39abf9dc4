"""Sweeps of language models and classifiers are judged by the measures of their task."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import stats

from experiments.results.systems import read_sweep
from experiments.results.table import build_tables, list_signatures, to_csv, write_notes
from experiments.sweep.sweep import write_results
from sweeps import cells, markdown, write_classifier, write_language_model, write_trial
from transformer.errors import UserError


def language_models(root, nlls=(1.5, 1.2), seeds=(0, 1, 2), **changes):
    """Complete trials: a setting for each nll, with all the seeds."""
    plan = list(itertools.product(range(len(nlls)), seeds))
    return [
        write_language_model(
            root, n, {"model.architecture": f"k{i}", "seed": seed}, nlls[i], **changes
        )
        for n, (i, seed) in enumerate(plan)
    ]


def classifiers(root, wrong, **changes):
    """Complete trials: `wrong` has, for each setting and seed, the texts it does not find."""
    plan = [(i, seed) for i, seeds in enumerate(wrong) for seed in range(len(seeds))]
    return [
        write_classifier(
            root, n, {"model.architecture": f"k{i}", "seed": seed}, wrong[i][seed], **changes
        )
        for n, (i, seed) in enumerate(plan)
    ]


WRONG = ([range(12), range(3, 16)], [range(2), range(5)])  # of two settings, two seeds each


def test_language_models_are_compared_by_perplexity_over_seeds(tmp_path):
    sweep = read_sweep("language_model", language_models(tmp_path), baseline=0)
    first, second = cells(sweep)
    perplexities = [[o.score("test.perplexity") for o in s.runs] for s in sweep.systems]
    assert second["difference"] == f"{np.subtract(*map(np.mean, reversed(perplexities))):+.3f}"
    expected = stats.ttest_ind(*reversed(perplexities))
    low, high = map(float, second["its 95% interval"].split(" to "))
    interval = expected.confidence_interval()
    assert (low, high) == pytest.approx((interval.low, interval.high), abs=0.0006)
    assert (first["difference"], first["its 95% interval"]) == ("baseline", "-")
    assert first["p"] == "-"
    assert float(second["p"].removeprefix("<")) <= expected.pvalue + 0.001
    accuracy = 100 * np.mean([o.score("test.accuracy") for o in sweep.systems[1].runs])
    assert second["accuracy (%)"].startswith(f"{accuracy:.2f} ± ")
    assert {"word perplexity", "bits/byte", "nll (nats)"} <= set(second)
    assert "of new seeds of these settings, on this text" in "\n".join(write_notes(sweep))
    assert list_signatures(sweep)["perplexity"] == "context:8|vocabulary:ab"


def test_without_a_test_set_the_validation_set_is_compared_and_the_table_says_so(tmp_path):
    trials = language_models(tmp_path, seeds=(0,), splits=("validation",))
    trials.append(write_language_model(tmp_path, 9, {"model.architecture": "k9", "seed": 0}, 1.4))
    sweep = read_sweep("language_model", trials, baseline=0)
    assert sweep.measures.main.path == "validation.perplexity"
    text = markdown(sweep, "Title", "command")
    assert (
        "Scores are of the validation set, because not all runs have scores of a test set." in text
    )
    # The control: all have a test set.
    tested = read_sweep("language_model", language_models(tmp_path / "tested", seeds=(0,)))
    assert tested.measures.main.path == "test.perplexity"


def test_language_models_of_different_vocabularies_are_compared_by_bits_per_byte(tmp_path):
    trials = language_models(tmp_path)
    for trial in trials[3:]:  # of the second setting, whose tokens are half as long
        path = trial.folder / "results.json"
        path.write_text(path.read_text().replace("vocabulary:ab", "vocabulary:xy"))
    sweep = read_sweep("language_model", trials, baseline=0)
    assert sweep.measures.main.path == "test.bits_per_byte"
    assert sweep.main_differences[1].mean == pytest.approx(-0.3 / math.log(2), abs=0.03)
    titles = build_tables(sweep)[0].head
    assert {"bits/byte", "word perplexity", "p"} <= set(titles)
    assert not {"perplexity", "nll (nats)", "accuracy (%)"} & set(titles)
    assert list_signatures(sweep) == {"bits/byte": "context:8", "word perplexity": "context:8"}
    assert "trials 0 and 3 have different vocabularies" in "\n".join(write_notes(sweep))
    assert "vocabulary:ab" in to_csv(sweep)


def test_translators_with_different_vocabularies_are_compared_by_bleu(tmp_path):
    trials = []
    for number, name in enumerate(("ab", "xy")):
        scores = {"perplexity_signature": name, "bits_per_byte_signature": name}
        values = {"tokenizer.vocab_size": number}
        trials.append(write_trial(tmp_path, number, values, test=scores))
    sweep = read_sweep("translation", trials, baseline=0)
    assert (sweep.measures.main_metric, sweep.vocabularies) == ("bleu", "")
    assert sweep.main_differences[1].has_interval


def test_classifiers_are_compared_by_accuracy_with_a_p_value(tmp_path):
    sweep = read_sweep("classification", classifiers(tmp_path, WRONG), baseline=0)
    first, second = cells(sweep)
    # 12 and 13 of 40 are wrong, and 2 and 5.
    assert first["accuracy (%)"] == "68.75 ± 1.77"
    assert (first["difference"], first["p"]) == ("baseline", "-")
    assert second["accuracy (%)"] == "91.25 ± 5.30"
    assert second["difference"] == "+22.50"
    assert second["macro F1 (%)"] == "90.25 ± 5.30"
    assert second["negation: accuracy (%)"] == "45.62 ± 2.65"
    assert not {"ci: accuracy (%)", "signature: accuracy (%)"} & set(second)
    one = read_sweep("classification", classifiers(tmp_path / "one", [[range(20)], [[]]]), 0)
    assert cells(one)[1]["p"] == "<0.001"


def test_different_texts_or_labels_are_refused(tmp_path):
    trials = classifiers(tmp_path, WRONG)
    path = trials[3].folder / "predictions/test.tsv"
    text = path.read_text()
    path.write_text(text.replace("bad\t", "worst\t", 1))
    with pytest.raises(UserError, match=r"trials 0 and 3 have different test sets \(predictions"):
        read_sweep("classification", trials)
    # The control: other probabilities are no other test set.
    path.write_text(text.replace("0.812500", "0.700000"))
    read_sweep("classification", trials)


def test_the_results_of_a_task_have_its_own_pictures_and_columns(tmp_path):
    trials = classifiers(tmp_path, WRONG, confusion=[[1, 2], [3, 4]], classes={"bad": 1})
    models = language_models(tmp_path / "models", seeds=(0,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = write_results("classification", trials, tmp_path / "answer", "T", "c", 0)
        others = write_results("language_model", models, tmp_path / "others", "T", "c", 0)
    assert [path.name for path in paths[3:]] == ["scores.png", "curves.png", "lengths.png"]
    assert [path.name for path in others[3:]] == ["scores.png", "curves.png"]
    titles = paths[2].read_text().partition("\n")[0].split(",")
    assert {"test_accuracy", "test_accuracy_signature"} <= set(titles)
    assert not {"test_confusion", "test_classes"} & set(titles)
    assert "With one seed there is no p" in others[1].read_text()
