"""A run is resumed in its folder by the same command, by one process at a time, or left alone."""

import errno
import json
import subprocess
import sys
from unittest import mock

import pytest
from run_folders import steps, translate

from places import ROOT
from tiny_run import command, content, refused, unsealed
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.runs.checkpoint import Checkpoints


def test_a_run_of_another_config_is_left_alone_and_the_keys_that_differ_are_named(tiny, copy):
    before = content(copy)
    ended = refused(
        f"--config={tiny.config}",
        f"--workdir={copy}",
        "--config.model.num_heads=4",
        "--config.data.source=reverse",
        "--config.decode.beam_size=2",
        says=(
            "model.num_heads (there 2, here 4)",
            "(there 'copy', here 'reverse')",
            "without a config",
        ),
    )
    assert "beam_size" not in ended.err  # it may differ
    assert content(copy) == before
    refused(
        "--mode=translate",
        f"--workdir={copy}",
        "--config.model.d_model=32",
        says="model.d_model (there 16, here 32)",
    )


def test_a_key_newer_than_the_run_has_its_default(copy):
    path = copy / "config.json"
    saved = unsealed(path)
    del saved["optimizer"]["clip_norm"]
    path.write_text(json.dumps(saved))
    assert workdir.load_config(copy).optimizer.clip_norm == 0.0


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    refuse = mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr("portalocker.portalocker.LOCKER", refuse)
    with pytest.raises(UserError, match=r"No locks available.*use another file system"):
        workdir.locked(tmp_path).__enter__()


HOLD = """
import sys
from pathlib import Path
from transformer.runs import workdir

with workdir.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_folder_has_one_training_at_a_time_and_a_killed_one_leaves_it_free(tiny, copy):
    arguments = [f"--config={tiny.config}", f"--workdir={copy}", "--config.train.steps=41"]
    command_line = [sys.executable, "-c", HOLD, copy]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command_line, cwd=ROOT, text=True, **pipes)
    assert process.stdout.readline() == "locked\n"
    before = content(copy)
    refused(*arguments, says=(f"another process writes to {copy}", "another folder"))
    assert content(copy) == before
    assert translate(copy).code == 0  # reading is free
    process.kill()
    process.communicate()
    ended = command(*arguments)
    assert ended.code == 0
    metric = workdir.load_config(copy).train.best_metric
    with Checkpoints(copy / "checkpoints", best_metric=metric, read_only=True) as checkpoints:
        best = checkpoints.best_step()  # 40 or 41, by rounding
    assert steps(copy) == {40: [20, 40, 41], 41: [40, 41]}[best]  # two up to it, and the newest
