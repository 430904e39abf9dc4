"""The logs of a training run: metrics and attention snapshots."""

import contextlib
import json
import math
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer.files import SEAL, naming, parse_json, seal_of, write_arrays, write_bytes

SNAPSHOTS = "attention_snapshots"  # subfolder of a run's folder
# Files of metrics and TensorBoard events; time and host are appended to the second name.
METRICS, EVENTS = "metrics.jsonl", "events.out.tfevents"
BOARD_VERSION = "brain.Event:2"  # version of TensorBoard's event format

with contextlib.ExitStack() as after:
    # tensorboardX must not import PyTorch, which takes 1 s and 180 MB for unused features.
    if "torch" not in sys.modules:
        sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]
        after.callback(sys.modules.pop, "torch")
    # protobuf creates these classes at import time, so type checkers do not know them.
    from tensorboardX.proto.event_pb2 import (
        Event,  # pyright: ignore[reportAttributeAccessIssue]
        SessionLog,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import scalar


class MetricsWriter:
    """Writes metrics to `metrics.jsonl`, and to a TensorBoard event file in the calling thread.

    tensorboardX's own writer thread stops after a disk error, and later writes would then block
    forever. TensorBoard hides events in earlier files after `step`.

    Args:
      workdir: the run's folder.
      step: the step from which the run resumes; lines of later steps are deleted.
      evaluated: whether to keep the evaluation at that step; if False, it is also deleted.
      logged: whether to keep the training line at that step; if False, it will be written again.
    """

    def __init__(self, workdir: Path, step: int, evaluated: bool = True, logged: bool = True):
        self._path = workdir / METRICS
        if self._path.exists():
            lines = []
            for line in self._path.read_bytes().splitlines():
                event, wrong = parse_json(line, {"step": int, "split": str})
                place, split = (math.inf, "") if wrong else (event["step"], event["split"])
                if place < step or (place == step and (logged if split == "train" else evaluated)):
                    lines.append(line + b"\n")
            write_bytes(self._path, b"".join(lines))
        self._events = workdir / f"{EVENTS}.{int(time.time())}.{socket.gethostname()}"
        self._file = RecordWriter(str(self._events))
        self._write_event(file_version=BOARD_VERSION)
        # Events are purged even at step 0: a run may have been killed before its first checkpoint.
        self._write_event(step=step + 1, file_version=BOARD_VERSION)
        self._write_event(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Writes the values of one step; nonfinite values become null in JSON."""
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        line = {"step": step, "split": split, **finite}
        with naming(self._path), self._path.open("a") as file:
            file.write(json.dumps({**line, SEAL: seal_of(line)}) + "\n")
        for name, value in values.items():
            self._write_event(step=step, summary=scalar(f"{split}/{name}", value))
        if split != "train":  # evaluations are rare
            with naming(self._events):
                self._file.flush()

    def close(self) -> None:
        """Closes the event file, ignoring errors while its buffer is flushed."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_event(self, **fields: Any) -> None:
        with naming(self._events):
            self._file.write(Event(wall_time=time.time(), **fields).SerializeToString())


def write_snapshot(folder: Path, step: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the attention statistics of all heads after `step` steps to a run's folder."""
    place = folder / SNAPSHOTS
    place.mkdir(exist_ok=True)
    write_arrays(place / f"{step:08d}.npz", {"step": np.array(step), **arrays})


def snapshot_files(folder: Path) -> list[Path]:
    """Returns the paths of a run's attention snapshots, sorted by step."""
    return sorted(folder.glob(f"{SNAPSHOTS}/{'[0-9]' * 8}.npz"))
