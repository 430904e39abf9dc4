"""The trials of a sweep: complete configs, all validated before any trial is trained.

This module also creates sweeps over seeds, and saves a sweep's experiment in its folder.
"""

import copy
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer import variants
from transformer.checks import check
from transformer.config import assign, flatten, value_of
from transformer.config.keys import having, signing
from transformer.errors import UserError
from transformer.files import read_json, write_json
from transformer.runs.run import Run
from transformer.runs.upgrades import numbered, upgrade
from transformer.runs.workdir import COMMAND, SAVED, parse_config
from transformer.training.start import check_source
from ..process import recipe
from ..process.config import Experiment

CONFIG_FLAG = re.compile(r"--?config(=|$)")
RANGE_KINDS = ("log", "uniform", "int")  # kinds of ranges in a search space
# Facts of the config keys that may change when a sweep resumes, such as paths and devices.
FREE = ("label", "place", "devices", "sweep")


class PlannedTrial(NamedTuple):
    """A trial of a sweep before it is trained."""

    number: int  # 0-based
    values: dict[str, Any]  # values that the trial sets, keyed by dotted key
    config: ConfigDict  # the complete config
    folder: Path  # folder of its run
    # JSON of the values that differ from the base config of all trials. It identifies the trial
    # independently of its position in the list, and of values that it sets but does not change.
    settings: str

    @property
    def name(self) -> str:
        """The name of the trial in messages."""
        settings = (f"{key.split('.')[-1]}={value}" for key, value in self.values.items())
        return f"trial {self.number} ({', '.join(settings)})"


def plan_trials(config: ConfigDict, trials: Iterable[object], folder: Path) -> list[PlannedTrial]:
    """Returns the trials of a sweep; they must be valid and distinct, with comparable scores.

    Args:
      config: the base config of all trials.
      trials: a mapping from dotted keys to values for each trial.
      folder: the sweep's folder.
    """
    planned = [plan_trial(config, values, n, folder) for n, values in enumerate(trials)]
    first: dict[str, PlannedTrial] = {}
    for trial in planned:
        same = first.setdefault(trial.settings, trial)
        if same is not trial:
            raise UserError(f"{trial.name} is the same as {same.name} of the sweep: leave one out")
    if not planned:
        raise UserError("the sweep has no trials: its sweep() yields nothing")
    for key in signing(config.task):
        check_signed(config.task, key, [value_of(trial.config, key) for trial in planned])
    return planned


def check_signed(task: str, key: str, values: Sequence[object]) -> None:
    """Raises UserError if scores with these values of a key would not be comparable."""
    other = next((value for value in values if value != values[0]), None)
    if key in signing(task) and other is not None:
        raise UserError(
            f"config.{key} cannot differ ({values[0]} and {other}): it is part of the signature "
            "of all scores, which would not be comparable; make a sweep of each value"
        )


def set_key(config: ConfigDict, key: str, value: object) -> None:
    """Sets a config key; raises UserError if trials must not set it."""
    if key == "task" or key.startswith("sweep."):
        raise UserError(f"config.{key} is the same in all trials of a sweep: a trial cannot set it")
    assign(config, key, value)


def plan_trial(config: ConfigDict, values: object, number: int, folder: Path) -> PlannedTrial:
    """Returns one validated trial, given the values that it sets."""
    place = trial_folder(folder, number)
    try:
        if not isinstance(values, Mapping):
            raise UserError(f"{values!r} is not a dict of dotted keys and values")
        before, config = flatten(config), ConfigDict(config.to_dict())
        for key, value in values.items():
            set_key(config, key, value)
        recipe.apply(config, values)
        config.sweep.storage = ""  # it may contain a password, and does not affect the run
        check(config, "model", "training", "later")
        check_source(Run(place, config))
    except UserError as error:
        raise UserError(f"trial {number} of the sweep: {error}") from None
    changed = {
        key: value
        for key, value in flatten(config).items()
        if value != before[key] and not key.startswith("sweep.")
    }
    settings = json.dumps(changed, sort_keys=True)
    return PlannedTrial(number, dict(values), config.lock(), place, settings)


def trial_folder(folder: Path, number: int) -> Path:
    """Returns the folder of a trial's run within the sweep's folder."""
    return folder / "trials" / f"{number:03d}"


def structure(config: ConfigDict) -> str:
    """Returns, as JSON, the settings that must be equal for runs to share one compiled program."""
    flat = {k: value for k, value in flatten(config).items() if k not in having("traced")}
    flat |= {key: bool(flat[key]) for key in having("traced_above_zero")}
    del flat["name"]
    return json.dumps(flat, sort_keys=True)


def is_vmapped(settings: ConfigDict, models: Iterable[ConfigDict], on_accelerator: bool) -> bool:
    """Returns whether runs with the same structure are trained as one vmapped program.

    Pruning compares a run with earlier runs, so it needs sequential runs. JAX cannot vmap cuDNN's
    attention if all runs share its sequence lengths.
    """
    flash = any(model.attention_implementation == "flash" for model in models)
    asked = settings.parallel == "vmap" or (settings.parallel == "auto" and on_accelerator)
    return asked and not settings.prune and not flash


def fixed_keys(config: ConfigDict) -> dict[str, Any]:
    """Returns the config values that must not change when a sweep resumes, as parsed from JSON."""
    keys = {k: v for k, v in flatten(config).items() if k not in having(*FREE)}
    return json.loads(json.dumps(keys, default=list))


def list_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Lists the keys in which two configs differ, with both values; returns '' if none differ."""
    keys = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
    return "; ".join(f"{k} was {theirs.get(k)!r} and is {ours.get(k)!r}" for k in keys)


def check_space(space: Mapping[str, Any], config: ConfigDict) -> None:
    """Raises UserError for unknown keys, invalid choices, or choices with incomparable scores."""
    draft = copy.deepcopy(config)
    for key, choice in space.items():
        is_range = isinstance(choice, tuple) and len(choice) == 3 and choice[0] in RANGE_KINDS
        if is_range:
            kind, low, high = choice
            choices = [low, high] if kind == "int" else [float(low), float(high)]
            is_valid = low <= high and (kind != "log" or low > 0)
        else:
            choices, is_valid = choice, isinstance(choice, list) and choice
        if not is_valid:
            raise UserError(
                f"space() says {key}: {choice!r}: write a list of choices, or a kind "
                f"({', '.join(RANGE_KINDS)}), the lowest and the highest value; log begins above 0"
            )
        for value in choices:
            set_key(draft, key, value)
        check_signed(config.task, key, choices)


# -- sweeps over seeds, and the experiment in a sweep's folder


def over_seeds(experiment: Experiment | None, seeds: int) -> Experiment:
    """Returns a sweep that trains a config with `seeds` seeds, starting from `config.seed`."""
    if seeds < 1:
        raise UserError(f"--seeds={seeds} is not above 0: give the number of seeds")
    if experiment is None or experiment.is_sweep:
        raise UserError(
            f"--seeds={seeds} needs --config with a file without sweep() or space(); a sweep that "
            "has begun resumes with --workdir alone"
        )
    first = experiment.config.seed
    return experiment._replace(trials=[{"seed": first + i} for i in range(seeds)])


def save_sweep(
    folder: Path, config: ConfigDict, trials: Sequence[Mapping[str, Any]] | None
) -> None:
    """Saves the command of a sweep and, for a grid, its experiment, so that the sweep can resume.

    Only the command is saved if `sweep.storage` is set, since its URL may contain a password.

    Args:
      trials: the dotted keys and values of each trial of a grid, or None for a search.
    """
    content: dict[str, Any] = {"command": command_of(folder)}
    if trials is not None and not config.sweep.storage:
        saved = numbered(config.to_dict())
        content |= {"config": saved, "trials": [dict(values) for values in trials]}
    variants.save(folder, content)
    write_json(folder / COMMAND, content)


def load_sweep(folder: Path) -> Experiment | None:
    """Returns the experiment that `save_sweep` wrote, or None if the folder has none."""
    path, fix = folder / COMMAND, "name the sweep's --config, which writes it again"
    if not path.exists():
        return None
    variants.check(folder)
    content = read_json(path, {"command": str, "config?": SAVED, "trials?": [dict]}, fix)
    if "config" not in content:
        return None
    saved = upgrade(content["config"], folder)
    config, trials = parse_config(saved, path, fix), content.get("trials", [])
    places = [str(values[key]) for values in trials for key in having("written") if key in values]
    if config.sweep.storage:  # `save_sweep` never writes one
        places.append(config.sweep.storage)
    if places:
        raise UserError(
            f"{path} names {places[-1]!a}, where the sweep would write; only you may name such a "
            f"place: {fix}"
        )
    return Experiment(config, trials)


def command_of(folder: Path) -> str:
    """Returns the command that started a sweep, without its database URL.

    If a sweep is resumed without --config, this is the command saved in its folder.
    """
    flags = [flag for flag in sys.argv[1:] if "config.sweep.storage=" not in flag]
    path = folder / COMMAND
    if path.exists() and not any(map(CONFIG_FLAG.match, flags)):
        return read_json(path, {"command": str}, "name the sweep's --config")["command"]
    return f"python {shlex.join([Path(sys.argv[0]).name, *flags])}"
