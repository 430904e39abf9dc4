"""A run whose folder is in a bucket: trained, killed, resumed elsewhere, read, and locked."""

import contextlib
import itertools
import json
import shutil
from pathlib import Path
from unittest import mock

import fake_store
import pytest

from experiments.command import bucket
from experiments.command.bucket import Bucket, mirror
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


@pytest.fixture
def url(store):
    return f"fake://{store}"


def files_in(folder):
    """What is in a bucket, apart from the lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.full
def test_a_run_in_a_bucket_is_that_of_a_folder_and_is_used_anywhere(tmp_path, url, store, machine):
    places = (tmp_path / "run", url)
    config = tmp_path / "tiny.py"
    config.write_text(CONFIG.replace("CACHE", str(tmp_path / "cache")))
    with without_pictures():
        for place in places:
            assert command(f"--config={config}", f"--workdir={place}").code == 0
    assert lines(store) == lines(tmp_path / "run")
    # Orbax gives some of its files names at random, and TensorBoard the time.
    names = [
        {name for name in files_in(place) if "/d/" not in name and "events" not in name}
        for place in (tmp_path / "run", store)
    ]
    assert names[0] == names[1] | {"lock"}
    machine("second")
    translate = "--mode=translate"
    local, remote = (command(translate, f"--workdir={p}", stdin=b"a b c\n") for p in places)
    assert remote.code == 0
    assert remote.out == local.out
    before = files_in(store)
    machine("third")
    again = command(f"--workdir={url}")
    assert "is finished, 40 steps" in again.out
    assert files_in(store) == before


def grow_old(store):
    """Lets the lock be one that was left more than a minute ago."""
    newest = max((store / "locks").iterdir())
    holder = json.loads(newest.read_text())
    newest.write_text(json.dumps(holder | {"time": holder["time"] - bucket.STALE}))


def test_one_process_alone_has_the_lock(url, store, machine, monkeypatch, capsys):
    ends = []
    monkeypatch.setattr(bucket.signals, "end", ends.append)
    first, second = Bucket(url), Bucket(url)
    first.open_copy(training=True)
    with pytest.raises(UserError, match="trains in"):
        second.open_copy(training=True)
    grow_old(store)
    second = Bucket(url)
    second.open_copy(training=True)
    first.upload()
    assert ends == [2]
    assert "another process trains in" in capsys.readouterr().err
    second.release()
    with mirror(url, training=True):
        pass
    # Of two that see the same last lock, the store lets one make the next.
    third = Bucket(url)
    newest = third._newest()
    (store / "locks/000004").write_text("{}")
    monkeypatch.setattr(third, "_newest", lambda: newest)
    with pytest.raises(UserError, match="cannot be used"):
        third.open_copy(training=True)


def test_a_copy_follows_the_bucket_but_keeps_what_was_never_uploaded(url, store, machine):
    with mirror(url, training=True) as copy:
        (copy / "checkpoints/1").mkdir(parents=True)
        (copy / "checkpoints/1/record.json").write_text("1")
        (copy / "metrics").write_text("a")
    (copy / "metrics").write_text("a killed command wrote more")
    shutil.rmtree(copy / "checkpoints")  # and somebody made room
    with mirror(url, training=False) as copy:
        assert (copy / "metrics").read_text() == "a killed command wrote more"
        assert (copy / "checkpoints/1/record.json").read_text() == "1"
    assert (store / "metrics").read_text() == "a"  # which a command that does not train leaves
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
    with mirror(url, training=True):
        pass
    assert files_in(store).keys() == {"metrics"}  # nor is the half one in the way of a whole one


def test_each_command_has_a_copy_of_its_own(url, store, machine):
    with mirror(url, training=False) as server:  # which began before the training
        with mirror(url, training=True) as copy:
            (copy / "metrics").write_text("of step 3")
            with mirror(url, training=False) as reader:
                assert len({server, copy, reader}) == 3
        (server / "figure").write_text("of the server")
    assert files_in(store) == {"metrics": b"of step 3", "figure": b"of the server"}
    with mirror(url, training=False) as copy:
        assert copy == server  # a copy is used again
        assert (copy / "metrics").read_text() == "of step 3"


def test_a_command_that_does_not_train_replaces_only_what_it_read_and_deletes_nothing(
    url, store, machine, caplog
):
    with mirror(url, training=True) as copy:
        for name in ("results", "report", "picture"):
            (copy / name).write_text("1")
    with mirror(url, training=False) as copy:
        for name in ("results", "report", "new"):
            (copy / name).write_text("by an evaluation")
        (copy / "picture").unlink()
        for name in ("results", "new"):
            (store / name).write_text("by a training elsewhere")
    assert files_in(store) == {
        "results": b"by a training elsewhere",
        "new": b"by a training elsewhere",
        "report": b"by an evaluation",
        "picture": b"1",
    }
    assert caplog.text.count("another command has changed") == 2
    with mirror(url, training=True) as copy, mirror(url, training=False) as other:
        (copy / "results").write_text("by the training, which has the lock")
        (other / "results").write_text("2")
    assert (store / "results").read_text() == "by the training, which has the lock"


def test_a_copy_has_what_a_training_uploads_meanwhile(url, store, machine, monkeypatch):
    get = fake_store.FakeStore.get_file
    with mirror(url, training=True) as copy:
        for name in "ab":
            (copy / name).write_text("1")
    machine("second")

    def get_slowly(self, there, here, **_):
        get(self, there, here)
        monkeypatch.setattr(fake_store.FakeStore, "get_file", get)
        for name in "ab":
            (store / name).write_text("22")
        (store / "c").write_text("22")

    monkeypatch.setattr(fake_store.FakeStore, "get_file", get_slowly)
    with mirror(url, training=False) as copy:
        assert {name: (copy / name).read_text() for name in "abc"} == dict.fromkeys("abc", "22")


def test_a_record_is_uploaded_after_the_lines_of_a_log_that_it_follows_from(url, machine):
    session, put, names = Bucket(url), fake_store.FakeStore.put_file, []
    session.open_copy(training=True)
    for name in ("record.json", "other", bucket.LOGS[0]):
        (session.copy / name).write_text("1")

    def put_meanwhile(store, here, *others, **named):
        names.append(Path(here).name)
        if len(names) == 1:  # the record now follows from a line that is not uploaded yet
            (session.copy / bucket.LOGS[0]).write_text("1, 2")
            (session.copy / "record.json").write_text("1, 2")
        put(store, here, *others, **named)

    with mock.patch.object(fake_store.FakeStore, "put_file", put_meanwhile):
        session.upload()
        assert names == [bucket.LOGS[0], "other"]
        session.upload()
    assert names[2:] == [bucket.LOGS[0], "record.json"]


class Killed(BaseException):
    """The process is killed: nothing more that it does has an effect."""


def killed_after(count, session):
    """Runs a session until `count` operations, here or in the store; returns whether it ended."""
    left = itertools.count(count, -1)

    def counted(place, name):
        function = getattr(place, name)

        def call(*arguments, **options):
            if next(left) <= 0:
                raise Killed
            return function(*arguments, **options)

        return mock.patch.object(place, name, call)

    names = "find", "info", "pipe_file", "put_file", "cat_file", "get_file", "rm_file"
    with contextlib.ExitStack() as patches:
        for name in names:
            patches.enter_context(counted(fake_store.FakeStore, name))
        patches.enter_context(counted(bucket, "write_json"))
        patches.enter_context(mock.patch.object(bucket, "EVERY", 1e9))
        with contextlib.suppress(Killed):
            session()
            return True
    return False


def trains_from(url, written):
    """A training that goes on from its newest checkpoint, and deletes the others."""
    with mirror(url, training=True) as copy:
        steps = sorted(int(path.parent.name) for path in copy.glob("checkpoints/*/record.json"))
        step = steps[-1] if steps else 0
        assert step >= max(written)  # nothing that was on this machine or uploaded is lost
        assert not step or (copy / f"checkpoints/{step}/arrays").read_text() == str(step)
        assert (copy / "metrics").read_text() == f"to {step}" if step else True
        place = copy / f"checkpoints/{step + 1}"
        place.with_suffix(".orbax-checkpoint-tmp").mkdir(parents=True)
        for name in ("arrays", "record.json"):
            (place.with_suffix(".orbax-checkpoint-tmp") / name).write_text(str(step + 1))
        (copy / "metrics").write_text(f"to {step + 1}")
        place.with_suffix(".orbax-checkpoint-tmp").rename(place)
        for old in steps:
            shutil.rmtree(copy / f"checkpoints/{old}")
        written.append(step + 1)


def test_a_kill_between_any_two_operations_loses_nothing(url, store, machine):
    written = [0]

    def train():
        with contextlib.suppress(FileNotFoundError, ValueError):
            grow_old(store)
        trains_from(url, written)

    for count in itertools.count():
        ended = killed_after(count, train)
        machine(f"reader_{count}")  # elsewhere
        with mirror(url, training=False) as copy:
            for path in copy.glob("checkpoints/*"):
                assert (path / "arrays").read_text() == (path / "record.json").read_text()
        machine("first")
        before = files_in(store)
        killed_after(count // 2, lambda: mirror(url, training=False).__enter__())
        assert files_in(store) == before
        killed_after(count // 3, train)  # once more, soon after its start
        train()
        place = f"checkpoints/{written[-1]}"
        assert files_in(store).keys() == {"metrics", f"{place}/arrays", f"{place}/record.json"}
        if ended:
            break
    assert count > 20


def test_what_a_store_refuses_is_named(url, store, machine, tmp_path):
    refused("--mode=translate", "--workdir=nothing://a/b", says="Protocol not known: nothing")
    nowhere = f"fake://{tmp_path / 'none' / 'run'}"
    says = (f"--workdir={nowhere} cannot be used", "bucket does not exist", "your permission")
    refused("--mode=translate", f"--workdir={nowhere}", says=says)
    objects = {f"{store}/../outside": {"size": 1, "ETag": "1"}}
    with mock.patch.object(fake_store.FakeStore, "find", return_value=objects):
        refused(f"--workdir={url}", "--mode=report", says="the object '../outside'")
