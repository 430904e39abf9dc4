"""The metrics of a training run, one line for each log event, and the same for TensorBoard."""

import json
import math
from pathlib import Path

from tensorboardX import SummaryWriter

from transformer.storage.files import write_text


class MetricsWriter:
    """Appends lines to `metrics.jsonl` and the same numbers to TensorBoard.

    Args:
      workdir: the run's folder.
      step: the step from which the run resumes; lines of later steps are deleted.
      evaluated: whether to keep that step's evaluation; otherwise its lines are deleted too.
    """

    def __init__(self, workdir: Path, step: int, evaluated: bool = True):
        self._path = workdir / "metrics.jsonl"
        self._drop_after(step, evaluated)
        self._board = SummaryWriter(str(workdir), purge_step=step + 1 if step else None)

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Writes the numbers of one step; NaN becomes null, as JSON has no NaN."""
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        try:
            with self._path.open("a") as file:
                file.write(json.dumps({"step": step, "split": split, **finite}) + "\n")
        except OSError as error:
            error.filename = str(self._path)  # a full disk names none
            raise
        for name, value in values.items():
            self._board.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        """Flushes all lines to disk."""
        self._board.close()

    def _drop_after(self, step: int, evaluated: bool) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = []
        for line in lines:
            place, split = _place_of(line)
            if place < step or (place == step and (evaluated or split == "train")):
                kept.append(line)
        write_text(self._path, "".join(line + "\n" for line in kept))


def _place_of(line: str) -> tuple[int | float, str]:
    """The (step, split) of a line; None for a line that is incomplete or damaged."""
    try:
        parsed = json.loads(line)
        step, split = parsed["step"], parsed["split"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf, ""
    return (step if isinstance(step, int) else math.inf), split
