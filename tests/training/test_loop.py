"""The loop: what it counts, logs and saves, and when a run ends."""

import types

import numpy as np
import pytest
from test_resume import saved_steps

from runs import Unigrams, identical, lines, make_trainer, newest_state, unigram_config
from transformer.errors import UserError
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.run import RunProgress
from transformer.training import run as run_module
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun


def trained(folder, task=None, **changes) -> Trainer:
    """Trains to the end; returns the trainer."""
    folder.mkdir(exist_ok=True)
    trainer = make_trainer(TrainingRun(task or Unigrams(), unigram_config(**changes), folder))
    assert trainer.run()
    return trainer


def test_every_step_is_counted_in_exactly_one_line(tmp_path):
    trained(tmp_path / "each")
    trained(tmp_path / "few", **{"train.log_every": 3})
    each = {line["step"]: line for line in lines(tmp_path / "each", "train")}
    few = lines(tmp_path / "few", "train")
    # Every third step, and before each evaluation.
    assert [line["step"] for line in few] == [3, 5, 6, 9, 10, 12]
    assert sorted(each) == list(range(1, 13))
    plan, first = Unigrams().plan, 0
    for line in few:
        steps = range(first + 1, line["step"] + 1)
        tokens = [(plan[step - 1].labels != 0).sum() for step in steps]
        for name in ("loss", "nll", "accuracy"):
            mean = np.average([each[step][name] for step in steps], weights=tokens)
            assert line[name] == pytest.approx(mean, rel=1e-5)
        assert line["perplexity"] == pytest.approx(np.exp(line["nll"]))
        first = line["step"]
    assert [line["step"] for line in lines(tmp_path / "few", "validation")] == [5, 10, 12]


def test_the_logged_rate_is_the_schedule_s_of_that_update(tmp_path):
    changes = {"optimizer.schedule": "noam", "optimizer.warmup_steps": 2}
    changes |= {"optimizer.gradient_accumulation_steps": 3}
    trained(tmp_path, **changes)
    rates = [line["learning_rate"] for line in lines(tmp_path, "train")]
    noam = [0.1 * 4**-0.5 * min(u**-0.5, u * 2**-1.5) for u in (1, 2, 3, 4)]
    np.testing.assert_allclose(rates, np.repeat(noam, 3), rtol=1e-6)


COSINE = {"schedule": "cosine", "learning_rate": 3e-3}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (COSINE, []),
        (COSINE | {"learning_rate": 1.0}, ["learning_rate=1 is the peak"]),
        (COSINE | {"learning_rate": 1.0, "name": "adafactor"}, []),
        (COSINE | {"schedule": "noam"}, ["learning_rate=0.003 is a factor"]),
        (COSINE | {"weight_decay": 0.1}, ["weight_decay=0.1 has no effect"]),
        (COSINE | {"weight_decay": 0.1, "name": "adamw"}, []),
        (COSINE | {"warmup_steps": 5}, ["9 updates are planned and the learning rate rises for 5"]),
    ],
)
def test_settings_that_do_not_fit_each_other_are_warned_of(settings, says, tmp_path, said):
    settings = {"warmup_steps": 1, **settings}
    changes = {f"optimizer.{key}": value for key, value in settings.items()}
    run = TrainingRun(Unigrams(), unigram_config(**changes, **{"train.steps": 9}), tmp_path)
    said.clear()
    run.warn()
    run.close()
    assert len(said) == len(says)
    assert all(part in line for line, part in zip(said, says, strict=True))


def test_a_run_stops_when_the_loss_stays_not_finite_and_keeps_the_last_good_state(tmp_path):
    trained(tmp_path / "good", **{"train.steps": 7})
    # Step 8 is the first bad one; 10 would be the next checkpoint.
    task = Unigrams(bad=range(7, 99))
    config = unigram_config(**{"train.max_nonfinite_steps": 4, "train.steps": 99})
    trainer = Trainer([TrainingRun(task, config, tmp_path)])
    with pytest.raises(UserError) as error:
        trainer.run()
    assert "not finite in 4 steps in a row, up to step 11" in str(error.value)
    assert "lower config.optimizer.learning_rate" in str(error.value)
    saved = saved_steps(tmp_path)
    assert f"the last good checkpoint is step {saved[-1]}" in str(error.value)
    assert saved == [5, 10]
    good = newest_state(Unigrams(), unigram_config(), tmp_path / "good")
    last = newest_state(task, config, tmp_path)
    assert identical(last.params, good.params)
    assert identical(last.opt_state, good.opt_state)


def test_a_run_goes_on_over_fewer_nonfinite_steps_and_counts_them(tmp_path):
    task = Unigrams(bad=[2, 3, 4, 6, 9])
    trained(tmp_path, task, **{"train.max_nonfinite_steps": 4})
    train_lines = lines(tmp_path, "train")
    assert [line["nonfinite_steps"] for line in train_lines] == [0, 0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5]
    assert [line["loss"] is None for line in train_lines] == [
        i in (2, 3, 4, 6, 9) for i in range(12)
    ]
    # Steps 5 and 10 were bad themselves, but much had been learned before them.
    assert saved_steps(tmp_path) == [5, 10, 12]


LOSSES = [{"loss": loss, "bleu": loss} for loss in (3.0, 2.0, 2.5, 2.1, 1.0, 9.0)]


@pytest.mark.parametrize(
    ("metric", "patience", "end", "best"),
    [
        ("loss", 2, 4, 2),  # 2.5 and 2.1 are no better than 2.0
        ("bleu", 2, 3, 1),  # 2.0 and 2.5 are no better than 3.0
        ("loss", 3, 6, 5),
        ("loss", 0, 6, 5),
    ],
)
def test_patience_counts_evaluations_since_the_best(metric, patience, end, best, tmp_path):
    changes = {"train.steps": 6, "train.evaluate_every": 1, "train.keep_last": 1}
    changes |= {"train.patience": patience, "train.best_metric": metric}
    trained(tmp_path, Unigrams(LOSSES), **changes)
    assert [line["step"] for line in lines(tmp_path, "validation")] == list(range(1, end + 1))
    assert saved_steps(tmp_path) == sorted({best, end})
    checkpoints = Checkpoints(tmp_path / "checkpoints", best_metric=metric, read_only=True)
    assert checkpoints.best_step() == best
    checkpoints.close()


def test_a_score_that_is_not_a_number_is_beaten_by_any():
    memory = RunProgress("x")
    for step, value in enumerate([np.nan, 3.0, np.nan, 2.0], 1):
        memory.record(step, "loss", {"loss": value})
    assert (memory.best, memory.best_step, memory.evaluations_since_best) == (2.0, 4, 0)


def test_a_metric_that_is_not_measured_is_refused_with_those_that_are(tmp_path):
    config = unigram_config(**{"train.best_metric": "rouge"})
    trainer = Trainer([TrainingRun(Unigrams(LOSSES), config, tmp_path)])
    with pytest.raises(UserError, match=r"train\.best_metric='rouge' .* choose one of bleu, loss"):
        trainer.run()


def test_minutes_limit_the_run_over_all_restarts(tmp_path, monkeypatch):
    now = 0.0

    def pass_second(i=None):
        nonlocal now
        now += 1.0

    class Timed(Unigrams):
        def evaluate(self, params, split, final):
            pass_second()
            return super().evaluate(params, split, final)

    monkeypatch.setattr(
        "transformer.training.loop.time", types.SimpleNamespace(monotonic=lambda: now)
    )
    # A second a step and one for an evaluation; no line is due where the time is up.
    changes = {"train.steps": 99, "train.evaluate_every": 7, "train.log_every": 50}
    for minutes, saved in ((0.2, [7, 11]), (0.2, [7, 11]), (0.3, [7, 11, 14, 15])):
        task = Timed(on_read=pass_second)
        trained(tmp_path, task, **changes, **{"train.minutes": minutes})
        assert saved_steps(tmp_path) == saved
        assert lines(tmp_path, "train")[-1]["step"] == saved[-1]


def test_the_step_at_which_the_time_is_up_is_saved_and_evaluated(tmp_path, monkeypatch):
    now = 0.0

    def pass_time(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(
        "transformer.training.loop.time", types.SimpleNamespace(monotonic=lambda: now)
    )
    log = Trainer._log

    def log_for_a_minute(*arguments):
        pass_time(60.0)
        return log(*arguments)

    monkeypatch.setattr(Trainer, "_log", log_for_a_minute)
    # A second a step, half a minute in all.
    changes = {"train.steps": 99, "train.evaluate_every": 50, "train.log_every": 4}
    changes |= {"train.save_minutes": 0.0, "train.minutes": 0.5}
    trained(tmp_path, Unigrams(on_read=lambda i: pass_time(1.0)), **changes)
    assert saved_steps(tmp_path)[-1] == 4
    assert [line["step"] for line in lines(tmp_path, "validation")] == [4]


@pytest.mark.parametrize(
    ("steps", "epochs", "length", "total"),
    [
        *((100, 0.0, 17, 100), (100, 2.0, 17, 34), (30, 2.0, 17, 30)),
        *((100, 0.5, 17, 9), (100, 1.01, 17, 18), (1000, 0.07, 100, 7)),  # 0.07 * 100 > 7
    ],
)
def test_the_run_ends_at_the_first_of_steps_and_epochs(steps, epochs, length, total):
    config = unigram_config(**{"train.steps": steps, "train.epochs": epochs})
    assert run_module.total_steps(config.train, epoch_length=length) == total


def test_an_evaluation_interval_of_zero_is_an_epoch(tmp_path):
    length = Unigrams().plan.epoch_length
    trained(tmp_path, **{"train.evaluate_every": 0, "train.steps": 2 * length})
    assert [line["step"] for line in lines(tmp_path, "validation")] == [length, 2 * length]
