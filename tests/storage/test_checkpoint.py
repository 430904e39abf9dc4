"""Checkpoints hold every bit, the best and the newest stay, and averages are means."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from runs import identical
from transformer.errors import UserError
from transformer.optim import optimizers
from transformer.storage.checkpoint import Checkpoints
from transformer.storage.checkpoint_files import read_leaves, read_record
from transformer.train_step import init_state


def make_state(value: float, ema=False):
    params = {"a": {"kernel": jnp.full((3, 5), value)}, "b": jnp.arange(7) * value}
    return init_state(params, optimizers.make_optimizer("adam", 0.9, 0.98, 1e-9, 1.0, 3), ema)


def save(checkpoints, step, value=None, loss=None, ema=False):
    """Saves a state filled with a value, which is the step where it is None."""
    state = make_state(float(step if value is None else value), ema)
    progress = {"fingerprint": "x", "step": step}
    checkpoints.save(step, state, progress)
    if loss is not None:
        checkpoints.record_evaluation(step, {"loss": loss, "bleu": loss}, progress)


def weights(checkpoints, *steps):
    return checkpoints.restore_weights(steps, make_state(0.0).params)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.mark.parametrize(("metric", "best"), [("loss", 2), ("bleu", 1)])
@pytest.mark.parametrize("reopen", [False, True])
def test_the_best_and_the_newest_are_kept_and_no_others(metric, best, reopen, folder):
    checkpoints = Checkpoints(folder, keep_last=2, best_metric=metric)
    for step, loss in enumerate([9.0, 1.0, 5.0, 4.0, 5.0, 6.0], 1):
        save(checkpoints, step, loss=loss)
        if reopen:  # as a run does that was interrupted after each
            checkpoints.close()
            checkpoints = Checkpoints(folder, keep_last=2, best_metric=metric)
    checkpoints.wait()
    kept = sorted(int(path.name) for path in folder.iterdir())
    assert kept == checkpoints.steps() == [*range(1, best + 1), 5, 6]
    checkpoints.close()


@pytest.mark.parametrize(("metric", "best"), [("loss", 2), ("bleu", 1)])
@pytest.mark.parametrize("read_only", [False, True])
def test_the_best_is_found_by_who_opens_the_folder_later(metric, best, read_only, folder):
    checkpoints = Checkpoints(folder, 3, metric)
    for step, loss in enumerate([9.0, 1.0, 5.0], 1):
        save(checkpoints, step, loss=loss)
    checkpoints.close()
    reader = Checkpoints(folder, 3, metric, read_only=read_only)
    assert reader.best_step() == best
    assert (weights(reader, best)["a"]["kernel"] == best).all()
    reader.close()


def test_one_saved_where_a_run_was_stopped_goes_with_the_next(folder):
    checkpoints = Checkpoints(folder, keep_last=2)
    for step, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (4, None)):
        save(checkpoints, step, loss=loss)
    checkpoints.wait()
    assert checkpoints.steps() == [2, 3, 4]
    save(checkpoints, 5, loss=4.0)
    checkpoints.wait()
    assert checkpoints.steps() == [2, 3, 5]  # 2 and 3 are the last two up to the best
    checkpoints.close()


@pytest.mark.parametrize("steps", [(7,), (7, 4), (2, 4, 7)])
def test_averages_are_means_of_the_parameters(steps, folder):
    checkpoints = Checkpoints(folder, keep_last=3)
    for step in (1, 2, 4, 7):
        save(checkpoints, step, value=step**2, loss=1.0 / step)
    params = weights(checkpoints, *steps)
    mean = np.mean([step**2 for step in steps])
    np.testing.assert_allclose(params["a"]["kernel"], np.full((3, 5), mean), rtol=1e-6)
    np.testing.assert_allclose(params["b"], np.arange(7) * mean, rtol=1e-6)
    checkpoints.close()


def test_the_moving_average_is_what_evaluation_reads_where_there_is_one(folder):
    checkpoints = Checkpoints(folder)
    state = make_state(5.0, ema=True)
    state = state.replace(ema=jax.tree.map(lambda x: x + 1, state.ema))
    checkpoints.save(1, state, {"fingerprint": "x"})
    checkpoints.wait()
    params = weights(checkpoints, 1)
    assert identical(jax.device_get(params), jax.device_get(state.ema))
    assert not identical(jax.device_get(params), jax.device_get(state.params))
    checkpoints.close()


@pytest.mark.parametrize("ema", [False, True])
def test_a_restored_state_has_every_bit_the_optimizer_s_too(ema, folder):
    optimizer = optimizers.make_optimizer("adam", 0.9, 0.98, 1e-9, 1.0, 3)
    state = make_state(1 / 3, ema)
    gradient = jax.tree.map(lambda x: jnp.sin(x + 1e-3), state.params)
    for _ in range(4):  # one update, and one gradient of three gathered for the next
        updates, opt_state = optimizer.update(
            gradient, state.opt_state, state.params, learning_rate=0.1, weight_decay=0.0
        )
        state = state.replace(
            opt_state=opt_state, params=jax.tree.map(jnp.add, state.params, updates)
        )
    state = state.replace(step=state.step + 4, nonfinite_steps=state.nonfinite_steps + 2)
    checkpoints = Checkpoints(folder)
    checkpoints.save(4, state, {"fingerprint": "x", "seconds": 0.1})
    checkpoints.close()
    reader = Checkpoints(folder)
    restored, progress = reader.restore_newest(make_state(0.0, ema), "x")
    assert identical(jax.device_get(restored), jax.device_get(state))
    assert not identical(jax.device_get(restored), jax.device_get(make_state(1 / 3, ema)))
    assert progress == {"fingerprint": "x", "seconds": 0.1}
    reader.close()


def test_steps_that_reuse_the_state_s_memory_do_not_spoil_a_save(folder):
    @jax.jit
    def fill(i):
        return {"w": jnp.arange(2**21, dtype=jnp.float32) + i}

    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 0.5 - 1.0, state), donate_argnums=0)
    checkpoints = Checkpoints(folder, keep_last=4)
    state = fill(0)
    copies = {}
    for number in range(1, 4):
        copies[number] = np.array(state["w"])
        checkpoints.save(number, state, {"fingerprint": "x"})
        for _ in range(5):
            old, state = state, step(state)
        assert old["w"].is_deleted()
        checkpoints.record_evaluation(number, {"loss": 1.0}, {"fingerprint": "x"})
    for number, copy in copies.items():
        saved = read_leaves(folder / str(number), read_record(folder / str(number)), ["w"])["w"]
        assert np.array_equal(saved, copy)
    assert not np.array_equal(copies[1], copies[2])
    checkpoints.close()


def test_checkpoints_of_other_tokenizers_are_refused_and_left_alone(folder, said):
    checkpoints = Checkpoints(folder, keep_last=2)
    for step in (1, 2):
        save(checkpoints, step, loss=1.0)
    checkpoints.wait()
    # Another vocabulary has another shape, which does not make the checkpoints broken.
    other = init_state(
        {"b": jnp.zeros(9)}, optimizers.make_optimizer("adam", 0.9, 0.98, 1e-9, 1.0, 3), False
    )
    with pytest.raises(UserError, match="tokenizer x, not with y"):
        checkpoints.restore_newest(other, "y")
    with pytest.raises(UserError, match="tokenizer x, not with y"):
        checkpoints.check_fingerprint("y")
    assert not said
    assert checkpoints.steps() == [1, 2]
    assert checkpoints.restore_newest(make_state(0.0), "x")[1]["step"] == 2
    checkpoints.close()


def test_checkpoints_of_another_text_are_refused_but_not_those_that_do_not_tell(folder):
    checkpoints = Checkpoints(folder, keep_last=2)
    save(checkpoints, 1, loss=1.0)  # as a run of before, without a digest
    checkpoints.wait()
    checkpoints.check_fingerprint("x", "old")
    assert checkpoints.restore_newest(make_state(0.0), "x", "old")
    checkpoints.save(2, make_state(2.0), {"fingerprint": "x", "text_digest": "old"})
    checkpoints.wait()
    for known in ("old", ""):
        checkpoints.check_fingerprint("x", known)
        assert checkpoints.restore_newest(make_state(0.0), "x", known)
    says = f"the run in {folder.parent} was trained on text with the digest old, not new: restore"
    with pytest.raises(UserError, match=re.escape(says)):
        checkpoints.check_fingerprint("x", "new")
    with pytest.raises(UserError, match=re.escape(says)):
        checkpoints.restore_newest(make_state(0.0), "x", "new")
    checkpoints.close()


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("opt_state", "optimizer's state of another version .* config.train.init_from"),
        ("params", "config.json: params/a/kernel is .3, 5., not absent"),
    ],
)
def test_a_state_with_other_arrays_is_refused_and_its_weights_stay_usable(part, says, folder):
    with Checkpoints(folder) as checkpoints:
        save(checkpoints, 1)
        checkpoints.wait()
        state = make_state(0.0)
        other = state.replace(**{part: {"b": jnp.zeros(9)}})
        with pytest.raises(UserError, match=says):
            checkpoints.restore_newest(other, "x")
        assert checkpoints.steps() == [1]
        assert identical(weights(checkpoints, 1), make_state(1.0).params)


def test_an_empty_folder_restores_nothing(folder):
    checkpoints = Checkpoints(folder)
    assert checkpoints.restore_newest(make_state(0.0), "x") is None
    assert checkpoints.best_step() is None
    checkpoints.close()
