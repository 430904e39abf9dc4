"""A run is finished when its newest step is scored and its report is there, and not before."""

import errno
import shutil

import pytest

from experiments.attention import snapshot_figures
from experiments.display import training_curves
from experiments.evaluate import run
from experiments.process import modes
from runs import lines
from tiny_run import command, unsealed, without_pictures
from transformer.runs.run import Run
from transformer.training.placement import SingleRun

RAISED = 48


class Killed(BaseException):
    """Ends a command without its leave."""


def results(folder) -> dict:
    """results.json without the clock's numbers."""
    found = unsealed(folder / "results.json")
    for split in ("validation", "test"):
        del found[split]["seconds"]
    del found["wall_seconds"], found["tokens_per_second"]
    return found


def train(tiny, folder, *flags):
    return command(f"--config={tiny.config}", f"--workdir={folder}", *flags)


def broken_off(monkeypatch, owner, name, *command_of_run, error=None):
    """Runs a command, which ends where it calls `owner.name`."""

    def end(*args, **kwargs):
        raise error or Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, end)
        if error:
            return train(*command_of_run)
        with pytest.raises(Killed):
            train(*command_of_run)


def test_a_finished_run_whose_checkpoints_are_gone_is_neither_trained_nor_changed(tiny, copy):
    before, metrics = results(copy), lines(copy)
    shutil.rmtree(copy / "checkpoints")
    ended = train(tiny, copy)
    assert ended.code == 2
    assert f"{copy} has results.json but no checkpoints" in ended.err
    assert "delete results.json and weights.json there" in ended.err
    assert ended.err.count("\n") == 1
    assert (results(copy), lines(copy)) == (before, metrics)
    for name in ("results.json", "weights.json"):
        (copy / name).unlink()
    Run(copy).refuse_results()  # control


def test_what_is_scored_is_not_scored_again_for_the_sake_of_the_report(tiny, copy, monkeypatch):
    before = (copy / "results.json").read_bytes()
    (copy / "report.html").unlink()
    monkeypatch.setattr(run, "score", lambda *_: pytest.fail("scored"))
    with without_pictures():
        ended = train(tiny, copy)
    assert ended.code == 0
    assert "is finished" not in ended.out
    assert (copy / "report.html").exists()
    assert (copy / "results.json").read_bytes() == before


@pytest.mark.slow
def test_a_run_whose_last_evaluation_had_failed_is_scored_again_with_it(tiny, copy, monkeypatch):
    flags = f"--config.train.steps={RAISED}", "--config.evaluate.checkpoint=best"

    def fail(*_):
        raise RuntimeError("no room")

    chosen = []
    for scores in (fail, lambda *_: [{"loss": 0.0}]):
        monkeypatch.setattr(SingleRun, "evaluate", scores)
        assert train(tiny, copy, *flags).code == 0
        chosen += results(copy)["averaged_steps"]
    assert chosen[0] <= 40
    assert chosen[1:] == [RAISED]


@pytest.fixture
def one_picture(monkeypatch):
    """Of a run's pictures, that of its training alone; of its texts none."""
    monkeypatch.setattr(modes, "show", lambda *_: None)
    monkeypatch.setattr(snapshot_figures, "draw", lambda _: [])


def test_a_full_disk_ends_the_drawing_and_the_same_command_goes_on(
    tiny, copy, one_picture, monkeypatch
):
    (copy / "report.html").unlink()
    error = OSError(errno.ENOSPC, "No space left on device", "training.png")
    ended = broken_off(monkeypatch, training_curves, "draw", tiny, copy, error=error)
    assert ended.code == 2
    assert "No space left" in ended.err
    assert not (copy / "report.html").exists()
    assert (copy / "results.json").exists()
    assert "is finished" not in train(tiny, copy).out
    assert (copy / "report.html").exists()
