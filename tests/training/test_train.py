"""The loop and its step: counts, limits, averages, and the same numbers on any devices."""

import json
import os
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from runs import (
    Unigrams,
    identical,
    lines,
    newest_state,
    quiet,
    toy_config,
    unigram_config,
)
from transformer import optim
from transformer import run as run_module
from transformer import train as train_module
from transformer.errors import UserError
from transformer.losses import TokenSums
from transformer.run import Run, RunProgress
from transformer.storage.checkpoint import Checkpoints
from transformer.storage.files import write_json
from transformer.tasks.translation import TranslationTask
from transformer.train import Trainer, warn_of_warmup
from transformer.train_step import init_state, make_train_step, moved_average

HPARAMS = {
    "seed": jnp.uint32(7),
    "learning_rate": 0.1,
    "warmup_steps": 0.0,
    "total_steps": 9.0,
    "batches": jnp.int32(99),
    "weight_decay": 0.0,
    "ema_decay": 0.75,
    "noise": 0.1,
}


def trained(folder, task=None, **changes) -> Trainer:
    """Trains to the end; returns the trainer."""
    folder.mkdir(exist_ok=True)
    trainer = Trainer([Run(task or Unigrams(), unigram_config(**changes), folder)], quiet)
    assert trainer.run()
    return trainer


def saved_steps(folder) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def make_step(task, accumulate=1, schedule="constant", ema=False):
    """The step function and the first state."""
    optimizer = optim.make_optimizer("adam", 0.9, 0.98, 1e-9, 0.0, accumulate)
    step = make_train_step(task.loss, optimizer, schedule, task.d_model, accumulate)
    return jax.jit(step), init_state(task.init_params(jax.random.key(1)), optimizer, ema)


# -- the step


def joined(batches):
    """One batch of all rows of several."""
    length = max(batch.labels.shape[1] for batch in batches)

    def widened(x):
        return np.pad(x, [(0, 0), (0, length - x.shape[1])])

    return jax.tree.map(lambda *xs: np.concatenate([widened(x) for x in xs]), *batches)


def taken(task, batches, accumulate, **changes):
    """The state after these batches, of which `accumulate` make an update; no noise."""
    step, state = make_step(task, accumulate)
    for batch in batches:
        state, _ = step(state, batch, {**HPARAMS, "noise": 0.0, **changes})
    return state


class AllAlike(Unigrams):
    """A task in which a batch counts as one token, whatever it holds."""

    def loss(self, params, batch, hparams, key):
        sums = super().loss(params, batch, hparams, key)
        return jax.tree.map(lambda x: x / sums.weight, sums)


# Of each update: the batches of the plan, which differ in sentences, lengths and tokens.
UPDATES = [(0, 3, 7), (1, 2, 9), (4, 5, 8)]


def test_accumulated_batches_make_the_update_of_one_batch_of_all_their_rows():
    task = Unigrams()
    groups = [[task.plan[i] for i in update] for update in UPDATES]
    tokens = {(batch.labels != 0).sum() for group in groups for batch in group}
    assert len(tokens) > 4
    ours = taken(task, [batch for group in groups for batch in group], accumulate=3)
    expected = taken(task, [joined(group) for group in groups], accumulate=1)
    np.testing.assert_allclose(ours.params["w"], expected.params["w"], rtol=1e-5, atol=1e-6)
    # Control: the mean of the means of an update's batches ends elsewhere.
    other = taken(AllAlike(), [batch for group in groups for batch in group], accumulate=3)
    assert np.abs(other.params["w"] - expected.params["w"]).max() > 1e-3


def test_batches_that_are_not_finite_are_left_out_of_their_update():
    bad = {0, 2, 8}
    task, clean = Unigrams(bad=bad), Unigrams()
    ours = taken(task, [task.plan[i] for update in UPDATES for i in update], accumulate=3)
    groups = [[clean.plan[i] for i in update if i not in bad] for update in UPDATES]
    assert list(map(len, groups)) == [2, 2, 2]  # the first, one within and the last of an update
    expected = taken(clean, [joined(group) for group in groups], accumulate=1)
    np.testing.assert_allclose(ours.params["w"], expected.params["w"], rtol=1e-5, atol=1e-6)
    assert int(ours.nonfinite_steps) == 3
    # An update of which nothing is left moves nothing, and the next starts from nothing.
    task = Unigrams(bad=[0, 3, 7])
    ours = taken(task, [task.plan[i] for update in UPDATES[:2] for i in update], accumulate=3)
    expected = taken(clean, [joined([clean.plan[i] for i in UPDATES[1]])], accumulate=1)
    np.testing.assert_allclose(ours.params["w"], expected.params["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("total", [6, 7, 8])
def test_the_last_update_of_a_run_is_made_of_the_batches_that_are_left(total):
    task, moves = Unigrams(), []
    step, state = make_step(task, accumulate=3)
    for i in range(total):
        before = np.array(state.params["w"])
        state, _ = step(state, task.plan[i], {**HPARAMS, "batches": jnp.int32(total)})
        if not np.array_equal(before, state.params["w"]):
            moves.append(i + 1)
    assert moves == sorted({3, 6, total})
    step, longer = make_step(task, accumulate=3)
    for i in range(total):
        longer, _ = step(longer, task.plan[i], HPARAMS)
    assert identical(longer.params, state.params) is (total == 6)  # control: there is more to come


def test_members_that_accumulate_are_the_runs_that_they_would_be_alone():
    task = Unigrams(bad=[4])
    step, state = make_step(task, accumulate=3, ema=True)
    ends = jnp.int32([5, 99])
    axes = (0, None, dict.fromkeys(HPARAMS) | {"batches": 0})
    together = jax.jit(jax.vmap(step, axes))
    states, alone = jax.tree.map(lambda x: jnp.stack([x, x]), state), [state, state]
    for i in range(7):
        states, _ = together(states, task.plan[i], {**HPARAMS, "batches": ends})
        alone = [
            step(each, task.plan[i], {**HPARAMS, "batches": end})[0]
            for each, end in zip(alone, ends, strict=True)
        ]
    for i, own in enumerate(alone):
        mine = jax.tree.map(lambda x, i=i: x[i], states)
        for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert np.abs(states.params["w"][0] - states.params["w"][1]).max() > 1e-3


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_learning_rate_counts_updates_and_not_batches(accumulate):
    # Adam's first steps are as long as the rate, which this schedule raises by 0.01 an update.
    task = Unigrams()
    step, state = make_step(task, accumulate)
    hparams = {**HPARAMS, "warmup_steps": 10.0, "noise": 0.0}
    moved = []
    for _ in range(6):
        new, _ = step(state, task.plan[0], hparams)
        moved.append(float(jnp.abs(new.params["w"] - state.params["w"]).max()))
        state = new
    moved = [length for length in moved if length]
    assert len(moved) == 6 // accumulate
    np.testing.assert_allclose(moved, 0.01 * np.arange(1, len(moved) + 1), rtol=0.1)


def bias_corrected(history, decay):
    """The mean of weights whose part falls by `decay` from each to the one before, in float64."""
    parts = [decay**age for age in reversed(range(len(history)))]
    return sum(part * np.float64(w) for part, w in zip(parts, history, strict=True)) / sum(parts)


def averages_of(accumulate, decay, bad=(), steps=12):
    """(batch, weights after each update so far, the stored average) after each batch."""
    task = Unigrams(bad=bad)
    step, state = make_step(task, accumulate, ema=True)
    history = []
    for i in range(steps):
        before = np.array(state.params["w"])
        state, _ = step(state, task.plan[i], {**HPARAMS, "ema_decay": jnp.float32(decay)})
        if not np.array_equal(state.params["w"], before):
            history.append(np.array(state.params["w"]))
        yield list(history), np.array(state.ema["w"])


@pytest.mark.parametrize("decay", [0.0, 0.75, 0.9999])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("bad", [(), (0, 4)])
def test_the_moving_average_is_the_weighted_mean_of_the_weights_after_each_update(
    accumulate, decay, bad
):
    seen = 0
    for history, average in averages_of(accumulate, decay, bad):
        if history:
            expected = bias_corrected(history, decay)
            np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-6)
            seen = len(history)
        if len(history) == 1:
            # And nothing of the start. XLA may compute the parameters twice, and round otherwise.
            np.testing.assert_allclose(average, history[0], rtol=1e-6)
    assert seen == (12 - len(bad) if accumulate == 1 else 4)
    # Controls: the random start among them, and one more step of decay, are something else.
    if decay:
        start = np.array(Unigrams().init_params(jax.random.key(1))["w"])
        uncorrected = decay**seen * start + (1 - decay**seen) * expected
        assert np.abs(uncorrected - average).max() > 1e-3
        assert np.abs(bias_corrected([*history, history[-1]], decay) - average).max() > 1e-3


@pytest.mark.parametrize("decay", [0.0, 0.75, 0.9999])
def test_the_first_average_is_the_parameters_to_the_bit(decay):
    start, params = ({"w": jax.random.normal(jax.random.key(i), (11,))} for i in (0, 1))
    first = moved_average(start, params, jnp.int32(1), decay)
    np.testing.assert_array_equal(first["w"], params["w"])


def test_the_moving_averages_of_runs_have_a_decay_each():
    task, decays = Unigrams(), jnp.float32([0.5, 0.9])
    step, state = make_step(task, ema=True)
    axes = (0, None, dict.fromkeys(HPARAMS) | {"ema_decay": 0})
    together = jax.jit(jax.vmap(step, axes))
    states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    for i in range(4):
        states, _ = together(states, task.plan[i], {**HPARAMS, "ema_decay": decays})
    for i, decay in enumerate(decays):
        *_, (_, average) = averages_of(1, decay, steps=4)
        np.testing.assert_allclose(states.ema["w"][i], average, rtol=1e-6, atol=1e-7)
    assert np.abs(states.ema["w"][0] - states.ema["w"][1]).max() > 1e-3


def poisoned_loss(params, batch, hparams, key):
    """A loss of zero, whose gradient 0 * inf is not a number."""
    zero = jnp.sqrt(params["w"] * 0.0).sum()
    return TokenSums(zero, zero, jnp.float32(1.0), jnp.float32(1.0))


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing_but_the_counts(where):
    task = Unigrams(bad=[1] if where == "loss" else [])
    step, state = make_step(task, ema=True)
    state, metrics = step(state, task.plan[0], HPARAMS)
    assert float(metrics.loss.count) > 0
    if where == "gradient":
        task.loss = poisoned_loss
        step, _ = make_step(task, ema=True)
    new, metrics = step(state, task.plan[1], HPARAMS)
    for field in ("params", "opt_state", "ema"):
        assert identical(getattr(new, field), getattr(state, field))
    assert (int(new.step), int(new.nonfinite_steps), int(new.consecutive_nonfinite)) == (2, 1, 1)
    assert float(metrics.loss.count) == float(metrics.loss.total) == 0.0
    if where == "loss":
        good, _ = step(new, task.plan[2], HPARAMS)
        assert not identical(good.params, new.params)
        assert (int(good.nonfinite_steps), int(good.consecutive_nonfinite)) == (1, 0)


# -- the whole run


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
    changes = {
        "optimizer.schedule": "noam",
        "optimizer.warmup_steps": 2,
        "optimizer.gradient_accumulation_steps": 3,
    }
    trained(tmp_path, **changes)
    rates = [line["learning_rate"] for line in lines(tmp_path, "train")]
    noam = [0.1 * 4**-0.5 * min(u**-0.5, u * 2**-1.5) for u in (1, 2, 3, 4)]
    np.testing.assert_allclose(rates, np.repeat(noam, 3), rtol=1e-6)


def test_rates_and_warnings_count_the_run_s_last_update_of_fewer_batches(tmp_path):
    changes = {
        "optimizer.schedule": "cosine",
        "optimizer.warmup_steps": 1,
        "optimizer.gradient_accumulation_steps": 4,
        "train.steps": 10,
    }
    trained(tmp_path, **changes)
    rates = [line["learning_rate"] for line in lines(tmp_path, "train")]
    # Three updates: the peak, half of it and its end.
    np.testing.assert_allclose(rates, np.repeat([0.1, 0.05, 0.0], [4, 4, 2]), atol=1e-7)
    said = []
    config = unigram_config(**{**changes, "optimizer.warmup_steps": 2})
    warn_of_warmup(config.optimizer, 10, said.append)
    assert "3 updates are planned" in said[0]


def test_a_run_stops_when_the_loss_stays_not_finite_and_keeps_the_last_good_state(tmp_path):
    trained(tmp_path / "good", **{"train.steps": 7})
    # Step 8 is the first bad one; 10 would be the next checkpoint.
    task = Unigrams(bad=range(7, 99))
    config = unigram_config(**{"train.max_nonfinite_steps": 4, "train.steps": 99})
    trainer = Trainer([Run(task, config, tmp_path)], quiet)
    with pytest.raises(UserError) as error:
        trainer.run()
    assert "not finite in 4 steps in a row, up to step 11" in str(error.value)
    assert "lower --config.optimizer.learning_rate" in str(error.value)
    saved = saved_steps(tmp_path)
    assert f"the last good checkpoint is step {saved[-1]}" in str(error.value)
    assert saved == [5, 10]
    good = newest_state(Unigrams(), unigram_config(), tmp_path / "good")
    last = newest_state(task, config, tmp_path)
    assert identical(last.params, good.params)
    assert identical(last.opt_state, good.opt_state)


def test_a_state_of_nonfinite_steps_alone_is_saved_only_where_the_run_ends(tmp_path):
    # From 5 on nothing is learned: 10 and 15 would only push good checkpoints out.
    config = unigram_config(**{"train.max_nonfinite_steps": 99, "train.steps": 17})
    said = []
    assert Trainer([Run(Unigrams(bad=range(5, 99)), config, tmp_path)], said.append).run()
    assert saved_steps(tmp_path) == [5, 17]
    assert [line["step"] for line in lines(tmp_path, "validation")] == [5, 17]
    assert "nothing was learned since step 5: step 15 is not saved or evaluated" in said
    assert said[-1].startswith("training ended at step 17: train.steps=17")
    assert "12 steps were skipped: loss or gradient was not finite" in said[-1]
    assert Trainer([Run(Unigrams(), config, tmp_path)], quiet).runs[0].finished()


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
    changes = {
        "train.steps": 6,
        "train.evaluate_every": 1,
        "train.patience": patience,
        "train.best_metric": metric,
        "train.keep_last": 1,
    }
    trained(tmp_path, Unigrams(LOSSES), **changes)
    assert [line["step"] for line in lines(tmp_path, "validation")] == list(range(1, end + 1))
    assert saved_steps(tmp_path) == sorted({best, end})
    checkpoints = Checkpoints(tmp_path / "checkpoints", best_metric=metric, read_only=True)
    assert checkpoints.best_step() == best
    checkpoints.close()


def test_a_score_that_is_not_a_number_is_beaten_by_any():
    memory = RunProgress("x")
    for step, value in enumerate([np.nan, 3.0, np.nan, 2.0], 1):
        memory.record(step, "loss", value)
    assert (memory.best, memory.best_step, memory.evaluations_since_best) == (2.0, 4, 0)


def test_a_metric_that_is_not_measured_is_refused_with_those_that_are(tmp_path):
    trainer = Trainer(
        [Run(Unigrams(LOSSES), unigram_config(**{"train.best_metric": "rouge"}), tmp_path)], quiet
    )
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

    monkeypatch.setattr(train_module, "time", types.SimpleNamespace(monotonic=lambda: now))
    # A second a step and one for an evaluation; no line is due where the time is up.
    changes = {"train.steps": 99, "train.evaluate_every": 7, "train.log_every": 50}
    for minutes, saved in ((0.2, [7, 11]), (0.2, [7, 11]), (0.3, [7, 11, 14, 15])):
        task = Timed(on_read=pass_second)
        trained(tmp_path, task, **changes, **{"train.minutes": minutes})
        assert saved_steps(tmp_path) == saved
        assert lines(tmp_path, "train")[-1]["step"] == saved[-1]


@pytest.mark.parametrize(
    ("steps", "epochs", "total"),
    [(100, 0.0, 100), (100, 2.0, 34), (30, 2.0, 30), (100, 0.5, 9), (100, 1.01, 18)],
)
def test_the_run_ends_at_the_first_of_steps_and_epochs(steps, epochs, total):
    config = unigram_config(**{"train.steps": steps, "train.epochs": epochs})
    assert run_module.total_steps(config.train, epoch_length=17) == total


def test_an_evaluation_interval_of_zero_is_an_epoch(tmp_path):
    task = Unigrams()
    trained(
        tmp_path, task, **{"train.evaluate_every": 0, "train.steps": 2 * task.plan.epoch_length}
    )
    steps = [line["step"] for line in lines(tmp_path, "validation")]
    assert steps == [task.plan.epoch_length, 2 * task.plan.epoch_length]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_after_the_step_with_all_of_it_saved(number, tmp_path):
    def send(i):
        if i == 7:
            os.kill(os.getpid(), number)

    said = []
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    trainer = Trainer([Run(Unigrams(on_read=send), unigram_config(), tmp_path)], said.append)
    assert not trainer.run()
    assert saved_steps(tmp_path) == [5, 8]
    assert lines(tmp_path, "train")[-1]["step"] == 8
    assert f"{number.name}: saved step 8" in said[-1]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_finished_run_is_known_and_more_steps_make_it_unfinished(tmp_path):
    def finished(**changes):
        return Run(Unigrams(), unigram_config(**changes), tmp_path).finished()

    trainer = trained(tmp_path)
    assert trainer.runs[0].total_steps == 12
    assert finished()
    assert not finished(**{"train.steps": 13})
    (tmp_path / "checkpoints/12/evaluation.json").unlink()  # as after a kill while it was scored
    assert not finished()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.steps", 0),
        ("train.log_every", 0),
        ("train.label_smoothing", 1.0),
        ("train.ema_decay", -0.1),
        ("optimizer.schedule", "sawtooth"),
        ("optimizer.name", "sgd"),
    ],
)
def test_settings_that_make_no_run_are_refused_by_name(key, value, tmp_path):
    with pytest.raises(UserError, match=key.replace(".", r"\.")):
        Trainer([Run(Unigrams(), unigram_config(**{key: value}), tmp_path)], quiet)


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": "ä"})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": "ä"}


# -- a real model


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A translator of letters, and its trainer."""
    folder = tmp_path_factory.mktemp("toy")
    config = toy_config(folder / "cache")
    task = TranslationTask(config, quiet)
    return task, config, Trainer([Run(task, config, folder)], quiet)


@pytest.mark.slow
def test_a_translator_that_accumulates_has_the_gradient_of_all_rows_with_smoothing(toy):
    task, _, trainer = toy
    groups = [[task.plan[i] for i in update] for update in ((0, 1, 2), (3, 4, 5))]
    # Sentences of the second batch of each update are far shorter.
    for group in groups:
        group[1] = jax.tree.map(lambda x: x * (np.arange(x.shape[1]) < 3), group[1])
    rates = {name: 0.0 for name in trainer.hparams if name.startswith("dropout")}
    hparams = {**trainer.hparams, **rates, "label_smoothing": 0.1}

    def moments(batches, accumulate):
        step, state = make_step(task, accumulate)
        for batch in batches:
            state, _ = step(state, batch, hparams)
        return optax.tree.get(state.opt_state, "mu")

    ours = moments([batch for group in groups for batch in group], 3)
    expected = moments([joined(group) for group in groups], 1)
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * largest)
    other = moments([joined([*group, group[1]]) for group in groups], 1)  # control
    assert (
        max(
            float(jnp.abs(a - b).max())
            for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(expected), strict=True)
        )
        > 1e-2 * largest
    )


def test_the_step_reuses_the_memory_of_the_old_state(toy):
    task, _, trainer = toy
    old = trainer.fresh_state()
    batch = trainer.placement.put_batch(task.plan[0])
    new, _ = trainer.train_step(old, batch, trainer.hparams)
    gone = [x.is_deleted() for x in jax.tree.leaves((old.params, old.opt_state))]
    assert all(gone)
    assert not any(x.is_deleted() for x in jax.tree.leaves((new, batch, trainer.hparams)))


def test_other_hyperparameters_do_not_compile_again(toy, tmp_path):
    task, config, trainer = toy
    changes = {
        "optimizer.learning_rate": 0.02,
        "optimizer.warmup_steps": 3,
        "train.label_smoothing": 0.3,
        "train.steps": 7,
        **{f"model.dropout_{name}": 0.4 for name in ("embedding", "residual", "attention")},
    }
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(changes)
    batch, start = trainer.placement.put_batch(task.plan[0]), trainer.fresh_state()

    def loss_of(hparams):
        _, metrics = trainer.train_step(jax.tree.map(jnp.copy, start), batch, hparams)
        return float(metrics.loss.total)

    losses = [loss_of(trainer.hparams)]
    compiled = trainer.train_step._cache_size()
    other = TranslationTask(config, quiet)
    losses.append(loss_of(Trainer([Run(other, config, tmp_path)], quiet).hparams))
    for name in changes:
        key = name.split(".")[1]
        if key in trainer.hparams:
            losses.append(loss_of({**trainer.hparams, key: trainer.hparams[key] * 0.5}))
    assert trainer.train_step._cache_size() == compiled
    # They all matter, but for the rates, which the loss of a first step does not show.
    assert len({f"{loss:.4f}" for loss in losses}) == 2 + 4


def test_a_hyperparameter_of_another_type_does_compile_again(tmp_path):
    task = Unigrams()
    trainer = Trainer([Run(task, unigram_config(), tmp_path)], quiet)
    for noise in (jnp.float32(0.2), jnp.float32(0.3), jnp.float16(0.2)):
        hparams = {**trainer.hparams, "noise": noise}
        trainer.train_step(
            trainer.fresh_state(), trainer.placement.put_batch(task.plan[0]), hparams
        )
    assert trainer.train_step._cache_size() == 2


DEVICES = """
import sys
sys.path[:0] = ["tests/support", "tests/support/equations", "tests", "."]
from pathlib import Path
import jax, numpy as np
from runs import quiet, toy_config
from transformer.tasks.translation import TranslationTask
from transformer.run import Run
from transformer.train import Trainer

folder = Path(sys.argv[1])
config = toy_config(folder)
results = {}
task = TranslationTask(config, quiet)
start = Run(task, config, folder / "1").fresh_state()
for count in (1, 3, 8):
    trainer = Trainer([Run(task, config, folder / str(count))], quiet, jax.devices()[:count])
    state = jax.device_put(jax.tree.map(np.array, start), trainer.placement.replicated)
    losses = []
    for i in range(3):
        batch = trainer.placement.put_batch(task.plan[i])
        assert len(batch.source.sharding.device_set) == count
        rows = batch.source.addressable_shards[0].data.shape[0]
        assert rows == -(-len(task.plan[i].source) // count)
        state, metrics = trainer.train_step(state, batch, trainer.hparams)
        losses.append([float(x) for x in (metrics.loss.total, metrics.loss.count)])
    assert jax.tree.leaves(state.params)[0].sharding.is_fully_replicated
    results[f"{count} losses"] = np.array(losses)
    for i, leaf in enumerate(jax.tree.leaves(state.params)):
        results[f"{count} parameter {i}"] = np.array(leaf)
    # The same step as the last, but for the number that dropout depends on.
    before = jax.device_put(jax.tree.map(np.array, start), trainer.placement.replicated)
    for number in (0, 1):
        again = jax.tree.map(jax.numpy.copy, before).replace(step=before.step + number)
        _, metrics = trainer.train_step(again, batch, trainer.hparams)
        results[f"{count} dropout {number}"] = np.array(metrics.loss.total)
np.savez(folder / "results.npz", **results)
"""


def test_any_number_of_devices_gives_the_losses_and_parameters_of_one(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    environment["JAX_PLATFORMS"] = "cpu"
    subprocess.run([sys.executable, "-c", DEVICES, tmp_path], env=environment, check=True)
    found = np.load(tmp_path / "results.npz")
    names = [name.removeprefix("1 ") for name in found if name.startswith("1 ")]
    assert len(names) > 13
    # Adam makes much of the rounding of gradients that are nearly zero.
    tolerances = {"losses": (1e-5, 0.0), "dropout": (1e-5, 0.0), "parameter": (1e-3, 1e-4)}
    for name in names:
        rtol, atol = tolerances[name.split()[0]]
        for devices in (3, 8):
            theirs, ours = found[f"{devices} {name}"], found[f"1 {name}"]
            np.testing.assert_allclose(theirs, ours, rtol, atol)
    # Other zeros change the loss by far more than other devices do.
    assert abs(found["1 dropout 0"] / found["1 dropout 1"] - 1) > 1e-4
