"""Compiles the programs of the common shapes before they are needed."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from experiments.serving.works import COMMON, Explain, Program, Served
from transformer.errors import one_line

logger = logging.getLogger(__name__)


class Programs:
    """The programs of all runs, which are compiled while no request waits.

    Those of texts of up to COMMON tokens come first, and make the server ready; of these the
    works before the attention.

    Args:
      when_idle: see `Batcher`.
    """

    def __init__(self, runs: Sequence[Served], when_idle: Callable[[Callable[[], None]], None]):
        found = [
            (program.length > COMMON, isinstance(work, Explain), program)
            for run in runs
            for work in run.works.values()
            for program in work.programs()
        ]
        found.sort(key=lambda each: (*each[:2], each[2].length))
        self._common = sum(not is_long for is_long, _, _ in found)
        self._total, self._compiled = len(found), 0
        for *_, program in found:
            when_idle(lambda program=program: self._compile(program))

    def state(self) -> dict[str, Any]:
        """Returns the answer of `GET /health`."""
        ready = self._compiled >= self._common
        return {
            "status": "ready" if ready else "starting",
            "compiled": self._compiled,
            "programs": self._total,
        }

    def _compile(self, program: Program) -> None:
        try:
            program.compile()
        except Exception as error:  # too large for the device: a request of this length is told so
            _log(logging.WARNING, f"texts of {program.length} tokens: {one_line(str(error))}")
        finally:
            self._compiled += 1
            if self._compiled == self._common:
                _log(logging.INFO, "ready")


def _log(level: int, line: str) -> None:
    """Logs a line, unless the log is closed."""
    with contextlib.suppress(OSError):
        logger.log(level, line)
