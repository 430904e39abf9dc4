"""The Python of the README and of the guides runs as it stands."""

import contextlib
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tiny_run
from experiments.process.config import read_experiment
from places import ROOT
from task_runs import SHORT
from tiny_run import without_pictures
from transformer.model.layers import ACTIVATIONS
from transformer.model.positions.registry import REGISTRY

pytestmark = pytest.mark.full

PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "\n```python\n" in path.read_text("utf-8")
    and path.name != "serving.md"  # needs a server: see test_serving.py
)
# What the pages call their runs, of each task.
RUNS = {
    "translation": ("quickstart", "own"),
    "language_model": ("shakespeare",),
    "classification": ("reviews",),
}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def place(loaded, tmp_path_factory):
    """A folder with the runs that the pages name, and a config of a tiny run."""
    place = tmp_path_factory.mktemp("place")
    (place / "runs").mkdir()
    (place / "configs").mkdir()
    config = tiny_run.CONFIG.replace("CACHE", str(place / "cache"))
    short = "".join(f"    config.{key} = {value}\n" for key, value in SHORT.items())
    config = config.replace("    return config", f"{short}    return config")
    (place / "configs" / "quickstart.py").write_text(config)
    (place / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\na b\n")
    for task, names in RUNS.items():
        for name in names:
            (place / "runs" / name).symlink_to(loaded[task].folder)
    return place


def test_the_pages_with_python_are_found():
    assert {"README.md", "docs/python.md", "docs/articles.md", "docs/new_variant.md"} <= {*PAGES}


def run_page(text: str, page: str, place: Path) -> None:
    """Runs the Python of a page in the order of its blocks, from a folder."""
    names: dict[str, Any] = {}
    registries = mock.patch.dict(REGISTRY), mock.patch.dict(ACTIVATIONS)  # pages add to them
    with contextlib.chdir(place), without_pictures(), registries[0], registries[1]:
        for block in blocks(text):
            exec(compile(block, page, "exec"), names)
        if "run" in names:
            assert names["run"].trained.steps
        if "get_config" in names:  # of a file that a page tells to write
            (place / "theirs.py").write_text(block)
            read_experiment("theirs.py")


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, place):
    text = (ROOT / page).read_text("utf-8")
    assert blocks(text)
    run_page(text, page, place)


def test_wrong_python_would_be_seen(tmp_path):
    page = "```python\na = 1\n```\nThen:\n\n```python\nassert a == SUM\n```\n"
    run_page(page.replace("SUM", "1"), "page.md", tmp_path)
    with pytest.raises(AssertionError):
        run_page(page.replace("SUM", "2"), "page.md", tmp_path)
    with pytest.raises(NameError, match="SUM"):
        run_page(page, "page.md", tmp_path)
