"""A server of a run of each task."""

import pytest
from serving import serving

import transformer
from experiments.serve.operations import Served
from task_runs import train_runs


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """A run of each task."""
    return {task: transformer.load(folder) for task, folder in train_runs(tmp_path_factory).items()}


@pytest.fixture(scope="session")
def runs(loaded):
    return [Served(name, run) for name, run in loaded.items()]


@pytest.fixture(scope="session")
def site(runs):
    with serving(runs) as running:
        yield running
