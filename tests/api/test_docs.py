"""The Python of the README and of the guide runs as it stands."""

import re

import pytest
from task_runs import train_runs

import tiny_run
from places import ROOT
from tiny_run import without_pictures

PAGES = ("README.md", "docs/python.md")
# What the pages call their runs, of each task.
RUNS = {
    "translation": ("quickstart", "own"),
    "language_model": ("shakespeare",),
    "classification": ("reviews",),
}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return train_runs(tmp_path_factory)


@pytest.fixture(scope="module")
def place(folders, tmp_path_factory):
    """A folder with the runs that the pages name, and a config of a tiny run."""
    place = tmp_path_factory.mktemp("place")
    (place / "runs").mkdir()
    (place / "configs").mkdir()
    config = tiny_run.CONFIG.replace("CACHE", str(place / "cache"))
    (place / "configs" / "quickstart.py").write_text(config)
    for task, names in RUNS.items():
        for name in names:
            (place / "runs" / name).symlink_to(folders[task])
    return place


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, place, monkeypatch):
    monkeypatch.chdir(place)
    found = blocks((ROOT / page).read_text("utf-8"))
    assert found
    names = {}
    with without_pictures():
        for block in found:
            exec(compile(block, page, "exec"), names)
    assert names["run"].trained.steps


def test_wrong_python_would_be_seen(place, monkeypatch):
    monkeypatch.chdir(place)
    [block] = blocks("```python\nimport transformer\ntransformer.load('runs/none')\n```\n")
    with pytest.raises(Exception, match="no run"):
        exec(block, {})
