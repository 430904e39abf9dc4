"""The trials of a sweep: complete configs, numbered, all checked before the first is trained."""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.checks import check
from transformer.config import assign, flatten, value_of
from transformer.config.keys import having, signing
from transformer.errors import UserError, shorten
from transformer.runs.run import Run
from transformer.training.start import check_source
from ..process import recipe

RANGE_KINDS = ("log", "uniform", "int")  # kinds of range in a search
# Facts of the keys that may change when a sweep resumes: how, where and on what it runs.
FREE = ("label", "place", "devices", "sweep")
MAX_SHOWN, MAX_VALUE_LENGTH = 8, 63  # differing keys, and characters per value, in an error message


class PlannedTrial(NamedTuple):
    """A trial of a sweep before it is trained."""

    number: int  # from zero
    values: dict[str, Any]  # values that the trial sets, by dotted key
    config: ConfigDict  # the complete config
    folder: Path  # folder of its run
    # JSON of the values that differ from the config that all trials start from. It identifies the
    # trial, whatever its place in the list, and whether or not it also sets unchanged values.
    settings: str

    @property
    def name(self) -> str:
        """The name in messages."""
        settings = (f"{key.split('.')[-1]}={value}" for key, value in self.values.items())
        return f"trial {self.number} ({', '.join(settings)})"


def plan_trials(config: ConfigDict, trials: Iterable[object], folder: Path) -> list[PlannedTrial]:
    """Returns the trials of a sweep, checked: each is valid, none repeated, scores comparable.

    Args:
      config: the config that all trials start from.
      trials: dotted keys and their values, for each trial.
      folder: the sweep's folder.
    """
    planned = [plan_trial(config, values, n, folder) for n, values in enumerate(trials)]
    first: dict[str, PlannedTrial] = {}
    for trial in planned:
        same = first.setdefault(trial.settings, trial)
        if same is not trial:
            _, _, settings = trial.name.partition(" (")
            raise UserError(
                f"trial {trial.number} of the sweep is the same as trial {same.number} "
                f"({settings}: leave one out"
            )
    if not planned:
        raise UserError("the sweep has no trials: its sweep() yields nothing")
    for key in signing(config.task):
        check_signed(config.task, key, [value_of(trial.config, key) for trial in planned])
    return planned


def check_signed(task: str, key: str, values: Sequence[object]) -> None:
    """Raises UserError if scores at these values of a key are not comparable."""
    other = next((value for value in values if value != values[0]), None)
    if key in signing(task) and other is not None:
        raise UserError(
            f"config.{key} cannot differ ({values[0]} and {other}): it is part of the signature "
            "of all scores, which would not be comparable; make a sweep of each value"
        )


def set_key(config: ConfigDict, key: str, value: object) -> None:
    """Sets a key that trials may set."""
    if key.startswith("sweep."):
        raise UserError(f"config.{key} is the sweep's own: a trial cannot set it")
    if key == "task":
        raise UserError("config.task cannot differ: scores of different tasks are not comparable")
    assign(config, key, value)


def plan_trial(config: ConfigDict, values: object, number: int, folder: Path) -> PlannedTrial:
    """Returns one trial, checked, from the values in a config file."""
    try:
        if not isinstance(values, Mapping):
            raise UserError(f"{values!r} is not a dict of dotted keys and values")
        before, config = flatten(config), ConfigDict(config.to_dict())
        for key, value in values.items():
            set_key(config, key, value)
        recipe.apply(config, values)
        config.sweep.storage = ""  # it may hold a password, and does not affect the run
        check(config, "model", "training", "later")
        check_source(Run(trial_folder(folder, number), config))
    except UserError as error:
        raise UserError(f"trial {number} of the sweep: {error}") from None
    changed = {
        key: value
        for key, value in flatten(config).items()
        if value != before[key] and not key.startswith("sweep.")
    }
    settings = json.dumps(changed, sort_keys=True)
    place = trial_folder(folder, number)
    return PlannedTrial(number, dict(values), config.lock(), place, settings)


def trial_folder(folder: Path, number: int) -> Path:
    """Returns the folder of a trial's run within the sweep's."""
    return folder / "trials" / f"{number:03d}"


def structure(config: ConfigDict) -> str:
    """Returns, as text, the settings that must be equal for runs to share one compiled program."""
    flat = {k: value for k, value in flatten(config).items() if k not in having("traced")}
    flat |= {key: bool(flat[key]) for key in having("traced_above_zero")}
    del flat["name"]
    return json.dumps(flat, sort_keys=True)


def is_vmapped(settings: ConfigDict, models: Iterable[ConfigDict], on_accelerator: bool) -> bool:
    """Returns whether runs of one structure are trained as one vmapped program.

    Pruning compares a run with earlier ones, so those are sequential. JAX cannot vmap cuDNN's
    attention with sequence lengths that all runs share.
    """
    flash = any(model.attention_implementation == "flash" for model in models)
    if flash and settings.parallel == "vmap":
        raise UserError(
            "config.sweep.parallel='vmap' has no model.attention_implementation='flash': set "
            "config.sweep.parallel=sequential, or config.model.attention_implementation=chunked"
        )
    asked = settings.parallel == "vmap" or (settings.parallel == "auto" and on_accelerator)
    return asked and not settings.prune and not flash


def fixed_keys(config: ConfigDict) -> dict[str, Any]:
    """Returns the keys and values that must not change when a sweep resumes."""
    return {k: v for k, v in flatten(config).items() if k not in having(*FREE)}


def list_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Returns each key in which two configs differ, with both values, in short; '' if none."""

    keys = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    values = (
        (key, *(shorten(repr(each.get(key)), MAX_VALUE_LENGTH) for each in (theirs, ours)))
        for key in keys[:MAX_SHOWN]
    )
    return "; ".join(f"{key} was {their} and is {our}" for key, their, our in values)


def number_trials(
    trials: Sequence[PlannedTrial], known: Mapping[str, int]
) -> dict[int, PlannedTrial]:
    """Returns the trials by their numbers in the study; new trials get one.

    A new trial is numbered by its place in the list, or else by the next free number. `known` maps
    the `settings` of the study's trials to their numbers.
    """
    taken, numbered = set(known.values()), {}
    for place, trial in enumerate(trials):
        number = known.get(trial.settings)
        if number is None:
            number = place if place not in taken else max(*taken, len(trials) - 1) + 1
            taken.add(number)
        folder = trial_folder(trial.folder.parents[1], number)
        numbered[number] = trial._replace(number=number, folder=folder)
    return numbered


def check_space(space: Mapping[str, Any], config: ConfigDict) -> None:
    """Raises UserError for unknown keys or choices, and for those with incomparable scores."""
    draft = copy.deepcopy(config)
    for key, choice in space.items():
        is_range = isinstance(choice, tuple) and len(choice) == 3 and choice[0] in RANGE_KINDS
        if not (is_range and choice[1] <= choice[2]) and not (isinstance(choice, list) and choice):
            raise UserError(
                f"space() says {key}: {choice!r}: write a list of choices, or a kind "
                f"({', '.join(RANGE_KINDS)}), the lowest and the highest value"
            )
        if is_range and choice[0] == "log" and choice[1] <= 0:
            raise UserError(f"space() says {key}: {choice!r}: a logarithmic range begins above 0")
        examples = [choice[1] if choice[0] == "int" else float(choice[1])] if is_range else choice
        for value in examples:
            set_key(draft, key, value)
        check_signed(config.task, key, choice[1:] if is_range else choice)
