"""The `evaluate` mode: scores a run, or all runs of a sweep, on held-out text or another text."""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import tasks
from transformer.config import flatten, set_value, value_of
from transformer.config.keys import having
from transformer.data.pairs import SPLITS
from transformer.data.synthetic.contrasts import contrasts
from transformer.errors import UserError
from transformer.files import write_json
from transformer.runs import workdir
from transformer.runs.run import Run, read_results
from transformer.runs.workdir import find_trials
from transformer.tasks.pair_scores import score_contrasts
from ..process.modes import Options
from ..results.run_tables import BEHAVIOUR, CONTRASTS, GENERATED, behaviour_table, main_split
from ..results.runs import list_stopped
from ..results.table import print_rows
from . import run as scoring
from .behaviour import check_behaviour
from .other_text import read_given

logger = logging.getLogger(__name__)

# Flags that describe another text, so they are rejected without `--input`.
TEXT_FLAGS = ("references", "name", "source_tag")


class Evaluation(NamedTuple):
    """A validated evaluation of a run that is ready to be computed."""

    place: Path  # folder of the results and texts
    known: dict[str, Any] | None  # the results, or None if they are not computed yet
    score: Callable[[], dict[str, Any]]  # computes, writes, prints and returns the results


def evaluate(run: Run, options: Options) -> None:
    """Scores the weights of a run on the held-out text in its folder, or on `--input`.

    With the run's own settings, the run's results, texts, figures and report are overwritten. With
    other `decode` or `evaluate` settings, or for another text, results and texts are written to a
    folder in `evaluations/` that is named after the text and the changed settings.
    """
    prepare_evaluation(run, options).score()


def prepare_evaluation(run: Run, options: Options) -> Evaluation:
    """Validates the flags, and returns the evaluation that they specify."""
    if options.input in (None, *GENERATED):
        options.refuse(TEXT_FLAGS, "is for another text: name it with --input")
    if options.input is None:
        return _prepare_held_out(run)
    return _prepare_given(options.input, run, options)


def _prepare_held_out(run: Run) -> Evaluation:
    run.check_same()
    config, folder = run.config, run.folder
    theirs, ours = flatten(workdir.load_config(folder)), flatten(config)
    for key in (f"data.{split}_{side}" for split in SPLITS[1:] for side in ("source", "target")):
        if ours[key] and ours[key] != theirs[key]:
            raise UserError(
                f"config.{key}={ours[key]!r}: evaluate scores the held-out text that the run keeps "
                f"in {folder / 'held_out'}, and reads no other: leave this key out and name "
                "--workdir alone, or name another text with --input"
            )
    settings = run.other_settings()
    place = folder
    if settings:
        place = folder / workdir.EVALUATIONS / _folder_name("", settings)

    def score() -> dict[str, Any]:
        task = tasks.REGISTRY[config.task].from_folder(folder, config)
        place.mkdir(parents=True, exist_ok=True)
        results = scoring.score(task, run, place, settings)
        if settings:
            _print_evaluation(results, run, place)
        else:
            scoring.show_results(task, run, results)
        return results

    return Evaluation(place, _known_evaluation(place, "", run.step, settings), score)


def _prepare_given(name: str, run: Run, options: Options) -> Evaluation:
    folder = run.folder
    trained, config = workdir.load_config(folder), run.config.copy_and_resolve_references()
    for key in having("field"):
        set_value(config, key, value_of(trained, key))
    own = Run(folder, config)
    own.check_same()
    if not is_scored(own):
        raise UserError(
            f"{folder} is not finished: resume its training with --workdir={folder} alone, which "
            "ends with the scores of its held-out text"
        )
    step = (own.results or {"step": 0})["step"]
    given = read_given(name, run, options)
    others = own.other_settings()
    if (chosen := options.name) is None:
        chosen = given.name
    elif not chosen or _as_file_name(chosen) != chosen:
        raise UserError(
            f"--name={chosen}: use letters, digits, '-', '_', '.', '=' and '+', with none of '.', "
            "'=' first"
        )
    place = folder / workdir.EVALUATIONS / _folder_name(chosen, others)

    def score() -> dict[str, Any]:
        logger.info(f"the test set is {given.size} of {', '.join(given.files)}")
        if name in GENERATED:
            config.evaluate.perturbed_sentences = 0  # generated lines have no perturbed copies
        task = tasks.REGISTRY[config.task].from_folder(folder, config, given.text)
        trained = own.load_trained()
        place.mkdir(parents=True, exist_ok=True)
        results = scoring.score_splits(task, trained, place) | {
            "step": step,
            "input": {"files": given.files, "digest": given.digest},
            "settings": others,
        }
        if name == BEHAVIOUR:
            results |= check_behaviour(own, place)
        if name == CONTRASTS:
            results[name] = score_contrasts(trained.predictor, trained.variables, contrasts())
        write_json(place / "results.json", results)
        _print_evaluation(results, own, place)
        return results

    return Evaluation(place, _known_evaluation(place, given.digest, step, others), score)


def is_scored(run: Run) -> bool:
    """Returns whether a run has scores of its current weights, or was imported and not trained."""
    return run.is_imported or run.scores is not None


def _known_evaluation(
    place: Path, digest: str, step: int, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the saved results if their step and settings match, or else None.

    Raises UserError if the saved digest differs from `digest`, which is '' for held-out text.
    """
    results = read_results(place / "results.json")
    if results is None:
        return None
    text = results.get("input", {"files": [], "digest": ""})
    if text["digest"] != digest:
        files = f"in {', '.join(text['files'])}" if text["files"] else "that the run holds out"
        raise UserError(
            f"{place} has the scores of another text, {files}: give this one another --name, or "
            "delete that folder"
        )
    same = results.get("settings", {}) == json.loads(json.dumps(settings))
    return results if same and step in (0, results["step"]) else None  # 0: there are no checkpoints


def _as_file_name(name: str) -> str:
    return re.sub(r"^[.=]|[^\w.=+-]", "_", name)


def _folder_name(text: str, settings: Mapping[str, Any]) -> str:
    """Returns an evaluation's folder name from the text's name and settings with dotted keys."""
    parts = [f"{key.partition('.')[2]}={value}" for key, value in settings.items()]
    return ",".join(map(_as_file_name, [text, *parts] if text else parts))


def _print_evaluation(results: dict[str, Any], run: Run, place: Path) -> None:
    scoring.print_results(results, run.config.task)
    if table := behaviour_table(results):
        print_rows(table)
    logger.info(f"wrote {place / 'results.json'}; the results of {run.folder} are unchanged")


# -- the runs of a sweep


def finished_runs(folder: Path) -> list[Run]:
    """Returns the finished runs of a sweep, sorted by trial number; logs the other trials.

    Runs that were scored before their training ended are included, but also logged.
    """
    runs = [Run(path.parent) for path in sorted(folder.glob("trials/*/config.json"))]
    finished = list(filter(is_scored, runs))
    if not finished:
        raise UserError(
            f"{folder} holds a sweep without a finished run: resume it with --workdir={folder} "
            "alone, or with the command that began it"
        )
    if others := ", ".join(run.folder.name for run in runs if run not in finished):
        logger.warning(f"left out, as they are not finished: {others} of {folder}/trials")
    if stopped := list_stopped(finished):
        logger.warning(f"scored before the end of the training: {', '.join(stopped)}")
    return finished


def evaluate_sweep(runs: Sequence[Run], folder: Path, options: Options) -> None:
    """Scores the runs of a sweep as `evaluate` does, and skips runs that already have results.

    All runs are checked before the first one is scored. Repeating the same command resumes an
    interrupted evaluation. The config of each run already contains the command's settings.
    """
    for run in runs:
        prepare_evaluation(run, options)
    names = {trial.folder: trial.name for trial in find_trials(folder)}
    rows, places = {}, set()
    for number, run in enumerate(runs, 1):
        evaluation = prepare_evaluation(run, options)  # again, to keep only one text in memory
        name = names.get(run.folder, run.folder.name)
        results = evaluation.known or {}
        there = f" has {evaluation.place / 'results.json'}" if results else ""
        logger.info(f"run {number} of {len(runs)}: {name}{there}")
        results = results or evaluation.score()
        rows[name] = results[main_split(results)]
        places.add(str(evaluation.place.relative_to(run.folder)))
    title = f"{folder.name}, {', '.join(sorted(places - {'.'})) or 'held-out text'}"
    scoring.print_scores(title, "run", rows, runs[0].config.task)
