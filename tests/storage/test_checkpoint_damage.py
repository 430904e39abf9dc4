"""Damage to a checkpoint is named or harmless, and a moment's trouble is not damage."""

import errno
import os
import random
import resource
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
from transformer.optim import optimizers
from transformer.storage import checkpoint_files
from transformer.storage.checkpoint import Checkpoints
from transformer.storage.checkpoint_files import DamageError
from transformer.train_step import init_state

# TensorStore itself checks arrays that are smaller.
PARAMS = {"a": {"kernel": (61, 67)}, "b": (7,)}


def make_state(value, ema=True):
    params = jax.tree.map(
        lambda shape: value + jnp.sin(jnp.arange(np.prod(shape), dtype=jnp.float32)).reshape(shape),
        PARAMS,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    return init_state(params, optimizers.make_optimizer("adam", 0.9, 0.98, 1e-9, 1.0, 3), ema)


def save(checkpoints, step, loss=None):
    progress = {"fingerprint": "x", "step": step}
    checkpoints.save(step, make_state(float(step)), progress)
    if loss is not None:
        checkpoints.record_evaluation(step, {"loss": loss}, progress | {"evaluated": True})
    checkpoints.wait()


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


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(checkpoint_files, "PAUSES", (0.0, 0.0))


def resume(folder):
    """The state and progress that training goes on with, and what was said."""
    with heard() as said, Checkpoints(folder, 3) as checkpoints:
        state, progress = checkpoints.restore_newest(make_state(0.0), "x")
    return jax.device_get(state), progress, said


def expected(step):
    return jax.device_get(make_state(float(step)))


def test_what_is_damaged_stays_on_the_disk_that_a_linked_folder_is_on(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "checkpoints"
    elsewhere.parent.mkdir()
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    (elsewhere / "3" / checkpoint_files.RECORD).write_text("{")
    state, _, said = resume(folder)
    assert identical(state, expected(2))
    assert any("going back to the one before" in line for line in said)
    names = [path.name.split("_")[0] for path in elsewhere.parent.iterdir()]
    assert sorted(names) == ["checkpoints", "unreadable"]
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoints"]


# -- flipped bits


def all_bytes(folder: Path) -> list[tuple[Path, int]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path.relative_to(folder), i) for path in files for i in range(path.stat().st_size)]


def flip(path: Path, i: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[i] ^= 1 << bit
    path.write_bytes(data)


def is_named_or_harmless_to_resume(folder) -> bool:
    state, progress, said = resume(folder)
    if any("going back to the one before" in line for line in said):
        return identical(state, expected(2)) and progress["step"] == 2
    return identical(state, expected(3)) and progress["step"] == 3


def is_named_or_harmless_to_inference(folder) -> bool:
    with heard() as said, Checkpoints(folder, 3, read_only=True) as checkpoints:
        checkpoints.warn_of_damage()
        scores = checkpoints.scores()
        if scores != {1: (-3.0, -3.0), 2: (-1.0, -1.0), 3: (-2.0, -2.0)} and not said:
            return False
        try:
            weights = checkpoints.restore_weights([3], make_state(0.0).params)
        except DamageError:
            return True
        return identical(jax.device_get(weights), expected(3).ema)


def assert_flips_are_seen(original, tmp_path, count, seed):
    places = all_bytes(original / "3")
    rng, named = random.Random(seed), 0
    files = sorted({path for path, _ in places})
    for number in range(count):
        # Small files as often as large ones, then any byte.
        path = rng.choice(files) if number % 2 else rng.choice(places)[0]
        i, bit = rng.choice([i for p, i in places if p == path] or [0]), rng.randrange(8)
        if not (original / "3" / path).stat().st_size:
            continue
        copy = Path(shutil.copytree(original, tmp_path / f"run{number}" / "checkpoints"))
        flip(copy / "3" / path, i, bit)
        assert is_named_or_harmless_to_inference(copy), (path, i, bit)
        assert is_named_or_harmless_to_resume(copy), (path, i, bit)
        named += bool(list(copy.parent.glob("unreadable_3_*")))
        shutil.rmtree(copy.parent)
    return named


def test_twenty_flipped_bits_are_named_or_harmless(original, tmp_path):
    assert assert_flips_are_seen(original, tmp_path, 20, seed=0) > 5


@pytest.mark.slow
def test_two_hundred_flipped_bits_are_named_or_harmless(original, tmp_path, capsys):
    named = assert_flips_are_seen(original, tmp_path, 200, seed=1)
    with capsys.disabled():
        print(f"\n200 flipped bits: {named} checkpoints given up, the others of no effect")
    assert named > 50


def test_a_flip_that_nobody_checks_is_used(folder, monkeypatch):
    """The control: without the digests, flipped bits change what is restored."""
    monkeypatch.setattr(checkpoint_files, "_check_files", lambda *_: None)
    monkeypatch.setattr(checkpoint_files, "_digest_array", lambda x: "")
    leaves = checkpoint_files.read_record(folder / "3")["leaves"]
    leaves = {name: leaf | {"digest": ""} for name, leaf in leaves.items() if "ema/" in name}
    group = folder / "3" / "ema"
    before = checkpoint_files._read_group(group, leaves)
    path = max(filter(Path.is_file, group.rglob("*")), key=lambda path: path.stat().st_size)
    data, changed = path.read_bytes(), 0
    for i in range(0, len(data), 401):
        path.write_bytes(data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :])
        try:
            changed += not identical(checkpoint_files._read_group(group, leaves), before)
        except Exception:
            continue
    assert changed > 5


# -- damage to the numbers of an evaluation


@pytest.mark.parametrize("content", ["", "{", '{"digest": ""}', None])
def test_a_damaged_evaluation_is_named_and_does_not_move_the_best(content, folder, said):
    path = folder / "2" / "evaluation.json"
    text = path.read_text()
    path.write_text(text.replace("1.0", "9.0") if content is None else content)
    with Checkpoints(folder, 3, read_only=True) as checkpoints:
        checkpoints.warn_of_damage()
        checkpoints.warn_of_damage()  # says nothing twice
        assert checkpoints.scores() == {1: (-3.0, -3.0), 2: (-1.0, -1.0), 3: (-2.0, -2.0)}
        assert checkpoints.best_step() == 2
        assert not checkpoints.evaluated(2)
        assert checkpoints.evaluated(3)
    assert len(said) == 1
    assert "the evaluation of checkpoint" in said[0]
    assert "checkpoints/2 is damaged" in said[0]


def test_one_whose_score_is_lost_may_be_the_best_and_stays(folder):
    (folder / "3" / "evaluation.json").write_text("{")
    with Checkpoints(folder, 1) as checkpoints:
        for step in (4, 5):
            save(checkpoints, step, 5.0)
        assert checkpoints.steps() == [2, 3, 5]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", ["loss", "bleu"])
def test_a_score_that_is_not_finite_is_the_worst_and_costs_no_checkpoint(bad, metric, tmp_path):
    with Checkpoints(tmp_path, 1, metric) as checkpoints:
        for step, score in enumerate([bad, 5.0, bad, bad], 1):
            checkpoints.save(step, make_state(0.0), {"fingerprint": "x"})
            checkpoints.record_evaluation(step, {metric: score}, {"fingerprint": "x"})
        assert checkpoints.best_step() == 2
        assert checkpoints.steps() == [2, 4]


def test_parameters_that_are_not_finite_are_refused(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        save(checkpoints, 1, 1.0)
        state = make_state(2.0)
        for group in ("params", "ema"):
            tree = jax.tree.map(jnp.copy, state.params)
            spoilt = state.replace(**{group: tree | {"b": tree["b"].at[3].set(jnp.nan)}})
            checkpoints.save(2, spoilt, {"fingerprint": "x"})
            checkpoints.wait()
            if group == "ema":
                with pytest.raises(DamageError, match="ema/b is not finite"):
                    checkpoints.restore_weights([2], state.params)
            with heard() as said:
                restored, _ = checkpoints.restore_newest(state, "x")
            assert identical(jax.device_get(restored), expected(1))
            assert [f"{group}/b is not finite" in line for line in said] == [True]


# -- trouble


TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EIO)


class Failing:
    """Stands for a function that fails a given number of times before it works."""

    def __init__(self, function, times, error):
        self.function, self.left, self.error = function, times, error

    def __get__(self, instance, owner):
        return lambda *args, **options: self(instance, *args, **options)

    def __call__(self, *args, **options):
        if self.left:
            self.left -= 1
            raise self.error
        return self.function(*args, **options)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", TROUBLE, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("owner", "name"), [(checkpoint_files, "read_file"), (ocp.Checkpointer, "restore")]
)
def test_a_moment_s_trouble_gives_up_no_checkpoint(owner, name, number, folder, monkeypatch):
    error = OSError(number, os.strerror(number))
    monkeypatch.setattr(owner, name, Failing(getattr(owner, name), 2, error))
    state, progress, said = resume(folder)
    assert identical(state, expected(3))
    assert progress["step"] == 3
    assert said == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", TROUBLE, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("owner", "name"), [(checkpoint_files, "read_file"), (ocp.Checkpointer, "restore")]
)
def test_trouble_that_stays_is_named_and_moves_nothing(owner, name, number, folder, monkeypatch):
    before = sorted(folder.parent.rglob("*"))
    error = OSError(number, os.strerror(number))
    monkeypatch.setattr(owner, name, Failing(getattr(owner, name), 10**6, error))
    with pytest.raises(UserError, match=f"3 cannot be read now .*{os.strerror(number)}"):
        resume(folder)
    with (
        Checkpoints(folder, read_only=True) as checkpoints,
        pytest.raises(UserError, match="3 cannot be read now"),
    ):
        checkpoints.restore_weights([3], make_state(0.0).params)
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.usefixtures("impatient")
def test_a_process_without_files_to_open_says_so_and_moves_nothing(folder):
    before = sorted(folder.parent.rglob("*"))
    template = make_state(0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Checkpoints(folder, 3) as checkpoints:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(UserError, match=r"cannot be read now .*Too many open files"):
                checkpoints.restore_newest(template, "x")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        state, _ = checkpoints.restore_newest(template, "x")
    assert identical(jax.device_get(state), expected(3))
    assert sorted(folder.parent.rglob("*")) == before


# -- what is read, and what is left after a kill


def test_inference_reads_nothing_of_the_optimizer(folder):
    shutil.rmtree(folder / "3" / "state")
    shutil.rmtree(folder / "3" / "params")  # there is a moving average
    with Checkpoints(folder, read_only=True) as checkpoints:
        weights = checkpoints.restore_weights([3], make_state(0.0).params)
    assert identical(jax.device_get(weights), expected(3).ema)
    assert resume(folder)[1]["step"] == 2


def test_nothing_that_is_saved_names_a_device(folder):
    device = str(jax.devices()[0]).encode()
    for path in folder.rglob("*"):
        if path.is_file():
            assert device not in path.read_bytes()
            assert b"sharding" not in path.name.encode()


def test_what_a_kill_leaves_half_written_or_half_deleted_is_no_checkpoint(folder):
    for name in ("4.partial", "2.partial"):
        shutil.copytree(folder / "1", folder / name)
    with Checkpoints(folder, read_only=True) as reader:
        assert reader.steps() == [1, 2, 3]
    assert (folder / "4.partial").exists()  # another process may be writing it
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.steps() == [1, 2, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3"]


def test_progress_is_that_of_the_evaluation_where_there_is_one(folder):
    with Checkpoints(folder, 3) as checkpoints:
        assert checkpoints.read_progress(3) == {"fingerprint": "x", "step": 3, "evaluated": True}
        save(checkpoints, 4)
        assert not checkpoints.evaluated(4)
        assert checkpoints.read_progress(4) == {"fingerprint": "x", "step": 4}
    assert resume(folder)[1] == {"fingerprint": "x", "step": 4}
