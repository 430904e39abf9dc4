"""The systems that `--runs` names: runs of one test set, several seeds of a system pooled."""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer import variants
from transformer.config import flatten
from transformer.config.keys import having
from transformer.errors import UserError, one_line, shorten
from transformer.runs import workdir
from transformer.runs.run import Run, State
from transformer.runs.workdir import COMMAND, find_trials
from .systems import ScoredRun, System, check_same_texts, find_unlike, read_results, read_texts
from .tasks import REGISTRY, TaskMeasures

RUNS_EXAMPLE = "--runs=runs/a,runs/b"
# What is left of names that end in seeds, or in numbers of trials.
SEEDS_OF_NAME = re.compile(r"(/|[_.-]s(eed)?)?[_.-]*\d*$")
# Keys in which the seeds of a setting may differ: their names, and where files are.
FREE_KEYS = {"seed", *having("label", "place", "sweep", "trials")}


def read_systems(flag: str, test_set: str | None) -> tuple[TaskMeasures, list[System]]:
    """Returns the task's measures and the systems of a comparison, the baseline first.

    Args:
      flag: SYSTEM,SYSTEM[,...]; a SYSTEM is FOLDER[+FOLDER...], with NAME= before it to name it. A
        folder of a sweep over seeds stands for its runs.
      test_set: an evaluation that all runs have; None for their own test set.
    """
    named = _parse(flag)
    folders = [folder for _, own in named for folder in own]
    runs = {folder: Run(folder) for folder in folders}
    task = runs[folders[0]].config.task
    for folder, run in runs.items():
        if run.config.task != task:
            raise UserError(
                f"{folders[0]} and {folder} are of different tasks, {task} and {run.config.task}: "
                "compare runs of one task"
            )
    for _, (first, *others) in named:
        for folder in others:
            _check_same_setting(runs[first], runs[folder])
    measures = REGISTRY[task]
    runs_of = {folder: _read_run(run, measures, test_set) for folder, run in runs.items()}
    for folder in folders[1:]:
        check_same_texts(runs_of[folders[0]], runs_of[folder], measures.same)
    unlike = find_unlike(list(runs_of.values()), ["test"])
    for both, signatures in (unlike[name] for name in measures.of_sums if name in unlike):
        raise UserError(
            f"{both} have different signatures of {signatures}: such scores are not comparable; "
            "score both with the same settings"
        )
    return measures, [System(name, [runs_of[folder] for folder in own]) for name, own in named]


def comparable(measures: TaskMeasures, systems: Sequence[System]) -> list[str]:
    """Returns the metrics of texts that count the same units in all runs."""
    metrics = list(measures.of_sums)
    if measures.per_token:
        runs = [run for system in systems for run in system.runs]
        first, *others = (run.counts[measures.per_token][:, 1] for run in runs)
        if not all(np.array_equal(first, each) for each in others):
            metrics.remove(measures.per_token)
    return metrics


def _parse(runs: str) -> list[tuple[str, list[Path]]]:
    """The name and the folders of each system."""
    parts = [part.strip() for part in runs.split(",") if part.strip()]
    if len(parts) < 2:
        raise UserError(f"--runs={runs} has fewer than two systems: name them as {RUNS_EXAMPLE}")
    systems = [_parse_system(part) for part in parts]
    folders = [folder for system in systems for folder in system.folders]
    for folder in folders:
        if sum(folder.resolve() == other.resolve() for other in folders) > 1:
            raise UserError(f"the run {folder} is named twice in --runs: name each run once")
    labels = [system.name or system.stem for system in systems]
    names = [
        system.name or (system.stem if labels.count(system.stem) == 1 else system.places)
        for system in systems
    ]
    for name in names:
        if names.count(name) > 1:
            same = [part for part, other in zip(parts, names, strict=True) if other == name]
            raise UserError(
                f"--runs names {len(same)} systems {name!r} ({', '.join(same)}): give each a name "
                f"of its own, such as --runs=first={same[0].removeprefix(f'{name}=')},..."
            )
    return [(name, system.folders) for name, system in zip(names, systems, strict=True)]


class _Named(NamedTuple):
    """A system as --runs names it."""

    name: str  # that the user gives, or ''
    stem: str  # the name of its folders
    places: str  # these as text
    folders: list[Path]  # of its runs


def _parse_system(text: str) -> _Named:
    name, equals, places = text.partition("=")
    if not equals or Path(text).exists():
        name, places = "", text
    parents = [workdir.run_folder(place.strip()) for place in places.split("+")]
    folders = [run for folder in parents for run in _runs_of(folder)]
    stems = []
    for *_, sweep, place, last in (("", "", *folder.resolve().parts) for folder in parents):
        stems.append(f"{sweep}/{last}" if place == "trials" else last)
    same = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*stems, strict=False))
    common = "".join(letters[0] for letters in same)
    common = common if common in stems else SEEDS_OF_NAME.sub("", common)
    return _Named(one_line(name), common or " + ".join(stems), places, folders)


def _runs_of(folder: Path) -> list[Path]:
    """A run's folder, or those of the runs of a sweep over seeds."""
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
    return sorted(path.parent for path in folder.glob("trials/*/config.json"))  # or damaged


def _check_same_setting(first: Run, other: Run) -> None:
    """Raises UserError unless two runs of a system differ in nothing but their seed."""
    ours, theirs = flatten(first.config), flatten(other.config)
    keys = [key for key in ours if ours[key] != theirs[key] and key not in FREE_KEYS]
    files, others = variants.read(first.folder), variants.read(other.folder)
    keys += [f"the file of {n!r}" for n in files if files[n][-64:] != others.get(n, files[n])[-64:]]
    if keys:
        raise UserError(
            f"{first.folder} and {other.folder} are not seeds of one setting: they differ in "
            f"{shorten(', '.join(keys))}: join seeds alone by +, and divide systems by commas"
        )


def _read_run(run: Run, measures: TaskMeasures, test_set: str | None) -> ScoredRun:
    """A finished run with its outputs for a test set and the scores of these."""
    folder = run.folder
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
    results = read_results(folder, place)
    newest = run.step
    if newest > results.get("step", newest):
        scored = f"trained to step {newest:,}, scored at {results['step']:,}"
        if test_set is None:
            raise UserError(f"{folder} is not finished ({scored}): train it to its end")
        raise UserError(
            f"{folder} has an old evaluation {test_set!r} ({scored}): --mode=evaluate with "
            f"--workdir={folder} writes it again"
        )
    if "test" not in results:
        raise UserError(f"{path} has no scores of a test set: there is nothing to compare")
    return read_texts(ScoredRun(folder, results), place, measures, run.config.data)


def list_stopped(runs: Iterable[Run]) -> list[str]:
    """Returns the folder and the step of each run whose training stopped before its end."""
    return [f"{run.folder} (step {run.step:,})" for run in runs if run.state == State.STARTED]
