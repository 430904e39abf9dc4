"""Trains the runs of a sweep with any number of workers, and writes the results.

Every worker is the same command on the same --workdir. The study (`study.Study`) says which trials
are taken and which are done. Who lists the trials or writes the results locks the sweep's folder.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.files import write_text
from transformer.runs import workdir
from transformer.runs.run import Run
from ..display.plotting import save_figure
from ..display.web_page import figure_svg, render
from ..evaluate.run import train
from ..results import table as tables
from ..results.figures import INK, MAX_TOLD_APART, sweep_figures
from ..results.notes import sweep_notes
from ..results.systems import Sweep, SweepTrial, read_sweep
from . import trial_configs
from .saved import command_of, save_sweep
from .study import Study
from .trial_configs import plan_trials, trial_folder
from .worker import Worker

CAPTIONS = {
    "scores": "Scores on the {split} set: a mark is the mean over seeds, its bar one standard "
    "deviation to each side, and the dots below it are the seeds.{baseline}",
    "curves": "Validation while training{curves}: the mean over seeds, in a band of one standard "
    "deviation to each side, at steps that every seed of a setting has.{others}",
    "lengths": "The test set by {length}, with the number of {noun}s below: the mean over seeds, "
    "in a band of one standard deviation to each side.{others}",
}

logger = logging.getLogger(__name__)


def sweep(
    config: ConfigDict,
    trials: Sequence[Mapping[str, Any]] | None,
    space: Mapping[str, Any] | None,
    folder: Path,
    only: int | None,
) -> int | None:
    """Trains the trials of a sweep that nobody has trained, then writes the results.

    Args:
      config: what all trials start from.
      trials: dotted keys and values of each trial; used by `sweep.search` "grid".
      space: what a search draws from, see `study`.
      only: the number of the one trial to train; None for all.

    Returns the signal that ended it early, or None.
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
        worker = Worker(study, lambda progress: _show(study, progress))
        if (stopped_by := worker.work()) is None:
            with workdir.locked(folder, wait=True):
                _summarise(study)
    return stopped_by


def _numbers(trials: Iterable[int]) -> str:
    """The numbers of trials, for people."""
    numbers = sorted(trials)
    whole = numbers == list(range(len(numbers)))
    return f"0 to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _summarise(study: Study) -> None:
    """Writes the results over what is complete, and says where and what is missing."""
    states, folder = study.states(), study.folder
    if failed := [number for number, state in states.items() if state == "failed"]:
        again = "--config.sweep.retry_failed=True tries them again"
        logger.info(f"trials {_numbers(failed)} failed; {again}")
    if working := [number for number, state in states.items() if state in ("waiting", "running")]:
        logger.info(
            f"trials {', '.join(map(str, working))} are with another worker; the summary is partial"
        )
        if "complete" not in states.values():
            return
    config, command = study.config, command_of(folder)
    result = _trials(study), folder, config.name, command, _baseline(study)
    for path in write_results(config.task, *result):
        logger.info(f"wrote {path}")


def _show(study: Study, progress: str) -> None:
    """Writes the page over what is complete so far."""
    trials = _trials(study)
    if any(trial.state == "complete" for trial in trials):
        sweep = read_sweep(study.config.task, trials, _baseline(study))
        parts = sweep, tables.build_table(sweep), sweep_figures(sweep)
        page = _page(*parts, study.config.name, command_of(study.folder), progress)
        write_text(study.folder / "index.html", page)


def _baseline(study: Study) -> int | None:
    return study.config.sweep.baseline if study.trials is not None else None


def _trials(study: Study) -> list[SweepTrial]:
    states, notes, trials = study.states(), study.notes(), []
    for number, values in study.values().items():
        state, note = states.get(number, "waiting"), notes.get(number, "")
        if state == "complete" and (changed := _changes(study, number)):
            state, note = "changed", changed
        folder = trial_folder(study.folder, number)
        trials.append(SweepTrial(number, dict(values), folder, state, note))
    return trials


def _changes(study: Study, number: int) -> str:
    """The keys in which the config of a trial's run is not that of its sweep, with both values."""
    trial = study.trial(number)
    if not (trial.folder / "config.json").exists():
        return ""  # a folder whose config was lost has its scores still
    try:
        own = workdir.load_config(trial.folder)
    except UserError as error:
        return str(error)
    keys = (json.loads(json.dumps(trial_configs.fixed_keys(each))) for each in (trial.config, own))
    changed = trial_configs.list_differences(*keys)
    return changed and f"trained again apart from the sweep: {changed}"


# -- the results


def write_results(
    task: str,
    trials: Sequence[SweepTrial],
    folder: Path,
    title: str,
    command: str,
    baseline: int | None,
) -> list[Path]:
    """Writes what a sweep found: tables, pictures and a page of both; prints the main columns.

    Args:
      trials: all of the sweep, whatever their state; the complete ones are compared.
      command: what started it, for the reader to repeat.
      baseline: number of the trial with whose setting the others are compared; None for none.

    Returns:
      `index.html`, `results.md`, `results.csv` and the pictures, see `sweep_figures`.
    """
    sweep = read_sweep(task, trials, baseline)
    table, figures = tables.build_table(sweep), sweep_figures(sweep)
    below = sweep_notes(sweep), tables.sweep_signatures(sweep), tables.missing(sweep)
    texts = {
        "index.html": _page(sweep, table, figures, title, command),
        "results.md": tables.to_markdown(title, command, [table], *below),
        "results.csv": tables.to_csv(sweep),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    pictures = [
        save_figure(figure, folder / f"{name}.png", facecolor="white")
        for name, figure in figures.items()
    ]
    further = [measure.title for measure in sweep.scores[1:]]
    count = next((i for i, name in enumerate(table.head) if name in further), len(table.head))
    rows = [row[:count] for row in table.rows]
    tables.print_rows(
        table._replace(caption=tables.one_line(title), head=table.head[:count], rows=rows)
    )
    print(f"results.md has all {len(table.head)} columns, notes and signatures", flush=True)
    return [*(folder / name for name in texts), *pictures]


def _page(
    sweep: Sweep,
    table: tables.Table,
    figures: Mapping[str, Figure],
    title: str,
    command: str,
    progress: str = "",
) -> str:
    """Returns the page; with `progress` it is of a sweep that goes on, and loads itself again."""
    captions = {name: _caption(name, sweep) for name in figures}
    return render(
        "sweep.html",
        title=title,
        command=command,
        progress=progress,
        table=table,
        notes=sweep_notes(sweep),
        signatures=tables.sweep_signatures(sweep),
        missing=tables.missing(sweep),
        figures=[
            (figure_svg(figure, name, captions[name], {INK: "currentColor"}), captions[name])
            for name, figure in figures.items()
        ],
    )


def _caption(name: str, sweep: Sweep) -> str:
    measures = sweep.measures
    worse = "lower" if measures.metric(measures.main_metric).higher_is_better else "higher"
    many = len(sweep.systems) > MAX_TOLD_APART
    return CAPTIONS[name].format(
        split=measures.split,
        curves=measures.curves_note,
        length=measures.length,
        noun=measures.noun,
        others=f" Grey: settings with {worse} scores." * many,
        baseline=" The dotted line is the baseline." if sweep.baseline else "",
    )
