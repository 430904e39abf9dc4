"""The tiny trained run, which most modes are tested on."""

import pytest

from tiny_run import shared_run


@pytest.fixture(scope="module")  # so that it is made while pictures are drawn
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)
