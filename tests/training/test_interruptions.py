"""A state is saved before it is scored, and by the clock: what comes then costs nothing."""

import itertools
import os
import signal
import threading
import time
import types
from concurrent.futures import Future

import pytest
from test_resume import Killed, Snapshots, assert_same_run, saved_steps

from runs import lines, make_trainer, unigram_config
from transformer import signals
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun


class Failing(Snapshots):
    """A task during one of whose evaluations, or snapshots, the process is killed."""

    def __init__(self, what: str, place: int, **options):
        super().__init__(**options)
        self.what, self.place, self.calls = what, place, 0

    def evaluate(self, params, split, final):
        return self.fail("evaluate") or super().evaluate(params, split, final)

    def snapshot(self, params):
        return self.fail("snapshot") or super().snapshot(params)

    def fail(self, what):
        if what == self.what:
            self.calls += 1
            if self.calls - 1 == self.place:
                raise Killed


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run that writes a line every third step, and one of whose steps is not finite."""
    folder = tmp_path_factory.mktemp("unbroken")
    config = unigram_config(
        **{"train.log_every": 3, "train.ema_decay": 0.9, "optimizer.gradient_accumulation_steps": 2}
    )
    assert Trainer([TrainingRun(Snapshots(bad=[6]), config, folder)]).run()
    return config, folder


def ended(task, config, folder) -> bool:
    """Whether a run came to its end, and was not killed."""
    folder.mkdir(exist_ok=True)
    try:
        return make_trainer(TrainingRun(task, config, folder)).run()
    except Killed:
        return False


def scored(folder) -> list[int]:
    return [line["step"] for line in lines(folder, "validation")]


# -- evaluations that do not come to their end


@pytest.mark.parametrize("place", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
@pytest.mark.parametrize("what", ["evaluate", "snapshot"])
def test_a_run_killed_in_an_evaluation_has_that_step_and_scores_it_first(
    what, place, unbroken, tmp_path
):
    config, whole = unbroken
    assert not ended(Failing(what, place, bad=[6]), config, tmp_path)
    assert saved_steps(tmp_path)[-1] == [5, 10, 12][place]
    assert scored(tmp_path) == [5, 10, 12][:place]
    assert ended(Snapshots(bad=[6]), config, tmp_path)
    assert_same_run(Snapshots(), config, whole, tmp_path)


# -- saves by the clock


def test_the_clock_saves_after_so_many_minutes_of_steps_and_not_at_all_where_it_is_off(
    tmp_path, monkeypatch
):
    saves = []
    save = TrainingRun.save
    monkeypatch.setattr(
        TrainingRun, "save", lambda self, step, *a: saves.append(step) or save(self, step, *a)
    )
    seconds = map(float, itertools.count())
    # Not of the module `time` itself, by which servers of other tests wait.
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("transformer.training.loop.time", clock)
    for minutes in (0.0, 3.5 / 60):
        config = unigram_config(**{"train.save_minutes": minutes, "train.evaluate_every": 99})
        assert ended(Snapshots(), config, tmp_path / str(minutes))
        saves.append(None)
    never, some = saves[: saves.index(None)], saves[saves.index(None) + 1 : -1]
    assert never == [12]
    assert some == sorted(some)
    assert len(some) >= 3
    assert some[-1] == 12


# -- signals


def test_a_signal_in_an_evaluation_is_obeyed_at_once_and_the_evaluation_done_again(
    unbroken, tmp_path, said, capsys
):
    config, whole = unbroken
    release = threading.Event()

    class Long(Snapshots):
        def evaluate(self, params, split, final):
            os.kill(os.getpid(), signal.SIGINT)
            release.wait(60)
            return super().evaluate(params, split, final)

    start, handlers = time.monotonic(), list(map(signal.getsignal, signals.SIGNALS))
    assert not ended(Long(bad=[6]), config, tmp_path)
    assert time.monotonic() - start < 20
    assert list(map(signal.getsignal, signals.SIGNALS)) == handlers
    release.set()
    assert "SIGINT: saving, then stopping; repeat it to stop at once" in capsys.readouterr().err
    assert said[-1] == "SIGINT: saved step 5; start the same command again to resume"
    assert saved_steps(tmp_path) == [5]
    assert scored(tmp_path) == []
    assert ended(Snapshots(bad=[6]), config, tmp_path)
    assert_same_run(Snapshots(), config, whole, tmp_path)


def test_a_signal_while_a_step_compiles_saves_the_state_before_it(
    unbroken, tmp_path, said, monkeypatch
):
    config, whole = unbroken
    numbers, never = itertools.count(), Future()
    trainer = Trainer([TrainingRun(Snapshots(bad=[6]), config, tmp_path)])
    prepare = trainer.train_step.prepare

    def prepare_slowly(batch, arguments):
        if next(numbers) != 7:
            return prepare(batch, arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        return never

    monkeypatch.setattr(trainer.train_step, "prepare", prepare_slowly)
    assert not trainer.run()
    never.set_result(None)
    assert said[-1] == "SIGTERM: saved step 7; start the same command again to resume"
    assert saved_steps(tmp_path) == [5, 7]
    assert ended(Snapshots(bad=[6]), config, tmp_path)
    assert_same_run(Snapshots(), config, whole, tmp_path)


# -- why it ended


def test_one_line_says_why_the_training_ended(tmp_path, said):
    task = Snapshots([{"loss": loss} for loss in (0.5, 2.0)])
    assert ended(task, unigram_config(**{"train.patience": 1}), tmp_path)
    [found] = [each for each in said if each.startswith("training ended")]
    why = "train.patience=1 evaluations without a better one; best loss 0.5 at step 5"
    assert found == f"training ended at step 10: {why}"
    assert said[-1] == found
