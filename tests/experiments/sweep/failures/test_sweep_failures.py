"""An error of one trial ends that trial alone; one of the machine ends the sweep, losing none."""

import contextlib
import errno
import os

import jax
import pytest
from sweep_fakes import Fakes, out_of_memory, study_of, work

from experiments.sweep import study as sweep_study
from experiments.sweep import worker as sweep_worker
from experiments.sweep.study import Study, SweepError
from transformer.errors import RunError, UserError

pytestmark = pytest.mark.full
TOGETHER = {"sweep.parallel": "vmap"}
PATHS = [{"data.path": f"text_{number}"} for number in range(4)]


def is_free(study, number):
    """Whether no worker has a trial."""
    return number in [free for free, _ in study.free()]


@pytest.mark.parametrize(
    ("make", "says", "how"),
    [
        (out_of_memory, "the memory is too small: lower --config.data.batch_tokens", "vmap"),
        (lambda: ValueError("no\nsuch thing"), "ValueError: no such thing", "sequential"),
        (lambda: RunError("not finite in 50 steps"), "not finite in 50 steps", "sequential"),
    ],
)
def test_an_error_of_one_trial_fails_it_with_its_reason_and_the_others_go_on(
    tmp_path, monkeypatch, how, make, says
):
    fakes = Fakes(monkeypatch, {1: make})
    states, notes, log = work(tmp_path, **{"sweep.parallel": how})
    assert states == ["complete", "failed", "complete", "complete"]
    assert says in notes[1]
    assert "\n" not in notes[1]
    assert any("trial 1 (seed=1) failed: " in line and says in line for line in log)
    assert any("Traceback" in line for line in log) == ("ValueError" in says)
    assert sorted(fakes.done) == [0, 2, 3]


def refused_checkpoint(number):
    error = UserError("the checkpoint could not be written")
    error.__cause__ = OSError(number, os.strerror(number))
    error.__context__ = ValueError(f"RESOURCE_EXHAUSTED: [os_error_code='{number}']")
    return error


@pytest.mark.parametrize(
    "make",
    [
        KeyboardInterrupt,
        lambda: SweepError("the storage cannot be reached"),
        lambda: refused_checkpoint(errno.ENOSPC),
    ],
)
def test_what_concerns_all_trials_ends_the_sweep_and_loses_none(tmp_path, monkeypatch, make):
    Fakes(monkeypatch, {1: make})
    with pytest.raises(type(make())):
        work(tmp_path)
    study = study_of(tmp_path)
    assert list(study.states().values()) == ["complete", "running", "waiting", "waiting"]
    assert is_free(study, 1)  # at once


# -- groups


def test_a_group_is_halved_until_the_trial_that_fails_is_known(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, {1: lambda: ValueError("x")})
    states, _, _ = work(tmp_path, 8, **{**TOGETHER, "sweep.max_vmapped_runs": 4})
    assert states == ["complete", "failed", *["complete"] * 6]
    assert fakes.trained == [[0, 1, 2, 3], [4, 5], [6, 7], [0, 1], [0], [1], [2], [3]]


def test_a_group_whose_trials_resume_from_different_steps_is_divided_by_step(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)
    train, folder = fakes._run, study_of(tmp_path, **TOGETHER).trial(1).folder

    def run(configs):
        if len(configs) < 4:
            return train(configs)
        # As if the newest checkpoints of the others were damaged, and have been moved away.
        (folder / "checkpoints" / "3").mkdir(parents=True)
        raise UserError("4 runs cannot train together from the steps 0, 3")

    fakes._run = run
    assert work(tmp_path, **TOGETHER)[0] == ["complete"] * 4
    assert fakes.trained == [[0, 2], [1], [3]]


def test_trials_of_a_group_that_are_done_are_not_trained_again_after_an_error(
    tmp_path, monkeypatch
):
    fakes = Fakes(monkeypatch)
    score = fakes._score

    def failing(worker, trial, attempt, task):
        if trial.number == 2 and 2 not in fakes.done:
            fakes.done.append(2)
            raise out_of_memory()
        score(worker, trial, attempt, task)

    monkeypatch.setattr(sweep_worker.Worker, "_score", failing)
    assert work(tmp_path, **TOGETHER)[0] == ["complete"] * 4
    assert fakes.trained == [[0, 1, 2, 3], [2], [3]]


# -- workers


def broken_device():
    return jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS")


def test_a_worker_whose_trials_all_fail_stops_and_leaves_the_rest_to_others(tmp_path, monkeypatch):
    Fakes(monkeypatch, dict.fromkeys(range(6), broken_device))
    with pytest.raises(SweepError) as stopped:
        work(tmp_path, 6)
    line = str(stopped.value)
    assert line.startswith("3 trials in a row failed unexpectedly, the last trial 2 (seed=2) (")
    assert "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS" in line
    assert "retry_failed=True" in line
    assert list(study_of(tmp_path, 6).states().values()).count("failed") == 2
    # A worker of another machine.
    fakes = Fakes(monkeypatch)
    states, _, _ = work(tmp_path, 6)
    assert states == ["failed", "failed", *["complete"] * 4]
    assert sorted(fakes.done) == [2, 3, 4, 5]


def test_failures_that_are_not_in_a_row_or_not_unexpected_stop_no_worker(tmp_path, monkeypatch):
    errors = dict.fromkeys([0, 1, 3, 4], broken_device) | dict.fromkeys([5, 6, 7], out_of_memory)
    Fakes(monkeypatch, errors)
    assert "".join(state[0] for state in work(tmp_path, 9)[0]) == "ffcfffffc"


def test_a_trial_that_kills_its_worker_comes_last(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    monkeypatch.setattr(sweep_study, "LEASE", 0.0)
    monkeypatch.setattr(Study, "let_go", lambda *_: None)  # who is killed lets nothing go

    def start():
        """A worker that dies of trial 0, as by the system; what it trained."""
        fakes = Fakes(monkeypatch, {0: Killed})
        with contextlib.suppress(Killed):
            work(tmp_path, 3)
        return fakes.trained

    assert start() == [[0]]
    assert start() == [[1], [2], [0]]
    assert list(study_of(tmp_path, 3).states().values()) == ["running", "complete", "complete"]


# -- texts


def test_a_text_of_one_trial_that_cannot_be_read_fails_that_trial(tmp_path, monkeypatch):
    Fakes(monkeypatch, missing=[1, 3])
    study = study_of(tmp_path, trials=PATHS)
    sweep_worker.Worker(study).work()
    assert list(study.states().values()) == ["complete", "failed", "complete", "failed"]
    assert study.notes()[1] == "train.en is not a file"


def test_a_text_of_all_trials_that_cannot_be_read_ends_the_sweep(tmp_path, monkeypatch):
    Fakes(monkeypatch, missing=range(4))
    with pytest.raises(SweepError, match=r"train\.en is not a file"):
        work(tmp_path)
    assert list(study_of(tmp_path).states().values()) == ["running", *["waiting"] * 3]
