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


@pytest.mark.parametrize(
    ("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_suffix_is_the_format_and_the_folder_is_made(tmp_path, suffix, begins):
    picture = tmp_path / "new" / f"a.{suffix}"
    assert save_figure(figure(), picture) == picture
    assert picture.read_bytes().startswith(begins)
    assert [path.name for path in picture.parent.iterdir()] == [picture.name]


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


def test_no_other_code_writes_a_figure_or_arrays_in_place():
    found = {
        f"{path.parent.name}/{path.name}": re.findall(
            r"\.savefig\(|np\.savez\w*\(|np\.save\(", path.read_text("utf-8")
        )
        for path in EXPERIMENTS.glob("**/*.py")
    }
    writes = {name: calls for name, calls in found.items() if calls}
    assert writes == {
        "display/plotting.py": [".savefig("] * 2,  # to memory
        "display/web_page.py": [".savefig("],
    }
