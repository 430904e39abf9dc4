"""The part `tests`: the tests of numbers, on the device."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
    "tests/model/test_dropout.py",
    "tests/model/test_layers.py",
    "tests/model/test_positions.py",
    "tests/model/test_transformer.py",
    "tests/model/test_stepwise.py",
    "tests/inference/test_decode.py",
    "tests/inference/test_decode_transformer.py",
    "tests/inference/test_forbidden_tokens.py",
    "tests/inference/test_continuations.py",
    "tests/inference/test_sampling.py",
    "tests/training/test_losses.py",
    "tests/optim/test_optim.py",
    "tests/optim/test_optimizers.py",
    "tests/training/test_train_step.py",
    "tests/optim/test_weight_decay.py",
)
TOY_FILES = ("tests/training/test_losses.py",)
# A process in the background of a shell inherits that SIGINT is ignored.
PYTEST = (
    "import signal, sys, pytest; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "sys.exit(pytest.main(sys.argv[1:]))"
)
MAX_WORKERS = 8  # processes on one GPU; no other accelerator can be shared


def measure(order: Order) -> Iterator[dict[str, Any]]:
    """Yields how many tests of each file passed, failed and were skipped, and which failed.

    Raises:
      RunError: a test failed, or the time was over before the last one.
    """
    files = TOY_FILES if order.toy else FILES
    workers = min(MAX_WORKERS, os.cpu_count() or 1)  # most of the time they compile
    shared = ["-n", str(workers)] if order.platform == "gpu" else []
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        # Another version of JAX or a plugin may warn, which says nothing of the numbers.
        options = ["-q", "-W", "default", "-p", "no:cacheprovider", f"--junitxml={report}", *shared]
        # A process that takes most of the memory at its start leaves none for the others.
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, "-c", PYTEST, *options, *files]
        code = run_until(command, environment, order.seconds)
        if not report.exists():
            raise RunError(f"pytest ended with exit code {code}, see tests.log")
        rows = count(report.read_text(encoding="utf-8"))
    yield from rows
    if failed := sum(row["failed"] for row in rows):
        raise RunError(f"{failed} tests failed, see tests.log")
    if code is None:
        raise RunError(f"the tests were ended after {order.seconds:.0f} s")


def run_until(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> int | None:
    """Runs pytest; returns its exit code, or None if it was interrupted when the time was over.

    It writes its report all the same.
    """
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return None


def count(report: str) -> list[dict[str, Any]]:
    """Returns the numbers of each file in a report of pytest, as XML, and failures as lines."""
    files: dict[str, dict[str, Any]] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        if case.get("name") is None:  # it was interrupted
            continue
        file = case.get("classname", "")
        row = files.setdefault(
            file, {"file": file, "passed": 0, "failed": 0, "skipped": 0, "failures": []}
        )
        found = [own for kind in ("failure", "error") if (own := case.find(kind)) is not None]
        skipped = case.find("skipped") is not None
        row["failed" if found else "skipped" if skipped else "passed"] += 1
        if found:
            message = one_line(found[0].get("message", ""))[:200]
            row["failures"].append({"test": f"{file}::{case.get('name', '')}", "message": message})
    return list(files.values())
