"""Measures several systems in turn, each in a process of its own."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from transformer.errors import RunError, UserError

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
WORKER = "experiments.benchmark.worker"
SHARED = ("cpu", "gpu")  # platforms that several processes can use


class System(NamedTuple):
    """What is measured: a function of the worker, its order as JSON, and whether it may fail."""

    function: str
    order: Mapping[str, Any]
    optional: bool = False


def start_module(arguments: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a module of ours (its name and arguments) where paths of a config start from.

    Args:
      options: of `Popen`; the output is a pipe.
    """
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # By -P, no module in that folder is taken for one of ours or of a library.
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options)


def ending(log: Path) -> str:
    """Returns the last line of what a process has printed."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"


class Worker:
    """The process of a system, killed at the end of its `with`; the log gets what it prints."""

    def __init__(self, name: str, system: System, log: Path):
        self._name, self._log = name, log
        arguments = [WORKER, system.function, json.dumps(system.order)]
        with log.open("wb") as errors:
            self._process = start_module(arguments, stdin=subprocess.PIPE, stderr=errors)

    def __enter__(self) -> "Worker":
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
        raise RunError(f"{self._name} has ended: {ending(self._log)}")

    def measure(self) -> dict[str, Any]:
        """Asks for a measurement; returns its record."""
        assert self._process.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return self.receive()


def share_device() -> None:
    """Lets several processes have one GPU: none reserves most of its memory when it starts.

    Call it before JAX has started its backend; processes that are started inherit it. A device that
    a single process can use is refused.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if (backend := jax.default_backend()) not in SHARED:
        raise UserError(
            f"the benchmark has a process for each system, and a {backend} is of one process: "
            "use --mode=plan, which measures the step in its own, or JAX_PLATFORMS=cpu"
        )


def rotate(systems: Mapping[str, System], rounds: int, folder: Path) -> dict[str, dict[str, Any]]:
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
            worker = stack.enter_context(Worker(name, system, folder / f"{name}.log"))
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
def _noting(name: str, system: System, records: dict[str, Any]) -> Iterator[None]:
    """Notes the error of an optional system."""
    try:
        yield
    except RunError as error:
        if not system.optional:
            raise
        logger.info(str(error))
        records[name] = {"error": str(error)}
