"""Matches the trials of a sweep with those of its study, and lists differences of sweeps."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs import base
from experiments.sweep.plan import PlannedTrial, check_signed, set_key, trial_folder
from transformer.errors import UserError, shorten
from transformer.keys import flatten

KINDS = ("log", "uniform", "int")  # of a range of a search
# Keys that may change when a sweep resumes: how it is run and compared, and the paths of its text.
FREE_KEYS = (
    *("name", "sweep.storage", "sweep.parallel", "sweep.max_vmapped_runs", "sweep.trials"),
    *("sweep.baseline", "sweep.prune", "sweep.retry_failed"),
    *("data.path", "data.fetch", "data.cache_dir", "data.tfds_dir", "data.prefetch"),
)
MAX_TOLD, MAX_LENGTH = 8, 63  # differing keys, and characters of a value, in a refusal


def fixed_keys(config: ConfigDict) -> dict[str, Any]:
    """Returns the keys and values that must not change when a sweep resumes."""
    return {k: v for k, v in flatten(config).items() if not k.startswith(FREE_KEYS)}


def list_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns each key in which two configs differ, with both values, in short; empty for none.

    Args:
      theirs: of the study; keys that are newer than it have their default.
      ours: of this start.
    """
    defaults = json.loads(json.dumps(fixed_keys(base.get_config())))
    theirs = {**{key: value for key, value in defaults.items() if key in ours}, **theirs}
    keys = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    was, now = ([shorten(repr(own.get(k)), MAX_LENGTH) for k in keys] for own in (theirs, ours))
    told = [f"{k} was {a} and is {b}" for k, a, b in zip(keys, was, now, strict=True)]
    more = f" and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return "; ".join(told[:MAX_TOLD]) + more


def settings(config: ConfigDict, trial: PlannedTrial) -> str:
    """Returns what a trial changes of the config that all start from, as text.

    By this it is known again, wherever it stands in the list, and whatever else it sets that is so
    anyway.
    """
    before, own = flatten(config), flatten(trial.config)
    changed = {k: v for k, v in own.items() if v != before[k] and not k.startswith("sweep.")}
    return json.dumps(changed, sort_keys=True)


def number_trials(
    config: ConfigDict, trials: Sequence[PlannedTrial], known: Mapping[str, int]
) -> dict[int, PlannedTrial]:
    """Returns the trials by the numbers that they have, or get, in their study.

    A new trial has the number of its place in the list, or the next one that is free.

    Args:
      known: numbers of those that the study has, by their `settings`.
    """
    taken, numbered = set(known.values()), {}
    for place, trial in enumerate(trials):
        number = known.get(settings(config, trial))
        if number is None:
            number = place if place not in taken else max(*taken, len(trials) - 1) + 1
            taken.add(number)
        folder = trial_folder(trial.folder.parents[1], number)
        numbered[number] = trial._replace(number=number, folder=folder)
    return numbered


def check_space(space: Mapping[str, Any], config: ConfigDict) -> None:
    """Raises UserError if a key or a choice of it does not exist, a range is none, or the scores
    of its choices are not comparable."""
    tried = copy.deepcopy(config)
    for key, choice in space.items():
        is_range = isinstance(choice, tuple) and len(choice) == 3 and choice[0] in KINDS
        if not (is_range and choice[1] <= choice[2]) and not (isinstance(choice, list) and choice):
            raise UserError(
                f"space() says {key}: {choice!r}: write a list of choices, or a kind "
                f"({', '.join(KINDS)}), the lowest and the highest value"
            )
        if is_range and choice[0] == "log" and choice[1] <= 0:
            raise UserError(f"space() says {key}: {choice!r}: a logarithmic range begins above 0")
        drawn = [choice[1] if choice[0] == "int" else float(choice[1])] if is_range else choice
        for value in drawn:
            set_key(tried, key, value)
        check_signed(config.task, key, choice[1:] if is_range else choice)
