"""Evaluates the runs of a sweep on one text, each once, and shows their scores in one table."""

import logging
from collections.abc import Mapping
from pathlib import Path

from ml_collections import ConfigDict

from experiments import run
from experiments.evaluation.ended import stopped_runs
from experiments.evaluation.evaluate import is_finished, prepare_evaluation
from experiments.options import Options
from experiments.report.numbers import main_split
from transformer import workdir
from transformer.errors import UserError
from transformer.trials import find_trials

logger = logging.getLogger(__name__)


def finished_runs(folder: Path) -> list[Path]:
    """Returns the folders of a sweep's finished runs, by number; says which are not finished.

    Runs that were scored before the end of their training are among them, and named.

    Raises:
      UserError: none is finished, or a file of a run is damaged.
    """
    runs = sorted(path.parent for path in folder.glob("trials/*/config.json"))
    finished = [own for own in runs if is_finished(own)]
    if not finished:
        raise UserError(
            f"{folder} holds a sweep without a finished run: resume it with --workdir={folder} "
            "alone, or with the command that began it"
        )
    if left := [own.name for own in runs if own not in finished]:
        logger.warning(f"left out, as they are not finished: {', '.join(left)} of {folder}/trials")
    if stopped := stopped_runs(finished):
        logger.warning(f"scored before the end of the training: {', '.join(stopped)}")
    return finished


def evaluate_sweep(configs: Mapping[Path, ConfigDict], folder: Path, options: Options) -> None:
    """Scores the runs of a sweep as `evaluate` does; a run that has these results keeps them.

    Nothing is scored before all runs are checked. If it is interrupted, the same command resumes.

    Args:
      configs: of each run's folder, with the settings of the command.
      folder: the sweep's.

    Raises:
      UserError: see `prepare_evaluation`.
    """
    for own, config in configs.items():
        prepare_evaluation(config, own, options)
    names = {trial.folder: trial.name for trial in find_trials(folder)}
    rows, places = {}, set()
    for number, (own, config) in enumerate(configs.items(), 1):
        evaluation = prepare_evaluation(config, own, options)
        known = workdir.known_results(own) if evaluation.place == own else evaluation.known
        name = names.get(own, own.name)
        logger.info(
            f"run {number} of {len(configs)}: {name}"
            + (f" has {evaluation.place / 'results.json'}" if known else "")
        )
        results = known or evaluation.score()
        rows[name] = results[main_split(results)]
        places.add(str(evaluation.place.relative_to(own)))
    title = f"{folder.name}, {', '.join(sorted(places - {'.'})) or 'held-out text'}"
    run.print_scores(title, "run", rows, next(iter(configs.values())).task)
    signed = [{k: v for k, v in own.items() if k.endswith("_signature")} for own in rows.values()]
    if differing := sorted({k for own in signed for k in own if own[k] != signed[0].get(k)}):
        logger.warning(
            f"these differ between the runs: {', '.join(differing)}: scores with different "
            "signatures are not comparable"
        )
    if len(places) == 1 and "." not in places:
        [place] = places
        test_set = Path(place).relative_to(workdir.EVALUATIONS)
        logger.info(f"--mode=compare --set={test_set} compares these scores with those of others")
