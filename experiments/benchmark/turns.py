"""Measures several systems in interleaved rounds, each in its own process.

    python -m experiments.benchmark.turns MODULE.FUNCTION ORDER

starts such a process. It calls the function with the parameters `order`, parsed from JSON, and with
`turn`, which sends a record and waits for the next request. The function calls `turn` once when it
is ready, and then after each measurement. This module imports no framework, so the measured process
memory includes only the measured system.
"""

import contextlib
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformer import errors
from ..process.process import peak_memory

logger = logging.getLogger(__name__)

ROOT = Path(errors.__file__).parents[1]
WORKER = f"{__package__}.turns"
Turn = Callable[[dict[str, Any]], None]


class MeasuredSystem(NamedTuple):
    """A system to measure: a function, as `module.name`, and the function's parameter `order`."""

    function: str
    order: Mapping[str, Any]


def rotate(
    systems: Mapping[str, MeasuredSystem], rounds: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Returns each system's first record, with the records of all measurements as `rounds`.

    Systems are prepared sequentially and then measured in turn, so that a change in machine speed
    affects all of them. Logs are written to `folder`. Raises RunError if a system fails.
    """
    records: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        asks = {
            name: stack.enter_context(start_system(name, system, folder / f"{name}.log"))
            for name, system in systems.items()
        }
        for number in range(rounds + 1):
            logger.info(f"round {number} of {rounds}" if number else "making the systems ready")
            for name, ask in asks.items():
                row = ask()
                if number:
                    records[name]["peak_bytes"] = row.pop("peak_bytes")
                    records[name]["rounds"].append(row)
                else:
                    records[name] = {**row, "rounds": []}
    return records


@contextlib.contextmanager
def start_system(
    name: str, system: MeasuredSystem, log: Path
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Starts the process of a system, and yields a function that requests its next record.

    The function raises RunError if the process has ended. Output of the process goes to `log`.
    """
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # -P: modules in the current folder cannot shadow modules of this project or of libraries.
    command = [sys.executable, "-P", "-m", WORKER, system.function, json.dumps(system.order)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file, **pipes)
    assert process.stdout is not None, "it is a pipe"
    answers = process.stdout

    def ask() -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            print(file=process.stdin, flush=True)
        if line := answers.readline():
            return json.loads(line)
        process.wait()
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise errors.RunError(f"{name} has ended: {(lines or ['without a word'])[-1]}")

    try:
        yield ask
    finally:
        process.kill()
        process.communicate()


# -- inside the process of a system


def cores() -> int:
    """Returns the number of cores that this process may use."""
    has = hasattr(os, "sched_getaffinity")  # on Linux
    return len(os.sched_getaffinity(0)) if has else os.cpu_count() or 1


def serve(name: str, order: str) -> None:
    """Runs the function of a system until standard input is closed."""
    # Records go to the original standard output; whatever libraries print goes to the log.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    sys.stdin.readline()

    def turn(record: dict[str, Any]) -> None:
        print(json.dumps({**record, "peak_bytes": peak_memory()}), file=answers)
        if not sys.stdin.readline():
            raise SystemExit(0)

    module, _, function = name.rpartition(".")
    getattr(importlib.import_module(module), function)(json.loads(order), turn)


if __name__ == "__main__":
    serve(*sys.argv[1:])
