"""One system of a benchmark, in a process of its own, which measures when it is asked to.

    python -m experiments.benchmark.worker MODULE.FUNCTION ORDER

The function gets the order (JSON) and `turn`, by which it hands over a record and waits for the
next request. It does so once when it is ready, and then after each measurement. This module imports
no framework, so that the memory of a process is that of the one system.
"""

import importlib
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Turn = Callable[[dict[str, Any]], None]


def peak_memory() -> int:
    """Returns the most bytes that this process has held so far.

    Linux tells it of the program that runs now; `ru_maxrss` also counts that of the parent.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        [line] = (line for line in lines if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024  # bytes
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cores() -> int:
    """Returns the number of cores that this process may use."""
    has = hasattr(os, "sched_getaffinity")  # of Linux
    return len(os.sched_getaffinity(0)) if has else os.cpu_count() or 1


def main(arguments: Sequence[str]) -> None:
    """Serves the system that the arguments name until nobody asks any more."""
    name, order = arguments
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
    main(sys.argv[1:])
