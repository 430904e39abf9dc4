"""Reads the results of a sweep's runs; scores that are not comparable are left out or refused."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.display.training_curves import Curve, read_curves
from experiments.measures.registry import REGISTRY, TaskMeasures
from experiments.measures.significance import score_of
from experiments.measures.texts import Texts, UnreadableError
from experiments.sweeps.results.outcomes import Outcome, Setting, Sweep, Trial
from transformer.errors import UserError
from transformer.records import FILES, damaged_text
from transformer.storage.reading import Each, parse_json, read_file

SPLITS = ("test", "validation", "length_generalization")
# Of the main score, in the unit of its column: the same text, counted by another version, may
# differ by rounding.
TOLERANCE = 0.01
SCORE_AGAIN = "--mode=evaluate with this --workdir writes it again"
# Metrics of language models: a byte is the same for all vocabularies, a token is not.
PERPLEXITY, BITS_PER_BYTE = "perplexity", "bits_per_byte"


@dataclasses.dataclass(frozen=True)
class Unlike:
    """Two trials whose scores by one metric have different signatures.

    Attributes:
      name: of the metric.
      trials: their numbers, for people.
      signatures: of which scores, and both of them.
    """

    name: str
    trials: str
    signatures: str


def read_sweep(task: str, trials: Sequence[Trial], baseline: int | None = None) -> Sweep:
    """Reads what the complete trials left, and checks that it compares.

    Args:
      task: the name of the trials' task.
      trials: of one sweep.
      baseline: the number of a trial, with whose setting the others are compared.

    Raises:
      UserError: no trial is complete, a file of a complete trial is missing or damaged, two trials
        have different signatures or test sets, or no trial has the baseline's number.
    """
    complete = [trial for trial in trials if trial.state == "complete"]
    if not complete:
        raise UserError("no trial is complete yet: there is nothing to compare")
    marked = [trial.setting for trial in trials if trial.number == baseline]
    if baseline is not None and not marked:
        raise UserError(f"the baseline, trial {baseline}, is not a trial of this sweep")
    results = [_read_results(trial) for trial in complete]
    measures = REGISTRY[task].of_split(_common_split(REGISTRY[task].splits, results))
    for trial, result in zip(complete, results, strict=True):
        _check_main(trial, result, measures)
    if unlike := _find_unlike(complete, results):
        measures = _without_tokens(measures, unlike)
        for trial, result in zip(complete, results, strict=True):
            _check_main(trial, result, measures)
    texts = [_read_texts(*each, measures) for each in zip(complete, results, strict=True)]
    _check_test_sets(complete, texts)
    settings: list[Setting] = []
    for trial, result, of_trial in zip(complete, results, texts, strict=True):
        outcome = Outcome(trial, result, of_trial, _read_curves(trial, measures))
        _check_score(outcome, measures)
        # A value may be a list, which has no hash.
        if same := [setting for setting in settings if setting.values == trial.setting]:
            [setting] = same
            repeated = setting.has_seed(trial.seed)
            (setting.repeats if repeated else setting.outcomes).append(outcome)
        else:
            settings.append(Setting(trial.setting, [outcome]))
    for trial in (trial for trial in trials if trial.state != "complete"):
        for setting in settings:
            if setting.values == trial.setting and not setting.has_seed(trial.seed):
                setting.others.append(trial)
    chosen = next((setting for setting in settings if [setting.values] == marked), None)
    return Sweep(list(trials), settings, chosen, measures, unlike[0].trials if unlike else "")


def _common_split(splits: Sequence[str], results: Sequence[dict[str, Any]]) -> str:
    """The first of these splits that all results have; the last where they have none."""
    common = (s for s in splits if all(isinstance(result.get(s), dict) for result in results))
    return next(common, splits[-1])


def _read_results(trial: Trial) -> dict[str, Any]:
    path = _results_file(trial)
    try:
        results, wrong = parse_json(read_file(path), {f"{FILES}?": Each(str)})
    except OSError as error:
        raise _refusal(trial, UnreadableError(path, error)) from None
    if wrong:
        raise _refusal(trial, UnreadableError(path, wrong))
    return results


def _results_file(trial: Trial) -> Path:
    return trial.folder / "results.json"


def _check_main(trial: Trial, results: dict[str, Any], measures: TaskMeasures) -> None:
    """Raises UserError where the score that is compared is not there."""
    name, scores = measures.main.name, results.get(measures.split)
    types = {name: int | float, f"{name}_signature": str}
    if not isinstance(scores, dict) or not all(isinstance(scores.get(k), types[k]) for k in types):
        reason = f"it holds no {measures.main.path} with a signature"
        raise _refusal(trial, UnreadableError(_results_file(trial), reason))


def _read_texts(trial: Trial, results: dict[str, Any], measures: TaskMeasures) -> Texts | None:
    if measures.texts is None:
        return None
    if name := damaged_text(trial.folder, results):
        raise _refusal(trial, UnreadableError(trial.folder / name, "it is not what was written"))
    try:
        return measures.texts.read(trial.folder, results[measures.split])
    except UnreadableError as error:
        raise _refusal(trial, error) from None


def _read_curves(trial: Trial, measures: TaskMeasures) -> dict[str, Curve]:
    """The curves of validation that the task draws."""
    try:
        curves = read_curves(trial.folder / "metrics.jsonl", measures.curves)
    except ValueError as error:
        raise UserError(f"trial {trial.number} is complete, but {error}: restore it") from None
    return {metric: curve for (metric, split), curve in curves.items() if split != "train"}


def _check_score(outcome: Outcome, measures: TaskMeasures) -> None:
    """Raises UserError where the texts are not those that were scored."""
    if measures.texts is None:
        return
    main, trial = measures.main, outcome.trial
    told = main.scale * outcome.results[measures.split][main.name]
    score = main.scale * score_of(outcome.own_texts.counts, measures.texts.of_sums)
    # A run may be killed between writing the one and the other.
    if abs(told - score) > TOLERANCE:
        raise UserError(
            f"trial {trial.number}: the {measures.texts.made} in {trial.folder} score "
            f"{score:.2f} {main.title}, and its results.json says {told:.2f}: {SCORE_AGAIN}"
        )


def _refusal(trial: Trial, error: UnreadableError) -> UserError:
    return UserError(
        f"trial {trial.number} is complete, but {error.path} cannot be read ({error.reason}): "
        f"{SCORE_AGAIN}"
    )


def _find_unlike(trials: Sequence[Trial], results: Sequence[dict[str, Any]]) -> list[Unlike]:
    """The metrics of each split for which two trials have different signatures."""
    first: dict[tuple[str, str], tuple[int, str]] = {}
    found: dict[tuple[str, str], Unlike] = {}
    for trial, result in zip(trials, results, strict=True):
        for split in SPLITS:
            for key, signature in (result.get(split) or {}).items():
                if not key.endswith("_signature"):
                    continue
                number, other = first.setdefault((split, key), (trial.number, signature))
                if signature != other:
                    name = key.removesuffix("_signature")
                    numbers = f"trials {number} and {trial.number}"
                    told = f"{split} {name}: {other!r} and {signature!r}"
                    found.setdefault((split, key), Unlike(name, numbers, told))
    return list(found.values())


def _without_tokens(measures: TaskMeasures, unlike: Sequence[Unlike]) -> TaskMeasures:
    """The measures of language models whose vocabularies differ.

    Raises:
      UserError: more differs, and no score is comparable.
    """
    other = next((each for each in unlike if each.name != PERPLEXITY), unlike[0])
    if other.name != PERPLEXITY or measures.main_metric != PERPLEXITY:
        raise UserError(
            f"{other.trials} have different signatures of {other.signatures}: such scores are not "
            "comparable; sweep them apart"
        )
    return dataclasses.replace(
        measures,
        main_metric=BITS_PER_BYTE,
        panels=(BITS_PER_BYTE,),
        curves=(BITS_PER_BYTE,),
        curves_note="",
    )


def _check_test_sets(trials: Sequence[Trial], texts: Sequence[Texts | None]) -> None:
    for trial, of_trial in zip(trials, texts, strict=True):
        if of_trial is None or texts[0] is None:
            continue
        for name, digest in of_trial.given.items():
            if digest != texts[0].given[name]:
                raise UserError(
                    f"trials {trials[0].number} and {trial.number} have different test sets "
                    f"({name}): their scores are not comparable; sweep them apart"
                )
