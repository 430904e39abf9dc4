"""The systems of a comparison: runs of one test set, several seeds of a system joined."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.comparison.outputs import TASKS, Outputs
from experiments.measures.texts import UnreadableError
from transformer import workdir
from transformer.data.held_out import COPY
from transformer.errors import UserError, one_line, shorten
from transformer.keys import flatten
from transformer.metrics.registry import find
from transformer.records import FILES, damaged_text
from transformer.storage import variants
from transformer.storage.reading import Each, read_json
from transformer.trials import COMMAND, find_trials

EXAMPLE = "--runs=runs/a,runs/b"
# What is left of names that end in seeds, or in numbers of trials.
SEEDS_OF_NAME = re.compile(r"(/|[_.-]s(eed)?)?[_.-]*\d*$")
TOLERANCE = 0.01  # of a score as it is shown, which another version may round otherwise
# Keys in which the seeds of a setting may differ: what they are called, and where files are.
FREE_KEYS = ("name", "seed", "sweep.", "data.path", "data.cache_dir", "data.tfds_dir")
SHOWN = 60  # characters of a line in a message


class Run(NamedTuple):
    """A run of a system: its folder, the scores of its test set and its outputs for it.

    `copies` has the scores of perturbed copies of the test set, by split and size.
    """

    folder: Path
    scores: dict[str, Any]
    outputs: Outputs
    copies: Mapping[tuple[str, int], dict[str, Any]]


class System(NamedTuple):
    """A system by its name: runs that differ in nothing but their seed."""

    name: str
    runs: list[Run]


def read_systems(runs: str, test_set: str | None) -> tuple[str, list[System]]:
    """Returns the task and the systems of a comparison, the baseline first.

    Args:
      runs: SYSTEM,SYSTEM[,...]; a SYSTEM is FOLDER[+FOLDER...], with NAME= before it to name it. A
        folder of a sweep over seeds stands for its runs.
      test_set: an evaluation that all runs have; None for their own test set.

    Raises:
      UserError: there are not two systems, a folder has no finished run, the runs of a system have
        different settings, or the runs have different tasks, test sets or signatures.
    """
    named = list(_parse(runs))
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
    read = {folder: _read_run(folder, configs[folder], test_set) for folder in folders}
    for folder in folders[1:]:
        _check_comparable(read[folders[0]], read[folder], task)
    return task, [System(name, [read[f] for f in own]) for name, own in named]


def _parse(runs: str) -> Iterator[tuple[str, list[Path]]]:
    """Yields the name and the folders of each system."""
    parts = [part.strip() for part in runs.split(",") if part.strip()]
    if len(parts) < 2:
        raise UserError(f"--runs={runs} has fewer than two systems: name them as {EXAMPLE}")
    read = [_parse_system(part) for part in parts]
    _check_named_once([folder for *_, folders in read for folder in folders])
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
    for name, (*_, folders) in zip(names, read, strict=True):
        yield name, folders


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


def _check_named_once(folders: Sequence[Path]) -> None:
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise UserError(f"the run {folder} is named twice in --runs: name each run once")


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


def _read_run(folder: Path, config: ConfigDict, test_set: str | None) -> Run:
    """A run with its outputs for a test set and the scores of these."""
    place = folder if test_set is None else folder / workdir.EVALUATIONS / test_set
    again = f"--mode=evaluate with --workdir={folder} writes it again"
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
    results = read_json(path, {"test?": dict, "step?": int, f"{FILES}?": Each(str)}, again)
    if name := damaged_text(place, results):
        raise UserError(f"{place / name} is not what was written: {again}")
    newest = workdir.newest_step(folder)
    if newest > results.get("step", newest):
        scored = f"trained to step {newest:,}, scored at {results['step']:,}"
        if test_set is None:
            raise UserError(f"{folder} is not finished ({scored}): train it to its end")
        raise UserError(f"{folder} has an old evaluation {test_set!r} ({scored}): {again}")
    if "test" not in results:
        raise UserError(f"{path} has no scores of a test set: there is nothing to compare")
    try:
        outputs = TASKS[config.task].read(place, results["test"], config)
    except UnreadableError as error:
        reason = f"{error.path} cannot be read ({error.reason})"
        raise UserError(f"{reason}: {again}") from None
    copies = {(n, own["sentences"]): own for n, own in results.items() if n.startswith(COPY)}
    run = Run(folder, results["test"], outputs, copies)
    _check_scores(run, config.task, path, again)
    return run


def _check_scores(run: Run, task: str, path: Path, again: str) -> None:
    """Raises UserError if a run's texts do not have the scores of its results."""
    for measure in TASKS[task].measures:
        if f"{measure.name}_signature" in run.scores and measure.of_all_texts:
            metric = find(measure.name, task)
            told = metric.scale * run.scores[measure.name]
            found = metric.scale * measure.score(run.outputs.counts[measure.name])
            if abs(told - found) > TOLERANCE:
                raise UserError(
                    f"{path} says {metric.title} {told:.2f}, and the texts in "
                    f"{path.parent} have {found:.2f}: {again}"
                )


def _check_comparable(first: Run, other: Run, task: str) -> None:
    """Raises UserError unless two runs have the same test set and signatures."""
    for name, lines in first.outputs.given.items():
        theirs = other.outputs.given.get(name, [])
        if lines == theirs:
            continue
        pairs = zip([*lines, None], [*theirs, None], strict=False)
        number, (ours, own) = next((i, pair) for i, pair in enumerate(pairs, 1) if len({*pair}) > 1)
        raise UserError(
            f"{first.folder} and {other.folder} have different test sets ({name}, line {number}: "
            f"{_shown(ours)} and {_shown(own)}): {TASKS[task].same}"
        )
    if extra := other.outputs.given.keys() - first.outputs.given.keys():
        raise UserError(
            f"{other.folder} has {min(extra)}, which {first.folder} lacks: compare runs of one "
            "test set"
        )
    for key in TASKS[task].signatures:
        ours, own = first.scores.get(key), other.scores.get(key)
        if ours != own:
            raise UserError(
                f"{first.folder} and {other.folder} have different signatures of "
                f"{key.removesuffix('_signature')} ({ours!r} and {own!r}): such scores are not "
                "comparable; score both with the same settings"
            )


def _shown(line: str | None) -> str:
    return "no such line" if line is None else repr(shorten(line, SHOWN))
