"""Reading what the runs of a sweep left, and refusing what does not compare."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.display.training_curves import Curve, read_curves
from experiments.measures.registry import REGISTRY, TaskMeasures
from experiments.measures.texts import Texts, UnreadableError
from experiments.sweeps.answer.results import Outcome, Point, Setting, Sweep
from transformer.errors import UserError

SPLITS = ("test", "validation", "longer")
# Of the main score, in the unit of its column: the same text, counted by another version, may
# differ by rounding.
TOLERANCE = 0.01
SCORE_ANEW = "--mode=evaluate with this --workdir writes it anew"


def read_sweep(task: str, points: Sequence[Point], baseline: int | None = None) -> Sweep:
    """Reads what the complete points left, and checks that it compares.

    Args:
      task: the name of the points' task.
      points: of one sweep.
      baseline: the number of a point, with whose setting the others are compared.

    Raises:
      UserError: no point is complete, a file of a complete point is missing or damaged, two points
        have unlike signatures or test sets, or no point has the baseline's number.
    """
    complete = [point for point in points if point.state == "complete"]
    if not complete:
        raise UserError("no point is complete yet: there is nothing to compare")
    marked = [point.setting for point in points if point.number == baseline]
    if baseline is not None and not marked:
        raise UserError(f"the baseline, point {baseline}, is no point of this sweep")
    results = [_read_results(point) for point in complete]
    measures = REGISTRY[task].of_split(_common_split(REGISTRY[task].splits, results))
    for point, result in zip(complete, results, strict=True):
        _check_main(point, result, measures)
    _check_signatures(complete, results)
    texts = [_read_texts(*each, measures) for each in zip(complete, results, strict=True)]
    _check_test_sets(complete, texts)
    settings: list[Setting] = []
    for point, result, of_point in zip(complete, results, texts, strict=True):
        outcome = Outcome(point, result, of_point, _read_curves(point, measures))
        _check_score(outcome, measures)
        # A value may be a list, which has no hash.
        if same := [setting for setting in settings if setting.values == point.setting]:
            same[0].outcomes.append(outcome)
        else:
            settings.append(Setting(point.setting, [outcome]))
    for point in points:
        for setting in settings:
            if point.state != "complete" and setting.values == point.setting:
                setting.others.append(point)
    chosen = next((setting for setting in settings if [setting.values] == marked), None)
    return Sweep(list(points), settings, chosen, measures)


def _common_split(splits: Sequence[str], results: Sequence[dict[str, Any]]) -> str:
    """The first of these splits that all results have; the last where they have none."""
    common = (s for s in splits if all(isinstance(result.get(s), dict) for result in results))
    return next(common, splits[-1])


def _read_results(point: Point) -> dict[str, Any]:
    path = _results_file(point)
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refusal(point, UnreadableError(path, error)) from None
    if not isinstance(results, dict):
        raise _refusal(point, UnreadableError(path, "it holds no scores"))
    return results


def _results_file(point: Point) -> Path:
    return point.folder / "results.json"


def _check_main(point: Point, results: dict[str, Any], measures: TaskMeasures) -> None:
    """Raises UserError where the score that is compared is not there."""
    name, scores = measures.main.name, results.get(measures.split)
    types = {name: int | float, f"{name}_signature": str}
    if not isinstance(scores, dict) or not all(isinstance(scores.get(k), types[k]) for k in types):
        reason = f"it holds no {measures.main.path} with a signature"
        raise _refusal(point, UnreadableError(_results_file(point), reason))


def _read_texts(point: Point, results: dict[str, Any], measures: TaskMeasures) -> Texts | None:
    if measures.texts is None:
        return None
    try:
        return measures.texts.read(point.folder, results[measures.split])
    except UnreadableError as error:
        raise _refusal(point, error) from None


def _read_curves(point: Point, measures: TaskMeasures) -> dict[str, Curve]:
    """The curves of validation that the task draws."""
    try:
        curves = read_curves(point.folder / "metrics.jsonl", measures.curves)
    except ValueError as error:
        raise UserError(f"point {point.number} is complete, but {error}: put it back") from None
    return {metric: curve for (metric, split), curve in curves.items() if split != "train"}


def _check_score(outcome: Outcome, measures: TaskMeasures) -> None:
    """Raises UserError where the texts are not those that were scored."""
    if measures.texts is None:
        return
    main, point = measures.main, outcome.point
    told = main.scale * outcome.results[measures.split][main.name]
    found = main.scale * measures.texts.score(outcome.texts.counts)
    # A run may be killed between writing the one and the other.
    if abs(told - found) > TOLERANCE:
        raise UserError(
            f"point {point.number}: the {measures.texts.made} in {point.folder} score "
            f"{found:.2f} {main.title}, and its results.json says {told:.2f}: {SCORE_ANEW}"
        )


def _refusal(point: Point, error: UnreadableError) -> UserError:
    return UserError(
        f"point {point.number} is complete, but {error.path} cannot be read ({error.reason}): "
        f"{SCORE_ANEW}"
    )


def _check_signatures(points: Sequence[Point], results: Sequence[dict[str, Any]]) -> None:
    seen: dict[tuple[str, str], tuple[int, str]] = {}
    for point, result in zip(points, results, strict=True):
        for split in SPLITS:
            for key, signature in (result.get(split) or {}).items():
                if not key.endswith("_signature"):
                    continue
                number, first = seen.setdefault((split, key), (point.number, signature))
                if signature != first:
                    raise UserError(
                        f"points {number} and {point.number} have unlike signatures of {split} "
                        f"{key.removesuffix('_signature')}: {first!r} and {signature!r}: such "
                        "scores do not compare; sweep them apart"
                    )


def _check_test_sets(points: Sequence[Point], texts: Sequence[Texts | None]) -> None:
    for point, of_point in zip(points, texts, strict=True):
        if of_point is None:
            continue
        for name, digest in of_point.given.items():
            if digest != texts[0].given[name]:
                raise UserError(
                    f"points {points[0].number} and {point.number} have unlike test sets "
                    f"({name}): their scores do not compare; sweep them apart"
                )
