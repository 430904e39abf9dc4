"""A run, and a copy of its folder."""

import pytest

from tiny_run import shared_run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture
def copy(tiny, tmp_path):
    """A copy of the run's folder, to be changed."""
    return tiny.copy(tmp_path / "copy")
