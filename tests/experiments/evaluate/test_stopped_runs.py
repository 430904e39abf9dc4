"""Runs that were interrupted and then scored are named wherever their scores are compared."""

import json
import shutil

import pytest

from tiny_run import command, shared_run, unsealed


@pytest.fixture
def copy(tmp_path_factory, tmp_path):
    """A copy of a run that was trained for 40 steps, to its end."""
    return shutil.copytree(shared_run(tmp_path_factory).workdir, tmp_path / "run")


def change(folder, **train):
    """Changes keys of `train`, as if the run had been interrupted on the way to another end."""
    path = folder / "config.json"
    config = unsealed(path)
    path.write_text(json.dumps({**config, "train": {**config["train"], **train}}))


def test_a_comparison_and_the_evaluation_of_a_sweep_name_them(copy, tmp_path):
    sweep = tmp_path / "seeds"
    for number in range(2):
        shutil.copytree(copy, sweep / f"trials/{number:03d}")
    stopped = sweep / "trials/001"
    change(stopped, steps=80)
    line = f"before the end of the training: {stopped} (step 40)"
    ended = command("--mode=evaluate", f"--workdir={sweep}")
    assert f"scored {line}\n" in ended.out + ended.err
    ended = command("--mode=compare", f"--runs={copy},{stopped}", f"--output={tmp_path / 'out'}")
    assert ended.code == 0, ended.err
    assert line in (tmp_path / "out/comparison.md").read_text().replace("\\_", "_")
    # The control: all were trained to their end.
    trial = sweep / "trials/000"
    ended = command("--mode=compare", f"--runs={copy},{trial}", f"--output={tmp_path / 'out'}")
    assert ended.code == 0, ended.err
    assert "before the end" not in (tmp_path / "out/comparison.md").read_text()
