"""The evaluations of a run's checkpoints, each in the folder of its checkpoint."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer.storage import checkpoint_files as files
from transformer.storage.checkpoint_files import DamageError

logger = logging.getLogger(__name__)


class Evaluations:
    """The evaluations below a folder of checkpoints, by step; each is read once.

    Args:
      folder: of the checkpoints.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._read: dict[int, dict[str, Any] | DamageError | None] = {}  # or recorded
        self._told: set[int] = set()  # the steps whose damage was told

    def get(self, step: int) -> dict[str, Any] | None:
        """Returns the evaluation of a checkpoint; None if there is none or it is damaged."""
        found = self._find(step)
        return None if isinstance(found, DamageError) else found

    def is_damaged(self, step: int) -> bool:
        """Returns whether the evaluation of a checkpoint is there but cannot be read."""
        return isinstance(self._find(step), DamageError)

    def scores(self, steps: Sequence[int]) -> dict[int, dict[str, float]]:
        """Returns the numbers of each of these checkpoints that was evaluated."""
        known: dict[int, dict[str, float]] = {}
        for step in steps:
            if evaluation := self.get(step):
                known |= {int(each): numbers for each, numbers in evaluation["known"].items()}
        return {step: known[step] for step in steps if step in known}

    def record(
        self,
        step: int,
        progress: Mapping[str, Any],
        known: Mapping[int, Mapping[str, float]],
    ) -> None:
        """Writes the evaluation of a checkpoint.

        Args:
          known: the numbers of all checkpoints, so that none is lost if one file is damaged.

        Raises:
          OSError: the disk refused.
        """
        content = {
            "progress": dict(progress),
            "known": {str(each): numbers for each, numbers in known.items()},
        }
        files.write_evaluation(self._folder / str(step), content)
        self._read[step] = content

    def forget(self, step: int) -> None:
        """Forgets what was read of a checkpoint that is deleted or written again."""
        self._read.pop(step, None)

    def warn_of_damage(self, steps: Iterable[int]) -> None:
        """Says once of each evaluation that it is damaged, and so without a score."""
        for step in steps:
            found = self._find(step)
            if isinstance(found, DamageError) and step not in self._told:
                self._told.add(step)
                place = self._folder / str(step)
                logger.warning(f"the evaluation of checkpoint {place} is damaged: {found}")

    def _find(self, step: int) -> dict[str, Any] | DamageError | None:
        if step not in self._read:
            try:
                self._read[step] = files.read_evaluation(self._folder / str(step))
            except DamageError as error:
                self._read[step] = error
        return self._read[step]
