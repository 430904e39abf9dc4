"""A sweep trains each of its trials once, whoever works on it, and ends in one answer."""

import json
import shutil
from unittest import mock

import pytest

from experiments.results.table import Results
from experiments.sweep import worker as sweep_worker
from experiments.sweep.study import Study
from runs import without_search
from tiny_run import command, refused, unsealed, without_pictures
from tiny_sweep import rows, write_config
from transformer.runs import workdir
from transformer.runs.workdir import find_trials

NO_SWEEP = "\n"


def sweep(*flags):
    """What a sweep without pictures and search prints."""
    with without_pictures(), without_search(), mock.patch("sys.argv", ["launch.py", *flags]):
        ended = command(*flags)
    assert ended.code == 0, ended.err
    return ended.out


def stamps(folder):
    """The times at which the trials were scored, by their numbers."""
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("trials/*/results.json")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The config, folder and output of a sweep over the seeds 3 and 4; only to be read."""
    root = tmp_path_factory.mktemp("sweep")
    config = write_config(root, trials=NO_SWEEP)
    flags = f"--config={config}", "--config.seed=3", "--seeds=2", f"--workdir={root / 'sweep'}"
    return config, root / "sweep", sweep(*flags)


def test_a_sweep_says_its_plan_trains_its_trials_and_writes_the_answer(finished):
    _, folder, out = finished
    assert "2 trials, 0 done, up to 1 at once" in out
    assert [(row["state"], row["seed"]) for row in rows(folder)] == [
        ("complete", "3"),
        ("complete", "4"),
    ]
    summary = (folder / "results.md").read_text()
    assert "| **as configured** | **2** |" in summary
    assert "--seeds=2" in summary
    assert (folder / "index.html").stat().st_size > 0
    losses = [float(row["test_loss"]) for row in rows(folder)]
    assert losses[0] != losses[1]


def test_a_trial_is_an_ordinary_run(finished):
    _, folder, _ = finished
    ended = command(f"--workdir={folder / 'trials/1'}", "--mode=translate", stdin=b"a b c\n\n")
    assert ended.code == 0, ended.err
    assert ended.out.count("\n") == 2
    assert workdir.load_config(folder / "trials/001").seed == 4


@pytest.mark.full
def test_a_seed_of_a_sweep_trains_as_the_config_with_that_seed_alone(finished, tmp_path):
    config, folder, _ = finished
    sweep(f"--config={config}", f"--workdir={tmp_path / 'run'}", "--config.seed=4")
    loss = json.loads((tmp_path / "run/results.json").read_text())["test"]["loss"]
    assert str(loss) == rows(folder)[1]["test_loss"]


def record_pages(monkeypatch):
    """The pages that sweeps make from now on, one after each trial."""
    page, shown = Results.to_page, []

    def to_page(*arguments, **more):
        shown.append(page(*arguments, **more))
        return shown[-1]

    monkeypatch.setattr(sweep_worker, "SHOW_EVERY", -1.0)
    monkeypatch.setattr(Results, "to_page", to_page)
    return shown


@pytest.mark.full
def test_the_folder_alone_resumes_a_sweep_and_trains_nothing_twice(finished, tmp_path, monkeypatch):
    _, before, _ = finished
    folder = shutil.copytree(before, tmp_path / "moved")
    first, times = rows(folder), stamps(folder)
    assert "2 done" in sweep(f"--workdir={folder}")
    assert (rows(folder), stamps(folder)) == (first, times)
    shutil.rmtree(folder / "trials/001")
    (folder / "study.db").unlink()
    shown = record_pages(monkeypatch)
    assert "trial 0 (seed=3)" in sweep(f"--workdir={folder}")
    on_the_way, last = shown
    for text in ('http-equiv="refresh"', "1 trials left, about 0 minutes", "trial 1, waiting"):
        assert text in on_the_way
        assert text not in last
    assert (folder / "index.html").read_text() == last
    assert [row["test_loss"] for row in rows(folder)] == [row["test_loss"] for row in first]
    assert stamps(folder)["000"] == times["000"]
    assert "--seeds=2" in json.loads((folder / "sweep.json").read_text())["command"]


@pytest.mark.slow
def test_one_trial_alone_is_found_done_by_the_sweep(tmp_path):
    config, folder = write_config(tmp_path), tmp_path / "sweep"
    flags = f"--config={config}", f"--workdir={folder}"
    sweep(*flags, "--trial=1")
    assert not (folder / "trials/000").exists()
    before = stamps(folder)
    # Meanwhile another worker has trial 0: it is left to that one.
    with workdir.locked(folder / "trials/000"):
        assert "trials 0 are with another worker" in sweep(*flags)
    assert stamps(folder) == before
    assert [row["state"] for row in rows(folder)] == ["running", "complete"]
    # Once that one is dead, the trial is taken up.
    sweep(*flags)
    assert [row["state"] for row in rows(folder)] == ["complete", "complete"]


@pytest.mark.full
def test_unpromising_trials_are_pruned_and_finished_ones_are_not(tmp_path):
    trials = """
def sweep():
    for seed in range(4):
        yield {"seed": seed, "optimizer.learning_rate": 0.0 if seed == 3 else 0.03}
"""
    config, folder = write_config(tmp_path, trials=trials), tmp_path / "sweep"
    out = sweep(f"--config={config}", f"--workdir={folder}", "--config.sweep.prune=True")
    assert "seed=3, learning_rate=0.0) is pruned" in out
    assert [row["state"] for row in rows(folder)] == [*["complete"] * 3, "pruned"]


@pytest.mark.full
def test_trials_that_were_trained_apart_or_whose_config_was_edited_are_not_compared(
    finished, tmp_path
):
    folder = shutil.copytree(finished[1], tmp_path / "sweep")
    config = folder / "trials/001/config.json"
    content, text = unsealed(config), config.read_text()
    (folder / "trials/000/config.json").unlink()  # one without a config has its scores still
    longer = json.dumps({**content, "train": {**content["train"], "steps": 16}})
    edited = text.replace('"label_smoothing": 0.1', '"label_smoothing": 0.2')
    for changed, reason in (
        (longer, "trained again apart from the sweep: train.steps was 8 and is 16"),
        (edited, "is not what was written"),
    ):
        config.write_text(changed)
        sweep(f"--workdir={folder}")
        assert [row["state"] for row in rows(folder)] == ["complete", "changed"]
        assert rows(folder)[1]["test_bleu"] == ""
        summary = (folder / "results.md").read_text().replace("\\_", "_")
        assert "trial 1, changed: seed=4 (" in summary
        assert reason in summary


@pytest.mark.full
@pytest.mark.parametrize(("patience", "state"), [(1, "complete"), (2, "pruned")])
def test_a_trial_that_patience_ends_is_not_pruned(patience, state, tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "report", lambda self, attempt, value, step: step == 8)
    changes = f"""
    config.train.steps, config.train.patience = 16, {patience}
    config.optimizer.learning_rate = 0.0  # no evaluation is better than the first
"""
    config, folder = write_config(tmp_path, changes=changes, count=1), tmp_path / "sweep"
    with without_pictures(), without_search():
        command(f"--config={config}", f"--workdir={folder}", "--config.sweep.prune=True")
    assert workdir.newest_step(folder / "trials/000") == 8
    [trial] = find_trials(folder)
    assert (trial.score is not None) == (state == "complete")


# -- mistakes

BAD = {
    "no such trial": ("", ("--trial=2",), "--trial=2 is not a trial: this sweep has 0, 1"),
    "no sweep": (NO_SWEEP, ("--trial=0",), "--trial is for sweeps"),
    "no space": ("", ("--config.sweep.search=tpe",), "space()"),
    "no seeds": (NO_SWEEP, ("--seeds=0",), "--seeds=0 is not above 0"),
    "sweep of seeds": ("", ("--seeds=2",), "--seeds=2 needs --config with a file without sweep()"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named_before_anything_trains(kind, tmp_path):
    trials, flags, says = BAD[kind]
    config = write_config(tmp_path, trials=trials)
    refused(f"--config={config}", f"--workdir={tmp_path / 'sweep'}", *flags, says=says)
    assert not (tmp_path / "sweep/trials").exists()


def test_a_run_and_a_sweep_never_share_a_folder(finished):
    config, folder, _ = finished
    refused(f"--config={config}", f"--workdir={folder}", says=("holds a sweep", "trials/000"))
    assert not (folder / "config.json").exists()
    run = folder / "trials/000"
    says = f"{run} holds a run, not a sweep"
    refused(f"--config={config}", f"--workdir={run}", "--seeds=2", says=says)
    assert not (run / "study.db").exists()
    refused(f"--workdir={folder}", "--seeds=2", says="--seeds=2 needs --config")


def test_a_damaged_record_of_a_sweep_is_named(tmp_path):
    (tmp_path / "sweep.json").write_text('{"command": "c", "config": {}}')
    refused(f"--workdir={tmp_path}", says=("sweep.json", "cannot be read"))
