"""Asynchronous checkpoints: the newest and the best ones, each with its evaluation."""

import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import UserError
from transformer.metrics.registry import rank
from transformer.storage import checkpoint_files as files
from transformer.storage.checkpoint_files import DamageError, first_line
from transformer.storage.evaluations import Evaluations

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints below a run's folder, named by step.

    A checkpoint holds the training state and `progress`, a JSON object with the progress of the
    loop. It gets its final name only when it is complete, so a kill while saving does not damage
    earlier checkpoints. Its evaluation is recorded later, in its folder.

    These checkpoints are kept: the newest, the newest `keep_last` evaluated ones, the best, and the
    last `keep_last` evaluated ones up to the best. A checkpoint that was not evaluated is deleted
    after the next save, so that an interruption does not change which checkpoints are averaged.

    Args:
      folder: absolute; created if it is missing, unless `read_only`.
      best_metric: the metric by which checkpoints are compared.
    """

    def __init__(
        self, folder: Path, keep_last: int = 1, best_metric: str = "loss", read_only: bool = False
    ):
        self.folder, self.keep_last, self.best_metric = folder, keep_last, best_metric
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: tuple[int, Future] | None = None
        self._evaluations = Evaluations(folder)
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob(f"*{files.PARTIAL}"):
                shutil.rmtree(path)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first.

        Raises:
          UserError: the system refuses to list the folder.
        """
        try:
            names = files.patiently(lambda: os.listdir(self.folder), self.folder, FileNotFoundError)
        except FileNotFoundError:
            names = []
        return sorted(int(name) for name in names if name.isdigit())

    def save(self, step: int, state: Any, progress: Mapping[str, Any]) -> None:
        """Starts to write a checkpoint in the background, after any earlier write has ended.

        Raises:
          UserError: the write failed; earlier checkpoints are intact.
        """
        self.wait()
        # The next step may reuse the state's memory before it is written.
        copy = jax.tree.map(lambda x: (jnp if isinstance(x, jax.Array) else np).array(x), state)
        write = self._writer.submit(files.write, self._path(step), copy, dict(progress))
        self._writing = step, write
        self._evaluations.forget(step)

    def record_evaluation(
        self, step: int, numbers: Mapping[str, float], progress: Mapping[str, Any]
    ) -> None:
        """Records an evaluation of a checkpoint, once the checkpoint is on disk.

        Args:
          numbers: its scores, including `best_metric`; a score that is not finite counts as the
            worst.
          progress: replaces the progress that was saved with the state.

        Raises:
          UserError: the write failed; the checkpoints are intact.
        """
        self.wait()
        known = {**self._evaluations.scores(self.steps()), step: dict(numbers)}
        try:
            self._evaluations.record(step, progress, known)
        except OSError as error:
            raise self._refused(step, error, "the evaluation of checkpoint") from error
        self._prune()

    def evaluated(self, step: int) -> bool:
        """Returns whether an evaluation of a checkpoint is recorded and can be read."""
        return step in self.steps() and self._evaluations.get(step) is not None

    def scores(self) -> dict[int, tuple[float, float]]:
        """Returns the key by which each evaluated checkpoint is compared, see `rank`."""
        known = self._evaluations.scores(self.steps())
        return {step: rank(numbers, self.best_metric) for step, numbers in known.items()}

    def warn_of_damage(self) -> None:
        """Says once of each evaluation that it is damaged, and so without a score."""
        self._evaluations.warn_of_damage(self.steps())

    def best_step(self) -> int | None:
        """Returns the step of the best checkpoint, or None if none was evaluated."""
        scores = self.scores()
        return max(scores, key=scores.__getitem__, default=None)

    def wait(self) -> None:
        """Waits until all writes have ended.

        Raises:
          UserError: the disk refused.
        """
        if self._writing is None:
            return
        (step, write), self._writing = self._writing, None
        try:
            write.result()
        except Exception as error:
            raise self._refused(step, error) from error
        self._prune()

    def close(self) -> None:
        """Waits until all writes have ended, and ends the thread.

        Raises:
          UserError: the disk refused.
        """
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def restore_newest(
        self, template: Any, fingerprint: str, text_digest: str = ""
    ) -> tuple[Any, dict[str, Any]] | None:
        """Returns (state, progress) of the newest checkpoint that is undamaged, or None.

        Once one before is read, those that are damaged are moved out of this folder, so that their
        steps can be written again.

        Args:
          template: a state of the same structure, shapes and dtypes, on the target devices.
          fingerprint, text_digest: those of the task, see `check_same_text`.

        Raises:
          UserError: it belongs to other tokenizers, another text or another model, it cannot be
            read, or there are checkpoints and all are damaged.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                record = files.read_record(self._path(step))
                self._evaluations.warn_of_damage([step])
                progress = (self._evaluations.get(step) or record)["progress"]
                # Checked first, since the state has other shapes with other tokenizers.
                check_same_text(progress, fingerprint, text_digest, self.folder)
                files.check_leaves(record["leaves"], files.named_leaves(template), self._what())
                arrays = files.read_leaves(self._path(step), record, record["leaves"])
            except DamageError as error:
                logger.warning(
                    f"checkpoint {self._path(step)} is damaged ({error}); going back to the one "
                    "before"
                )
                damaged.append(step)
                continue
            self._put_aside(damaged)
            return _place(arrays, template), progress
        if damaged:
            raise all_damaged(self.folder)
        return None

    def restore_weights(self, steps: Sequence[int], template: Any) -> Any:
        """Returns the mean of the weights of some checkpoints, on the default device.

        Weights are the moving average if the run has one, otherwise the parameters. Nothing else is
        read. At most two trees are in memory, for any number of steps.

        Args:
          template: shapes and dtypes of the weights.

        Raises:
          DamageError: one of the checkpoints is.
          UserError: one is of another model, or cannot be read.
        """
        total: dict[str, np.ndarray] = {}
        equal: dict[str, tuple[str, np.ndarray]] = {}  # so far, with their digest
        for step in steps:
            try:
                arrays, digests = self._read_weights(step, template)
            except DamageError as error:
                error.step = step
                raise
            for name in list(arrays):
                x = arrays.pop(name)
                if name not in total:
                    equal[name] = digests[name], x
                elif name in equal and digests[name] != equal[name][0]:
                    del equal[name]
                total[name] = total[name] + x if name in total else x
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), template)
        mean = {name: total.pop(name) / np.float32(len(steps)) for name in sorted(total)}
        # A parameter that is frozen stays as it is, which a mean in float32 may not.
        mean |= {name: x for name, (_, x) in equal.items()}
        return _place(mean, shapes)

    def read_progress(self, step: int) -> dict[str, Any] | None:
        """Returns the progress of a checkpoint's evaluation, or None if it is damaged.

        If there is no evaluation, returns the progress that was saved with the state.

        Raises:
          UserError: the system refuses to read it.
        """
        try:
            return (self._evaluations.get(step) or files.read_record(self._path(step)))["progress"]
        except DamageError:
            return None

    def check_fingerprint(self, fingerprint: str, text_digest: str = "") -> None:
        """Raises UserError if the newest checkpoint is of other text, see `check_same_text`."""
        readable = (self.read_progress(step) for step in reversed(self.steps()))
        if progress := next(filter(None, readable), None):
            check_same_text(progress, fingerprint, text_digest, self.folder)

    def _read_weights(
        self, step: int, template: Any
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The weights of a checkpoint and their digests, by their place in the template."""
        record = files.read_record(self._path(step))
        group, found = files.weights_of(record)
        expected = files.named_leaves({group: template})
        files.check_leaves(found, expected, self._what())
        arrays = files.read_leaves(self._path(step), record, expected)
        digests = {name: leaf["digest"] for name, leaf in found.items()}
        places = {name: name.removeprefix(f"{group}/") for name in arrays}
        return (
            {place: arrays[name] for name, place in places.items()},
            {place: digests[name] for name, place in places.items()},
        )

    def _path(self, step: int) -> Path:
        return self.folder / str(step)

    def _prune(self) -> None:
        steps, scores = self.steps(), self.scores()
        # A damaged one may be the best.
        kept = set(filter(self._evaluations.is_damaged, steps))
        evaluated = list(scores)
        best = self.best_step()
        up_to_best = [] if best is None else evaluated[: evaluated.index(best) + 1]
        kept.update(steps[-1:], evaluated[-self.keep_last :], up_to_best[-self.keep_last :])
        for step in steps:
            if step not in kept:
                try:
                    files.delete(self._path(step))
                except OSError as error:
                    raise UserError(
                        f"checkpoint {step} could not be deleted below {self.folder} "
                        f"({first_line(error)}): allow it and start the same command again"
                    ) from error
                self._evaluations.forget(step)

    def _put_aside(self, steps: Sequence[int]) -> None:
        for step in steps:
            # The folder may be a link to another disk.
            place = self.folder.resolve().with_name(f"unreadable_{step}_{time.time_ns()}")
            self._path(step).rename(place)
            self._evaluations.forget(step)

    def _what(self) -> str:
        return f"the checkpoints in {self.folder}"

    def _refused(self, step: int, error: Exception, what: str = "the checkpoint of step"):
        kept = ", ".join(map(str, self.steps())) or "none"
        return UserError(
            f"{what} {step} could not be written below {self.folder} ({first_line(error)}): make "
            f"room there and start the same command again; kept: steps {kept}"
        )


def all_damaged(folder: Path) -> UserError:
    """Returns the error of a folder whose checkpoints are all damaged."""
    return UserError(
        f"all checkpoints in {folder} are damaged: restore a copy, or move that folder away to "
        "train from the beginning"
    )


def check_fingerprint(progress: Mapping[str, Any], fingerprint: str, folder: Path) -> None:
    """Raises UserError if a checkpoint was trained with other tokenizers."""
    if progress["fingerprint"] != fingerprint:
        raise UserError(
            f"the checkpoints in {folder} were trained with the tokenizer "
            f"{progress['fingerprint']}, not with {fingerprint}: restore the original text or "
            "tokenizer, or use another folder"
        )


def check_same_text(
    progress: Mapping[str, Any], fingerprint: str, text_digest: str, folder: Path
) -> None:
    """Raises UserError if a checkpoint was trained with other tokenizers or on other text.

    With the same tokenizers, as adopted ones, other text gives other batches.

    Args:
      text_digest: of the training text; empty, here or in the checkpoint, if it is unknown.
    """
    check_fingerprint(progress, fingerprint, folder)
    saved = progress.get("text_digest", "")
    if saved and text_digest and saved != text_digest:
        raise UserError(
            f"the run in {folder.parent} was trained on text with the digest {saved}, not "
            f"{text_digest}: restore the original training text, or use another folder"
        )


def _place(arrays: Mapping[str, np.ndarray], template: Any) -> Any:
    """The arrays as a tree, each on the devices of the template's leaf."""
    placed = [
        jax.device_put(arrays[name], getattr(like, "sharding", None))
        for name, like in files.named_leaves(template).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(template), placed)
