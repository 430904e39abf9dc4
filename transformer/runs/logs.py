"""The files that training extends step by step: its metrics, and snapshots of its attention."""

import contextlib
import json
import logging
import math
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer.files import SEAL, naming, parse_json, seal_of, write_arrays, write_bytes

SNAPSHOTS = "attention_snapshots"  # folder within a run's
# Files to which lines and events are appended; the name of the second goes on with the time.
METRICS, EVENTS = "metrics.jsonl", "events.out.tfevents"
BOARD_SECONDS = 120  # between two flushes of TensorBoard's file
BOARD_VERSION = "brain.Event:2"  # of the events in it

logger = logging.getLogger(__name__)


with contextlib.ExitStack() as after:
    # tensorboardX would import PyTorch: a second and 180 MB, for nothing used here.
    if "torch" not in sys.modules:
        sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]
        after.callback(sys.modules.pop, "torch")
    # protobuf makes these classes when they are imported.
    from tensorboardX.proto.event_pb2 import (
        Event,  # pyright: ignore[reportAttributeAccessIssue]
        SessionLog,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import scalar


class _Board:
    """TensorBoard's file of a run; once it cannot be written, a warning says so and it ends.

    It is written in the calling thread: that of tensorboardX's own writer dies of an error of the
    disk, and whoever writes then waits for ever. From `purge_step` on TensorBoard hides the events
    of earlier files.
    """

    def __init__(self, workdir: Path, purge_step: int):
        self._path = workdir / f"{EVENTS}.{int(time.time())}.{socket.gethostname()}"
        self._file: RecordWriter | None = None
        self._flushed = time.monotonic()
        try:
            self._file = RecordWriter(str(self._path))
        except OSError as error:
            self._warn(error)
        self._write(file_version=BOARD_VERSION)
        self._write(step=purge_step, file_version=BOARD_VERSION)
        self._write(step=purge_step, session_log=SessionLog(status=SessionLog.START))
        self._attempt(RecordWriter.flush)

    def write(self, name: str, value: float, step: int) -> None:
        """Writes a number at a step."""
        self._write(step=step, summary=scalar(name, value))
        if time.monotonic() - self._flushed > BOARD_SECONDS:
            self._attempt(RecordWriter.flush)
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes the file to disk, and closes it."""
        self._attempt(RecordWriter.flush)
        self._attempt(RecordWriter.close)
        self._file = None

    def _write(self, **fields: Any) -> None:
        event = Event(wall_time=time.time(), **fields).SerializeToString()
        self._attempt(lambda file: file.write(event))

    def _attempt(self, work: Callable[[RecordWriter], None]) -> None:
        """Works on the file; an error of the disk becomes a warning, and the file ends."""
        if (file := self._file) is None:
            return
        try:
            work(file)
        except OSError as error:
            self._file = None
            with contextlib.suppress(OSError):  # what is in its buffer fails once more
                file.close()
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        logger.warning(
            f"warning: {self._path} cannot be written ({error.strerror or error}): TensorBoard "
            "shows no later steps; metrics.jsonl has them"
        )


class MetricsWriter:
    """Appends lines to `metrics.jsonl` and the same numbers to TensorBoard.

    Args:
      workdir: the run's folder.
      step: the step from which the run resumes; lines of later steps are deleted.
      evaluated: whether to keep that step's evaluation; otherwise its lines are deleted too.
      logged: whether to keep that step's line of training; otherwise it is written again.
    """

    def __init__(self, workdir: Path, step: int, evaluated: bool = True, logged: bool = True):
        self._path = workdir / METRICS
        self._drop_after(step, evaluated, logged)
        # From the first step too: a run may have been killed before it had a checkpoint.
        self._board = _Board(workdir, purge_step=step + 1)

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Writes the numbers of one step; NaN becomes null, as JSON has no NaN."""
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        line = {"step": step, "split": split, **finite}
        with naming(self._path), self._path.open("a") as file:
            file.write(json.dumps({**line, SEAL: seal_of(line)}) + "\n")
        for name, value in values.items():
            self._board.write(f"{split}/{name}", value, step)

    def close(self) -> None:
        """Flushes all lines to disk."""
        self._board.close()

    def _drop_after(self, step: int, evaluated: bool, logged: bool) -> None:
        if not self._path.exists():
            return
        lines = []
        for line in self._path.read_bytes().splitlines():
            event, wrong = parse_json(line, {"step": int, "split": str})
            place, split = (math.inf, "") if wrong else (event["step"], event["split"])
            if place < step or (place == step and (logged if split == "train" else evaluated)):
                lines.append(line + b"\n")
        write_bytes(self._path, b"".join(lines))


def write_snapshot(folder: Path, step: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes what the attention heads look at after `step` steps into a run's folder."""
    place = folder / SNAPSHOTS
    place.mkdir(exist_ok=True)
    write_arrays(place / f"{step:08d}.npz", {"step": np.array(step), **arrays})


def snapshot_files(folder: Path) -> list[Path]:
    """Returns the snapshots of a run's folder by their steps, and none of the other files there."""
    named = [
        path for path in folder.glob(f"{SNAPSHOTS}/*.npz") if re.fullmatch(r"\d{8,}", path.stem)
    ]
    return sorted(named, key=lambda path: int(path.stem))
