"""The quickstart learns, from the command line to the score."""

import json
import subprocess
import sys

import pytest

from places import ROOT


@pytest.mark.slow
def test_the_quickstart_reaches_95_bleu(tmp_path):
    arguments = "--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}"
    subprocess.run([sys.executable, "launch.py", *arguments], cwd=ROOT, check=True)
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["test"]["bleu"] >= 95
