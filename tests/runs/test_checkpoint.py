"""Checkpoints hold every bit, the best and the newest stay, and damage is named, never used."""

import errno
import os
import random
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from log_lines import heard
from runs import identical
from transformer.errors import UserError
from transformer.optim import OptimizerConfig, optimizers
from transformer.runs import checkpoint
from transformer.runs.checkpoint import Checkpoints
from transformer.training.step import init_state

# TensorStore itself checks arrays that are smaller.
SHAPES = {"a": {"kernel": (61, 67)}, "b": (7,)}
PROGRESS = {"fingerprint": "x"}
FULL = (pytest.mark.full, pytest.mark.slow)


OPTIMIZER = OptimizerConfig(clip_norm=1.0, gradient_accumulation_steps=3)


def make_state(value: float, ema: bool = True):
    params = jax.tree.map(
        lambda shape: value + jnp.sin(jnp.arange(np.prod(shape), dtype=jnp.float32)).reshape(shape),
        SHAPES,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    return init_state(params, optimizers.make_optimizer(OPTIMIZER), ema)


def save(checkpoints, step, loss=None):
    progress = {**PROGRESS, "step": step}
    checkpoints.save(step, make_state(float(step)), progress)
    if loss is not None:
        checkpoints.record_evaluation(step, {"loss": loss, "bleu": loss}, progress)
    checkpoints.wait()


def weights(checkpoints, *steps):
    return checkpoints.restore_weights(steps, make_state(0.0).params)


def expected(step):
    return jax.device_get(make_state(float(step)))


def resume(folder):
    """The state and progress that training goes on with, and what was said."""
    with heard() as said, Checkpoints(folder, 3) as checkpoints:
        state, progress = checkpoints.restore_newest(make_state(0.0), "x")
    return jax.device_get(state), progress, said


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Checkpoints 1, 2 and 3, of which 2 is the best."""
    folder = tmp_path_factory.mktemp("original") / "checkpoints"
    with Checkpoints(folder, 3) as checkpoints:
        for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
            save(checkpoints, step, loss)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "run" / "checkpoints"))


# -- which are kept


@pytest.mark.parametrize(("metric", "best"), [("loss", 2), ("bleu", 1)])
def test_the_best_and_the_newest_are_kept_also_by_who_opens_the_folder_later(
    metric, best, tmp_path
):
    for step, loss in enumerate([9.0, 1.0, 5.0, 4.0, 5.0, 6.0], 1):
        with Checkpoints(tmp_path, 2, metric) as checkpoints:
            save(checkpoints, step, loss)
    kept = [*range(1, best + 1), 5, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == list(map(str, kept))
    with Checkpoints(tmp_path, best_metric=metric, read_only=True) as reader:
        assert (reader.steps(), reader.best_step()) == (kept, best)


def test_one_saved_where_a_run_was_stopped_goes_with_the_next(tmp_path):
    with Checkpoints(tmp_path, keep_last=2) as checkpoints:
        for step, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (4, None)):
            save(checkpoints, step, loss)
        assert checkpoints.steps() == [2, 3, 4]
        assert [checkpoints.evaluated(step) for step in (3, 4, 5)] == [True, False, False]
        save(checkpoints, 5, 4.0)
        assert checkpoints.steps() == [2, 3, 5]  # 2 and 3 are the last two up to the best


@pytest.mark.parametrize("metric", ["loss", "bleu"])
def test_a_score_that_is_not_finite_is_the_worst_and_costs_no_checkpoint(metric, tmp_path):
    with Checkpoints(tmp_path, 1, metric) as checkpoints:
        for step, score in enumerate([np.nan, 5.0, np.inf, -np.inf], 1):
            save(checkpoints, step, score)
        assert (checkpoints.best_step(), checkpoints.steps()) == (2, [2, 4])


# -- what they hold


def test_averages_are_means_of_the_weights_and_frozen_ones_keep_their_bits(tmp_path):
    # Minus zero, and numbers whose mean of seven in float32 is another.
    frozen = np.array([-0.0, 0.1, 1 / 3, -2.7, 1e-20], np.float32)
    assert not np.array_equal(sum([frozen] * 7) / np.float32(7), frozen)  # control
    with Checkpoints(tmp_path, keep_last=3) as checkpoints:
        for step in (2, 4, 7):
            tree = {"params": {"a": jnp.arange(7.0) * step**2, "b": frozen}}
            checkpoints.save(step, tree, PROGRESS)
            checkpoints.record_evaluation(step, {"loss": 1.0 / step}, PROGRESS)
        for steps in ((7,), (7, 4), (2, 4, 7), (2, 4, 7, 7, 7, 7, 7)):
            mean = checkpoints.restore_weights(steps, tree["params"])
            factor = np.mean([step**2 for step in steps])
            np.testing.assert_allclose(mean["a"], np.arange(7) * factor, rtol=1e-6)
            assert np.asarray(mean["b"]).tobytes() == frozen.tobytes()


@pytest.mark.parametrize("ema", [False, True])
def test_a_restored_state_has_every_bit_the_optimizer_s_too(ema, tmp_path):
    optimizer = optimizers.make_optimizer(OPTIMIZER)
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
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(4, state, {**PROGRESS, "seconds": 0.1})
    with Checkpoints(tmp_path) as reader:
        restored, progress = reader.restore_newest(make_state(0.0, ema), "x")
        used = jax.device_get(weights(reader, 4))
    assert identical(jax.device_get(restored), jax.device_get(state))
    assert not identical(jax.device_get(restored), jax.device_get(make_state(1 / 3, ema)))
    assert progress == {**PROGRESS, "seconds": 0.1}
    assert identical(used, jax.device_get(state.ema if ema else state.params))


def test_steps_that_reuse_the_state_s_memory_do_not_spoil_a_save(tmp_path):
    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 0.5 - 1.0, state), donate_argnums=0)
    state, copies = {"params": {"w": jnp.arange(2**21, dtype=jnp.float32)}}, {}
    with Checkpoints(tmp_path, keep_last=4) as checkpoints:
        for number in range(1, 4):
            copies[number] = np.array(state["params"]["w"])
            checkpoints.save(number, state, PROGRESS)
            for _ in range(5):
                state = step(state)
            checkpoints.record_evaluation(number, {"loss": 1.0}, PROGRESS)
        for number, copy in copies.items():
            saved = checkpoints.restore_weights([number], state["params"])["w"]
            assert np.array_equal(saved, copy)
    assert not np.array_equal(copies[1], copies[2])


def test_inference_reads_nothing_of_the_optimizer(folder):
    shutil.rmtree(folder / "3" / "state")
    shutil.rmtree(folder / "3" / "params")  # there is a moving average
    with Checkpoints(folder, read_only=True) as checkpoints:
        assert identical(jax.device_get(weights(checkpoints, 3)), expected(3).ema)


# -- of another run


def test_checkpoints_of_another_text_are_refused_but_not_those_that_do_not_tell(folder, said):
    # Another vocabulary has another shape, which does not make the checkpoints broken.
    other = {"params": {"b": jnp.zeros(9)}}
    with Checkpoints(folder, 3) as checkpoints:
        for refused in (
            lambda: checkpoints.restore_newest(other, "y"),
            lambda: checkpoints.check_fingerprint("y"),
        ):
            with pytest.raises(UserError, match="tokenizer x, not with y"):
                refused()
        checkpoints.check_fingerprint("x", "old")
        checkpoints.save(4, make_state(2.0), {**PROGRESS, "text_digest": "old"})
        checkpoints.wait()
        assert checkpoints.restore_newest(make_state(0.0), "x", "old")
        with pytest.raises(UserError, match="trained on text with the digest old, not new: rest"):
            checkpoints.check_fingerprint("x", "new")
    assert said == []


def test_a_state_with_other_arrays_is_refused_and_its_weights_stay_usable(folder):
    with Checkpoints(folder, 3) as checkpoints:
        other = make_state(0.0).replace(params={"b": jnp.zeros(9)})
        with pytest.raises(UserError, match=r"params/a/kernel is .* not absent"):
            checkpoints.restore_newest(other, "x")
        assert checkpoints.steps() == [1, 2, 3]
        assert identical(jax.device_get(weights(checkpoints, 1)), expected(1).ema)


# -- damage


def reads(folder) -> str:
    """Whether the weights and the state of step 3 are restored; else the error."""
    try:
        with Checkpoints(folder, 3, read_only=True) as checkpoints:
            used = jax.device_get(weights(checkpoints, 3))
        state, _, said = resume(folder)
    except UserError as error:
        return str(error)
    same = identical(used, expected(3).ema) and identical(state, expected(3))
    return "the same" if same and not said else "others"


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=FULL)])
def test_flipped_bits_are_named_or_harmless(original, tmp_path, count):
    rng, named = random.Random(count), 0
    files = sorted(path.relative_to(original) for path in (original / "3").rglob("*"))
    files = [path for path in files if (original / path).is_file()]
    for number in range(count):
        copy = Path(shutil.copytree(original, tmp_path / f"run{number}" / "checkpoints"))
        path = copy / rng.choice(files)
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        result = reads(copy)
        if path.parent.name == "3" and path.name != checkpoint.RECORD:  # of Orbax's commit
            assert result == "the same", path
        else:
            assert "checkpoints/3 is damaged" in result, path
            named += 1
        shutil.rmtree(copy.parent)
    assert named > count / 2


def test_a_flip_that_nobody_checks_is_used(folder, monkeypatch):
    """The control: without the digests, flipped bits change what is restored."""
    monkeypatch.setattr(checkpoint, "check_files", lambda *_: None)
    path = max((folder / "3/ema").rglob("*"), key=lambda path: path.stat().st_size)
    data, changed = path.read_bytes(), 0
    for i in range(0, len(data), 1009):
        path.write_bytes(data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :])
        with np.errstate(all="ignore"), Checkpoints(folder, read_only=True) as checkpoints:
            try:
                changed += not identical(jax.device_get(weights(checkpoints, 3)), expected(3).ema)
            except UserError:
                continue
    assert changed > 2


@pytest.mark.parametrize("content", ["", "{", "{}", None])
def test_a_damaged_record_is_named_once_and_its_checkpoint_stays(content, folder, said):
    path = folder / "2" / checkpoint.RECORD
    path.write_text(path.read_text().replace("1.0", "9.0") if content is None else content)
    with Checkpoints(folder, 1) as checkpoints:
        assert checkpoints.scores() == {1: (-3.0, -3.0), 3: (-2.0, -2.0)}
        for step in (4, 5):
            save(checkpoints, step, 5.0)
        assert checkpoints.steps() == [2, 3, 5]  # it may be the best
    [line] = said
    assert "checkpoints/2 is damaged: record.json is not what was written" in line


def test_what_a_kill_leaves_is_no_checkpoint_and_is_deleted_alone(folder, tmp_path):
    ours = folder / "4.orbax-checkpoint-tmp", folder / "3.deleted"
    others = tmp_path / "others", folder / "my.orbax-checkpoint-tmp", folder / "work.deleted"
    (folder / "5.orbax-checkpoint-tmp").symlink_to(tmp_path / "others")
    for place in ours:
        shutil.copytree(folder / "1", place)
    for place in others:
        place.mkdir()
        (place / "file").touch()
    with Checkpoints(folder, read_only=True) as reader:
        assert reader.steps() == [1, 2, 3]
    assert all(place.exists() for place in ours)  # another process may be writing there
    with Checkpoints(folder, 1):
        pass
    assert [place.exists() for place in (*ours, *others)] == [False] * 2 + [True] * 3
    assert all((place / "file").exists() for place in others)


def test_a_checkpoint_that_the_system_refuses_says_why(folder, monkeypatch):
    def fail(*_, **__):  # as tensorstore does
        raise ValueError(f"RESOURCE_EXHAUSTED: Error [os_error_code='{errno.ENOSPC}']")

    monkeypatch.setattr(ocp.CheckpointManager, "save", fail)
    with Checkpoints(folder, 3) as checkpoints, pytest.raises(UserError) as refused:
        checkpoints.save(4, make_state(4.0), PROGRESS)
    assert f"({os.strerror(errno.ENOSPC)}): check room" in str(refused.value)
    assert "kept: steps 1, 2, 3" in str(refused.value)
    assert refused.value.__cause__.errno == errno.ENOSPC


def test_what_a_system_cannot_read_now_is_no_damage(folder, monkeypatch):
    before = sorted(folder.parent.rglob("*"))

    def fail(*_, **__):
        raise OSError("Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "restore", fail)
        with pytest.raises(UserError, match=r"3 cannot be read now .*Too many open files"):
            resume(folder)
        patch.setattr(checkpoint, "hash_file", fail)
        with pytest.raises(OSError, match="Too many"):
            resume(folder)
    assert sorted(folder.parent.rglob("*")) == before
    assert identical(resume(folder)[0], expected(3))  # the control
