"""The part `tests`: the tests of numbers, on the device."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from experiments.studies.accelerator.parts import Order
from transformer.errors import RunError, one_line

ROOT = Path(__file__).parents[3]
FILES = (
    "tests/model/test_attention.py",
    "tests/model/test_long_attention.py::"
    "test_flash_attention_on_this_device_has_the_values_and_gradients_of_equation_1",
    "tests/model/test_layers.py",
    "tests/model/test_norms.py",
    "tests/model/test_positions.py",
    "tests/model/test_transformer.py",
    "tests/model/test_stepwise.py",
    "tests/inference/test_decode.py",
    "tests/inference/test_sampling.py",
    "tests/training/test_losses.py",
    "tests/optim/test_optim.py",
    "tests/optim/test_optimizers.py",
    "tests/training/test_train_step.py",
    "tests/optim/test_weight_decay.py",
)
TOY_FILES = ("tests/training/test_losses.py",)
WORKERS = 4  # processes on one GPU; no other accelerator can be shared


def measure(order: Order) -> dict[str, Any]:
    """Returns how many tests passed, failed and were skipped, and which failed."""
    files = TOY_FILES if order.toy else FILES
    shared = ["-n", str(WORKERS)] if order.platform == "gpu" else []
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", *shared]
        # A process that takes most of the memory at its start leaves none for the others.
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, "-m", "pytest", *options, *files]
        done = subprocess.run(command, cwd=ROOT, env=environment)
        if not report.exists():
            raise RunError(f"pytest ended with exit code {done.returncode}, see tests.log")
        return count(report.read_text(encoding="utf-8"))


def count(report: str) -> dict[str, Any]:
    """Returns the numbers of a report of pytest, as XML, and each failure as a line."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failures, skipped = [], 0
    for case in cases:
        skipped += case.find("skipped") is not None
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                name = f"{case.get('classname', '')}::{case.get('name', '')}"
                message = one_line(found.get("message", ""))[:200]
                failures.append({"test": name, "message": message})
    failed = len({failure["test"] for failure in failures})
    passed = len(cases) - failed - skipped
    return {"passed": passed, "failed": failed, "skipped": skipped, "failures": failures}
