"""Measures several systems in turn, each in a process of its own."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
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
    """Starts a module of ours with its arguments, in the folder that paths of a config start from.

    Args:
      arguments: the module's name first.
      options: of `Popen`; the output is a pipe.
    """
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # By -P, no module in that folder is taken for one of ours or of a library.
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options)


class Worker:
    """The process of a system; used in a `with` statement, at whose end it is killed.

    Args:
      name: of the system, for messages.
      log: the file that gets all that the process prints.
    """

    def __init__(self, name: str, system: System, log: Path):
        self._name, self._log = name, log
        arguments = [WORKER, system.function, json.dumps(system.order)]
        with log.open("wb") as errors:
            self._process = start_module(arguments, stdin=subprocess.PIPE, stderr=errors)

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


def share_device() -> None:
    """Lets several processes have one GPU: none reserves most of its memory when it starts.

    Call it before JAX has started its backend; processes that are started inherit it.

    Raises:
      UserError: the device is one that a single process can use.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if (backend := jax.default_backend()) not in SHARED:
        raise UserError(
            f"the benchmark has a process for each system, and a {backend} is of one process: "
            "use `make accelerator`, or JAX_PLATFORMS=cpu"
        )


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
                found[name] = _failure(system, error)
                continue
            workers[name] = worker
            logger.info(f"{name}: ready after {time.monotonic() - start:.0f} s")
        for number in range(rounds):
            logger.info(f"round {number + 1} of {rounds}")
            for name, worker in list(workers.items()):
                try:
                    record = worker.measure()
                except RunError as error:
                    found[name] = _failure(systems[name], error)
                    del workers[name]
                    continue
                found[name]["peak_bytes"] = record.pop("peak_bytes")
                found[name]["rounds"].append(record)
    return found


def _failure(system: System, error: RunError) -> dict[str, Any]:
    """The record of an optional system that has failed; raises the error of another."""
    if not system.optional:
        raise error
    logger.info(str(error))
    return {"error": str(error)}
