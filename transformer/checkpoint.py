"""Asynchronous checkpoints: the last few and the best, fallback, averages."""

import logging
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from transformer.errors import UserError

SMALLER_IS_BETTER = ("loss", "nll", "perplexity", "word_perplexity", "bits_per_byte", "ece")


class Checkpoints:
    """The checkpoints below a run's folder, named by step.

    A checkpoint holds the training state and `progress`, a JSON object of what the loop
    remembers. It appears under its final name when all of it is written, so a kill while saving
    leaves the ones before it as they were.

    Args:
      folder: absolute; made where it is missing, unless `read_only`.
      keep_last: so many newest are kept. One that was saved without an evaluation, because the
        run was stopped, goes when the next is there: then a stop changes nothing that is averaged.
      best_metric: the one best by this metric is kept as well.
    """

    def __init__(
        self, folder: Path, keep_last: int = 1, best_metric: str = "loss", read_only: bool = False
    ):
        # Orbax tells of each file it opens, and prints the errors that it also raises.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        self.folder = folder
        self.best_metric = best_metric
        self._manager = _Manager(
            folder,
            options=ocp.CheckpointManagerOptions(
                read_only=read_only,
                create=not read_only,
                cleanup_tmp_directories=not read_only,
                best_fn=_key,  # without it, metrics are not written and the best is the newest
                preservation_policy=policies.AnyPreservationPolicy(
                    [
                        policies.LatestN(1),
                        _LatestEvaluated(keep_last),
                        policies.BestN(
                            get_metric_fn=_key, n=1, keep_checkpoints_without_metrics=False
                        ),
                    ]
                ),
            ),
        )

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first."""
        return sorted(self._manager.all_steps())

    def drop_after(self, step: int) -> None:
        """Deletes all later checkpoints."""
        for later in self.steps():
            if later > step:
                self._manager.delete(later)

    def save(self, step: int, state: Any, metrics: dict[str, float], progress: dict) -> None:
        """Starts to write a checkpoint in the background; waits for one that is still written.

        Args:
          metrics: of an evaluation at this step; empty where there was none.

        Raises:
          UserError: the disk refuses; the checkpoints before are intact.
        """
        key = None
        if self.best_metric in metrics:
            sign = -1.0 if self.best_metric in SMALLER_IS_BETTER else 1.0
            key = {"key": sign * metrics[self.best_metric]}
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    # The step that follows may reuse the state's memory before it is written.
                    state=ocp.args.StandardSave(jax.tree.map(jnp.copy, state)),
                    progress=ocp.args.JsonSave(progress),
                ),
                metrics=key,
                force=True,
            )
        except Exception as error:
            raise self._refused(step, error) from error

    def wait(self) -> None:
        """Returns when nothing is being written any more.

        Raises:
          UserError: the disk refused.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._refused(None, error) from error

    def restore_newest(
        self, template: Any, warn, fingerprint: str
    ) -> tuple[Any, dict[str, Any]] | None:
        """Returns (state, progress) of the newest checkpoint that can be read, or None.

        Args:
          template: a state of the same structure, shapes, dtypes and shardings.
          warn: called with a line for each checkpoint that cannot be read. Once one before can be,
            it is moved beside this folder, so that its step can be written again.
          fingerprint: what `progress` must say of the tokenizers.

        Raises:
          UserError: it goes with other tokenizers, or there are some and none can be read.
        """
        unreadable = []
        for step in reversed(self.steps()):
            # First, since a state of other tokenizers has other shapes and would seem broken.
            if progress := self.read_progress(step):
                check_fingerprint(progress, fingerprint, self.folder)
            try:
                restored = self._manager.restore(
                    step,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardRestore(
                            jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
                        ),
                        progress=ocp.args.JsonRestore(),
                    ),
                )
            except Exception as error:
                warn(
                    f"checkpoint {self.folder / str(step)} cannot be read "
                    f"({_first_line(error)}); going back to the one before"
                )
                unreadable.append(step)
                continue
            self._put_aside(unreadable)
            return restored["state"], restored["progress"]
        if unreadable:
            raise UserError(
                f"none of the checkpoints in {self.folder} can be read: put back a copy, or move "
                "that folder away to begin anew"
            )
        return None

    def restore_params(
        self, which: str, average: int, warn, fingerprint: str
    ) -> tuple[Any, list[int], dict]:
        """Returns parameters for evaluation, the steps they come from, and the run's `progress`.

        Args:
          which: "best" or "last", where nothing is averaged.
          average: the mean of the newest so many, if more than one; where fewer can be read,
            of those.
          warn: called with a line for each checkpoint that cannot be read.
          fingerprint: what `progress` must say of the tokenizers.

        Raises:
          UserError: there is no checkpoint, none can be read, or it goes with other tokenizers.
        """
        newest = self.steps()[::-1]
        order = newest
        if average <= 1 and which == "best" and (best := self._manager.best_step()) is not None:
            order = [best, *(step for step in newest if step != best)]
        total, used, progress = None, [], {}
        for step in order:
            try:
                params, progress = self._restore_weights(step)
            except Exception as error:
                warn(f"checkpoint {step} cannot be read ({_first_line(error)}); left out")
                continue
            check_fingerprint(progress, fingerprint, self.folder)
            used.append(step)
            total = params if total is None else jax.tree.map(jnp.add, total, params)
            if len(used) == max(1, average):
                break
        if not used:
            raise UserError(f"{self.folder} has no checkpoint that can be read: train first")
        progress = self.read_progress(newest[0]) or progress  # how far the run has come
        return jax.tree.map(lambda x: x / len(used), total), used, progress

    def read_progress(self, step: int) -> dict | None:
        """Returns what was saved beside a state, or None where it cannot be read."""
        try:
            return self._manager.restore(
                step, args=ocp.args.Composite(progress=ocp.args.JsonRestore())
            )["progress"]
        except Exception:
            return None

    def check_fingerprint(self, fingerprint: str) -> None:
        """Raises UserError where the newest checkpoint was trained with other tokenizers."""
        readable = (self.read_progress(step) for step in reversed(self.steps()))
        if progress := next(filter(None, readable), None):
            check_fingerprint(progress, fingerprint, self.folder)

    def close(self) -> None:
        """Waits for what is being written and gives up all threads."""
        self._manager.close()

    def _restore_weights(self, step: int) -> tuple[Any, dict]:
        """The weights that evaluation uses: the moving average where there is one."""
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(), progress=ocp.args.JsonRestore()
            ),
        )
        state = restored["state"]
        return state["ema"] or state["params"], restored["progress"]

    def _put_aside(self, steps: list[int]) -> None:
        for step in steps:
            place = self.folder.with_name(f"unreadable_{step}_{time.time_ns()}")
            (self.folder / str(step)).rename(place)
        if steps:
            self._manager.reload()

    def _refused(self, step, error) -> UserError:
        # On disk is more than the manager would have kept.
        kept = sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())
        return UserError(
            f"the checkpoint{'' if step is None else f' of step {step}'} could not be written "
            f"below {self.folder} ({_first_line(error)}): make room there and start the same "
            f"command again; kept: steps {', '.join(map(str, kept)) or 'none'}"
        )


class _Manager(ocp.CheckpointManager):
    """A manager that opens although the metrics of a checkpoint are damaged."""

    def metrics(self, step: int) -> Any:
        try:
            return super().metrics(step)
        except ValueError:
            return None


def _key(metrics: dict[str, float]) -> float:
    """What checkpoints are compared by, the larger the better."""
    return metrics["key"]


class _LatestEvaluated(policies.PreservationPolicy):
    """Keeps the newest `count` of the checkpoints that came with an evaluation."""

    def __init__(self, count: int):
        self.count = count

    def should_preserve(self, checkpoints, *, context) -> list[bool]:
        evaluated = [info.step for info in checkpoints if info.metrics is not None]
        kept = set(evaluated[-self.count :])
        return [info.step in kept for info in checkpoints]


def check_fingerprint(progress: dict, fingerprint: str, folder: Path) -> None:
    """Raises UserError where a checkpoint was trained with other tokenizers than those at hand."""
    if progress["fingerprint"] != fingerprint:
        raise UserError(
            f"the checkpoints in {folder} were trained with the tokenizer "
            f"{progress['fingerprint']}, not with {fingerprint}: put back the original text or "
            "tokenizer, or use another --workdir"
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
