"""Trains the runs of a sweep with any number of workers, and writes the results.

Every worker runs the same command on the same --workdir. The study (`study.Study`) records which
trials are taken or done. Listing trials and writing results require a lock on the sweep's folder.
"""

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.files import write_text
from transformer.runs import workdir
from transformer.runs.run import Run
from ..display.plotting import save_figure
from ..evaluate.run import train
from ..results import figures
from ..results import table as tables
from ..results.systems import SweepTrial, read_sweep
from . import trial_configs
from .study import Study
from .trial_configs import command_of, plan_trials, save_sweep, trial_folder
from .worker import Worker

logger = logging.getLogger(__name__)


def sweep(
    config: ConfigDict,
    trials: Sequence[Mapping[str, Any]] | None,
    space: Mapping[str, Any] | None,
    folder: Path,
    only: int | None,
) -> int | None:
    """Trains the remaining trials of a sweep, then writes the results.

    Args:
      config: the base config of all trials.
      trials: the dotted keys and values of each trial; used if `sweep.search` is "grid".
      space: the search space; see `study.Study`.
      only: the number of a single trial to train, or None for all trials.

    Returns the signal that ended the sweep early, or None.
    """
    grid = config.sweep.search == "grid"
    if (trials if grid else space) is None:
        needed = "sweep(), which yields its trials" if grid else "space(), which it draws from"
        raise UserError(f"config.sweep.search='{config.sweep.search}' needs the config's {needed}")
    planned = plan_trials(config, trials or (), folder) if grid else None
    if only is not None and planned is None:
        raise UserError("--trial needs config.sweep.search='grid': a search draws its trials")
    if (folder / "config.json").exists():
        raise UserError(f"{folder} holds a run, not a sweep: use another --workdir")
    folder.mkdir(parents=True, exist_ok=True)
    with workdir.locked(folder, wait=True):
        study = Study(config, planned, space, folder)
        if only is None:
            save_sweep(folder, config, trials if grid else None)
    listed = study.trials or {}
    for name, number in (("--trial", only), ("config.sweep.baseline", config.sweep.baseline)):
        if listed and number is not None and number not in listed:
            numbers = _numbers(listed)
            raise UserError(f"{name}={number} is not a trial: this sweep has {numbers}")
    if only is not None:
        logger.info(listed[only].name)
        return train(Run(listed[only].folder, listed[only].config))
    with study.storage_errors():
        worker = Worker(study, functools.partial(_write, study))
        if (stopped_by := worker.work()) is None:
            with workdir.locked(folder, wait=True):
                _summarise(study)
    return stopped_by


def _numbers(trials: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(trials)))


def _summarise(study: Study) -> None:
    """Writes the results of complete trials; logs the written files and the missing trials."""
    states = study.states()
    if failed := [number for number, state in states.items() if state == "failed"]:
        again = "--config.sweep.retry_failed=True tries them again"
        logger.info(f"trials {_numbers(failed)} failed; {again}")
    if working := [number for number, state in states.items() if state in ("waiting", "running")]:
        logger.info(f"trials {_numbers(working)} are with another worker; the summary is partial")
        if "complete" not in states.values():
            return
    for path in _write(study):
        logger.info(f"wrote {path}")


def _write(study: Study, progress: str = "") -> list[Path]:
    """Writes the results with `write_results`; with `progress`, only if a trial is complete."""
    trials, folder, command = [], study.folder, command_of(study.folder)
    states, notes = study.states(), study.notes()
    drawn: dict[str, int] = {}  # values -> number of the first trial with these values
    for number, values in study.values().items():
        state, note = states.get(number, "waiting"), notes.get(number, "")
        if state == "complete" and (changed := _changes(study, number)):
            state, note = "changed", changed
        elif state == "complete" and (first := drawn.setdefault(repr(values), number)) != number:
            state, note = "repeated", f"the same as trial {first}"
        place = trial_folder(folder, number)
        trials.append(SweepTrial(number, dict(values), place, state, note))
    if progress and all(trial.state != "complete" for trial in trials):
        return []
    config = study.config
    baseline = config.sweep.baseline if study.trials is not None else None
    return write_results(config.task, trials, folder, config.name, command, baseline, progress)


def _changes(study: Study, number: int) -> str:
    """Returns the keys that differ between a trial's run and its sweep, with both values."""
    trial = study.trial(number)
    if not (trial.folder / "config.json").exists():
        return ""  # a folder without its config still has its scores
    try:
        saved = workdir.load_config(trial.folder)
    except UserError as error:
        return str(error)
    changed = trial_configs.list_differences(*map(trial_configs.fixed_keys, (trial.config, saved)))
    return changed and f"trained again apart from the sweep: {changed}"


# -- the results


def write_results(
    task: str,
    trials: Sequence[SweepTrial],
    folder: Path,
    title: str,
    command: str,
    baseline: int | None,
    progress: str = "",
) -> list[Path]:
    """Writes the results of a sweep as tables, figures and a page; prints the main columns.

    Args:
      trials: all trials of the sweep, in any state; only complete trials are compared.
      command: the command that started the sweep, to be shown on the page.
      baseline: the number of the baseline trial, or None if there is none.
      progress: the status line of an unfinished sweep, for which only the page is written, or ''.

    Returns:
      `index.html`, `results.md`, `results.csv` and the figures, or [] if `progress` is set.
    """
    comparison = read_sweep(task, trials, baseline)
    results, drawn = tables.describe(comparison, title, command), figures.draw(comparison)
    texts = {"index.html": results.to_page(drawn, progress=progress)}
    if not progress:
        texts |= {"results.md": results.to_markdown(), "results.csv": tables.to_csv(comparison)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    if progress:
        return []
    pictures = [save_figure(figure, folder / f"{name}.png") for name, (figure, _) in drawn.items()]
    main = tables.score_table(comparison, comparison.metrics[0])
    tables.print_rows(main._replace(caption=title))
    count = len(results.tables[0].head)
    print(f"results.md has all {count} columns, notes and signatures", flush=True)
    return [*(folder / name for name in texts), *pictures]
