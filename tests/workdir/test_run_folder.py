"""A run goes on by its folder's name alone, remembers what is set, and opens by any path."""

import contextlib
import os
from pathlib import Path

import pytest

from configs import base
from runs import without_search
from tiny_run import STEPS, command, refused, without_pictures
from transformer import workdir
from transformer.errors import UserError
from transformer.keys import assign, flatten

# -- going on by --workdir alone


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
    says = ("model.num_heads (there 2, here 4)", "name this one alone, without a config")
    refused(f"--config={tiny.config}", *longer, "--config.model.num_heads=4", says=says)


def test_the_folder_may_be_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    refused("--workdir=~/runs/x", "--mode=report", says=str(tmp_path / "runs/x"))


def test_a_finished_run_forgets_what_was_set_to_no_effect(copy, tmp_path):
    before = (copy / "config.json").read_bytes()
    beam = "--config.decode.beam_size=2"
    ended = command(f"--workdir={copy}", beam, f"--config.data.cache_dir={tmp_path / 'cache'}")
    assert "is finished" in ended.out
    assert (copy / "config.json").read_bytes() == before


def test_a_folder_without_a_run_cannot_go_on(tmp_path):
    says = ("--config is missing", f"{tmp_path} has none")
    refused(f"--workdir={tmp_path}", says=says)


FREE = """name data.path data.fetch data.cache_dir data.prefetch data.tfds_dir train.steps
train.epochs train.minutes train.log_every train.evaluate_every train.save_minutes train.keep_last
train.patience train.max_nonfinite_steps"""


def test_what_a_started_run_may_change_changes_neither_model_nor_order_nor_optimizer(tmp_path):
    workdir.claim(tmp_path, base.get_config())
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
            workdir.check_same_run(tmp_path, config, training=True)
            allowed.append(key)
    groups = ("decode.", "evaluate.", "sweep.")
    free = {key for key in allowed if not key.startswith(groups)}
    assert free == {*FREE.split()} & {*flatten(base.get_config())}
    assert {key.split(".")[0] for key in allowed} >= {"decode", "evaluate", "sweep"}


@pytest.mark.parametrize(
    ("key", "value", "difference"),
    [
        ("model.attention_implementation", "chunked", "there 'plain', here 'chunked'"),
        ("model.matmul_dtype", "bfloat16", "there '', here 'bfloat16'"),
    ],
)
def test_a_run_is_used_but_not_trained_on_if_it_is_computed_otherwise(
    tmp_path, key, value, difference
):
    workdir.claim(tmp_path, base.get_config())
    config = base.get_config()
    assign(config, key, value)
    workdir.check_same_run(tmp_path, config)
    with pytest.raises(UserError, match=difference):
        workdir.check_same_run(tmp_path, config, training=True)


# -- paths and what is left over


def test_a_relative_path_opens_a_run(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    folder = Path(copy.name)
    used = workdir.load_trained(folder, workdir.load_config(folder)).steps
    assert used == [STEPS]
    with pytest.raises(UserError, match=r"there is no folder .*/nowhere"):
        workdir.load_trained(Path("nowhere"), workdir.load_config(folder))


def test_what_dead_processes_left_half_written_goes_when_training_starts(copy):
    dead, alive = (copy / f"results.json.{n}.partial" for n in (2**22 + 1, os.getppid()))
    mine = copy / "translations" / "partial"
    for path in (dead, alive, mine):
        path.touch()
    workdir.claim(copy, workdir.load_config(copy))
    assert [path.exists() for path in (dead, alive, mine)] == [False, True, True]


def test_evaluate_refuses_a_language_that_moses_does_not_know(copy):
    arguments = "--mode=evaluate", f"--workdir={copy}", "--config.evaluate.moses=xx"
    refused(*arguments, says=("config.evaluate.moses='xx' is unknown", "de,"))
