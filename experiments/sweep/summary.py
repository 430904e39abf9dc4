"""The end of a sweep: writes the results, and reports which trials are missing."""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.results.page import write_results
from experiments.results.systems import Trial
from experiments.sweep.listing import fixed_keys, list_differences
from experiments.sweep.plan import trial_folder
from experiments.sweep.saved import command_of
from experiments.sweep.study import Study
from transformer import workdir
from transformer.errors import UserError

logger = logging.getLogger(__name__)


def numbers_of(trials: Iterable[int]) -> str:
    """The numbers of trials, for people."""
    numbers = sorted(trials)
    if numbers == list(range(len(numbers))):
        return f"0 to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def summarise(study: Study, folder: Path) -> None:
    """Writes the results over what is complete, and says where."""
    states, notes = study.states(), study.notes()
    if left := study.left_out():
        logger.info(
            f"trials {numbers_of(left)} of {folder} are no longer in this sweep's list: they keep "
            "their folders, and are left out of the results"
        )
    if failed := [number for number, state in states.items() if state == "failed"]:
        again = "--config.sweep.retry_failed=True tries them again"
        logger.info(f"trials {numbers_of(failed)} failed; {again}")
    trials = [
        _trial(study, number, values, states[number], notes[number])
        for number, values in study.values().items()
        if number in states
    ]
    if working := [number for number, state in states.items() if state in ("waiting", "running")]:
        logger.info(
            f"trials {', '.join(map(str, working))} are with another worker; the summary is partial"
        )
        if "complete" not in states.values():
            return
    config = study.config
    baseline = config.sweep.baseline if study.trials is not None else None
    for path in write_results(
        config.task, trials, folder, config.name, command_of(folder), baseline
    ):
        logger.info(f"wrote {path}")


def _trial(study: Study, number: int, values: Mapping[str, Any], state: str, note: str) -> Trial:
    """A trial for the results; one whose config differs or cannot be read is not complete."""
    if state == "complete" and (changed := _changes(study, number)):
        state, note = "changed", changed
    return Trial(number, dict(values), trial_folder(study.folder, number), state, note)


def _changes(study: Study, number: int) -> str:
    """The keys in which the config of a trial's run is not that of its sweep, with both values."""
    trial = study.trial(number)
    if not (trial.folder / "config.json").exists():
        return ""  # a folder whose config was lost has its scores still
    try:
        own = workdir.load_config(trial.folder)
    except UserError as error:
        return str(error)
    keys = (json.loads(json.dumps(fixed_keys(each))) for each in (trial.config, own))
    changed = list_differences(*keys)
    return changed and f"trained again apart from the sweep: {changed}"
