"""A run that is stopped or killed and started again ends as one that never was, bit for bit."""

import os
import signal

import numpy as np
import pytest

from runs import (
    SpoiltPlan,
    Unigrams,
    identical,
    lines,
    make_trainer,
    newest_state,
    toy_config,
    unigram_config,
    without_search,
)
from transformer.analysis.snapshots import Snapshot
from transformer.tasks.translation import TranslationTask
from transformer.training.run import TrainingRun
from variants import full_but


class Snapshots(Unigrams):
    """A task with something to snapshot."""

    def snapshot(self, params):
        scores = np.asarray(params["w"])
        return Snapshot({"scores": scores}, {"mean": float(scores.mean())})


class Killed(BaseException):
    """Ends a run without its leave."""


def stop(i):
    os.kill(os.getpid(), signal.SIGTERM)


def kill(i):
    raise Killed


def run(task, config, folder, end=None, at=-1) -> bool:
    """Runs until it ends, or `end` is called as batch `at` is read; returns whether it ended."""
    folder.mkdir(exist_ok=True)
    plan = task.plan
    task.plan = SpoiltPlan(plan, on_read=lambda i: i == at and end(i))
    try:
        return make_trainer(TrainingRun(task, config, folder)).run()
    except Killed:
        return False
    finally:
        task.plan = plan


def saved_steps(folder) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def snapshots(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "attention_snapshots").iterdir()}


def assert_same_run(task, config, folder, other) -> None:
    assert identical(newest_state(task, config, folder), newest_state(task, config, other))
    assert lines(folder) == lines(other)
    assert snapshots(folder) == snapshots(other)
    assert saved_steps(folder) == saved_steps(other)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    config = unigram_config(**{"train.ema_decay": 0.9, "optimizer.gradient_accumulation_steps": 2})
    assert run(Snapshots(), config, folder)
    return config, folder


@pytest.mark.parametrize("end", [stop, kill])
@pytest.mark.parametrize("places", full_but([(5,), (7, 8, 11)], [(0,), (4,), (5,), (7, 8, 11)]))
def test_a_broken_run_ends_as_the_unbroken_one(end, places, unbroken, tmp_path):
    config, whole = unbroken
    for at in places:
        assert not run(Snapshots(), config, tmp_path, end, at)
    assert run(Snapshots(), config, tmp_path)
    assert_same_run(Snapshots(), config, whole, tmp_path)


def test_a_run_that_goes_on_with_other_batches_ends_otherwise(unbroken, tmp_path):
    config, whole = unbroken
    run(Snapshots(), config, tmp_path, stop, 7)
    task = Snapshots()
    start_at = task.plan.start_at
    task.plan.start_at = lambda i, *others: start_at(0, *others)
    assert run(task, config, tmp_path)
    with pytest.raises(AssertionError):
        assert_same_run(Snapshots(), config, whole, tmp_path)


@pytest.mark.slow
def test_a_translator_with_dropout_stopped_in_its_second_epoch_ends_as_the_unbroken_one(tmp_path):
    # Without batches ahead, the signal that the plan sends comes before the step of its batch.
    changes = {"evaluate.snapshot_statistics": 4, "data.prefetch": 0}
    config = toy_config(tmp_path / "cache", **changes)
    task = TranslationTask(config)
    assert task.plan.epoch_length == 4
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(task, config, whole)
    assert not run(task, config, broken, stop, 4)
    assert saved_steps(broken) == [3, 5]
    assert run(task, config, broken)
    assert_same_run(task, config, whole, broken)
    assert saved_steps(broken) == [3, 6, 8]
    assert sorted(snapshots(broken)) == ["00000003.npz", "00000006.npz", "00000008.npz"]


def test_snapshots_of_steps_that_are_taken_again_go_first(tmp_path):
    config = unigram_config()
    (tmp_path / "attention_snapshots").mkdir()
    assert not run(Snapshots(), config, tmp_path, stop, 7)
    kept = snapshots(tmp_path)
    for name in ("00000009.npz", "00000011.npz", "mine.npz", "9.npz"):
        (tmp_path / "attention_snapshots" / name).write_bytes(b"of a life before")
    assert not run(Snapshots(), config, tmp_path, kill, 8)
    others = dict.fromkeys(("mine.npz", "9.npz"), b"of a life before")
    assert snapshots(tmp_path) == kept | others


@pytest.mark.full
def test_a_guided_run_resumes_to_the_same_bits(tmp_path):
    config = toy_config(tmp_path / "cache", **{
        "train.guided_alignment": 0.5,
        "data.augment_joined": 0.5,
        "optimizer.gradient_accumulation_steps": 2,
        "train.epochs": 1.0,
    })  # fmt: skip
    task = TranslationTask(config)
    with without_search():
        assert run(task, config, tmp_path / "whole")
        assert not run(task, config, tmp_path / "broken", kill, 3)
        assert run(task, config, tmp_path / "broken")
    folders = [tmp_path / name for name in ("whole", "broken")]
    assert identical(*(newest_state(task, config, folder) for folder in folders))
    assert lines(folders[0]) == lines(folders[1])
