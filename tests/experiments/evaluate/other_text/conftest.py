"""Copies of the runs of each task, which are evaluated."""

import shutil
from pathlib import Path

import pytest

from task_runs import train_runs
from tiny_run import translators_once


@pytest.fixture(scope="module", autouse=True)
def once():
    with translators_once():
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A copy of the run of each task, which is evaluated, by its task."""
    place = tmp_path_factory.mktemp("runs")
    return {
        task: Path(shutil.copytree(folder, place / task))
        for task, folder in train_runs(tmp_path_factory).items()
    }


@pytest.fixture(scope="module")
def translator(folders):
    return folders["translation"]
