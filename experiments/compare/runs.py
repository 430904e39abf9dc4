"""The systems that `--runs` names: runs of one test set, several seeds of a system pooled."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from experiments.results.reading import check_same_texts, find_unlike, read_results, read_run
from experiments.results.systems import Run, System
from experiments.results.tasks import REGISTRY, TaskMeasures
from transformer import workdir
from transformer.errors import UserError, one_line, shorten
from transformer.keys import flatten
from transformer.storage import variants
from transformer.trials import COMMAND, find_trials

EXAMPLE = "--runs=runs/a,runs/b"
# What is left of names that end in seeds, or in numbers of trials.
SEEDS_OF_NAME = re.compile(r"(/|[_.-]s(eed)?)?[_.-]*\d*$")
# Keys in which the seeds of a setting may differ: what they are called, and where files are.
FREE_KEYS = ("name", "seed", "sweep.", "data.path", "data.cache_dir", "data.tfds_dir")


def read_systems(runs: str, test_set: str | None) -> tuple[TaskMeasures, list[System]]:
    """Returns the task's measures and the systems of a comparison, the baseline first.

    Args:
      runs: SYSTEM,SYSTEM[,...]; a SYSTEM is FOLDER[+FOLDER...], with NAME= before it to name it. A
        folder of a sweep over seeds stands for its runs.
      test_set: an evaluation that all runs have; None for their own test set.
    """
    named = _parse(runs)
    folders = [folder for _, own in named for folder in own]
    configs = {folder: workdir.load_config(folder) for folder in folders}
    task = configs[folders[0]].task
    for folder in folders:
        if configs[folder].task != task:
            raise UserError(
                f"{folders[0]} and {folder} are of different tasks, {task} and "
                f"{configs[folder].task}: compare runs of one task"
            )
    for _, own in named:
        for folder in own[1:]:
            _check_same_setting(own[0], configs[own[0]], folder, configs[folder])
    measures = REGISTRY[task]
    read = {folder: _read_run(folder, configs[folder], measures, test_set) for folder in folders}
    for folder in folders[1:]:
        check_same_texts(read[folders[0]], read[folder], measures.same)
    unlike = find_unlike(list(read.values()), ["test"])
    for both, signatures in (unlike[name] for name in measures.signed if name in unlike):
        raise UserError(
            f"{both} have different signatures of {signatures}: such scores are not comparable; "
            "score both with the same settings"
        )
    return measures, [System(name, [read[folder] for folder in own]) for name, own in named]


def comparable(measures: TaskMeasures, systems: Sequence[System]) -> list[str]:
    """Returns the metrics of texts that count the same units in all runs."""
    runs = [run for system in systems for run in system.runs]

    def same_units(name: str) -> bool:
        units = [run.texts.counts(name)[:, 1] for run in runs]
        return all(np.array_equal(units[0], own) for own in units)

    return [name for name in measures.of_sums if name != measures.per_token or same_units(name)]


def _parse(runs: str) -> list[tuple[str, list[Path]]]:
    """The name and the folders of each system."""
    parts = [part.strip() for part in runs.split(",") if part.strip()]
    if len(parts) < 2:
        raise UserError(f"--runs={runs} has fewer than two systems: name them as {EXAMPLE}")
    read = [_parse_system(part) for part in parts]
    places = [(folder, folder.resolve()) for *_, folders in read for folder in folders]
    for folder, place in places:
        if sum(place == other for _, other in places) > 1:
            raise UserError(f"the run {folder} is named twice in --runs: name each run once")
    stems = [given or stem for given, stem, _, _ in read]
    names = [
        given or (stem if stems.count(stem) == 1 else places) for given, stem, places, _ in read
    ]
    for name in names:
        if names.count(name) > 1:
            same = [part for part, own in zip(parts, names, strict=True) if own == name]
            raise UserError(
                f"--runs names {len(same)} systems {name!r} ({', '.join(same)}): give each a name "
                f"of its own, such as --runs=first={same[0].removeprefix(f'{name}=')},..."
            )
    return [(name, folders) for name, (*_, folders) in zip(names, read, strict=True)]


def _parse_system(text: str) -> tuple[str, str, str, list[Path]]:
    """The name that the user gives a system or '', that of its folders, these as text, and its
    runs' folders."""
    name, equals, places = text.partition("=")
    if not equals or Path(text).exists():
        name, places = "", text
    given = [workdir.run_folder(place.strip()) for place in places.split("+")]
    folders = [run for folder in given for run in _runs_of(folder)]
    stems = [_stem(folder) for folder in given]
    same = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*stems, strict=False))
    common = "".join(letters[0] for letters in same)
    common = common if common in stems else SEEDS_OF_NAME.sub("", common)
    return one_line(name), common or " + ".join(stems), places, folders


def _stem(folder: Path) -> str:
    """The last name of a folder; of a trial, after that of its sweep."""
    *_, sweep, place, name = ("", "", *folder.resolve().parts)
    return f"{sweep}/{name}" if place == "trials" else name


def _runs_of(folder: Path) -> list[Path]:
    """A run's folder, or those of the runs of a sweep over seeds."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: check --runs")
    trials = find_trials(folder)
    if not trials and not (folder / COMMAND).exists():
        return [folder]
    keys = {key for trial in trials for key in trial.settings}
    swept = {key for key in keys if not key.startswith(FREE_KEYS)}
    if swept or not trials:
        reason = f"its trials differ in {', '.join(sorted(swept))}" if swept else "it has no trials"
        raise UserError(
            f"{folder} is not a sweep over seeds alone ({reason}): name the trials of a system, "
            f"such as {folder}/trials/000+{folder}/trials/001"
        )
    return sorted(path.parent for path in folder.glob("trials/*/config.json"))  # or damaged


def _check_same_setting(first: Path, config: ConfigDict, other: Path, own: ConfigDict) -> None:
    """Raises UserError unless two runs of a system differ in nothing but their seed."""
    ours, theirs = flatten(config), flatten(own)
    keys = [key for key in ours if ours[key] != theirs[key] and not key.startswith(FREE_KEYS)]
    files, others = variants.read(first), variants.read(other)
    keys += [f"the file of {n!r}" for n in files if files[n][-64:] != others.get(n, files[n])[-64:]]
    if keys:
        raise UserError(
            f"{first} and {other} are not seeds of one setting: they differ in "
            f"{shorten(', '.join(keys))}: join seeds alone by +, and divide systems by commas"
        )


def _read_run(
    folder: Path, config: ConfigDict, measures: TaskMeasures, test_set: str | None
) -> Run:
    """A finished run with its outputs for a test set and the scores of these."""
    place = folder if test_set is None else folder / workdir.EVALUATIONS / test_set
    path = place / "results.json"
    if test_set is not None and not path.exists():
        known = sorted(
            each.parent.name for each in folder.glob(f"{workdir.EVALUATIONS}/*/results.json")
        )
        known = f"it has {', '.join(known)}" if known else "it has none"
        whole = folder.parents[1] if folder.parent.name == "trials" else folder
        raise UserError(
            f"{folder} has no evaluation {test_set!r} ({known}): write it with --mode=evaluate "
            f"--workdir={whole} --input=..."
        )
    if not path.exists():
        raise UserError(f"{folder} is not finished (no results.json): train it to its end")
    results = read_results(folder, place)
    newest = workdir.newest_step(folder)
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
    return read_run(folder, place, results, measures, measures.of_sums, config)
