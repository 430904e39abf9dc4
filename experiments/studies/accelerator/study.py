"""The accelerator study: each part in a process of its own, until the time is over."""

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.studies.accelerator.parts import Order, Part, read_record, write_record

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[3]
WORKER = "experiments.studies.accelerator.worker"
DEVICE = Part("device", "Device", 60)
SPARE = 15.0  # seconds before the end at which a part begins nothing more


def measure(part: Part, order: Order, seconds: float) -> dict[str, Any]:
    """Runs a part in a process; returns `seconds`, and `result` or `error` or both.

    Args:
      seconds: after which the process and all that it started are killed.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        path, log = Path(name) / "outcome.json", order.folder / f"{part.name}.log"
        text = json.dumps(order._asdict(), default=str)
        command = [sys.executable, "-m", WORKER, part.name, str(path), text]
        ending = _run(command, log, seconds)
        outcome = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if ending:
        outcome["error"] = f"{ending}, see {log.name}"
    return {"seconds": round(time.monotonic() - start, 1), **outcome}


def _run(command: Sequence[str], log: Path, seconds: float) -> str:
    """Runs a command with its output in a file; returns why it failed, or ''."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, process_group=0
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"it was ended after {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"its process ended with exit code {code}" if code else ""


def measure_all(
    parts: Sequence[Part], order: Order, conditions: Mapping[str, Any], deadline: float
) -> None:
    """Measures the parts that are not there yet and fit into the time; writes their records.

    Args:
      order: for all parts; `seconds` is set for each.
      deadline: the time of `time.monotonic` at which all ends.
    """
    todo = []
    for part in parts:
        record = read_record(order.folder, part.name, conditions)
        if record and "error" not in record:
            logger.info(f"{part.name}: there since an earlier start")
        elif part.name == "multi30k" and order.data is None:
            logger.info(f"{part.name}: skipped, since there is no text: name it with --data")
        else:
            todo.append(part)
    for number, part in enumerate(todo):
        left = deadline - time.monotonic()
        expected = 0 if order.toy else part.seconds
        if left < expected + SPARE:
            logger.info(
                f"{part.name}: skipped, since it takes {expected} s and {left:.0f} are left"
            )
            continue
        later = sum(other.seconds for other in todo[number + 1 :])
        own = order._replace(seconds=min(left - SPARE, max(part.seconds, left - later)))
        logger.info(f"{part.name}: up to {own.seconds:.0f} s ...")
        outcome = measure(part, own, min(left, 2 * own.seconds))
        before = read_record(order.folder, part.name, conditions)
        if "error" not in outcome or _rows(outcome) >= _rows(before):
            write_record(order.folder, part.name, conditions, outcome)
        logger.info(f"{part.name}: {outcome.get('error', 'done')} ({outcome['seconds']:.0f} s)")


def _rows(outcome: Mapping[str, Any]) -> int:
    """How much a part has measured before it failed."""
    return len(outcome.get("result", ()))


def source_digest() -> str:
    """Returns a digest of the code that is measured, committed or not."""
    digest = hashlib.sha256()
    for folder in ("configs", "experiments", "tests", "transformer"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
    return digest.hexdigest()


def conditions_of(device: Mapping[str, Any], toy: bool) -> dict[str, Any]:
    """Returns the conditions for a record to hold, and names and versions for the page."""
    return {
        "device": device["devices"],
        "jax": device["packages"].get("jax"),
        "code": device["code"],
        "files": source_digest(),
        "toy": toy,
        "platform": device["platform"],
        "python": device["python"],
        "processor": device["processor"],
    }
