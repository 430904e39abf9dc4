"""`--seeds` trains any config as a sweep over seeds, which its folder alone resumes."""

import json
import shutil
from unittest import mock

import pytest

from runs import without_search
from tiny_run import command, refused, without_pictures
from tiny_sweep import rows, write_config
from transformer import workdir

NO_SWEEP = "\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The config and the folder of a sweep over the seeds 3 and 4; only to be read."""
    root = tmp_path_factory.mktemp("seeds")
    config = write_config(root, trials=NO_SWEEP)
    flags = (f"--config={config}", "--config.seed=3", "--config.train.steps=6", "--seeds=2")
    with without_pictures(), without_search(), mock.patch("sys.argv", ["launch.py", *flags]):
        ended = command(*flags, f"--workdir={root / 'runs'}")
    assert ended.code == 0, ended.err
    return config, root / "runs"


def test_a_config_is_trained_with_the_seeds_from_its_own_on(finished):
    _, folder = finished
    assert [row["seed"] for row in rows(folder)] == ["3", "4"]
    seeds = [workdir.load_config(folder / f"trials/00{n}").seed for n in (0, 1)]
    assert seeds == [3, 4]
    losses = [float(row["test_loss"]) for row in rows(folder)]
    assert losses[0] != losses[1]
    summary = (folder / "results.md").read_text()
    assert "| setting | n | BLEU |" in summary
    assert "| **as configured** | **2** |" in summary
    assert " ± " in summary


def test_a_seed_of_a_sweep_trains_as_the_config_with_that_seed_alone(finished, tmp_path):
    config, folder = finished
    flags = ("--config.seed=4", "--config.train.steps=6")
    with without_pictures(), without_search():
        ended = command(f"--config={config}", f"--workdir={tmp_path / 'run'}", *flags)
    assert ended.code == 0, ended.err
    own, trial = (
        json.loads((place / "results.json").read_text())["test"]["loss"]
        for place in (tmp_path / "run", folder / "trials/001")
    )
    assert own == trial


def test_the_folder_alone_resumes_the_sweep_and_keeps_its_command(finished, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(finished[1], folder)
    first = rows(folder)
    shutil.rmtree(folder / "trials/001")
    (folder / "study.db").unlink()
    own = mock.patch("sys.argv", ["launch.py", f"--workdir={folder}"])
    with without_pictures(), without_search(), own:
        ended = command(f"--workdir={folder}")
    assert ended.code == 0, ended.err
    assert "trial 0 (seed=3)" in ended.out
    assert [row["test_loss"] for row in rows(folder)] == [row["test_loss"] for row in first]
    assert "--seeds=2" in json.loads((folder / "sweep.json").read_text())["command"]
    assert "--seeds=2" in (folder / "results.md").read_text()


def test_more_seeds_extend_a_sweep(finished, tmp_path):
    config, before = finished
    folder = tmp_path / "runs"
    shutil.copytree(before, folder)
    stamp = (folder / "trials/001/results.json").stat().st_mtime_ns
    flags = ("--config.seed=3", "--config.train.steps=6", "--seeds=3")
    with without_pictures(), without_search():
        ended = command(f"--config={config}", f"--workdir={folder}", *flags)
    assert ended.code == 0, ended.err
    assert [row["seed"] for row in rows(folder)] == ["3", "4", "5"]
    assert (folder / "trials/001/results.json").stat().st_mtime_ns == stamp


def test_a_run_and_a_sweep_never_share_a_folder(finished, tmp_path):
    config, folder = finished
    refused(f"--config={config}", f"--workdir={folder}", says=("holds a sweep", "trials/000"))
    assert not (folder / "config.json").exists()
    run = folder / "trials/000"
    says = f"{run} holds a run, not a sweep"
    refused(f"--config={config}", f"--workdir={run}", "--seeds=2", says=says)
    assert not (run / "study.db").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--seeds=0"], "--seeds=0 is not between 1 and 1,000"),
        (["--seeds=-1"], "--seeds=-1 is not between"),
        (["--seeds=2000"], "--seeds=2000 is not between"),
        (["--seeds=two"], ("--seeds=two", "int")),
        (["--seeds=2", "--mode=plan"], "--seeds is for --mode=train, not for plan"),
    ],
)
def test_wrong_seeds_are_refused_before_anything_is_written(flags, says, tmp_path):
    config = write_config(tmp_path, trials=NO_SWEEP)
    refused(f"--config={config}", f"--workdir={tmp_path / 'x'}", *flags, says=says)
    assert not (tmp_path / "x").exists()


def test_seeds_need_a_config_that_is_no_sweep(finished, tmp_path):
    says = "--seeds=2 is for a config without sweep()"
    config = write_config(tmp_path)
    refused(f"--config={config}", f"--workdir={tmp_path / 'x'}", "--seeds=2", says=says)
    refused(f"--workdir={finished[1]}", "--seeds=2", says="--seeds=2 needs --config")


@pytest.mark.parametrize("text", ["{", "[]", '{"command": 1}', '{"command": "c", "config": {}}'])
def test_a_damaged_record_of_a_sweep_is_named(finished, tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    refused(f"--workdir={tmp_path}", says=("sweep.json", "cannot be read"))
