"""A run is finished when its newest step is scored and its report is there, and not before."""

import errno
import shutil

import pytest

from experiments.attention import snapshots
from experiments.display import training_curves
from experiments.evaluate import run
from experiments.process import modes
from runs import lines
from tiny_run import command, refused
from transformer.runs.run import Run


def test_a_finished_run_whose_checkpoints_are_gone_is_neither_trained_nor_changed(tiny, copy):
    before, metrics = (copy / "results.json").read_bytes(), lines(copy)
    shutil.rmtree(copy / "checkpoints")
    says = (f"{copy} has results.json but no checkpoints", "delete results.json and weights.json")
    refused(f"--config={tiny.config}", f"--workdir={copy}", says=says)
    assert ((copy / "results.json").read_bytes(), lines(copy)) == (before, metrics)
    for name in ("results.json", "weights.json"):
        (copy / name).unlink()
    Run(copy).refuse_results()  # control


@pytest.mark.full
def test_a_full_disk_ends_the_drawing_and_the_same_command_draws_what_is_scored(
    tiny, copy, monkeypatch
):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "training.png")

    monkeypatch.setattr(modes, "show", lambda *_: None)
    monkeypatch.setattr(snapshots, "draw", lambda _: [])
    monkeypatch.setattr(run, "score", lambda *_: pytest.fail("scored again"))
    (copy / "report.html").unlink()
    arguments = f"--config={tiny.config}", f"--workdir={copy}"
    with monkeypatch.context() as patch:
        patch.setattr(training_curves, "draw", fail)
        refused(*arguments, says="No space left")
    assert not (copy / "report.html").exists()
    assert (copy / "results.json").exists()
    assert "is finished" not in command(*arguments).out
    assert (copy / "report.html").exists()
