"""A training that must be refused."""

import pytest

from tiny_run import refused


@pytest.fixture
def refuse(tiny, tmp_path):
    """Checks that training with these arguments is refused before the workdir is touched."""

    def check(*arguments, says):
        workdir = tmp_path / "workdir"
        refused(f"--config={tiny.config}", f"--workdir={workdir}", *arguments, says=says)
        assert not workdir.exists()

    return check
