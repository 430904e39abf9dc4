"""Reads the systems named by `--runs`; a system may pool several runs with different seeds."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from transformer.config import flatten
from transformer.config.keys import having
from transformer.errors import UserError, one_line, shorten
from transformer.runs import workdir
from transformer.runs.run import Run, State
from transformer.runs.workdir import COMMAND, find_trials
from .statistics import score_of
from .systems import (
    Comparison,
    ScoredRun,
    System,
    check_same_texts,
    find_unlike,
    read_results,
    read_texts,
)
from .tasks import REGISTRY, TaskMeasures

RUNS_EXAMPLE = "--runs=runs/a,runs/b"
# Config keys that may differ between the seeds of a setting, such as names and paths.
FREE_KEYS = {"seed", *having("label", "place", "sweep", "trials")}


def read_systems(flag: str, test_set: str | None) -> Comparison:
    """Returns the comparison of the systems in `flag`; the first system is the baseline.

    Args:
      flag: SYSTEM,SYSTEM[,...]. A SYSTEM is [NAME=]FOLDER[+FOLDER...]; the folder of a sweep over
        seeds stands for all runs of the sweep.
      test_set: the name of an evaluation that all runs have, or None for the runs' own test set.
    """
    folders_of = _parse(flag)
    folders = [folder for system in folders_of.values() for folder in system]
    runs = {folder: Run(folder) for folder in folders}
    task = runs[folders[0]].config.task
    for first, *others in folders_of.values():
        for folder in others:
            ours, theirs = flatten(runs[first].config), flatten(runs[folder].config)
            keys = [key for key in ours if ours[key] != theirs[key] and key not in FREE_KEYS]
            if keys:
                raise UserError(
                    f"{first} and {folder} are not seeds of one setting: they differ in "
                    f"{shorten(', '.join(keys))}: join seeds alone by +, and divide systems by "
                    "commas"
                )
    measures = REGISTRY[task]
    scored = {folder: _read_run(run, measures, test_set) for folder, run in runs.items()}
    for folder in folders[1:]:
        check_same_texts(scored[folders[0]], scored[folder], measures.same)
    unlike = find_unlike(list(scored.values()), ["test"])
    for both, signatures in (unlike[name] for name in measures.of_sums if name in unlike):
        raise UserError(
            f"{both} have different signatures of {signatures}: such scores are not comparable; "
            "score both with the same settings"
        )
    systems = [
        System(name, [scored[folder] for folder in system], {"system": name})
        for name, system in folders_of.items()
    ]
    metrics = list(measures.of_sums)
    if measures.per_token:  # comparable only if the runs have equal numbers of tokens
        first, *others = (run.counts[measures.per_token][:, 1] for run in scored.values())
        if not all(np.array_equal(first, each) for each in others):
            metrics.remove(measures.per_token)
    return Comparison(systems, systems[0], measures, metrics)


def _parse(runs: str) -> dict[str, list[Path]]:
    """Returns the folders of each system's runs, keyed by system name."""
    parts = [part.strip() for part in runs.split(",") if part.strip()]
    if len(parts) < 2:
        raise UserError(f"--runs={runs} has fewer than two systems: name them as {RUNS_EXAMPLE}")
    systems: dict[str, list[Path]] = {}
    for part in parts:
        name, equals, places = part.partition("=")
        if not equals or Path(part).exists():
            name, places = part, part
        if (name := one_line(name)) in systems:
            raise UserError(f"--runs names {name!r} twice: name each run and each system once")
        parents = [workdir.run_folder(place.strip()) for place in places.split("+")]
        systems[name] = [run for folder in parents for run in _runs_of(folder)]
    places = [folder.resolve() for system in systems.values() for folder in system]
    for folder in places:
        if places.count(folder) > 1:
            raise UserError(f"the run {folder} is named twice in --runs: name each run once")
    return systems


def _runs_of(folder: Path) -> list[Path]:
    """Returns the run folders in a folder, which is a run or a sweep over seeds."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: check --runs")
    trials = find_trials(folder)
    if not trials and not (folder / COMMAND).exists():
        return [folder]
    swept = {k for trial in trials for k in trial.settings if k not in FREE_KEYS}
    if swept or not trials:
        reason = f"its trials differ in {', '.join(sorted(swept))}" if swept else "it has no trials"
        raise UserError(
            f"{folder} is not a sweep over seeds alone ({reason}): name the trials of a system, "
            f"such as {folder}/trials/000+{folder}/trials/001"
        )
    return sorted(path.parent for path in folder.glob("trials/*/config.json"))  # even if damaged


def _read_run(run: Run, measures: TaskMeasures, test_set: str | None) -> ScoredRun:
    """Returns a finished run with its test set outputs and the scores of these outputs."""
    folder, data = run.folder, run.config.data
    place = folder if test_set is None else folder / workdir.EVALUATIONS / test_set
    path = place / "results.json"
    if test_set is not None and not path.exists():
        names = sorted(p.parent.name for p in place.parent.glob("*/results.json"))
        whole = folder.parents[1] if folder.parent.name == "trials" else folder
        raise UserError(
            f"{folder} has no evaluation {test_set!r} (it has {', '.join(names) or 'none'}): "
            f"write it with --mode=evaluate --workdir={whole} --input=..."
        )
    if not path.exists():
        raise UserError(f"{folder} is not finished (no results.json): train it to its end")
    results = read_results(place)
    if run.step > results.get("step", run.step):
        raise UserError(
            f"{path} is of step {results['step']:,}, and the run is trained to step {run.step:,}: "
            f"train it to its end, or score it again with --mode=evaluate --workdir={folder}"
        )
    if "test" not in results:
        raise UserError(f"{path} has no scores of a test set: there is nothing to compare")
    scored_run = read_texts(ScoredRun(folder, results), place, measures, data)
    if not measures.all_texts:  # score only the texts that have outputs
        for name, of_sums in measures.of_sums.items():
            results["test"][name] = score_of(scored_run.counts[name], of_sums)
    return scored_run


def list_stopped(runs: Iterable[Run]) -> list[str]:
    """Returns the folder and the step of each run that stopped before the end of its training."""
    return [f"{run.folder} (step {run.step:,})" for run in runs if run.state == State.STARTED]
