"""The page that the tests in a browser open."""

import pytest
from attention_examples import FRAMES, LABELS, MAPS

from experiments.attention.draw import Example, write_explorer
from experiments.process.modes import Options


@pytest.fixture(scope="package")
def page(tmp_path_factory):
    """The explorer of a sentence, with a snapshot sentence at three checkpoints."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    given, tracked = Example(("step 30",), (MAPS,)), Example(LABELS, FRAMES)
    return write_explorer(path, given, [tracked], Options())
