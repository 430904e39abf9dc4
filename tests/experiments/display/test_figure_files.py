"""A picture of a run is whole, or as it was before: one function writes all figures."""

import re

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from experiments.display.plotting import save_figure
from places import ROOT

EXPERIMENTS = ROOT / "experiments"


def figure(title="a figure") -> Figure:
    made = Figure(figsize=(2, 1), dpi=100)
    made.suptitle(title)
    return made


def test_a_full_disk_leaves_the_picture_that_was_there_and_is_named(tmp_path, monkeypatch):
    picture = save_figure(figure(), tmp_path / "a.png")
    before = picture.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformer.files.os.fsync", full)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{picture}'")):
        save_figure(figure("another"), picture)
    assert picture.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert imread(picture).shape == (100, 200, 4)
