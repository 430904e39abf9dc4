"""A run that is stopped or killed and started again ends as one that never was, bit for bit."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from configs import quickstart
from places import ROOT
from runs import (
    TOY,
    SpoiltPlan,
    Unigrams,
    identical,
    lines,
    make_trainer,
    newest_state,
    toy_config,
    unigram_config,
)
from tiny_run import unsealed
from transformer.analysis.snapshots import Snapshot
from transformer.runs.checkpoint import RECORD
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


# -- the real command, killed for real

# How often in each phase of a run, and the longest wait within it, in seconds.
KILLS = {
    "training": (9, 0.3),
    "saving": (3, 0.0),
    "evaluation": (9, 0.5),
    "scoring": (5, 1.0),
    "report": (4, 2.0),
}
OVERRIDES = {
    **TOY,
    "data.train_size": 160,
    "data.num_buckets": 2,
    "train.epochs": 4.0,
    "train.best_metric": "loss",
    "train.keep_last": 3,
    "evaluate.average_last_n": 3,
    "evaluate.snapshot_statistics": 4,
    "train.save_minutes": 1e-9,  # after each step
}


def start(folder: Path, cache: Path, log: Path) -> subprocess.Popen:
    flags = {**OVERRIDES, "data.cache_dir": cache}
    return subprocess.Popen(
        [
            sys.executable,
            "launch.py",
            "--config=configs/quickstart.py",
            f"--workdir={folder}",
            *(f"--config.{key}={value}" for key, value in flags.items()),
        ],
        cwd=ROOT,
        stdout=log.open("a"),
        stderr=subprocess.STDOUT,
    )


def reached(folder: Path) -> int:
    """The last step of metrics.jsonl, whose last line may be half written."""
    path = folder / "metrics.jsonl"
    steps = re.findall(r'^{"step": (\d+), .*}$', path.read_text(), re.M) if path.exists() else []
    return int(steps[-1]) if steps else 0


def saving(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("*.orbax-checkpoint-tmp"))


def evaluating(folder: Path, target: int) -> bool:
    begun = (folder / "checkpoints").glob("[0-9]*/evaluation_attempts.json")
    return any(
        int(path.parent.name) >= target and '"scores"' not in (path.parent / RECORD).read_text()
        for path in begun
    )


def in_phase(phase: str, folder: Path, target: int, said: str) -> bool:
    """Whether a command is where it is to be killed.

    Args:
      target: the step that it has to reach before its last one.
      said: by this process.
    """
    return {
        "training": lambda: reached(folder) >= target,
        "saving": lambda: reached(folder) >= target and saving(folder),
        "evaluation": lambda: evaluating(folder, target),
        "scoring": lambda: "training ended" in said or "wrote " in said,
        "report": lambda: re.search(r"steps? [\d, to]+ parameters", said) is not None,
    }[phase]()


def kill_at(process, phase: str, folder: Path, target: int, log: Path, delay: float) -> None:
    """Kills a process in a phase of its run."""
    before = len(log.read_text())
    while not in_phase(phase, folder, target, log.read_text()[before:]):
        assert process.poll() is None, (phase, log.read_text())
        time.sleep(0.001)
    time.sleep(delay)
    process.kill()
    assert process.wait() == -signal.SIGKILL, (phase, log.read_text())


def results(folder: Path) -> dict:
    """results.json without the clock's numbers."""
    found = unsealed(folder / "results.json")
    for split in ("validation", "test"):
        del found[split]["seconds"]
    del found["wall_seconds"], found["tokens_per_second"]
    return found


@pytest.mark.slow
def test_the_command_killed_thirty_times_loses_two_steps_at_most_and_ends_as_the_unbroken_one(
    tmp_path, capsys
):
    whole, broken, cache = tmp_path / "whole", tmp_path / "broken", tmp_path / "cache"
    log = tmp_path / "broken.log"
    assert start(whole, cache, tmp_path / "whole.log").wait() == 0
    total = reached(whole)
    config = quickstart.get_config()
    config.update_from_flattened_dict({**OVERRIDES, "data.cache_dir": str(cache)})
    task = TranslationTask(config)
    epoch = task.plan.epoch_length
    assert total == 4 * epoch

    rng = random.Random(0)
    kills = []
    for order, (phase, (count, delay)) in enumerate(KILLS.items()):
        for _ in range(count):
            at_end = phase in ("scoring", "report")
            kills.append((total if at_end else rng.randrange(1, 3 * epoch), order, phase, delay))
    history = []
    log.touch()
    for target, _, phase, delay in sorted(kills):
        process = start(broken, cache, log)
        kill_at(process, phase, broken, target, log, rng.uniform(0.0, delay))
        history.append((phase, reached(broken), max([0, *map(int, complete(broken))])))
    assert start(broken, cache, log).wait() == 0, log.read_text()

    with capsys.disabled():
        print(f"\n{len(history)} kills in a run of {total} steps ({epoch} an epoch), each as")
        print("(phase, step reached, newest whole checkpoint):")
        print(*(f"({phase}, {a}, {b})" for phase, a, b in history))
    assert len(history) == 30
    # A line is written before its step is saved, and one save is under way meanwhile.
    assert all(saved >= step - 2 for _, step, saved in history)
    assert_same_run(task, config, whole, broken)
    assert [line["step"] for line in lines(broken, "train")] == list(range(1, total + 1))
    assert results(broken) == results(whole)
    for split in ("validation", "test"):
        name = f"translations/{split}.txt"
        assert (broken / name).read_text() == (whole / name).read_text()
    assert (broken / "report.html").exists()
    assert "Traceback" not in log.read_text()
    assert start(broken, cache, log).wait() == 0
    assert f"is finished, {total} steps" in log.read_text()


def complete(folder: Path) -> list[str]:
    return [path.name for path in (folder / "checkpoints").glob("*") if path.name.isdigit()]
