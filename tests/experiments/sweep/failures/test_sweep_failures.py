"""An error of one trial ends that trial alone; one of the machine ends the sweep, losing none."""

import errno

import pytest
from sweep_fakes import Fakes, out_of_memory, study_of, work

from experiments.sweep import worker as sweep_worker
from transformer.errors import RunError, UserError

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (out_of_memory, "out of memory (RESOURCE_EXHAUSTED"),
        (MemoryError, "out of memory (MemoryError)"),
        (lambda: ValueError("no\nsuch thing"), "ValueError: no such thing; see "),
        (lambda: UserError("config.json cannot be read"), "config.json cannot be read"),
        (lambda: RunError("not finite in 50 steps"), "not finite in 50 steps"),
        (
            lambda: NotADirectoryError(errno.ENOTDIR, "Not a directory", "x"),
            "Not a directory: 'x'; see ",
        ),
    ],
)
@pytest.mark.parametrize("how", ["sequential", "vmap"])
def test_an_error_of_one_trial_fails_it_with_its_reason_and_the_others_go_on(
    tmp_path, monkeypatch, how, make, says
):
    fakes = Fakes(monkeypatch, {1: make})
    states, notes, said = work(tmp_path, **{"sweep.parallel": how})
    assert states == ["complete", "failed", "complete", "complete"]
    assert says in notes[1]
    assert "\n" not in notes[1]
    assert any("trial 1 (seed=1) failed: " in line and says in line for line in said)
    assert sorted(fakes.done) == [0, 2, 3]
    file = tmp_path / "errors/001.txt"
    assert file.exists() is ("see" in says)
    assert not file.exists() or "Traceback" in file.read_text()


@pytest.mark.parametrize(
    "make",
    [
        KeyboardInterrupt,
        lambda: sweep_worker.SweepError("the storage cannot be reached"),
        lambda: OSError(errno.ENOSPC, "No space left on device", "x"),
        lambda: OSError(errno.ESTALE, "Stale file handle", "x"),
        lambda: PermissionError(errno.EACCES, "Permission denied", "x"),
        lambda: OSError(errno.ENOLCK, "No locks available"),
        BrokenPipeError,
        lambda: UserError("could not be written (ValueError: No space left on device)"),
    ],
)
def test_what_concerns_all_trials_ends_the_sweep_and_loses_none(tmp_path, monkeypatch, make):
    Fakes(monkeypatch, {1: make})
    with pytest.raises(type(make())):
        work(tmp_path)
    assert list(study_of(tmp_path).states().values()) == [
        "complete",
        "running",
        "waiting",
        "waiting",
    ]


def test_a_disk_that_was_full_under_another_error_concerns_all():
    error = UserError("the checkpoint could not be written")
    assert not sweep_worker.concerns_all(error)
    error.__context__ = OSError(errno.ENOSPC, "No space left on device")
    assert sweep_worker.concerns_all(error)


def test_a_failed_trial_is_tried_again_only_where_that_is_asked_for(tmp_path, monkeypatch):
    Fakes(monkeypatch, {1: out_of_memory})
    assert work(tmp_path)[0][1] == "failed"
    fakes = Fakes(monkeypatch)
    assert work(tmp_path)[0][1] == "failed"
    assert fakes.trained == []
    states, notes, _ = work(tmp_path, **{"sweep.retry_failed": True})
    assert states == ["complete"] * 4
    assert fakes.trained == [[1]]
    assert notes[1] == ""
    assert work(tmp_path, **{"sweep.retry_failed": True})[0] == states
    assert fakes.trained == [[1]]


@pytest.mark.parametrize("damage", ["file", "lock"])
def test_a_folder_that_cannot_be_locked_fails_its_trial_alone(tmp_path, monkeypatch, damage):
    Fakes(monkeypatch)
    (tmp_path / "trials").mkdir()
    if damage == "file":
        (tmp_path / "trials/001").write_text("not a folder")
    else:
        (tmp_path / "trials/001/lock").mkdir(parents=True)
    states, notes, _ = work(tmp_path)
    assert states == ["complete", "failed", "complete", "complete"]
    assert "001" in notes[1]


def test_a_damaged_results_file_of_a_done_trial_does_not_stop_the_others(tmp_path, monkeypatch):
    Fakes(monkeypatch)
    study = study_of(tmp_path)
    trial, attempt = study.take(0)
    study.end(attempt, 1.0, "complete")
    trial.folder.mkdir(parents=True)
    (trial.folder / "results.json").write_text("{")
    worker = sweep_worker.Worker(study)
    worker.print_plan(list(study.trials.values()))
    worker.work()
    assert set(study.states().values()) == {"complete"}
