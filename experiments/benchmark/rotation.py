"""Measures several systems in turn, each in a process of its own."""

import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from transformer.errors import RunError

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
WORKER = "experiments.benchmark.worker"


class System(NamedTuple):
    """What is measured: a function of the worker, its order as JSON, and whether it may fail."""

    function: str
    order: Mapping[str, Any]
    optional: bool = False


class Worker:
    """The process of a system; used in a `with` statement, at whose end it is killed.

    Args:
      name: of the system, for messages.
      log: the file that gets all that the process prints.
    """

    def __init__(self, name: str, system: System, log: Path):
        self._name, self._log = name, log
        command = [sys.executable, "-m", WORKER, system.function, json.dumps(system.order)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def receive(self) -> dict[str, Any]:
        """Returns the next record.

        Raises:
          RunError: the process has ended.
        """
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise RunError(f"{self._name} has ended: {lines[-1] if lines else 'without a word'}")

    def measure(self) -> dict[str, Any]:
        """Asks for a measurement; returns its record."""
        assert self._process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return self.receive()


def rotate(systems: Mapping[str, System], rounds: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Returns what each system says of itself, and its `rounds`: a record of each measurement.

    Each system is made ready alone, one after the other. Then all measure in turn, so that a change
    of the machine's speed concerns all of them. An optional system that fails has an `error`
    instead.

    Args:
      folder: gets the logs.

    Raises:
      RunError: a system that is not optional has failed.
    """
    found: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, system in systems.items():
            start = time.monotonic()
            worker = stack.enter_context(Worker(name, system, folder / f"{name}.log"))
            try:
                found[name] = {**worker.receive(), "rounds": []}
            except RunError as error:
                if not system.optional:
                    raise
                logger.info(str(error))
                found[name] = {"error": str(error)}
                continue
            workers[name] = worker
            logger.info(f"{name}: ready after {time.monotonic() - start:.0f} s")
        for number in range(rounds):
            logger.info(f"round {number + 1} of {rounds}")
            for name, worker in workers.items():
                record = worker.measure()
                found[name]["peak_bytes"] = record.pop("peak_bytes")
                found[name]["rounds"].append(record)
    return found
