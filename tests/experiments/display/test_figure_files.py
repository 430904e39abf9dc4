"""A picture of a run is whole, or as it was before."""

import re

import pytest
from matplotlib.figure import Figure

from experiments.display.plotting import save_figure


def test_a_full_disk_leaves_the_picture_that_was_there_and_is_named(tmp_path, monkeypatch):
    picture = save_figure(Figure(figsize=(2, 1)), tmp_path / "new" / "a.png")
    before = picture.read_bytes()
    assert before.startswith(b"\x89PNG")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformer.files.os.fsync", full)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{picture}'")):
        save_figure(Figure(figsize=(3, 1)), picture)
    assert picture.read_bytes() == before
    assert [path.name for path in picture.parent.iterdir()] == ["a.png"]
