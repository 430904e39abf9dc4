"""A run, its report and a copy to change."""

import pytest

from tiny_run import shared_run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture(scope="module")
def page(tiny):
    """The report that was made at the end of the training."""
    return (tiny.workdir / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def copy(tiny, tmp_path):
    return tiny.copy(tmp_path / "run")
