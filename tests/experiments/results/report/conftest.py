"""The report of the tiny run."""

import pytest


@pytest.fixture(scope="module")
def page(tiny):
    """The report that was made at the end of the training."""
    return (tiny.workdir / "report.html").read_text(encoding="utf-8")
