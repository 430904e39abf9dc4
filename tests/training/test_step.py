"""The step: accumulation, averages, what is not finite, and one compilation for all numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from runs import (
    Unigrams,
    identical,
    loss_key,
    toy_config,
)
from transformer.model.losses import TokenSums
from transformer.optim import OptimizerConfig, optimizers
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun
from transformer.training.step import init_state, make_train_step

pytestmark = pytest.mark.device

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


STEPS = {}


def make_step(task, accumulate=1, schedule="constant", ema=False):
    """The step function, compiled once for each loss, and the first state."""
    optimizer = optimizers.make_optimizer(OptimizerConfig(gradient_accumulation_steps=accumulate))
    key = loss_key(task), accumulate, schedule
    if key not in STEPS:
        step = make_train_step(task.loss, optimizer, schedule, task.d_model, accumulate)
        STEPS[key] = jax.jit(step)
    return STEPS[key], init_state(task.draw_params(jax.random.key(1)), optimizer, ema)


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
    for i in range(12):  # the run is prolonged after `total` batches
        before = np.array(state.params["w"])
        batches = jnp.int32(total if i < total else 99)
        state, _ = step(state, task.plan[i], {**HPARAMS, "batches": batches})
        if not np.array_equal(before, state.params["w"]):
            moves.append(i + 1)
    # The third update is not made twice.
    assert moves == {6: [3, 6, 9, 12], 7: [3, 6, 7, 12], 8: [3, 6, 8, 12]}[total]


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
        start = np.array(Unigrams().draw_params(jax.random.key(1))["w"])
        uncorrected = decay**seen * start + (1 - decay**seen) * expected
        assert np.abs(uncorrected - average).max() > 1e-3
        assert np.abs(bias_corrected([*history, history[-1]], decay) - average).max() > 1e-3


def poisoned_loss(params, batch, hparams, key):
    """A loss of zero, whose gradient 0 * inf is not a number."""
    zero = jnp.sqrt(params["w"] * 0.0).sum()
    return TokenSums(zero, zero, jnp.float32(1.0), jnp.float32(1.0))


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing_but_the_counts(where):
    task = Unigrams(bad=[1] if where == "loss" else [])
    step, state = make_step(task, ema=True)
    state, metrics = step(state, task.plan[0], HPARAMS)
    assert float(metrics.weight) > 0
    if where == "gradient":
        task.loss = poisoned_loss
        step, _ = make_step(task, ema=True)
    new, metrics = step(state, task.plan[1], HPARAMS)
    for field in ("params", "opt_state", "ema"):
        assert identical(getattr(new, field), getattr(state, field))
    assert (int(new.step), int(new.nonfinite_steps), int(new.consecutive_nonfinite)) == (2, 1, 1)
    assert float(metrics.weight) == float(metrics.loss) == 0.0
    if where == "loss":
        good, _ = step(new, task.plan[2], HPARAMS)
        assert not identical(good.params, new.params)
        assert (int(good.nonfinite_steps), int(good.consecutive_nonfinite)) == (1, 0)


# -- a real model


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A translator of letters, and its trainer."""
    folder = tmp_path_factory.mktemp("toy")
    config = toy_config(folder / "cache")
    task = TranslationTask(config)
    return task, config, Trainer([TrainingRun(task, config, folder)])


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
        return float(metrics.loss)

    losses = [loss_of(trainer.hparams)]
    compiled = trainer.train_step.gradient._cache_size()
    other = TranslationTask(config)
    losses.append(loss_of(Trainer([TrainingRun(other, config, tmp_path)]).hparams))
    for name in changes:
        key = name.split(".")[1]
        if key in trainer.hparams:
            losses.append(loss_of({**trainer.hparams, key: trainer.hparams[key] * 0.5}))
    assert trainer.train_step.gradient._cache_size() == compiled
    # They all matter, but for the rates, which the loss of a first step does not show.
    assert len({f"{loss:.4f}" for loss in losses}) == 2 + 4
