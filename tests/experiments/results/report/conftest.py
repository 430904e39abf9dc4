"""The report of the tiny run, and a copy to change."""

import pytest


@pytest.fixture(scope="module")
def page(tiny):
    """The report that was made at the end of the training."""
    return (tiny.workdir / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def copy(tiny, tmp_path):
    return tiny.copy(tmp_path / "run")
