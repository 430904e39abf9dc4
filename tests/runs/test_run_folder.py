"""A run leaves its files in its folder, opens by any path, and goes on by its name alone."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from run_folders import steps

from configs import base
from runs import without_search
from tiny_run import STEPS, command, without_pictures
from transformer.config import assign, flatten
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.runs.run import Run

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
        "run.json",
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
            assert (scores.get(f"{metric}_ci", 0) > 0) == (
                scores[metric] > 0
            )  # else all resamples have 0
            assert "version:" in scores[f"{metric}_signature"]


@pytest.mark.full
def test_nothing_is_drawn_of_a_run_that_is_shorter_than_a_line_of_its_log(tiny, tmp_path):
    run = tmp_path / "run"
    changes = "--config.train.steps=4", "--config.train.log_every=5"
    arguments = f"--config={tiny.config}", f"--workdir={run}", *changes
    ended = command(*arguments)
    assert ended.code == 0, ended.err
    assert "nothing is drawn, since the run has fewer steps than train.log_every=5" in ended.out
    assert not (run / "figures").exists()
    assert "Attention is not drawn: the run has fewer" in (run / "report.html").read_text()
    assert "is finished, 4 steps" in command(*arguments).out
    assert command(f"--workdir={run}", "--mode=report").code == 0
    assert "Attention is not drawn" not in (run / "report.html").read_text()


# -- going on by --workdir alone


@pytest.mark.full
def test_a_run_goes_on_by_its_folder_alone_and_remembers_what_is_set(tiny, copy, tmp_path):
    cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
    longer = [f"--workdir={copy}", "--config.train.steps=41", "--config.decode.beam_size=2", cache]
    with without_pictures(), without_search():
        ended = command(*longer)
    assert ended.code == 0, ended.err
    assert f"resuming from step {STEPS}" in ended.out
    kept = workdir.load_config(copy)
    assert (kept.train.steps, kept.decode.beam_size) == (41, 2)
    again = command(f"--workdir={copy}", cache)
    assert (again.code, again.err) == (0, "")
    assert f"{copy} is finished, 41 steps" in again.out


@pytest.mark.full
def test_what_a_started_run_may_change_changes_neither_model_nor_order_nor_optimizer(tmp_path):
    Run(tmp_path, base.get_config()).claim()
    allowed = []
    for key, value in flatten(base.get_config()).items():
        config = base.get_config()
        other = {
            bool: lambda x: not x,
            str: lambda x: f"{x}x",
            list: lambda x: [*x, *(x or [{}])],
        }
        assign(config, key, other.get(type(value), lambda x: x + 1)(value))
        with contextlib.suppress(UserError):
            Run(tmp_path, config).check_same(training=True)
            allowed.append(key)
    rooms = {key.partition(".")[0] for key in allowed}
    assert rooms == {"name", "data", "train", "decode", "evaluate", "sweep"}
    assert not {"train.label_smoothing", "data.seed", "data.batch_tokens"} & {*allowed}
    assert {"train.steps", "data.path"} <= {*allowed}


def test_a_run_is_used_but_not_trained_on_if_it_is_computed_otherwise(tmp_path):
    Run(tmp_path, base.get_config()).claim()
    config = base.get_config()
    config.model.attention_implementation = "chunked"
    Run(tmp_path, config).check_same()
    with pytest.raises(UserError, match="there 'plain', here 'chunked'"):
        Run(tmp_path, config).check_same(training=True)


# -- paths and what is left over


def test_a_relative_path_opens_a_run(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    folder = Path(copy.name)
    used = Run(folder).load_trained().steps
    assert used == [STEPS]
