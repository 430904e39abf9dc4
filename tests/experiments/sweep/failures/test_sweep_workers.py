"""A worker that ends leaves its trials to others; one whose trials all fail stops."""

import contextlib
import errno

import jax
import pytest
from sweep_fakes import Fakes, out_of_memory, study_of, together, work

from experiments.sweep import study as sweep_study
from experiments.sweep import worker as sweep_worker
from experiments.sweep.study import MAX_KILLS
from transformer.errors import RunError, UserError


def killed(study, number):
    """How often workers took a running trial at its step, as if the system had killed them."""
    return sweep_study._lease(study._newest()[number]).kills


def test_a_worker_that_ends_by_an_error_is_not_taken_for_one_that_was_killed(tmp_path, monkeypatch):
    Fakes(monkeypatch, {0: lambda: OSError(errno.ENOSPC, "No space left on device")})
    for _ in range(MAX_KILLS + 1):
        with pytest.raises(OSError, match="No space left"):
            work(tmp_path, 1)
        assert killed(study_of(tmp_path, 1), 0) == 0


def test_a_signal_leaves_the_trials_that_have_ended_as_they_are(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, most=2)
    trainer = fakes._trainer

    def stopped(runs, **more):
        made = trainer(runs, **more)
        if [run.config.seed for run in runs] == [2, 3]:
            made.run, made.stop_signal = lambda: False, 15
        return made

    monkeypatch.setattr(sweep_worker, "Trainer", stopped)
    study = study_of(tmp_path, **together())
    assert sweep_worker.Worker(study).work() == 15
    assert list(study.states().values()) == ["complete", "complete", "running", "running"]
    assert [killed(study, number) for number in (2, 3)] == [0, 0]


def broken_device():
    return jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS")


@pytest.mark.parametrize("how", ["sequential", "vmap"])
def test_a_worker_whose_trials_all_fail_stops_and_leaves_the_rest_to_others(
    tmp_path, monkeypatch, how
):
    changes = {"sweep.parallel": how}
    Fakes(monkeypatch, dict.fromkeys(range(6), broken_device))
    with pytest.raises(sweep_worker.SweepError) as stopped:
        work(tmp_path, 6, **changes)
    line = str(stopped.value)
    assert line.startswith("3 trials in a row failed unexpectedly, the last trial 2 (seed=2) (")
    assert "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS; see " in line
    assert "retry_failed=True" in line
    assert "\n" not in line
    assert list(study_of(tmp_path, 6).states().values()).count("failed") == 2
    # A worker of another machine.
    fakes = Fakes(monkeypatch)
    states, _, _ = work(tmp_path, 6, **changes)
    assert states == ["failed", "failed", *["complete"] * 4]
    assert sorted(fakes.done) == [2, 3, 4, 5]
    states, _, _ = work(tmp_path, 6, **changes, **{"sweep.retry_failed": True})
    assert states == ["complete"] * 6


@pytest.mark.parametrize("how", ["sequential", "vmap"])
def test_a_success_between_failures_starts_their_count_again(tmp_path, monkeypatch, how):
    Fakes(monkeypatch, dict.fromkeys([0, 1, 3, 4], broken_device))
    states, _, _ = work(tmp_path, 6, **{"sweep.parallel": how})
    assert states == ["failed", "failed", "complete", "failed", "failed", "complete"]


@pytest.mark.parametrize("make", [out_of_memory, lambda: UserError("x"), lambda: RunError("x")])
def test_trials_that_fail_by_themselves_do_not_stop_a_worker(tmp_path, monkeypatch, make):
    Fakes(monkeypatch, dict.fromkeys(range(5), make))
    states, _, _ = work(tmp_path, 6)
    assert states == ["failed"] * 5 + ["complete"]


def test_a_trial_that_kills_its_worker_comes_last_and_fails_at_last(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    monkeypatch.setattr(sweep_study, "LEASE", 0.0)

    def start():
        """A worker that dies of trial 0, as by the system; what it trained."""
        fakes = Fakes(monkeypatch, {0: Killed})
        with contextlib.suppress(Killed):
            work(tmp_path, 3)
        return fakes.trained

    assert start() == [[0]]
    assert start() == [[0]]
    assert start() == [[1], [2], [0]]
    for _ in range(MAX_KILLS - 3):
        assert start() == [[0]]
    assert start() == []
    assert list(study_of(tmp_path, 3).states().values()) == ["failed", "complete", "complete"]
    assert (
        study_of(tmp_path, 3).notes()[0] == f"its worker was killed {MAX_KILLS} times at one step"
    )


def test_kills_between_which_a_trial_gets_on_do_not_fail_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_study, "LEASE", 0.0)
    study = study_of(tmp_path, 1)
    for step in range(3 * MAX_KILLS):
        trial, attempt = study.take(0)
        assert killed(study, 0) == 1
        (trial.folder / f"checkpoints/{step + 1}").mkdir(parents=True)
    study.take(0)  # the control: it got no further
    _, attempt = study.take(0)
    assert killed(study, 0) == 2
    study.let_go(attempt)
    assert killed(study, 0) == 0
