"""Manages a run's checkpoints with Orbax's `CheckpointManager`, keeping the newest and the best.

A checkpoint's folder contains the arrays in Orbax's format, and a record of the training progress,
the evaluation scores and the digests of the files, which are checked before the files are read.
"""

import functools
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.errors import UserError, shorten
from transformer.files import DamageError, hash_file, read_sealed, sync, write_json
from transformer.metrics.registry import rank
from transformer.optim.parameters import named_leaves

RECORD = "record.json"
SHAPE = {"progress": dict, "leaves": dict, "files": dict}
# Subfolders of a checkpoint. Weights are separate, so that inference reads nothing else.
PARAMS, EMA, STATE = "params", "ema", "state"
# Suffixes of checkpoints that a killed process left partially written or partially deleted.
PARTIAL, DELETED = "orbax-checkpoint-tmp", "deleted"

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run, each in a folder named after its step.

    A checkpoint contains the training state and `progress`, a JSON object with the progress of the
    training loop. It is written in the background, and renamed to its step when it is complete.

    The class keeps the newest checkpoint, the last `keep_last` evaluated checkpoints, the best one,
    and the last `keep_last` evaluated checkpoints up to the best. A checkpoint
    without scores, as after an interruption, is never averaged, and is deleted after the next save.

    Args:
      folder: absolute path of the folder, which is created unless `read_only` is set.
      best_metric: the metric that ranks checkpoints.
    """

    def __init__(
        self, folder: Path, keep_last: int = 1, best_metric: str = "loss", read_only: bool = False
    ):
        self.folder, self.keep_last, self.best_metric = folder, keep_last, best_metric
        self._read_only = read_only
        self._named: set[int] = set()  # steps of damaged checkpoints that have been logged
        self._saving: tuple[int, dict[str, Any]] | None = None  # pending write: step and record
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
            self._delete_halves()
            self._manager.reload()

    @functools.cached_property
    def _manager(self) -> Any:
        import orbax.checkpoint as ocp  # imported here because it takes 0.2 seconds

        # Otherwise Orbax would log each file that it opens, and each error that it raises.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        index = jax.process_index()  # each process reads independently, and only one writes
        options = ocp.CheckpointManagerOptions(
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                index, {index}, f"process_{index}"
            ),
            read_only=self._read_only,
            create=False,
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
        """Returns the steps of all checkpoints in ascending order."""
        return sorted(int(path.name) for path in self.folder.glob("*") if path.name.isdigit())

    def save(self, step: int, state: Any, progress: Mapping[str, Any]) -> None:
        """Waits for any pending write, and starts to write a checkpoint in the background.

        Raises UserError if the pending or the new write fails; existing checkpoints stay intact.
        """
        import orbax.checkpoint as ocp

        self.wait()
        leaves = named_leaves(state)
        self._saving = step, {"progress": dict(progress), "leaves": describe_leaves(leaves)}
        items = {group: ocp.args.PyTreeSave(part) for group, part in by_group(leaves).items()}
        try:
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)
        except Exception as error:
            raise self._refused(step, error) from _system_error(error)

    def record_evaluation(
        self, step: int, numbers: Mapping[str, float], progress: Mapping[str, Any]
    ) -> None:
        """Adds scores and the current progress to a checkpoint's record, after it has been saved.

        Nonfinite scores are ranked as the worst.
        """
        self.wait()
        record = self._read(step) | {"progress": dict(progress), "scores": dict(numbers)}
        write_json(self.folder / str(step) / RECORD, record)
        self._prune()

    def record(self, step: int) -> dict[str, Any]:
        """Returns a checkpoint's record, with `progress` and, after an evaluation, `scores`.

        Returns {} for a missing or damaged checkpoint, and logs damage once per checkpoint.
        """
        try:
            return self._read(step) if step in self.steps() else {}
        except DamageError as error:
            if step not in self._named:
                self._named.add(step)
                logger.warning(f"checkpoint {self.folder / str(step)} is damaged: {error}")
            return {}

    def evaluated(self, step: int) -> bool:
        """Returns whether a checkpoint has a readable record with evaluation scores."""
        return "scores" in self.record(step)

    def scores(self) -> dict[int, tuple[float, float]]:
        """Returns the sort keys (see `rank`) of all evaluated checkpoints, keyed by step."""
        records = {step: self.record(step) for step in self.steps()}
        return {
            step: rank(record["scores"], self.best_metric)
            for step, record in records.items()
            if "scores" in record
        }

    def best_step(self) -> int | None:
        """Returns the step of the best checkpoint, or None if none was evaluated."""
        scores = self.scores()
        return max(scores, key=scores.__getitem__, default=None)

    def newest_progress(self) -> dict[str, Any]:
        """Returns the progress of the newest checkpoint, or {} if that is missing or damaged."""
        return self.record(max(self.steps(), default=0)).get("progress", {})

    def wait(self) -> None:
        """Waits until the pending write is complete, and raises UserError if it failed."""
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
        """Calls `wait`, and then stops Orbax's threads."""
        try:
            self.wait()
        finally:
            if "_manager" in vars(self):
                self._manager.close()

    def restore_newest(
        self, template: Any, fingerprint: str, text_digest: str = ""
    ) -> tuple[Any, dict[str, Any]] | None:
        """Returns (state, progress) of the newest checkpoint, or None if there is no checkpoint.

        Raises UserError if the checkpoint is damaged, if it was trained on a different corpus or
        with a different model, or if it cannot be read.

        Args:
          template: a state with the same structure, shapes and dtypes, on the target devices.
          fingerprint, text_digest: the task's values; see `check_fingerprint`.
        """
        if not (steps := self.steps()):
            return None
        step, leaves = steps[-1], named_leaves(template)
        try:
            record = self._read(step)
            # Checked before the shapes of the state, which depend on the tokenizers.
            check_fingerprint(record["progress"], fingerprint, self.folder, text_digest)
            self._check_state(record["leaves"], describe_leaves(leaves))
            arrays = self._restore(step, record["leaves"], leaves)
        except DamageError as error:
            raise self._damaged(step, error) from None
        state = jax.tree.unflatten(jax.tree.structure(template), [arrays[x] for x in leaves])
        return state, record["progress"]

    def restore_weights(self, steps: Sequence[int], template: Any) -> Any:
        """Returns the mean of the weights over the checkpoints, on the default device.

        The weights are the parameters' moving average if the run has one, or else the parameters.
        Nothing else is read. Memory holds at most two trees, regardless of the number of steps.
        Raises UserError if a checkpoint is damaged.

        Args:
          template: the shapes and dtypes of the weights.
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
                raise self._damaged(step, error) from None
            for full_name in list(arrays):
                x, name = arrays.pop(full_name), full_name.removeprefix(f"{group}/")
                if name not in total:
                    total[name] = equal[name] = x
                    continue
                if name in equal and not np.array_equal(x, equal[name]):
                    del equal[name]
                total[name] = total[name] + x
        # Frozen parameters are equal in all checkpoints, but rounding could change their mean.
        mean = {name: equal.get(name, x / np.float32(len(steps))) for name, x in total.items()}
        leaves = [jax.device_put(mean[name]) for name in named_leaves(template)]
        return jax.tree.unflatten(jax.tree.structure(template), leaves)

    def check_fingerprint(self, fingerprint: str, text_digest: str = "") -> None:
        """Calls the function `check_fingerprint` for the newest checkpoint, if there is one."""
        if progress := self.newest_progress():
            check_fingerprint(progress, fingerprint, self.folder, text_digest)

    def _check_state(self, saved: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Raises UserError if the arrays of the training state differ, but not the parameters."""
        theirs, ours = by_group(saved), by_group(expected)
        if theirs.get(PARAMS) == ours[PARAMS] and theirs != ours:
            name = min(x for x in {*saved, *expected} if saved.get(x) != expected.get(x))
            raise UserError(
                f"the training in {self.folder.parent} cannot be resumed: another version of this "
                f"code or of optax saved its state ({name} differs). Everything else still works, "
                f"and config.train.init_from={self.folder.parent} starts a run from its weights"
            )

    def _write_record(self) -> None:
        """Writes the pending checkpoint's record, before Orbax renames its folder to the step."""
        assert self._saving is not None
        step, record = self._saving
        [partial] = self.folder.glob(f"{step}.*")
        files = {}
        for path in sorted(partial.glob("*/**/*")):
            sync(path)
            if path.is_file():
                files[path.relative_to(partial).as_posix()] = hash_file(path)
        write_json(partial / RECORD, {**record, "files": files})

    def _read(self, step: int) -> dict[str, Any]:
        return read_sealed(self.folder / str(step) / RECORD, SHAPE)

    def _restore(
        self, step: int, saved: Mapping[str, Any], like: Mapping[str, Any], host: bool = False
    ) -> dict[str, Any]:
        """Returns a checkpoint's arrays, keyed by name, on the host or sharded as in `like`.

        Args:
          saved: the record's descriptions of the arrays; see `describe_leaves`.
        """
        import orbax.checkpoint as ocp

        check_leaves(saved, describe_leaves(like), f"the checkpoints in {self.folder}")
        items = {}
        for group, leaves in by_group(like).items():
            check_files(self.folder / str(step), group, self._read(step)["files"])
            shapes = {x: jax.ShapeDtypeStruct(y.shape, y.dtype) for x, y in leaves.items()}
            kinds = dict.fromkeys(leaves, ocp.RestoreArgs(restore_type=np.ndarray))
            if not host:
                kinds = {k: ocp.ArrayRestoreArgs(sharding=x.sharding) for k, x in leaves.items()}
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
        # Damaged checkpoints are kept, since one of them may be the best.
        kept = {step for step in steps if not self.record(step)}
        evaluated, best = list(scores), self.best_step()
        up_to_best = [] if best is None else evaluated[: evaluated.index(best) + 1]
        kept.update(steps[-1:], evaluated[-self.keep_last :], up_to_best[-self.keep_last :])
        for step in {*steps} - kept:
            (self.folder / str(step)).rename(self.folder / f"{step}.{DELETED}")
        self._delete_halves()

    def _delete_halves(self) -> None:
        """Deletes the folders of steps that are partially written or partially deleted."""
        for path in self.folder.glob("*.*"):
            step, _, suffix = path.name.partition(".")
            if step.isdigit() and suffix in (PARTIAL, DELETED):
                shutil.rmtree(path, ignore_errors=True)  # does not follow links

    def _damaged(self, step: int, error: Exception) -> UserError:
        return UserError(
            f"checkpoint {self.folder / str(step)} is damaged ({error}), or of another version of "
            "this code: delete that folder to go on from the one before, or restore a copy"
        )

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
    """Raises UserError if a checkpoint was trained with different tokenizers or training data.

    The data must match even if the tokenizers are equal, since the data determine the batches.

    Args:
      text_digest: digest of the training data, or '' if it is unknown.
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
            f"{text_digest}: restore the original training text, or use another folder; "
            "everything except training still works"
        )


def describe_leaves(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the shape and dtype of each array as JSON data, keyed by name."""
    return {name: {"shape": list(x.shape), "dtype": str(x.dtype)} for name, x in arrays.items()}


def check_leaves(saved: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """Raises UserError if the shape or dtype of a saved array differs from the expected one."""
    for name in sorted(saved.keys() | expected.keys()):
        there, here = saved.get(name, "absent"), expected.get(name, "absent")
        if there != here:
            raise UserError(
                f"{what} are not of the model of its config.json, or of another version of this "
                f"code: {name} is {there}, not {here}: restore the original"
            )


def by_group(leaves: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the leaves, grouped by the checkpoint subfolder that stores them."""
    groups: dict[str, dict[str, Any]] = {}
    for name, x in leaves.items():
        first = name.split("/")[0]
        groups.setdefault(first if first in (PARAMS, EMA) else STATE, {})[name] = x
    return groups


def check_files(folder: Path, group: str, digests: Mapping[str, str]) -> None:
    """Raises DamageError if a file of the group is missing or has changed since it was written."""
    for name, digest in digests.items():
        path = folder / name
        if name.startswith(f"{group}/") and not (path.is_file() and hash_file(path) == digest):
            raise DamageError(f"{name} is missing or not what was written")


def _system_error(error: Exception) -> Exception:
    """Returns the operating system error that caused a TensorStore error, or else this error."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return OSError(int(code[1]), os.strerror(int(code[1]))) if code else error


def _reason(error: Exception) -> str:
    error = _system_error(error)
    return getattr(error, "strerror", None) or shorten(f"{type(error).__name__}: {error}")
