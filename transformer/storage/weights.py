"""The choice of a run's weights: those of one checkpoint or the mean of several.

After the training the best single checkpoint is compared on validation with the mean of the last
few and the mean of those up to the best. The choice is saved in the run's folder and used by every
mode; so are the weights, see `weights_file`.
"""

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.metrics.registry import find, rank
from transformer.storage import weights_file
from transformer.storage.checkpoint import Checkpoints, all_damaged, check_fingerprint
from transformer.storage.checkpoint_files import DamageError, patiently, read_sealed
from transformer.storage.files import write_json

logger = logging.getLogger(__name__)

CHOICE = "weights.json"
STORED = "stored"  # its key of the weights that were stored apart
RULES = ("auto", "best", "last", "average")
BEST, LAST, UP_TO_BEST = "best", "last", "up_to_best"  # candidates


def candidates(scores: Mapping[int, tuple[float, float]], average: int) -> dict[str, list[int]]:
    """Returns the steps of each candidate by its kind, without repetitions.

    Args:
      scores: of all evaluated checkpoints, oldest first, see `rank`.
      average: the number of checkpoints to average.
    """
    evaluated, best = list(scores), max(scores, key=scores.__getitem__)
    if average == 1:
        return {BEST: [best]}
    up_to_best = evaluated[: evaluated.index(best) + 1]
    found = {BEST: [best]}
    for what, steps in ((LAST, evaluated[-average:]), (UP_TO_BEST, up_to_best[-average:])):
        if steps not in found.values():
            found[what] = steps
    return found


def choose(task: Any, config: ConfigDict, folder: Path, keep: bool = True) -> dict[str, Any]:
    """Chooses the weights of a trained run, logs the choice, and scores candidates if necessary.

    A saved choice is used if it still fits the run; with weights that are stored apart, it needs no
    checkpoint.

    Args:
      keep: whether to save the choice and the weights in the run's folder, for other modes;
        otherwise the scoring settings may be others than during the training.

    Returns:
      `steps` of the checkpoints, `rule` and `average` of the config, `metric`, `newest_step`, and
      `candidates`, [{"what", "steps", "score"}, ...], the compared candidates.

    Raises:
      UserError: there is no checkpoint, all are damaged, or one cannot be read.
    """
    with _checkpoints(folder, config) as checkpoints:
        steps = checkpoints.steps()
        choice = _read(folder, config, steps)
        if isinstance(choice, str):
            _check_any(folder, steps)
            choice = _compare(task, config, checkpoints, recorded=keep)
        stored = choice.pop(STORED, {})
        seal = stored.get("digest", ""), stored.get("bytes", 0)
        if keep and steps and not weights_file.is_written(folder, *seal):
            template = task.predictor.param_shapes()
            stored = _store(folder, config, checkpoints, choice["steps"], template)
            write_json(folder / CHOICE, {**choice, STORED: stored})
    logger.info(_line(choice))
    return choice


def _store(
    folder: Path, config: ConfigDict, checkpoints: Checkpoints, steps: Sequence[int], template: Any
) -> dict[str, Any]:
    """Writes the weights of some checkpoints apart; returns what `_read_stored` needs."""
    try:
        chosen = checkpoints.restore_weights(steps, template)
    except DamageError:  # of which `load` warns
        return {}
    progress, digest = _progress(checkpoints), weights_file.write(folder, chosen)
    size = (folder / weights_file.WEIGHTS).stat().st_size
    return {"digest": digest, "bytes": size, "progress": progress, "model": _model(config)}


def _model(config: ConfigDict) -> dict[str, Any]:
    """The settings that, with the tokenizers, fix the shapes of the weights; as JSON has them."""
    return json.loads(json.dumps(config.model.to_dict()))


def _progress(checkpoints: Checkpoints) -> dict[str, Any]:
    """The progress of the run; empty if it is damaged."""
    read = (checkpoints.read_progress(step) for step in reversed(checkpoints.steps()))
    return next(filter(None, read), {})


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

    Raises:
      UserError: there is no checkpoint, all are damaged, the system refuses to read one, or it
        goes with other tokenizers or another model.
    """
    if stored := _read_stored(folder, config, template, fingerprint, steps):
        return stored
    with _checkpoints(folder, config) as checkpoints:
        _check_any(folder, checkpoints.steps())
        checkpoints.check_fingerprint(fingerprint)
        chosen, damaged = list(steps), set()
        if not steps and _is_compared(config):
            choice = _read(folder, config, checkpoints.steps())
            chosen = [] if isinstance(choice, str) else choice["steps"]
            if isinstance(choice, str):
                [best] = _by_rule(checkpoints, config)
                logger.warning(f"{choice}: using checkpoint {best:,}, the best so far")
        while True:
            used = chosen or _by_rule(checkpoints, config, damaged)
            try:
                weights = checkpoints.restore_weights(used, template())
                break
            except DamageError as error:
                logger.warning(f"checkpoint {error.step} is damaged ({error}); left out")
                damaged.add(error.step)
                chosen = []
        return weights, used, _progress(checkpoints)


def _read_stored(
    folder: Path,
    config: ConfigDict,
    template: Callable[[], Any],
    fingerprint: str,
    steps: Sequence[int],
) -> tuple[Any, list[int], dict[str, Any]] | None:
    """What `load` returns, if it was stored apart and still fits the run."""
    with _checkpoints(folder, config) as checkpoints:
        choice = _read(folder, config, checkpoints.steps())
    if isinstance(choice, str) or (steps and list(steps) != choice["steps"]):
        return None
    try:
        stored = choice[STORED]
        progress, model = stored["progress"], stored["model"]
        check_fingerprint(progress, fingerprint, folder / "checkpoints")
        arrays = weights_file.read(folder, stored["digest"], stored["bytes"])
        if model != _model(config):
            weights_file.check_model(arrays, template(), folder / weights_file.WEIGHTS)
        return jax.device_put(unflatten_dict(arrays, sep="/")), choice["steps"], progress
    except DamageError as error:
        logger.warning(f"the weights in {folder} are damaged ({error}): reading the checkpoints")
    except (KeyError, TypeError):  # stored by an older version, or not at all
        pass
    return None


def _check_any(folder: Path, steps: Sequence[int]) -> None:
    """Raises UserError where weights are needed that only a checkpoint has, and there is none."""
    if steps:
        return
    if (folder / weights_file.WEIGHTS).exists():
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
    try:
        choice = patiently(lambda: read_sealed(path), path)
        fits = _rule(config).items() <= choice.items() and choice["steps"]
        whole = steps and steps[-1] == choice["newest_step"] and {*steps} >= {*choice["steps"]}
        if fits and (whole or not steps):
            return choice
        return f"the choice of weights in {path} no longer fits the run"
    except DamageError as error:
        if path.exists():
            return f"the choice of weights in {folder} is damaged ({error})"
    except (KeyError, TypeError):
        return f"the choice of weights in {path} cannot be read"
    return f"no weights were chosen in {folder}, which happens at the end of the training"


def _by_rule(
    checkpoints: Checkpoints, config: ConfigDict, damaged: Collection[int] = ()
) -> list[int]:
    """The steps that the config specifies; if it specifies a comparison, the best single one."""
    steps = [step for step in checkpoints.steps() if step not in damaged]
    if not steps:
        raise all_damaged(checkpoints.folder)
    checkpoints.warn_of_damage()
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
    checkpoints.warn_of_damage()
    scores = checkpoints.scores()
    choice = {**_rule(config), "newest_step": checkpoints.steps()[-1], "candidates": []}
    if not (_is_compared(config) and scores):
        return choice | {"steps": _by_rule(checkpoints, config)}
    found: dict[tuple[int, ...], tuple[float, float]] = {}
    while True:
        compared = candidates(scores, config.evaluate.average_last_n)
        try:
            for what, steps in compared.items():
                if what == BEST and recorded:
                    found[tuple(steps)] = scores[steps[0]]
                elif tuple(steps) not in found:
                    described = _described({"what": what, "steps": steps})
                    logger.info(f"scoring {described} on validation ...")
                    weights = checkpoints.restore_weights(steps, template)
                    measured = task.evaluate(weights, "validation", final=False)
                    del weights  # two trees in memory are enough
                    found[tuple(steps)] = rank(measured, metric)
            break
        except DamageError as error:
            logger.warning(f"checkpoint {error.step} is damaged ({error}); left out")
            del scores[error.step]  # pyright: ignore[reportArgumentType]  # it has a step
            if not scores:
                raise all_damaged(checkpoints.folder) from error
    best = max(compared.values(), key=lambda steps: found[tuple(steps)])
    for what, steps in compared.items():
        score, _ = found[tuple(steps)]
        value = sign * score if math.isfinite(score) else None
        choice["candidates"].append({"what": what, "steps": steps, "score": value})
    return choice | {"steps": best}


def _line(choice: Mapping[str, Any]) -> str:
    """A line with the chosen weights and the scores of all candidates."""
    steps, metric = choice["steps"], find(choice["metric"]).title
    if not choice["candidates"]:
        listed = ", ".join(f"{step:,}" for step in steps)
        mean = "the mean of checkpoints" if len(steps) > 1 else "checkpoint"
        return f"using {mean} {listed}: evaluate.checkpoint={choice['rule']}"

    def shown(candidate):
        return "not finite" if candidate["score"] is None else f"{candidate['score']:.4g} {metric}"

    used = next(each for each in choice["candidates"] if each["steps"] == steps)
    others = [each for each in choice["candidates"] if each["steps"] != steps]
    line = f"using {_described(used)}: {shown(used)} on validation, scored as during training"
    return "; ".join([line, *(f"{_described(each)}: {shown(each)}" for each in others)])


def _described(candidate: Mapping[str, Any]) -> str:
    steps = candidate["steps"]
    if candidate["what"] == BEST:
        return f"the best checkpoint (step {steps[0]:,})"
    end = "the last" if candidate["what"] == LAST else "the"
    return f"the mean of {end} {len(steps)}" + (
        " up to the best" if candidate["what"] == UP_TO_BEST else ""
    )
