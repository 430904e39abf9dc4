"""The weights that a run uses: those of one checkpoint or the mean of several, in one file.

After the training the best single checkpoint is compared on validation with the mean of the last
few and the mean of those up to the best. The choice is saved in the run's folder and used by every
mode. So are the weights, in `weights.safetensors`: inference reads nothing else, however many
checkpoints they are the mean of. Names in it are those of the parameters, such as
"encoder_layers_0/feed_forward/inner/kernel", and kernels are [inputs, features]. Many programs can
read this format; it holds no code.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.files import (
    DamageError,
    OddFileError,
    read_file,
    read_sealed,
    write_bytes,
    write_json,
)
from transformer.metrics.registry import find, rank
from transformer.optim.parameters import named_leaves
from transformer.runs.checkpoint import Checkpoints, all_damaged, check_fingerprint
from transformer.runs.leaves import check_leaves, describe_leaves

logger = logging.getLogger(__name__)

WEIGHTS = "weights.safetensors"
CHOICE = "weights.json"
STORED = "stored"  # its key of the weights that were stored apart
SHAPE = {"newest_step": int, "steps": [int], "candidates": [dict], STORED: dict}
WHOLE = "no longer fits the run"  # of a choice that is undamaged
BEST, LAST, UP_TO_BEST = "best", "last", "up_to_best"  # candidates


def candidates(scores: Mapping[int, tuple[float, float]], average: int) -> dict[str, list[int]]:
    """Returns the steps of each candidate by its kind, without repetitions.

    Args:
      scores: of all evaluated checkpoints, oldest first, see `rank`.
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


def choose(task: Any, config: ConfigDict, folder: Path, keep: bool = True) -> dict[str, Any]:
    """Chooses the weights of a trained run, logs the choice, and scores candidates if necessary.

    A saved choice is used if it still fits the run; with its weights, it needs no checkpoint.

    Args:
      keep: whether to save the choice and the weights in the run's folder, for other modes;
        otherwise the scoring settings may be others than during the training.

    Returns:
      `steps` of the checkpoints, `rule` and `average` of the config, `metric`, `newest_step`, and
      `candidates`, [{"what", "steps", "score"}, ...], the compared candidates.
    """
    with _checkpoints(folder, config) as checkpoints:
        choice = _read(folder, config, checkpoints.steps())
        if isinstance(choice, str):
            _check_any(folder, checkpoints.steps(), choice)
            choice = _compare(task, config, checkpoints, recorded=keep)
        stored = choice.pop(STORED, None)
        if keep and checkpoints.steps() and not _is_written(folder, stored):
            template = task.predictor.param_shapes()
            weights, steps = _restore(checkpoints, config, choice["steps"], template)
            if steps != choice["steps"]:  # a damaged one had not to be read to be compared
                choice |= {"steps": steps, "candidates": []}
            store(folder, config, weights, checkpoints.newest_progress(), choice)
    logger.info(_line(choice))
    return choice


def store(
    folder: Path, config: ConfigDict, weights: Any, progress: Any, choice: Any = None
) -> None:
    """Writes weights and their choice; without one, they are of no training of ours: of step 0."""
    choice = choice or {**_rule(config), "newest_step": 0, "steps": [0], "candidates": []}
    arrays = {name: np.asarray(x) for name, x in named_leaves(weights).items()}
    data = safetensors.numpy.save(arrays)
    write_bytes(folder / WEIGHTS, data)
    stored = {
        "digest": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "progress": progress,
        "model": _model(config),
    }
    write_json(folder / CHOICE, {**choice, STORED: stored})


def load(
    folder: Path,
    config: ConfigDict,
    template: Callable[[], Any],
    fingerprint: str,
    steps: Sequence[int] = (),
) -> tuple[Any, list[int], dict[str, Any]]:
    """Returns the chosen weights, the steps of their checkpoints, and the progress of the run.

    Those that were stored apart need no checkpoint.

    Args:
      template: returns shapes and dtypes of the weights; to trace a model for them takes a while.
      fingerprint: the fingerprint of the tokenizers that the run's progress must have.
      steps: in place of the choice in the folder.
    """
    with _checkpoints(folder, config) as checkpoints:
        choice = _read(folder, config, checkpoints.steps())
        if not isinstance(choice, str) and list(steps) in ([], choice["steps"]):
            stored = choice[STORED]
            check_fingerprint(stored["progress"], fingerprint, checkpoints.folder)
            try:
                arrays = safetensors.numpy.load(_read_file(folder, stored))
                if stored["model"] != _model(config):  # its config has changed
                    expected = describe_leaves(named_leaves(template()))
                    what = f"the weights in {folder / WEIGHTS}"
                    check_leaves(describe_leaves(arrays), expected, what)
                weights = jax.device_put(unflatten_dict(arrays, sep="/"))
                return weights, choice["steps"], stored["progress"]
            except DamageError as error:
                _check_any(folder, checkpoints.steps(), str(error))
                logger.warning(f"{folder}: {error}: reading the checkpoints")
                steps = choice["steps"]
        _check_any(folder, checkpoints.steps(), choice)
        checkpoints.check_fingerprint(fingerprint)
        if not steps and _is_compared(config):
            steps = _by_rule(checkpoints, config)
            logger.warning(f"{folder}: {choice}: using checkpoint {steps[0]:,}, the best so far")
        weights, used = _restore(checkpoints, config, steps, template())
        return weights, used, checkpoints.newest_progress()


def _restore(
    checkpoints: Checkpoints, config: ConfigDict, steps: Sequence[int], template: Any
) -> tuple[Any, list[int]]:
    """The mean weights of checkpoints, or by the config's rule, and which; no damaged ones."""
    damaged: set[int | None] = set()
    while True:
        used = list(steps) or _by_rule(checkpoints, config, damaged)
        try:
            return checkpoints.restore_weights(used, template), used
        except DamageError as error:
            logger.warning(f"checkpoint {error.step} is damaged ({error}); left out")
            damaged.add(error.step)
            steps = ()


def _is_written(folder: Path, stored: Mapping[str, Any] | None) -> bool:
    """Whether the weights that were stored apart are there and undamaged."""
    try:
        return stored is not None and bool(_read_file(folder, stored))
    except DamageError:
        return False


def _read_file(folder: Path, stored: Mapping[str, Any]) -> bytes:
    try:
        data = read_file(folder / WEIGHTS, stored["bytes"])
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DamageError(f"{WEIGHTS} is missing") from None
    except OddFileError as error:
        raise DamageError(f"{WEIGHTS} is not what was written: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != stored["digest"]:
        raise DamageError(f"{WEIGHTS} is not what was written")
    return data


def _model(config: ConfigDict) -> dict[str, Any]:
    """The settings that, with the tokenizers, fix the shapes of the weights; as JSON has them."""
    return json.loads(json.dumps(config.model.to_dict()))


def _check_any(folder: Path, steps: Sequence[int], damage: Any = "") -> None:
    """Raises UserError where weights are needed that only a checkpoint has, and there is none."""
    if steps:
        return
    is_stored = (folder / WEIGHTS).exists() or (folder / CHOICE).exists()
    if is_stored and isinstance(damage, str) and WHOLE not in damage:
        why = f"{damage}, and there are no checkpoints to read in its place"
        raise UserError(f"{folder}: {why}: restore the original")
    if is_stored:
        raise UserError(
            f"{folder} has no checkpoints any more, and other weights than the stored ones are in "
            "them alone: leave config.evaluate as it is there, or copy the checkpoints back"
        )
    raise UserError(f"{folder} has no checkpoint yet: train until the first one is saved")


def _checkpoints(folder: Path, config: ConfigDict) -> Checkpoints:
    place = folder / "checkpoints"
    return Checkpoints(place, best_metric=config.train.best_metric, read_only=True)


def _is_compared(config: ConfigDict) -> bool:
    return config.evaluate.checkpoint == "auto" and config.evaluate.average_last_n > 1


def _rule(config: ConfigDict) -> dict[str, Any]:
    return {
        "rule": config.evaluate.checkpoint,
        "average": config.evaluate.average_last_n,
        "metric": config.train.best_metric,
    }


def _read(folder: Path, config: ConfigDict, steps: Sequence[int]) -> dict[str, Any] | str:
    """The saved choice of a run, or the reason why there is none that fits.

    Args:
      steps: of its checkpoints; none if they were deleted.
    """
    path = folder / CHOICE
    if not path.exists():
        return f"{CHOICE} is missing, which the end of the training writes"
    try:
        choice = read_sealed(path, SHAPE)
    except DamageError as error:
        return f"the choice of weights is damaged ({error})"
    whole = steps and steps[-1] == choice["newest_step"] and {*steps} >= {*choice["steps"]}
    if _rule(config).items() <= choice.items() and choice["steps"] and (whole or not steps):
        return choice
    return f"the choice of weights in {path} {WHOLE}"


def _by_rule(
    checkpoints: Checkpoints, config: ConfigDict, damaged: Collection[int | None] = ()
) -> list[int]:
    """The steps that the config specifies; if it specifies a comparison, the best single one."""
    steps = [step for step in checkpoints.steps() if step not in damaged]
    if not steps:
        raise all_damaged(checkpoints.folder)
    scores = {s: score for s, score in checkpoints.scores().items() if s in steps}
    if config.evaluate.checkpoint == "last" or not scores:
        return steps[-1:]
    if config.evaluate.checkpoint == "average":
        return list(scores)[-config.evaluate.average_last_n :]
    return [max(scores, key=scores.__getitem__)]


def _compare(
    task: Any, config: ConfigDict, checkpoints: Checkpoints, recorded: bool
) -> dict[str, Any]:
    """Scores the candidates on validation, as evaluations during the training do.

    Args:
      recorded: whether these scored the best checkpoint with the present settings.
    """
    metric, template = config.train.best_metric, task.predictor.param_shapes()
    sign = 1.0 if find(metric).higher_is_better else -1.0
    scores = checkpoints.scores()
    choice = {**_rule(config), "newest_step": checkpoints.steps()[-1], "candidates": []}
    if not (_is_compared(config) and scores):
        return choice | {"steps": _by_rule(checkpoints, config)}
    measured: dict[tuple[int, ...], tuple[float, float]] = {}
    while True:
        compared = candidates(scores, config.evaluate.average_last_n)
        try:
            for kind, steps in compared.items():
                if kind == BEST and recorded:
                    measured[tuple(steps)] = scores[steps[0]]
                elif tuple(steps) not in measured:
                    logger.info(f"scoring {_describe(kind, steps)} on validation ...")
                    weights = checkpoints.restore_weights(steps, template)
                    numbers = task.evaluate(weights, "validation", final=False)
                    del weights  # two trees in memory are enough
                    measured[tuple(steps)] = rank(numbers, metric)
            break
        except DamageError as error:
            logger.warning(f"checkpoint {error.step} is damaged ({error}); left out")
            del scores[error.step]  # pyright: ignore[reportArgumentType]  # it has a step
            if not scores:
                raise all_damaged(checkpoints.folder) from error
    for kind, steps in compared.items():
        score, _ = measured[tuple(steps)]
        value = sign * score if math.isfinite(score) else None
        choice["candidates"].append({"what": kind, "steps": steps, "score": value})
    return choice | {"steps": max(compared.values(), key=lambda steps: measured[tuple(steps)])}


def _line(choice: Mapping[str, Any]) -> str:
    """A line with the chosen weights and the scores of all candidates."""
    steps, metric = choice["steps"], find(choice["metric"]).title
    if not choice["candidates"]:
        listed = ", ".join(f"{step:,}" for step in steps)
        mean = "the mean of checkpoints" if len(steps) > 1 else "checkpoint"
        return f"using {mean} {listed}: evaluate.checkpoint={choice['rule']}"

    def shown(candidate, then=""):
        score = candidate["score"]
        number = "not finite" if score is None else f"{score:.4g} {metric}"
        return f"{_describe(candidate['what'], candidate['steps'])}: {number}{then}"

    used = next(each for each in choice["candidates"] if each["steps"] == steps)
    others = [each for each in choice["candidates"] if each["steps"] != steps]
    line = f"using {shown(used, ' on validation, scored as during training')}"
    return "; ".join([line, *map(shown, others)])


def _describe(kind: str, steps: Sequence[int]) -> str:
    if kind == BEST:
        return f"the best checkpoint (step {steps[0]:,})"
    end = "the last" if kind == LAST else "the"
    up_to = " up to the best" if kind == UP_TO_BEST else ""
    return f"the mean of {end} {len(steps)}{up_to}"
