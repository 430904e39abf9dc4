"""The runs and bundles of each release since 0.2 open, answer as they did, and train on."""

import json
import shutil
from pathlib import Path

import pytest
from run_folders import steps

import transformer
from experiments.sweep.trial_configs import load_sweep, save_sweep
from places import ROOT
from tiny_run import command, refused, unsealed, without_pictures
from transformer.files import write_json
from transformer.runs import upgrades
from transformer.runs.workdir import load_config

FILES = sorted((ROOT / "tests" / "released").glob("*/*.tar.xz"))
FULL = [pytest.param(f, marks=[pytest.mark.full] * ("language" not in f.name)) for f in FILES]
RUN, CONFIG = Path("run"), Path("run/config.json")


@pytest.fixture(params=[file for file in FILES if "language" in file.name])
def file(request, tmp_path, monkeypatch):
    """The archive of a kind of run of a release; its `run` and `bundle` are in the work folder."""
    shutil.unpack_archive(request.param, tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # of the cache
    return request.param


def check_answers(folder, file):
    of = json.loads((file.parent / "answers.json").read_text("utf-8"))[file.name.split(".")[0]]
    answers = getattr(transformer.load(folder), of["method"])(of["inputs"], num_best=1)
    assert [answer[0] for [answer] in answers] == of["answers"]
    assert [answer[1] for [answer] in answers] == pytest.approx(of["scores"], rel=1e-3)


@pytest.mark.parametrize("file", FILES, indirect=True)
def test_a_released_run_and_its_bundle_answer_as_they_did_and_new_keys_need_a_format(file):
    check_answers("run", file)
    check_answers("bundle", file)
    saved = unsealed(CONFIG)
    if saved.pop("format") == upgrades.FORMAT:
        assert json.loads(load_config(RUN).to_json()) == saved


@pytest.mark.parametrize("file", FULL, indirect=True)
def test_a_released_run_trains_on_unless_its_state_is_of_another_version(file):
    [path], [step] = RUN.glob("checkpoints/*/record.json"), steps(RUN)
    further, record = ("--workdir=run", f"--config.train.steps={step + 2}"), unsealed(path)
    write_json(path, {**record, "leaves": {"a": [], **record["leaves"]}})
    refused(*further, says=("cannot be resumed", "(a differs). Everything else", "init_from="))
    check_answers("run", file)
    write_json(path, record)
    with without_pictures():
        ended = command(*further)
    assert f"resuming from step {step}" in ended.out
    assert (max(steps(RUN)), unsealed(CONFIG)["format"]) == (step + 2, upgrades.FORMAT), ended


def test_a_renamed_key_opens_by_its_upgrade_only_and_a_newer_format_is_refused(file, monkeypatch):
    def move(config, old, new):
        config["train"][new] = config["train"].pop(old)

    move(saved := unsealed(CONFIG), "steps", "updates")
    write_json(CONFIG, saved)
    write_json(Path("sweep.json"), {"command": "train", "config": saved, "trials": [{}]})
    for arguments in (["--workdir=run", "--mode=generate"], ["--workdir=."]):
        refused(*arguments, says="no key config.train.updates")
    monkeypatch.setattr(upgrades, "FORMAT", 2)
    ours = upgrades.UPGRADES[1]
    both = lambda config: (ours(config), move(config, "updates", "steps"))  # noqa: E731
    monkeypatch.setitem(upgrades.UPGRADES, 1, both)
    check_answers("run", file)
    for _ in range(2):  # then of format 2
        save_sweep(Path(), load_sweep(Path()).config, [{}])
    for folder in ("run", "bundle"):
        write_json(Path(folder, "config.json"), {"format": 3, "of": "later"})
        refused("--mode=generate", f"--workdir={folder}", says=("format 3, but", "1 to 2: install"))
