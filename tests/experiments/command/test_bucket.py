"""A run whose folder is in a bucket: trained, killed, resumed elsewhere, read, and locked."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import fake_store
import pytest

from experiments.command import bucket
from experiments.command.bucket import Bucket, mirror
from places import ROOT
from runs import lines
from tiny_run import CONFIG, command, refused, without_pictures
from transformer.errors import UserError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that makes this machine another one, without copies."""

    def other(name):
        monkeypatch.setattr(bucket, "COPIES", str(tmp_path / name))

    other("first")
    return other


@pytest.fixture
def store(tmp_path):
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket" / "run"


def config_file(folder):
    path = folder / "tiny.py"
    path.write_text(CONFIG.replace("CACHE", str(folder / "cache")))
    return path


def files_in(folder):
    """What is in a bucket, apart from the lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_run_in_a_bucket_is_that_of_a_folder_and_is_used_from_anywhere(tmp_path, store, machine):
    config = config_file(tmp_path)
    with without_pictures():
        for place in (tmp_path / "run", f"fake://{store}"):
            assert command(f"--config={config}", f"--workdir={place}").code == 0
    assert lines(store) == lines(tmp_path / "run")
    # Orbax gives some of its files names at random, and TensorBoard the time.
    names = [
        {name for name in files_in(place) if "/d/" not in name and "events" not in name}
        for place in (tmp_path / "run", store)
    ]
    assert names[0] == names[1] | {"lock"}
    machine("second")
    [local, remote] = (
        command("--mode=translate", f"--workdir={place}", stdin=b"a b c\n")
        for place in (tmp_path / "run", f"fake://{store}")
    )
    assert remote.code == 0
    assert remote.out == local.out
    before = files_in(store)
    machine("third")
    again = command(f"--workdir=fake://{store}")
    assert "is finished, 40 steps" in again.out
    assert files_in(store) == before


@pytest.mark.full
def test_a_killed_run_goes_on_elsewhere_as_if_it_had_not_been_killed(tmp_path, store, machine):
    config = config_file(tmp_path)
    longer = f"--config={config}", "--config.train.steps=300", "--config.train.evaluate_every=50"
    with without_pictures():
        assert command(*longer, f"--workdir={tmp_path / 'run'}").code == 0
    module = Path(fake_store.__file__)
    started = [sys.executable, "launch.py", *longer, f"--module={module}"]
    options = {"cwd": ROOT, "env": os.environ | {"HOME": str(tmp_path / "home")}}
    for steps in (50, 150):  # it is killed soon after the upload of such a checkpoint
        process = subprocess.Popen([*started, f"--workdir=fake://{store}"], **options)
        while not (store / "checkpoints" / str(steps) / "record.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        refused(f"--workdir=fake://{store}", says=(f"process {process.pid} of", "trains in"))
        grow_old(store)
    with without_pictures():
        assert command(f"--workdir=fake://{store}").code == 0
    assert lines(store) == lines(tmp_path / "run")


def grow_old(store):
    """Lets the lock be one that was left more than a minute ago."""
    newest = max((store / "locks").iterdir())
    holder = json.loads(newest.read_text())
    newest.write_text(json.dumps(holder | {"time": holder["time"] - bucket.STALE}))


def test_one_process_alone_has_the_lock(store, machine, monkeypatch, capsys):
    ends = []
    monkeypatch.setattr(bucket.signals, "end", ends.append)
    first, second = Bucket(f"fake://{store}"), Bucket(f"fake://{store}")
    first.take()
    with pytest.raises(UserError, match="trains in"):
        second.take()
    first.download()
    grow_old(store)
    second.take()
    first.upload()
    assert ends == [2]
    assert "another process trains in" in capsys.readouterr().err
    second.release()
    with mirror(f"fake://{store}", training=True):
        pass
    # Of two that see the same last lock, the store lets one make the next.
    third = Bucket(f"fake://{store}")
    (store / "locks/000004").touch()
    monkeypatch.setattr(third, "_newest", lambda: 3)
    with pytest.raises(UserError, match="another process has begun to train"):
        third.take()


def test_a_copy_follows_the_bucket_but_keeps_what_was_never_uploaded(store, machine):
    url = f"fake://{store}"
    with mirror(url, training=True) as copy:
        (copy / "checkpoints/1").mkdir(parents=True)
        (copy / "checkpoints/1/record.json").write_text("1")
        (copy / "metrics").write_text("a")
    (copy / "metrics").write_text("a killed command wrote more")
    shutil.rmtree(copy / "checkpoints")  # and somebody made room
    with mirror(url, training=False) as copy:
        assert (copy / "metrics").read_text() == "a killed command wrote more"
        assert (copy / "checkpoints/1/record.json").read_text() == "1"
    machine("second")
    with mirror(url, training=True) as elsewhere:
        (elsewhere / "metrics").write_text("b")
        (elsewhere / "checkpoints/1/record.json").unlink()
        (elsewhere / "checkpoints/2").mkdir()
        (elsewhere / "checkpoints/2/half").write_text("")  # a kill came before its record
    machine("first")
    (copy / "extra").write_text("of a kill")
    with mirror(url, training=False) as copy:
        assert files_in(copy).keys() == {"metrics", bucket.STATE}
        assert (copy / "metrics").read_text() == "b"
        assert not (copy / "checkpoints").exists()


def test_a_command_leaves_the_copy_of_a_training_as_it_is(store, machine):
    url = f"fake://{store}"
    with mirror(url, training=True) as copy:
        (copy / "metrics").write_text("uploaded, and the state is not yet written")
        (store / "metrics").write_text((copy / "metrics").read_text())
        (copy / "checkpoints/1").mkdir(parents=True)
        (copy / "checkpoints/1/record.json").write_text("new")
        with mirror(url, training=False) as same:
            assert same == copy
            assert (copy / "checkpoints/1/record.json").read_text() == "new"
        with pytest.raises(UserError, match="another process trains in fake://"):
            mirror(url, training=True).__enter__()
    assert files_in(store).keys() == {"metrics", "checkpoints/1/record.json"}
    with mirror(url, training=True):  # control: the lock is free again
        pass


def test_what_a_store_refuses_is_named(store, machine, tmp_path):
    refused("--mode=translate", "--workdir=nothing://a/b", says="Protocol not known: nothing")
    nowhere = f"fake://{tmp_path / 'none' / 'run'}"
    says = (f"--workdir={nowhere} cannot be used", "bucket does not exist", "your permission")
    refused("--mode=translate", f"--workdir={nowhere}", says=says)
    objects = {f"{store}/../outside": {"size": 1, "ETag": "1"}}
    with mock.patch.object(fake_store.FakeStore, "find", return_value=objects):
        refused(f"--workdir=fake://{store}", "--mode=report", says="the object '../outside'")
    both = f"--workdir=fake://{store}", "--processes=localhost:1,2,0"
    refused(f"--config={config_file(tmp_path)}", *both, says="mount the bucket")
