"""What a part of the accelerator study is asked to do."""

import pytest

from experiments.studies.accelerator import parts


@pytest.fixture
def order(tmp_path):
    return parts.Order(tmp_path, False, 60.0, "toy")
