"""Measures several systems in turn, each in a process of its own that it asks for each measurement.

    python -m experiments.benchmark.turns MODULE.FUNCTION ORDER

is such a process. The function gets the order (JSON) and `turn`, by which it hands over a record
and waits for the next request: once when it is ready, and then after each measurement. This module
imports no framework, so that the memory of a process is that of the one system.
"""

import contextlib
import importlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import errors
from ..process.process import peak_memory

logger = logging.getLogger(__name__)

ROOT = Path(errors.__file__).parents[1]
WORKER = f"{__package__}.turns"
Turn = Callable[[dict[str, Any]], None]


class MeasuredSystem(NamedTuple):
    """What is measured: a function of the worker, its order as JSON, and whether it may fail."""

    function: str
    order: Mapping[str, Any]
    optional: bool = False


def rotate(
    systems: Mapping[str, MeasuredSystem], rounds: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Returns what each system says of itself, and its `rounds`: a record of each measurement.

    Each system is made ready alone, one after the other. Then all measure in turn, so that a change
    of the machine's speed concerns all of them. An optional system that fails has an `error`
    instead; another one raises its RunError. The folder gets the logs.
    """
    records: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, system in systems.items():
            start = time.monotonic()
            worker = stack.enter_context(SystemWorker(name, system, folder / f"{name}.log"))
            with _noting(name, system, records):
                records[name] = {**worker.receive(), "rounds": []}
                workers[name] = worker
                logger.info(f"{name}: ready after {time.monotonic() - start:.0f} s")
        for number in range(rounds):
            logger.info(f"round {number + 1} of {rounds}")
            for name, worker in workers.items():
                if "error" not in records[name]:
                    with _noting(name, systems[name], records):
                        row = worker.measure()
                        records[name]["peak_bytes"] = row.pop("peak_bytes")
                        records[name]["rounds"].append(row)
    return records


@contextlib.contextmanager
def _noting(name: str, system: MeasuredSystem, records: dict[str, Any]) -> Iterator[None]:
    """Notes the error of an optional system."""
    try:
        yield
    except errors.RunError as error:
        if not system.optional:
            raise
        logger.info(str(error))
        records[name] = {"error": str(error)}


class SystemWorker:
    """The process of a system, killed at the end of its `with`; the log gets what it prints."""

    def __init__(self, name: str, system: MeasuredSystem, log: Path):
        self._name, self._log = name, log
        arguments = [WORKER, system.function, json.dumps(system.order)]
        with log.open("wb") as errors:
            self._process = start_module(arguments, stdin=subprocess.PIPE, stderr=errors)

    def __enter__(self) -> "SystemWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def receive(self) -> dict[str, Any]:
        """Returns the next record; raises RunError if the process has ended."""
        assert self._process.stdout is not None, "it is a pipe"
        if line := self._process.stdout.readline():
            return json.loads(line)
        self._process.wait()
        raise errors.RunError(f"{self._name} has ended: {ending(self._log)}")

    def measure(self) -> dict[str, Any]:
        """Asks for a measurement; returns its record."""
        assert self._process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return self.receive()


def start_module(arguments: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a module of ours, its name first, where paths of a config start; prints to a pipe."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # By -P, no module in that folder is taken for one of ours or of a library.
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options)


def ending(log: Path) -> str:
    """Returns the last line of what a process has printed."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"


# -- in the process of a system


def cores() -> int:
    """Returns the number of cores that this process may use."""
    has = hasattr(os, "sched_getaffinity")  # of Linux
    return len(os.sched_getaffinity(0)) if has else os.cpu_count() or 1


def serve(name: str, order: str) -> None:
    """Serves a system until nobody asks any more."""
    # Libraries print to the descriptors that are left: those of the log.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def turn(record: dict[str, Any]) -> None:
        print(json.dumps({**record, "peak_bytes": peak_memory()}), file=answers)
        if not sys.stdin.readline():
            raise SystemExit(0)

    module, _, function = name.rpartition(".")
    getattr(importlib.import_module(module), function)(json.loads(order), turn)


if __name__ == "__main__":
    serve(*sys.argv[1:])
