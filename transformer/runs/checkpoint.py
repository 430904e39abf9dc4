"""Checkpoints of a run, by Orbax's `CheckpointManager`: the newest and the best ones.

A step's folder has its arrays, in Orbax's format, and a record: the progress of the loop, the
digest of each file, which is checked before the file is read, and the evaluation scores.
"""

import contextlib
import functools
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.errors import UserError
from transformer.files import DamageError, read_sealed, sync, write_json
from transformer.metrics.registry import rank
from transformer.optim.parameters import named_leaves
from transformer.runs.leaves import (
    EMA,
    PARAMS,
    by_group,
    check_files,
    check_leaves,
    describe_leaves,
    hash_file,
)

RECORD = "record.json"
SHAPE = {"progress": dict, "leaves": dict, "files": dict}
DELETED = "deleted"  # checkpoints are moved there first, so a kill leaves none half deleted

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints below a run's folder, named by step.

    A checkpoint holds the training state and `progress`, a JSON object with the progress of the
    loop. It is written in the background, and gets its name only when it is complete.

    It keeps the newest checkpoint, the newest `keep_last` evaluated ones, the best one, and the
    last `keep_last` evaluated ones up to the best. A checkpoint that was not evaluated is deleted
    after the next save, so that an interruption does not change which checkpoints are averaged.

    Args:
      folder: absolute path; created if it is missing, unless `read_only`.
      best_metric: the metric that ranks checkpoints.
    """

    def __init__(
        self, folder: Path, keep_last: int = 1, best_metric: str = "loss", read_only: bool = False
    ):
        self.folder, self.keep_last, self.best_metric = folder, keep_last, best_metric
        self._read_only = read_only
        self._records: dict[int, dict[str, Any] | DamageError] = {}  # records read so far
        self._saving: tuple[int, dict[str, Any]] | None = None  # step and record
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
            self._delete_halves()
            self._manager.reload()

    @functools.cached_property
    def _manager(self) -> Any:
        import orbax.checkpoint as ocp  # takes a fifth of a second

        # Orbax logs each file that it opens, and prints errors that it also raises.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        index = jax.process_index()  # each process reads by itself, and only one writes
        options = ocp.CheckpointManagerOptions(
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                index, {index}, f"process_{index}"
            ),
            read_only=self._read_only,
            create=False,
            todelete_subdir=None if self._read_only else DELETED,
            lightweight_initialize=True,
            async_options=ocp.AsyncOptions(
                post_finalization_callback=self._write_record,
                create_directories_asynchronously=False,  # vmapped runs save at the same time
            ),
        )
        return ocp.CheckpointManager(self.folder, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first."""
        names = os.listdir(self.folder) if self.folder.exists() else []
        return sorted(int(name) for name in names if name.isdigit())

    def save(self, step: int, state: Any, progress: Mapping[str, Any]) -> None:
        """Starts to write a checkpoint in the background, after any earlier write has ended.

        Raises UserError if that write or this one failed; existing checkpoints stay intact.
        """
        import orbax.checkpoint as ocp

        self.wait()
        leaves = named_leaves(state)
        self._saving = step, {"progress": dict(progress), "leaves": describe_leaves(leaves)}
        self._records.pop(step, None)
        items = {group: ocp.args.PyTreeSave(part) for group, part in by_group(leaves).items()}
        try:
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)
        except Exception as error:
            raise self._refused(step, error) from _system_error(error)

    def record_evaluation(
        self, step: int, numbers: Mapping[str, float], progress: Mapping[str, Any]
    ) -> None:
        """Records the scores and the current progress with a checkpoint, once it is on disk.

        A score that is not finite counts as the worst.
        """
        self.wait()
        record = self._read(step) | {"progress": dict(progress), "scores": dict(numbers)}
        write_json(self.folder / str(step) / RECORD, record)
        self._records[step] = record
        self._prune()

    def evaluated(self, step: int) -> bool:
        """Returns whether an evaluation of a checkpoint is recorded and can be read."""
        return "scores" in self._record(step)

    def scores(self) -> dict[int, tuple[float, float]]:
        """Returns the sort key of each evaluated checkpoint, see `rank`."""
        records = {step: self._record(step) for step in self.steps()}
        return {
            step: rank(record["scores"], self.best_metric)
            for step, record in records.items()
            if "scores" in record
        }

    def best_step(self) -> int | None:
        """Returns the step of the best checkpoint, or None if none was evaluated."""
        scores = self.scores()
        return max(scores, key=scores.__getitem__, default=None)

    def read_progress(self, step: int) -> dict[str, Any] | None:
        """Returns the progress last recorded with a checkpoint; None if it is damaged."""
        return self._record(step).get("progress")

    def newest_progress(self) -> dict[str, Any]:
        """Returns the progress of the newest checkpoint that is undamaged; empty without one."""
        return next(filter(None, map(self.read_progress, reversed(self.steps()))), {})

    def wait(self) -> None:
        """Waits until all writes have ended; raises UserError if one has failed."""
        if self._saving is None:
            return
        step = self._saving[0]
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._refused(step, error) from _system_error(error)
        finally:
            self._saving = None
        self._prune()

    def close(self) -> None:
        """Waits as `wait` does, and ends Orbax's threads."""
        try:
            self.wait()
        finally:
            if "_manager" in vars(self):
                self._manager.close()

    def restore_newest(
        self, template: Any, fingerprint: str, text_digest: str = ""
    ) -> tuple[Any, dict[str, Any]] | None:
        """Returns (state, progress) of the newest undamaged checkpoint; None if there is none.

        Damaged checkpoints are moved out of this folder once an earlier one has been read, so that
        their steps can be written again. Raises UserError if all are damaged, or if one belongs to
        other text or another model, or cannot be read.

        Args:
          template: a state of the same structure, shapes and dtypes, on the target devices.
          fingerprint, text_digest: values of the task, see `check_fingerprint`.
        """
        leaves, damaged = named_leaves(template), []
        for step in reversed(self.steps()):
            try:
                record = self._read(step)
                # Checked first, since other tokenizers change the shapes of the state.
                check_fingerprint(record["progress"], fingerprint, self.folder, text_digest)
                arrays = self._restore(step, record["leaves"], leaves)
            except DamageError as error:
                logger.warning(
                    f"checkpoint {self.folder / str(step)} is damaged ({error}); going back to "
                    "the one before"
                )
                damaged.append(step)
                continue
            for other in damaged:
                # The folder may be a link to another disk.
                place = self.folder.resolve().with_name(f"unreadable_{other}_{time.time_ns()}")
                (self.folder / str(other)).rename(place)
                self._records.pop(other, None)
            self._manager.reload()
            state = jax.tree.unflatten(jax.tree.structure(template), [arrays[x] for x in leaves])
            return state, record["progress"]
        if damaged:
            raise UserError(
                f"all checkpoints in {self.folder} are damaged, or of another version of this "
                "code: restore a copy, or move that folder away to train from the beginning"
            )
        return None

    def restore_weights(self, steps: Sequence[int], template: Any) -> Any:
        """Returns the mean of the weights of some checkpoints, on the default device.

        Weights are the moving average if the run has one, otherwise the parameters. Nothing else is
        read. At most two trees are in memory, for any number of steps. Raises UserError if a
        checkpoint is damaged.

        Args:
          template: shapes and dtypes of the weights.
        """
        total: dict[str, np.ndarray] = {}
        equal: dict[str, np.ndarray] = {}  # arrays that are equal in all checkpoints so far
        for step in steps:
            try:
                groups = by_group(self._read(step)["leaves"])
                group = EMA if EMA in groups else PARAMS
                like = named_leaves({group: template})
                arrays = self._restore(step, groups.get(group, {}), like, host=True)
            except DamageError as error:
                raise UserError(
                    f"checkpoint {self.folder / str(step)} is damaged ({error}): delete that "
                    "folder, and start the same command again"
                ) from None
            for full_name in list(arrays):
                x, name = arrays.pop(full_name), full_name.removeprefix(f"{group}/")
                if name not in total:
                    total[name] = equal[name] = x
                    continue
                if name in equal and not np.array_equal(x, equal[name]):
                    del equal[name]
                total[name] = total[name] + x
        # A frozen parameter stays unchanged; its mean in float32 might differ.
        mean = {name: equal.get(name, x / np.float32(len(steps))) for name, x in total.items()}
        leaves = [jax.device_put(mean[name]) for name in named_leaves(template)]
        return jax.tree.unflatten(jax.tree.structure(template), leaves)

    def check_fingerprint(self, fingerprint: str, text_digest: str = "") -> None:
        """Raises UserError if the newest checkpoint is of other text, see `check_fingerprint`."""
        if progress := self.newest_progress():
            check_fingerprint(progress, fingerprint, self.folder, text_digest)

    def _write_record(self) -> None:
        """Writes the record of the step that is being saved, before Orbax names its folder."""
        assert self._saving is not None
        step, record = self._saving
        [partial] = self.folder.glob(f"{step}.*")
        files = {}
        for path in sorted(partial.glob("*/**/*")):
            sync(path)
            if path.is_file():
                files[str(path.relative_to(partial))] = hash_file(path)
        write_json(partial / RECORD, {**record, "files": files})

    def _read(self, step: int) -> dict[str, Any]:
        """Returns the record of a checkpoint, which is read only once."""
        if step not in self._records:
            try:
                self._records[step] = read_sealed(self.folder / str(step) / RECORD, SHAPE)
            except DamageError as error:
                self._records[step] = error
        record = self._records[step]
        if isinstance(record, DamageError):
            raise record
        return record

    def _record(self, step: int) -> dict[str, Any]:
        """Returns a checkpoint's record; {} if it is missing or damaged, which is logged once."""
        unread = step not in self._records
        try:
            return self._read(step) if step in self.steps() else {}
        except DamageError as error:
            if unread:
                logger.warning(f"checkpoint {self.folder / str(step)} is damaged: {error}")
            return {}

    def _restore(
        self, step: int, saved: Mapping[str, Any], like: Mapping[str, Any], host: bool = False
    ) -> dict[str, Any]:
        """Returns arrays of a checkpoint by name, sharded as in `like`, or on the host.

        Args:
          saved: descriptions of the arrays in the record.
        """
        import orbax.checkpoint as ocp

        check_leaves(saved, describe_leaves(like), f"the checkpoints in {self.folder}")
        items = {}
        for group, leaves in by_group(like).items():
            check_files(self.folder / str(step), group, self._read(step)["files"])
            shapes = {x: jax.ShapeDtypeStruct(y.shape, y.dtype) for x, y in leaves.items()}
            kinds = {
                name: ocp.RestoreArgs(restore_type=np.ndarray)
                if host
                else ocp.ArrayRestoreArgs(sharding=x.sharding)
                for name, x in leaves.items()
            }
            items[group] = ocp.args.PyTreeRestore(item=shapes, restore_args=kinds)
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:
            raise UserError(
                f"{self.folder / str(step)} cannot be read now ({_reason(error)}); it is left "
                "as it is: start the same command again when that is over"
            ) from _system_error(error)
        return {name: x for group in items for name, x in restored[group].items()}

    def _prune(self) -> None:
        steps, scores = self.steps(), self.scores()
        # A damaged checkpoint may be the best one.
        kept = {step for step in steps if not self._record(step)}
        evaluated, best = list(scores), self.best_step()
        up_to_best = [] if best is None else evaluated[: evaluated.index(best) + 1]
        kept.update(steps[-1:], evaluated[-self.keep_last :], up_to_best[-self.keep_last :])
        for step in {*steps} - kept:
            self._manager.delete(step)
            self._delete_halves()
            self._records.pop(step, None)

    def _delete_halves(self) -> None:
        """Deletes only folders of steps that a kill left half written or half deleted."""
        deleted = self.folder / DELETED
        for path in (*self.folder.glob("*.orbax-checkpoint-tmp"), *deleted.glob("*")):
            if path.name.partition(".")[0].isdigit():
                shutil.rmtree(path, ignore_errors=True)  # follows no links
        with contextlib.suppress(OSError):  # it is missing or not empty
            deleted.rmdir()

    def _refused(self, step: int, error: Exception) -> UserError:
        kept = ", ".join(map(str, self.steps())) or "none"
        return UserError(
            f"the checkpoint of step {step} could not be written below {self.folder} "
            f"({_reason(error)}): check room, permissions and `ulimit -n` there, and start the "
            f"same command again; kept: steps {kept}"
        )


def check_fingerprint(
    progress: Mapping[str, Any], fingerprint: str, folder: Path, text_digest: str = ""
) -> None:
    """Raises UserError if a checkpoint was trained with other tokenizers or on other text.

    The text must match even if the tokenizers do, since other text gives other batches.

    Args:
      text_digest: digest of the training text; empty if it is unknown.
    """
    if progress["fingerprint"] != fingerprint:
        raise UserError(
            f"the checkpoints in {folder} were trained with the tokenizer "
            f"{progress['fingerprint']}, not with {fingerprint}: restore the original text or "
            "tokenizer, or use another folder"
        )
    saved = progress.get("text_digest", "")
    if saved and text_digest and saved != text_digest:
        raise UserError(
            f"the run in {folder.parent} was trained on text with the digest {saved}, not "
            f"{text_digest}: restore the original training text, or use another folder"
        )


def _system_error(error: Exception) -> Exception:
    """Returns the system's error behind an error of tensorstore; any other error unchanged."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return OSError(int(code[1]), os.strerror(int(code[1]))) if code else error


def _reason(error: Exception) -> str:
    if isinstance(error := _system_error(error), OSError) and error.strerror:
        return error.strerror
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
