"""Reads the results of runs; scores that are not comparable are left out or refused."""

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.display.training_curves import read_curves
from experiments.results.systems import SPLITS, Run, Sweep, System, Trial, names_of
from experiments.results.tasks import REGISTRY, TaskMeasures
from experiments.results.texts import UnreadableError
from transformer.errors import UserError, shorten
from transformer.records import FILES, damaged_text
from transformer.storage.reading import Each, read_json

TOLERANCE = 0.01  # of a score as it is shown, which another version may round otherwise
APART = "scores are not comparable; sweep them apart"
SHOWN = 60  # characters of a line in a message
# Metrics of language models: a byte is the same for all vocabularies, a token is not.
PERPLEXITY, BITS_PER_BYTE = "perplexity", "bits_per_byte"


def read_results(folder: Path, place: Path) -> dict[str, Any]:
    """Returns the results in a place of a run's folder, whose texts are what was written."""
    fix, path = _fix(folder), place / "results.json"
    results = read_json(
        path, {"test?": dict, "validation?": dict, "step?": int, f"{FILES}?": Each(str)}, fix
    )
    if name := damaged_text(place, results):
        raise UserError(f"{place / name} is not what was written: {fix}")
    return results


def read_run(
    folder: Path,
    place: Path,
    results: dict[str, Any],
    measures: TaskMeasures,
    metrics: Collection[str],
    config: ConfigDict | None = None,
) -> Run:
    """Returns a run with its outputs, which have the scores of its results in these metrics.

    Args:
      config: the run's; its tags before sources are no part of the test set.
    """
    scores = results[measures.split]
    try:
        outputs = measures.read(place, scores, config)
    except UnreadableError as error:
        raise UserError(f"{error.path} cannot be read ({error.reason}): {_fix(folder)}") from None
    for name in metrics if measures.all_texts else ():
        if f"{name}_signature" not in scores:
            continue
        metric = measures.metric(name)
        recorded, score = (metric.scale * x for x in (scores[name], measures.score(name, outputs)))
        if abs(recorded - score) > TOLERANCE:  # a kill may come between writing the one and other
            raise UserError(
                f"{place / 'results.json'} says {metric.title} {recorded:.2f}, and the "
                f"{measures.made} in {place} have {score:.2f}: {_fix(folder)}"
            )
    return Run(folder, results, outputs)


def _fix(folder: Path) -> str:
    return f"--mode=evaluate with --workdir={folder} writes it again"


def check_same_texts(first: Run, other: Run, fix: str) -> None:
    """Raises UserError unless two runs have the same test set; names the first other line."""
    given = other.texts.given
    for name, lines in first.texts.given.items():
        theirs = given.get(name, [])
        if lines != theirs:
            pairs = enumerate(zip([*lines, None], [*theirs, None], strict=False), 1)
            number, (line, their) = next((n, pair) for n, pair in pairs if len({*pair}) > 1)
            raise UserError(
                f"{names_of(first, other)} have different test sets ({name}, line {number}: "
                f"{_shown(line)} and {_shown(their)}): {fix}"
            )
    if extra := given.keys() - first.texts.given.keys():
        raise UserError(f"{other.folder} has {min(extra)}, which {first.folder} lacks: {fix}")


def _shown(line: str | None) -> str:
    return "no such line" if line is None else repr(shorten(line, SHOWN))


def find_unlike(runs: Sequence[Run], splits: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns, by metric, two runs whose scores of a split have different signatures, and these."""
    first: dict[tuple[str, str], tuple[Run, str]] = {}
    unlike: dict[str, tuple[str, str]] = {}
    for run in runs:
        for split in splits:
            for key, signature in (run.results.get(split) or {}).items():
                if not key.endswith("_signature"):
                    continue
                before, other = first.setdefault((split, key), (run, signature))
                if signature != other:
                    name = key.removesuffix("_signature")
                    both = f"{split} {name}: {other!r} and {signature!r}"
                    unlike.setdefault(name, (names_of(before, run), both))
    return unlike


def read_sweep(task: str, trials: Sequence[Trial], baseline: int | None = None) -> Sweep:
    """Reads what the complete trials of a sweep left, and checks that it compares.

    Args:
      baseline: the number of a trial, with whose setting the others are compared.
    """
    complete = [trial for trial in trials if trial.state == "complete"]
    if not complete:
        raise UserError("no trial is complete yet: there is nothing to compare")
    marked = [trial.setting for trial in trials if trial.number == baseline]
    if baseline is not None and not marked:
        raise UserError(f"the baseline, trial {baseline}, is not a trial of this sweep")
    runs = [Run(t.folder, read_results(t.folder, t.folder), None, t) for t in complete]
    measures = REGISTRY[task]
    common = (s for s in measures.splits if all(isinstance(r.results.get(s), dict) for r in runs))
    measures = dataclasses.replace(measures, split=next(common, measures.splits[-1]))
    _check_main(runs, measures)
    if unlike := find_unlike(runs, SPLITS):
        measures = _without_tokens(measures, unlike)
        _check_main(runs, measures)
    systems: list[System] = []
    for run, trial in zip(_with_outputs(runs, measures), complete, strict=True):
        # A value may be a list, which has no hash.
        if same := [system for system in systems if system.values == trial.setting]:
            [system] = same
            (system.repeats if system.has_seed(trial.seed) else system.runs).append(run)
        else:
            systems.append(System("", [run], trial.setting))
    for trial in (trial for trial in trials if trial.state != "complete"):
        for system in systems:
            if system.values == trial.setting and not system.has_seed(trial.seed):
                system.others.append(trial)
    chosen = next((system for system in systems if [system.values] == marked), None)
    vocabularies, _ = unlike.get(PERPLEXITY, ("", ""))
    return Sweep(list(trials), systems, chosen, measures, vocabularies)


def _check_main(runs: Sequence[Run], measures: TaskMeasures) -> None:
    """Raises UserError if a run lacks the score that is compared."""
    path = measures.main.path
    for run in runs:
        scores = run.results.get(measures.split) or {}
        signature = scores.get(f"{measures.main_metric}_signature")
        if run.score(path) is None or not isinstance(signature, str):
            raise UserError(
                f"{run.folder / 'results.json'} cannot be read (it holds no {path} with a "
                f"signature): {_fix(run.folder)}"
            )


def _with_outputs(runs: Sequence[Run], measures: TaskMeasures) -> list[Run]:
    """The runs of trials with their outputs and their curves of validation."""
    read: list[Run] = []
    for run in runs:
        try:
            curves = read_curves(run.folder / "metrics.jsonl", measures.curves).items()
        except ValueError as error:
            raise UserError(f"{error}: restore it") from None
        run = run._replace(curves={name: own for (name, split), own in curves if split != "train"})
        if measures.all_texts:
            metrics = [measures.main_metric]
            own = read_run(run.folder, run.folder, run.results, measures, metrics)
            run = run._replace(outputs=own.outputs)
            if read:
                check_same_texts(read[0], run, f"their {APART}")
                # The texts of many runs would fill the memory.
                few = run.texts._replace(given={}, shown={}, texts=[])
                run = run._replace(outputs=few)
        read.append(run)
    return read


def _without_tokens(measures: TaskMeasures, unlike: dict[str, tuple[str, str]]) -> TaskMeasures:
    """The measures of language models whose vocabularies differ; refuses if more differs."""
    others = [own for name, own in unlike.items() if name != PERPLEXITY]
    if others or measures.main_metric != PERPLEXITY:
        runs, signatures = (others or [*unlike.values()])[0]
        raise UserError(f"{runs} have different signatures of {signatures}: such {APART}")
    only = (BITS_PER_BYTE,)
    return dataclasses.replace(
        measures, main_metric=BITS_PER_BYTE, panels=only, curves=only, curves_note=""
    )
