"""Garbage is collected only if the code asks for it."""

import gc

import pytest


@pytest.fixture(autouse=True)
def no_luck():
    """Objects in a cycle stay, unless the code itself has them looked for.

    It then looks at those of the test alone: of the tests before there are millions.
    """
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()
