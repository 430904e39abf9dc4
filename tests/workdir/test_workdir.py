"""A run leaves its files, its texts and its scores in its folder."""

import json
import shutil

import numpy as np
import pytest
from run_folders import content, steps

from experiments import run
from experiments.tasks import translation as translating
from tiny_run import STEPS, command
from transformer import workdir

TEXTS = ("", ".source", ".reference")  # of a split: its translations and what they are read with


def test_a_run_leaves_the_files_of_the_design(tiny):
    folder = tiny.workdir
    assert steps(folder) == [20, 40]
    assert not list(folder.rglob("*.partial"))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "config.json",
        "tokenizer.model",
        "metrics.jsonl",
        "results.json",
        *(f"translations/{split}{kind}.txt" for split in ("validation", "test") for kind in TEXTS),
        "figures/training.png",
        "figures/attention/attention.npz",
        "figures/attention/cross_layer_1.png",
        "data.json",
        "environment.json",
        "translations/test.scores.tsv",
        "report.html",
        "figures/attention/explorer.html",
    } <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    for kind in TEXTS:
        assert len((folder / f"translations/test{kind}.txt").read_text().splitlines()) == 7
    # The task is to copy.
    source, reference = (folder / f"translations/test{kind}.txt" for kind in TEXTS[1:])
    assert source.read_text() == reference.read_text()


def test_line_i_of_the_written_texts_is_sentence_i_whatever_it_holds(tmp_path):
    texts = ["a\nb", "", "c\r\n", "d\u2028e\r", "f"]
    run._write_lines(tmp_path / "texts", texts)
    assert (tmp_path / "texts").read_text() == "a b\n\nc \nd\u2028e \nf\n"


def test_the_table_names_the_steps_whose_weights_are_scored(tiny, capsys):
    results = workdir.load_results(tiny.workdir)
    run.print_results(results, "translation")
    assert "step 40, 4,112 parameters" in capsys.readouterr().out
    later = {**results, "step": 1200}
    for averaged, scored in (
        ([1000], "step 1,000"),
        ([900, 1000, 1100], "mean of 3 checkpoints, steps 900 to 1,100"),
    ):
        run.print_results({**later, "averaged_steps": averaged}, "translation")
        assert f" {scored}, 4,112 parameters " in capsys.readouterr().out


def test_results_have_the_scores_their_signatures_and_what_they_cost(tiny):
    results = json.loads((tiny.workdir / "results.json").read_text())
    assert set(results) == {
        *("validation", "test", "step", "averaged_steps", "parameters", "wall_seconds"),
        *("tokens_per_second", "flops_per_token", "decode", "weights", "files", "sha256"),
    }
    # Encoder 4 x 16 x 16 + 2 x 16 x 8, decoder 8 x 16 x 16 + 2 x 16 x 8, logits 20 x 16.
    assert results["flops_per_token"] == 6 * (1280 + 2304 + 320)
    assert results["tokens_per_second"] > 0
    assert (results["step"], results["averaged_steps"]) == (STEPS, [STEPS])
    assert results["parameters"] == 4112  # as the table printed before the training has it
    assert results["wall_seconds"] > 0
    for split, sentences in (("validation", 5), ("test", 7)):
        scores = results[split]
        assert scores["sentences"] == sentences
        assert scores["seconds"] > 0
        assert scores["perplexity"] == pytest.approx(np.exp(scores["nll"]))
        assert scores["loss"] == pytest.approx(scores["nll"])
        assert 0 <= scores["accuracy"] <= 1
        for metric in ("bleu", "chrf"):
            assert 0 <= scores[metric] <= 100
            assert scores[f"{metric}_ci"] >= 0
            assert "version:" in scores[f"{metric}_signature"]


@pytest.mark.slow
def test_evaluate_writes_the_same_scores_again(copy):
    before = json.loads((copy / "results.json").read_text())
    texts = content(copy / "translations")
    for path in ("results.json", "metrics.jsonl"):  # as in a folder copied without its curves
        (copy / path).unlink()
    shutil.rmtree(copy / "translations")
    ended = command("--mode=evaluate", f"--workdir={copy}")
    assert ended.code == 0, ended.err
    assert "no picture of the training" in ended.out
    first, *_ = texts[str(copy / "translations/test.source.txt")].decode().splitlines()
    translation, *_ = texts[str(copy / "translations/test.txt")].decode().splitlines()
    example = f"  source       {first}\n  reference    {first}\n  translation  {translation}\n"
    assert example in ended.out
    assert ended.out.count("  reference    ") == translating.EXAMPLES
    after = json.loads((copy / "results.json").read_text())
    for split in ("validation", "test"):
        before[split].pop("seconds"), after[split].pop("seconds")
        assert before[split].keys() == after[split].keys()
        for name, value in before[split].items():
            if isinstance(value, float):
                assert after[split][name] == pytest.approx(value, rel=1e-5), name
            else:
                assert after[split][name] == value
    before.pop("validation"), before.pop("test")
    assert before.items() <= after.items()
    assert content(copy / "translations") == texts
