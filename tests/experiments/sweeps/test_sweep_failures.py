"""An error of one trial ends that trial alone; one of the machine ends the sweep, losing none."""

import contextlib
import errno
import gc
import weakref
from types import SimpleNamespace

import jax
import pytest

from configs import quickstart
from experiments.sweeps import errors as sweep_errors
from experiments.sweeps import worker as sweep_worker
from experiments.sweeps.plan import plan_trials
from experiments.sweeps.queue import MAX_KILLS
from experiments.sweeps.study import Study
from log_lines import heard
from tiny_run import command
from tiny_sweep import rows, write_config
from transformer.errors import RunError, UserError
from transformer.run import Run

FULL_MEMORY = "RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."


def out_of_memory():
    return jax.errors.JaxRuntimeError(FULL_MEMORY)


@pytest.fixture(autouse=True)
def no_luck():
    """Objects in a cycle stay, unless the code itself has them looked for.

    It then looks at those of the test alone: of the tests before there are millions.
    """
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


class Fakes:
    """Trainers that fail as told, and count.

    Args:
      errors: what training raises, by seed; each is made when it is raised.
      most: runs that fit into memory.
    """

    def __init__(self, monkeypatch, errors=None, most=99):
        self.errors, self.most = errors or {}, most
        self.trained, self.done, self.closed = [], [], 0
        self._made_before, self._failed = [], []
        # What the tests before have compiled is of use to those that come.
        monkeypatch.setattr(jax, "clear_caches", lambda: None)
        monkeypatch.setattr(sweep_worker, "Run", self._one)
        monkeypatch.setattr(sweep_worker, "Trainer", self._trainer)
        monkeypatch.setattr(sweep_worker, "_prepare_one", self.prepare)
        monkeypatch.setattr(
            sweep_worker.Worker, "_make_tasks", lambda worker, trials: [None] * len(trials)
        )
        monkeypatch.setattr(sweep_worker.Worker, "_score", lambda *told: self._score(*told))

    def _score(self, worker, trial, attempt, task):
        self.done.append(trial.number)
        worker.study.end(attempt, 1.0, "complete")

    def prepare(self, trial, member):
        """What is done with a folder before the training."""

    def _close(self):
        self.closed += 1

    def _run(self, configs):
        self.trained.append([config.seed for config in configs])
        for config in configs:
            if config.seed in self.errors:
                self._failed = self._made_before
                raise self.errors[config.seed]()
        if len(configs) > self.most:
            self._failed = self._made_before
            raise out_of_memory()
        return True

    def _made(self, configs, **more):
        # After an error, what came before must be gone.
        assert [ref for ref in self._failed if ref() is not None] == []
        self._failed = []
        made = _Program(run=lambda: self._run(configs), stop_signal=None, **more)
        self._made_before.append(weakref.ref(made))
        return made

    def _one(self, task, config, folder):
        made = Run.__new__(Run)  # without checkpoints and an optimizer
        made.config, made.close, made.total_steps = config, self._close, 1
        return made

    def _trainer(self, runs, **more):
        configs = [run.config for run in runs]
        return self._made(configs, runs=runs, failures={}, train_step=None)


class _Program(SimpleNamespace):
    pass


def study_of(folder, count=4, **changes) -> Study:
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    trials = plan_trials(config, [{"seed": seed} for seed in range(count)], folder)
    return Study(config, trials, None, folder)


def work(folder, count=4, **changes):
    """Trains a sweep of seeds; returns its states, the reasons and what was said."""
    study = study_of(folder, count, **changes)
    with heard() as said:
        sweep_worker.Worker(study, folder).work()
    return [study.states()[n] for n in range(count)], study.notes(), said


def together(**changes):
    return {"sweep.parallel": "vmap", **changes}


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


def test_a_group_that_does_not_fit_is_halved_until_it_does(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, most=2)
    states, _, said = work(tmp_path, 6, **together())
    assert states == ["complete"] * 6
    assert [len(seeds) for seeds in fakes.trained] == [6, 3, 2, 1, 3, 2, 1]
    assert any("0, 1, 2 and 3, 4, 5 separately, from their checkpoints" in line for line in said)


def test_a_group_whose_trials_go_on_from_different_steps_is_divided_by_step(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)
    train, folder = fakes._run, study_of(tmp_path, **together()).trial(1).folder

    def run(configs):
        if len(configs) < 4:
            return train(configs)
        # As where the newest checkpoints of the others are damaged, and have been moved away.
        (folder / "checkpoints" / "3").mkdir(parents=True)
        raise UserError("4 runs cannot train together from the steps 0, 3")

    fakes._run = run
    states, _, said = work(tmp_path, **together())
    assert states == ["complete"] * 4
    assert fakes.trained == [[0, 2, 3], [1]]
    assert any("from the steps 0, 3: training 0, 2, 3 and 1 separately" in line for line in said)


def test_what_did_not_fit_once_is_not_tried_again_at_that_size(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch, most=2)
    work(tmp_path, 12, **together(**{"sweep.max_vmapped_runs": 4}))
    assert [len(seeds) for seeds in fakes.trained] == [4, 2, 2, 2, 2, 2, 2]


def test_a_trial_that_does_not_fit_alone_is_tried_once_more_in_empty_memory(tmp_path, monkeypatch):
    fakes, left = Fakes(monkeypatch), [out_of_memory]
    once = fakes._run

    def run(configs):
        if left and configs[0].seed == 1:
            raise left.pop()()
        return once(configs)

    fakes._run = run
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    states, _, _ = work(tmp_path, 2)
    assert states == ["complete", "complete"]
    assert cleared == [1]


def test_members_that_are_done_are_not_trained_again_after_an_error(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)
    score = fakes._score

    def failing(worker, trial, attempt, task):
        if trial.number == 2 and 2 not in fakes.done:
            fakes.done.append(2)
            raise out_of_memory()
        score(worker, trial, attempt, task)

    monkeypatch.setattr(sweep_worker.Worker, "_score", failing)
    states, _, _ = work(tmp_path, **together())
    assert states == ["complete"] * 4
    assert fakes.trained == [[0, 1, 2, 3], [2], [3]]


def test_members_are_closed_where_a_folder_is_damaged(tmp_path, monkeypatch):
    fakes = Fakes(monkeypatch)

    def damaged(trial, run):
        if trial.number == 1:
            raise UserError("config.json cannot be read")

    monkeypatch.setattr(sweep_worker, "_prepare_one", damaged)
    states, _, _ = work(tmp_path, **together())
    assert states == ["complete", "failed", "complete", "complete"]
    assert fakes.closed == 4 + 2 + 1  # the group, its half, and the one


@pytest.mark.parametrize(
    "make",
    [
        KeyboardInterrupt,
        lambda: sweep_errors.SweepError("the storage cannot be reached"),
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


def killed(study, number):
    """How often workers took a running trial at its step, as if the system had killed them."""
    return study.tries(study.begun()[number], 0)


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
    assert sweep_worker.Worker(study, tmp_path).work() == 15
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
    with pytest.raises(sweep_errors.SweepError) as stopped:
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


def work_on_texts(folder, monkeypatch, trials, missing, **changes):
    """Trains trials of which some read a text that is not there; their states and reasons."""
    Fakes(monkeypatch)

    def make(worker, group):
        if group[0].number in missing:
            raise UserError("there is no file train.en")
        return [None] * len(group)

    monkeypatch.setattr(sweep_worker.Worker, "_make_tasks", make)
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    study = Study(config, plan_trials(config, trials, folder), None, folder)
    try:
        sweep_worker.Worker(study, folder).work()
    finally:
        states = [study.states()[number] for number in range(len(trials))]
    return states, study.notes()


PATHS = [{"data.path": f"text_{number}"} for number in range(4)]


@pytest.mark.parametrize("how", ["sequential", "vmap"])
def test_a_text_of_one_trial_that_cannot_be_read_fails_that_trial(tmp_path, monkeypatch, how):
    changes = {"sweep.parallel": how}
    states, notes = work_on_texts(tmp_path, monkeypatch, PATHS, [1, 3], **changes)
    assert states == ["complete", "failed", "complete", "failed"]
    assert notes[1] == "there is no file train.en"


def test_a_text_of_all_trials_that_cannot_be_read_ends_the_sweep(tmp_path, monkeypatch):
    seeds = [{"seed": seed} for seed in range(4)]
    with pytest.raises(sweep_errors.SweepError, match=r"there is no file train\.en"):
        work_on_texts(tmp_path, monkeypatch, seeds, range(4))
    states = Study(quickstart.get_config(), None, None, tmp_path).states()
    assert list(states.values()) == ["running", *["waiting"] * 3]


def test_texts_of_trials_that_cannot_be_read_one_after_another_end_the_sweep(tmp_path, monkeypatch):
    with pytest.raises(sweep_errors.SweepError, match=r"3 trials in a row .*no file.*stays open"):
        work_on_texts(tmp_path, monkeypatch, PATHS, range(4))
    states = Study(quickstart.get_config(), None, None, tmp_path).states()
    assert list(states.values()) == ["failed", "failed", "running", "waiting"]


def test_a_disk_that_was_full_under_another_error_concerns_all():
    error = UserError("the checkpoint could not be written")
    assert not sweep_errors.concerns_all(error)
    error.__context__ = OSError(errno.ENOSPC, "No space left on device")
    assert sweep_errors.concerns_all(error)


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


def test_a_trial_that_kills_its_worker_comes_last_and_fails_at_last(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

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
    study = study_of(tmp_path, 1)
    _, attempt = study.begin()
    for step in range(3 * MAX_KILLS):
        assert study.tries(attempt, step) == 0
        study.count_try(attempt, step)
        assert study.tries(attempt, step) == 1
    study.forget_tries(attempt)
    assert study.tries(attempt, step) == 0


def test_a_damaged_results_file_of_a_done_trial_does_not_stop_the_others(tmp_path, monkeypatch):
    Fakes(monkeypatch)
    study = study_of(tmp_path)
    trial, attempt = study.begin()
    study.end(attempt, 1.0, "complete")
    trial.folder.mkdir(parents=True)
    (trial.folder / "results.json").write_text("{")
    worker = sweep_worker.Worker(study, tmp_path)
    worker.print_plan(list(study.trials.values()))
    worker.work()
    assert set(study.states().values()) == {"complete"}


@pytest.mark.slow
def test_a_sweep_in_which_a_group_and_then_a_trial_run_out_of_memory_has_its_answer(
    tmp_path, monkeypatch
):
    """With real programs: what is halved has the scores of what was not."""
    config = write_config(tmp_path, count=3)
    flags = f"--config={config}", "--config.sweep.parallel=vmap"
    assert command(*flags, f"--workdir={tmp_path / 'whole'}").code == 0
    run, runs = sweep_worker.Trainer.run, []

    def fails_at_first(trainer):
        if len(trainer.runs) == 1:
            return run(trainer)
        runs.append(len(trainer.runs))
        if len(trainer.runs) > 2:
            raise out_of_memory()
        return run(trainer)

    monkeypatch.setattr(sweep_worker.Trainer, "run", fails_at_first)
    ended = command(*flags, f"--workdir={tmp_path / 'halved'}")
    assert ended.code == 0, ended.err
    assert runs == [3, 2]
    whole, halved = rows(tmp_path / "whole"), rows(tmp_path / "halved")
    assert [row["state"] for row in halved] == ["complete"] * 3
    for ours, theirs in zip(halved, whole, strict=True):
        assert float(ours["test_loss"]) == pytest.approx(float(theirs["test_loss"]), rel=1e-4)
