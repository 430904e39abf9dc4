"""The weights used for inference: one checkpoint or the mean of several, stored in one file.

After training, the best checkpoint is compared on validation data with the mean of the last few
checkpoints and the mean of the last few up to the best. The choice is saved in the run's folder and
used by every mode. The weights are saved in `weights.safetensors`, so inference reads no
checkpoints. The arrays are named after the parameters, such as
"encoder_layers_0/feed_forward/inner/kernel", and kernels have the shape [inputs, features]. Many
programs can read this format, which contains no code.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.files import DamageError, hash_file, read_sealed, write_bytes, write_json
from transformer.metrics.registry import find, rank
from transformer.optim.parameters import named_leaves
from transformer.runs.checkpoint import (
    Checkpoints,
    check_fingerprint,
    check_leaves,
    describe_leaves,
)

logger = logging.getLogger(__name__)

WEIGHTS = "weights.safetensors"
CHOICE = "weights.json"
STORED = "stored"  # key of the entry that describes `weights.safetensors`
SHAPE = {"newest_step": int, "steps": [int], "candidates": [dict], STORED: dict}
BEST, LAST, UP_TO_BEST = "best", "last", "up_to_best"
CANDIDATES = {
    BEST: "the best checkpoint",
    LAST: "the mean of the last checkpoints",
    UP_TO_BEST: "the mean of the checkpoints up to the best",
}


def candidates(scores: Mapping[int, tuple[float, float]], average: int) -> dict[str, list[int]]:
    """Returns the checkpoint steps of each distinct candidate, keyed by its kind.

    Args:
      scores: sort keys (see `rank`) of all evaluated checkpoints, in ascending order of steps.
      average: the number of checkpoints to average.
    """
    evaluated, best = list(scores), max(scores, key=scores.__getitem__)
    choices = {BEST: [best]}
    if average > 1:
        up_to_best = evaluated[: evaluated.index(best) + 1]
        for kind, steps in ((LAST, evaluated[-average:]), (UP_TO_BEST, up_to_best[-average:])):
            if steps not in choices.values():
                choices[kind] = steps
    return choices


class Weights:
    """The weights of a run, and the rule in the run's config that selects them."""

    def __init__(self, folder: Path, config: ConfigDict):
        self.folder, self.place = folder, folder / "checkpoints"
        self.metric = config.train.best_metric
        self.rule = {
            "rule": config.evaluate.checkpoint,
            "average": config.evaluate.average_last_n,
            "metric": self.metric,
        }
        self.is_compared = self.rule["rule"] == "auto" and self.rule["average"] > 1
        # The model settings as JSON data. With the tokenizers, they determine the weight shapes.
        self.model = json.loads(json.dumps(config.model.to_dict()))

    def choose(self, task: Any, keep: bool = True) -> dict[str, Any]:
        """Chooses the weights of a run, scores candidates if needed, and logs the choice.

        If the saved choice is still valid, it is reused, and stored weights need no checkpoint.

        Args:
          keep: whether to save the choice and the weights in the run's folder for other modes; if
            False, the best checkpoint is scored again, since settings may differ from training.

        Returns:
          A dict: the `steps` of the checkpoints, `rule` and `average` from the config, `metric`,
          `newest_step`, and the compared `candidates`, [{"what", "steps", "score"}, ...].
        """
        with Checkpoints(self.place, best_metric=self.metric, read_only=True) as checkpoints:
            choice = self._read(checkpoints.steps())
            if isinstance(choice, str):
                self._check_any(checkpoints.steps(), choice)
                choice = self._compare(task, checkpoints, recorded=keep)
            stored = choice.pop(STORED, None)
            is_stored = stored is not None and (self.folder / WEIGHTS).exists()
            if keep and checkpoints.steps() and not is_stored:
                template = task.predictor.param_shapes()
                weights = checkpoints.restore_weights(choice["steps"], template)
                self.store(weights, checkpoints.newest_progress(), choice)
        steps, metric = ", ".join(f"{x:,}" for x in choice["steps"]), find(choice["metric"]).title
        line = f"using the weights of step {steps}: evaluate.checkpoint={choice['rule']}"
        for each in choice["candidates"]:
            score = math.nan if each["score"] is None else each["score"]
            line += f"; {CANDIDATES[each['what']]}: {score:.4g} {metric} on validation"
        logger.info(line)
        return choice

    def store(self, weights: Any, progress: Any, choice: Any = None) -> None:
        """Writes the weights and the choice; the default, step 0, is for imported weights."""
        choice = choice or {**self.rule, "newest_step": 0, "steps": [0], "candidates": []}
        arrays = {name: np.asarray(x) for name, x in named_leaves(weights).items()}
        data = safetensors.numpy.save(arrays)
        write_bytes(self.folder / WEIGHTS, data)
        stored = {
            "digest": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "progress": progress,
            "model": self.model,
        }
        write_json(self.folder / CHOICE, {**choice, STORED: stored})

    def load(
        self, template: Callable[[], Any], fingerprint: str, steps: Sequence[int] = ()
    ) -> tuple[Any, list[int], dict[str, Any]]:
        """Returns the selected weights, their checkpoint steps, and the run's training progress.

        If the weights file is valid, no checkpoint is needed.

        Args:
          template: returns the shapes and dtypes of the weights; it is called only if needed.
          fingerprint: the expected fingerprint of the tokenizers in the run's progress.
          steps: steps of the checkpoints to use instead of the saved choice.
        """
        with Checkpoints(self.place, best_metric=self.metric, read_only=True) as checkpoints:
            choice = self._read(checkpoints.steps())
            if not isinstance(choice, str) and list(steps) in ([], choice["steps"]):
                stored = choice[STORED]
                check_fingerprint(stored["progress"], fingerprint, checkpoints.folder)
                arrays = self._read_file(stored["bytes"], stored["digest"])
                if stored["model"] != self.model:  # the config has changed
                    expected = describe_leaves(named_leaves(template()))
                    what = f"the weights in {self.folder / WEIGHTS}"
                    check_leaves(describe_leaves(arrays), expected, what)
                weights = jax.device_put(unflatten_dict(arrays, sep="/"))
                return weights, choice["steps"], stored["progress"]
            self._check_any(checkpoints.steps(), choice)
            checkpoints.check_fingerprint(fingerprint)
            used = list(steps) or self._by_rule(checkpoints)
            if not steps and self.is_compared:
                logger.warning(
                    f"{self.folder}: {choice}: using checkpoint {used[0]:,}, the best so far"
                )
            weights = checkpoints.restore_weights(used, template())
            return weights, used, checkpoints.newest_progress()

    def _read_file(self, size: int, digest: str) -> dict[str, np.ndarray]:
        path = self.folder / WEIGHTS
        if not path.is_file() or path.stat().st_size != size or hash_file(path) != digest:
            raise UserError(
                f"{path} is missing or not what was written: restore the original, or delete it "
                "and evaluate the run again, which writes it from the checkpoints"
            )
        arrays = safetensors.numpy.load_file(path)
        return {name: x.astype(np.float32, copy=False) for name, x in arrays.items()}

    def _check_any(self, steps: Sequence[int], choice: Any) -> None:
        """Raises UserError if there are no checkpoints to load the weights from."""
        if not steps:
            why = choice if isinstance(choice, str) else "the stored weights are of other steps"
            raise UserError(
                f"{self.folder} has no checkpoint, and {why}: train until the first one is saved, "
                "restore the original, or leave config.evaluate as it is there"
            )

    def _read(self, steps: Sequence[int]) -> dict[str, Any] | str:
        """Returns the saved choice of weights, or the reason why there is no valid choice.

        Args:
          steps: steps of the run's checkpoints, or an empty list if they were deleted.
        """
        path = self.folder / CHOICE
        if not path.exists():
            return f"{CHOICE} is missing, which the end of the training writes"
        try:
            choice = read_sealed(path, SHAPE)
        except DamageError as error:
            return f"the choice of weights is damaged ({error})"
        whole = steps and steps[-1] == choice["newest_step"] and {*steps} >= {*choice["steps"]}
        if self.rule.items() <= choice.items() and choice["steps"] and (whole or not steps):
            return choice
        return f"the choice of weights in {path} no longer fits the run"

    def _by_rule(self, checkpoints: Checkpoints) -> list[int]:
        """Returns the steps that the rule selects; a rule that compares selects the best step."""
        steps, scores = checkpoints.steps(), checkpoints.scores()
        if self.rule["rule"] == "last" or not scores:
            return steps[-1:]
        if self.rule["rule"] == "average":
            return list(scores)[-self.rule["average"] :]
        return [max(scores, key=scores.__getitem__)]

    def _compare(self, task: Any, checkpoints: Checkpoints, recorded: bool) -> dict[str, Any]:
        """Scores the candidates on validation data as during training, and returns the choice.

        Args:
          recorded: whether the best checkpoint's scores were recorded with the current settings.
        """
        metric, template = self.metric, task.predictor.param_shapes()
        sign = 1.0 if find(metric).higher_is_better else -1.0
        scores = checkpoints.scores()
        choice = {**self.rule, "newest_step": checkpoints.steps()[-1], "candidates": []}
        if not (self.is_compared and scores):
            return choice | {"steps": self._by_rule(checkpoints)}
        measured: dict[str, tuple[float, float]] = {}
        compared = candidates(scores, self.rule["average"])
        for kind, steps in compared.items():
            if kind == BEST and recorded:
                measured[kind] = scores[steps[0]]
            else:
                logger.info(f"scoring {CANDIDATES[kind]} on validation ...")
                weights = checkpoints.restore_weights(steps, template)
                numbers = task.evaluate(weights, "validation", final=False)
                del weights  # keeps at most two trees in memory
                measured[kind] = rank(numbers, metric)
            score, _ = measured[kind]
            value = sign * score if math.isfinite(score) else None
            choice["candidates"].append({"what": kind, "steps": steps, "score": value})
        return choice | {"steps": compared[max(compared, key=measured.__getitem__)]}
