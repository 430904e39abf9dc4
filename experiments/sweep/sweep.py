"""Trains the runs of a sweep with any number of workers, and writes the summary.

Every worker is the same command on the same --workdir. The study (`study.Study`) says which
trials are taken and which are done; a lock on each trial's folder, which the system lets go when
a process dies, says who is still alive.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import run
from experiments.sweep.plan import PlannedTrial, plan_trials
from experiments.sweep.queue import waiting_for
from experiments.sweep.saved import save_sweep
from experiments.sweep.study import Study, find_trials
from experiments.sweep.summary import numbers_of, summarise
from experiments.sweep.worker import Worker
from transformer.errors import UserError

logger = logging.getLogger(__name__)


def sweep(
    config: ConfigDict,
    trials: Sequence[Mapping[str, Any]] | None,
    space: Mapping[str, Any] | None,
    folder: Path,
    only: int | None,
) -> int | None:
    """Trains the trials of a sweep that nobody has trained, then writes the summary.

    Args:
      config: what all trials start from.
      trials: dotted keys and values of each trial; used by `sweep.search` "grid".
      space: what a search draws from, see `study`.
      only: the number of the one trial to train; None for all.

    Returns:
      The signal that ended it early, or None.

    Raises:
      UserError: a trial is not valid (nothing is trained then), the storage cannot be reached, or
        the folder holds another sweep.
    """
    grid = config.sweep.search == "grid"
    if (trials if grid else space) is None:
        needed = "sweep(), which yields its trials" if grid else "space(), which it draws from"
        raise UserError(f"config.sweep.search='{config.sweep.search}' needs the config's {needed}")
    planned = plan_trials(config, trials or (), folder) if grid else None
    if only is not None:
        return _train_only(config, planned, folder, only)
    if (folder / "config.json").exists():
        raise UserError(f"{folder} holds a run, not a sweep: use another --workdir")
    folder.mkdir(parents=True, exist_ok=True)
    with waiting_for(folder):
        study = Study(config, planned, space, folder)
        save_sweep(folder, config, trials if grid else None)
    if study.trials is not None and config.sweep.baseline not in study.trials:
        raise UserError(
            f"config.sweep.baseline={config.sweep.baseline} is not a trial: this sweep has "
            f"{numbers_of(study.trials)}"
        )
    worker = Worker(study, folder)
    if study.trials is not None:
        worker.print_plan(list(study.trials.values()))
    if (stopped_by := worker.work()) is not None:
        return stopped_by
    with waiting_for(folder):
        summarise(study, folder)
    return None


def _train_only(
    config: ConfigDict,
    planned: Sequence[PlannedTrial] | None,
    folder: Path,
    only: int,
) -> int | None:
    """Trains one trial of a grid; the sweep finds it done when it comes to it."""
    if planned is None:
        raise UserError("--trial needs config.sweep.search='grid': a search draws its trials")
    trials = find_trials(config, planned, folder)
    if only not in trials:
        raise UserError(f"--trial={only} is not there: this sweep has {numbers_of(trials)}")
    logger.info(trials[only].name)
    return run.train(trials[only].config, trials[only].folder)
