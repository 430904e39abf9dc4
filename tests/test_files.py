"""Files that are whole or as they were."""

import errno
import os

import numpy as np
import pytest

from transformer.files import whole_file, write_arrays, write_json


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"one": 1})
    before = path.read_bytes()

    def fail_half_way():
        with whole_file(path) as file:
            file.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_names_the_file_that_was_written(tmp_path):
    with pytest.raises(OSError, match="No space") as caught, whole_file(tmp_path / "b.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "b.txt")


def test_content_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda d: (calls.append("sync"), sync(d)))
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda p, to: (calls.append("rename"), replace(p, to))[1]
    )
    write_arrays(tmp_path / "c.npz", {"x": np.arange(3)})
    assert calls == ["sync", "rename", "sync"]


def test_equal_arrays_make_equal_files(tmp_path):
    for name in "ab":
        write_arrays(tmp_path / name, {"x": np.arange(3)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
