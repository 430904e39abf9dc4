"""A sweep trains each of its trials once, whoever works on it, and ends in one answer."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from experiments.sweep.study import Study
from places import ROOT
from runs import without_search
from tiny_run import CONFIG, command, refused, unsealed, without_pictures
from tiny_sweep import rows, write_config
from transformer import workdir
from transformer.trials import find_trials


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The config and the folder of a sweep that is done, and what it printed; only to be read."""
    root = tmp_path_factory.mktemp("sweep")
    config = write_config(root)
    with without_pictures():
        ended = command(f"--config={config}", f"--workdir={root / 'sweep'}")
    assert ended.code == 0, ended.err
    return config, root / "sweep", ended.out


def test_a_sweep_says_its_plan_trains_its_trials_and_writes_the_answer(finished):
    _, folder, out = finished
    assert "2 trials in 1 group" in out
    assert "trials 0, 1: sequential" in out
    assert [row["state"] for row in rows(folder)] == ["complete", "complete"]
    for name in ("results.csv", "results.md", "index.html"):
        assert (folder / name).stat().st_size > 0
    results = [
        json.loads((folder / f"trials/{n}/results.json").read_text()) for n in ("000", "001")
    ]
    assert results[0]["test"]["loss"] != results[1]["test"]["loss"]


def test_a_trial_is_an_ordinary_run(finished):
    _, folder, _ = finished
    ended = command(f"--workdir={folder / 'trials/001'}", "--mode=translate", stdin=b"a b c\n\n")
    assert ended.code == 0, ended.err
    assert ended.out.count("\n") == 2
    assert workdir.load_config(folder / "trials/001").seed == 1
    ended = command(f"--workdir={folder / 'trials/001'}", "--mode=report")
    assert ended.code == 0, ended.err
    assert "did not keep" not in (folder / "trials/001/report.html").read_text()


def test_a_finished_sweep_trains_nothing_again(finished):
    config, folder, _ = finished
    before = rows(folder)
    stamps = [path.stat().st_mtime_ns for path in sorted(folder.glob("trials/*/metrics.jsonl"))]
    ended = command(f"--config={config}", f"--workdir={folder}")
    assert "2 done" in ended.out
    assert rows(folder) == before
    assert len(stamps) == 2
    assert stamps == [p.stat().st_mtime_ns for p in sorted(folder.glob("trials/*/metrics.jsonl"))]


def test_a_value_that_is_added_to_a_finished_sweep_extends_it(finished, tmp_path):
    _, before, _ = finished
    folder = tmp_path / "sweep"
    shutil.copytree(before, folder)
    trials = """
def sweep():
    for seed in (7, 0):
        yield {"seed": seed}
"""
    config = tmp_path / "config.py"
    config.write_text(finished[0].read_text().split("\ndef sweep")[0] + trials)
    stamps = [(folder / f"trials/00{n}/results.json").stat().st_mtime_ns for n in (0, 1)]
    with without_pictures(), without_search():
        ended = command(f"--config={config}", f"--workdir={folder}")
    assert ended.code == 0, ended.err
    assert "trials 1 of" in ended.out  # it is no longer listed
    assert "2 trials in 1 group of one structure, 1 done" in ended.out
    assert stamps == [(folder / f"trials/00{n}/results.json").stat().st_mtime_ns for n in (0, 1)]
    assert [(row["number"], row["seed"]) for row in rows(folder)] == [("2", "7"), ("0", "0")]
    assert rows(folder)[1]["test_loss"] == rows(before)[0]["test_loss"]
    # Changing what all start from is refused, with the difference.
    refused(
        *(f"--config={config}", f"--workdir={folder}", "--config.model.d_ff=9"),
        says="model.d_ff was 8 and is 9",
    )


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1, 2])
def test_one_program_for_all_seeds_gives_the_answer_of_each_alone(tmp_path, largest):
    config = write_config(tmp_path)
    flags = ("--config.sweep.parallel=vmap", f"--config.sweep.max_vmapped_runs={largest}")
    answers = []
    for name, more in (("alone", ()), ("together", flags)):
        ended = command(f"--config={config}", f"--workdir={tmp_path / name}", *more)
        assert ended.code == 0, ended.err
        assert ("vmapped, as one program" in ended.out) is (name == "together" and largest > 1)
        answers.append([float(row["test_loss"]) for row in rows(tmp_path / name)])
    assert answers[1] == pytest.approx(answers[0], rel=1e-4)
    assert abs(answers[0][0] - answers[0][1]) > 1e-3


def test_a_trial_that_fails_is_listed_and_the_others_go_on(tmp_path):
    trials = """
def sweep():
    yield {"tokenizer.vocab_size": 8}
    yield {}
"""
    config = write_config(tmp_path, trials=trials)
    with without_pictures(), without_search():
        ended = command(f"--config={config}", f"--workdir={tmp_path / 'sweep'}")
    assert ended.code == 0, ended.err
    assert "of the training tokens are unknown" in ended.out
    assert [row["state"] for row in rows(tmp_path / "sweep")] == ["failed", "complete"]
    assert "tokens are unknown" in (tmp_path / "sweep/results.md").read_text()


@pytest.mark.slow
def test_one_trial_alone_is_found_done_by_the_sweep(tmp_path):
    config, folder = write_config(tmp_path), tmp_path / "sweep"
    assert command(f"--config={config}", f"--workdir={folder}", "--trial=1").code == 0
    assert not (folder / "trials/000").exists()
    stamp = (folder / "trials/001/results.json").stat().st_mtime_ns
    # Meanwhile another worker has trial 0: it is left to that one.
    with workdir.locked(folder / "trials/000"):
        ended = command(f"--config={config}", f"--workdir={folder}")
    assert "trials 0 are with another worker" in ended.out
    assert (folder / "trials/001/results.json").stat().st_mtime_ns == stamp
    assert [row["state"] for row in rows(folder)] == ["running", "complete"]
    # Once that one is dead, the trial is taken up.
    ended = command(f"--config={config}", f"--workdir={folder}")
    assert [row["state"] for row in rows(folder)] == ["complete", "complete"]


@pytest.mark.slow
def test_scores_of_a_shorter_trial_do_not_count(tmp_path):
    config, folder = write_config(tmp_path, count=1), tmp_path / "sweep"
    shorter = ("--trial=0", "--config.train.steps=4")
    assert command(f"--config={config}", f"--workdir={folder}", *shorter).code == 0
    assert command(f"--config={config}", f"--workdir={folder}").code == 0
    assert rows(folder)[0]["step"] == "8"


def test_unpromising_trials_are_pruned_and_finished_ones_are_not(tmp_path):
    trials = """
def sweep():
    for seed in range(4):
        yield {"seed": seed, "optimizer.learning_rate": 0.0 if seed == 3 else 0.03}
"""
    config = write_config(tmp_path, trials=trials)
    with without_pictures(), without_search():
        ended = command(
            f"--config={config}", f"--workdir={tmp_path / 'sweep'}", "--config.sweep.prune=True"
        )
    assert "seed=3, learning_rate=0.0) is pruned" in ended.out
    states = [row["state"] for row in rows(tmp_path / "sweep")]
    assert states == ["complete", "complete", "complete", "pruned"]


def test_a_trial_that_was_trained_further_by_itself_is_not_compared(finished, tmp_path):
    config, folder, _ = finished
    folder = shutil.copytree(folder, tmp_path / "sweep")
    path = folder / "trials/001/config.json"
    own = unsealed(path)
    path.write_text(json.dumps({**own, "train": {**own["train"], "steps": 16}}))
    assert command(f"--config={config}", f"--workdir={folder}").code == 0
    assert [row["state"] for row in rows(folder)] == ["complete", "changed"]
    assert rows(folder)[1]["test_bleu"] == ""
    text = (folder / "results.md").read_text().replace("\\_", "_")
    line = "trial 1, changed: seed=1 (trained again apart from the sweep: train.steps was 8 and "
    assert f"{line}is 16)" in text


def test_a_trial_whose_config_was_edited_is_not_compared_and_one_without_is(finished, tmp_path):
    config, folder, _ = finished
    folder = shutil.copytree(folder, tmp_path / "sweep")
    (folder / "trials/000/config.json").unlink()
    path = folder / "trials/001/config.json"
    path.write_text(path.read_text().replace('"label_smoothing": 0.1', '"label_smoothing": 0.2'))
    assert command(f"--config={config}", f"--workdir={folder}").code == 0
    assert [row["state"] for row in rows(folder)] == ["complete", "changed"]
    text = (folder / "results.md").read_text().replace("\\_", "_")
    assert "config.json cannot be read (it is not what was written" in text


@pytest.mark.parametrize(("patience", "state"), [(1, "complete"), (2, "pruned")])
def test_a_trial_that_patience_ends_is_not_pruned(patience, state, tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "report", lambda self, attempt, value, step: step == 8)
    changes = f"""
    config.train.steps, config.train.patience = 16, {patience}
    config.optimizer.learning_rate = 0.0  # no evaluation is better than the first
"""
    config = write_config(tmp_path, changes=changes, count=1)
    folder = tmp_path / "sweep"
    with without_pictures(), without_search():
        command(f"--config={config}", f"--workdir={folder}", "--config.sweep.prune=True")
    assert workdir.newest_step(folder / "trials/000") == 8
    assert (folder / "trials/000/results.json").exists() == (state == "complete")
    [trial] = find_trials(folder)
    assert (trial.score is not None) == (state == "complete")


BAD = {
    "empty": ("def sweep():\n    return []\n", (), "the sweep has no trials"),
    "unknown key": ('def sweep():\n    yield {"model.head": 1}\n', (), "trial 0 of the sweep"),
    "no such trial": ("", ("--trial=2",), "--trial=2 is not there: this sweep has 0 to 1"),
    "storage": ("", ("--config.sweep.storage=sqlite:////nowhere/x.db",), "sqlite:////nowhere/x.db"),
    "baseline": ("", ("--config.sweep.baseline=2",), "this sweep has 0 to 1"),
    "no space": ("", ("--config.sweep.search=tpe",), "space()"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named_before_anything_trains(kind, tmp_path):
    trials, flags, says = BAD[kind]
    config = write_config(tmp_path, trials=trials)
    refused(f"--config={config}", f"--workdir={tmp_path / 'sweep'}", *flags, says=says)
    assert not (tmp_path / "sweep/trials").exists()


def test_a_trial_needs_a_sweep(tmp_path):
    config = write_config(tmp_path, trials="\n")
    refused(f"--config={config}", f"--workdir={tmp_path / 'x'}", "--trial=0", says="--trial")


def test_the_argument_of_a_config_follows_a_colon(tmp_path):
    config = tmp_path / "sized.py"
    config.write_text(CONFIG.replace("get_config()", "get_config(size='small')", 1))
    said = refused(
        f"--config={config}:huge", f"--workdir={tmp_path}/x", "--trial=0", says="--trial"
    )
    assert said.code == 2
    refused(
        f"--config={config}.x:huge", f"--workdir={tmp_path}/x", says=f"{config}.x is not a file"
    )


@pytest.mark.slow
def test_a_sweep_killed_three_times_by_two_workers_ends_as_one_that_was_not(tmp_path):
    changes = "    config.train.steps = 300\n"
    config = write_config(tmp_path, count=6, changes=changes)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = [sys.executable, "launch.py", f"--config={config}"]

    outs = []

    def start(folder):
        outs.append(tmp_path / f"{len(outs)}.txt")
        command = [*arguments, f"--workdir={folder}"]
        return subprocess.Popen(command, cwd=ROOT, stdout=outs[-1].open("w"))

    assert start(whole).wait() == 0
    outs.clear()
    chance, kills = random.Random(0), 0
    for _ in range(3):
        workers = [start(broken), start(broken)]
        time.sleep(chance.uniform(8, 16))
        kills += any(worker.poll() is None for worker in workers)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    workers = [start(broken), start(broken)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert kills == 3
    assert rows(broken) == rows(whole)
    told = "".join(out.read_text() for out in outs)
    for seed in range(6):
        assert told.count(f"trial {seed} (seed={seed}): loss") == 1
