"""The tree of classes in the articles is that of the model."""

import subprocess
import sys

import pytest

from places import ROOT


@pytest.mark.full
def test_the_page_has_the_tree_of_the_model():
    # A process of its own: the shape checks of the tests reject the placeholders of Flax.
    command = [sys.executable, "-m", "tools.class_tree"]
    tree = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tree.startswith("Transformer\n├── ")
    assert f"```text\n{tree}```\n" in (ROOT / "docs" / "articles.md").read_text("utf-8")
