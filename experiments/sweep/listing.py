"""Matches the trials of a sweep with those of its study, and lists differences of sweeps."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs import base
from experiments.sweep.plan import PlannedTrial, at_number
from transformer.keys import flatten

# Keys that may change when a sweep resumes: how it is run and compared, and the paths of its text.
FREE_KEYS = (
    *("name", "sweep.storage", "sweep.parallel", "sweep.max_vmapped_runs", "sweep.trials"),
    *("sweep.baseline", "sweep.prune", "sweep.retry_failed"),
    *("data.path", "data.fetch", "data.cache_dir", "data.tfds_dir", "data.prefetch"),
)
MAX_TOLD, MAX_LENGTH = 8, 60  # differing keys, and characters of a value, in a refusal


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
    told = []
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            was, now = _differing_parts(repr(theirs.get(key)), repr(ours.get(key)))
            told.append(f"{key} was {was} and is {now}")
    more = f" and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return "; ".join(told[:MAX_TOLD]) + more


def settings(config: ConfigDict, trial: PlannedTrial) -> str:
    """Returns what a trial changes of the config that all start from, as text.

    By this it is known again, wherever it stands in the list, and whatever else it sets that is so
    anyway.
    """
    base, own = flatten(config), flatten(trial.config)
    changed = {k: v for k, v in own.items() if v != base[k] and not k.startswith("sweep.")}
    return json.dumps(changed, sort_keys=True)


def number_trials(
    config: ConfigDict, trials: Sequence[PlannedTrial], known: Mapping[str, int]
) -> dict[int, PlannedTrial]:
    """Returns the trials by the numbers that they have, or get, in their study.

    A new trial has the number of its place in the list, or the next one that is free.

    Args:
      config: what all trials start from.
      trials: in the order of the list.
      known: numbers of those that the study has, by their `settings`.
    """
    taken, numbered = set(known.values()), {}
    for place, trial in enumerate(trials):
        number = known.get(settings(config, trial))
        if number is None:
            number = place if place not in taken else max(*taken, len(trials) - 1) + 1
            taken.add(number)
        numbered[number] = at_number(trial, number)
    return numbered


def _differing_parts(was: str, now: str) -> tuple[str, str]:
    """Both, or of long texts the part where they begin to differ."""
    pairs = enumerate(zip(was, now, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    start = max(0, same - 20) if max(len(was), len(now)) > MAX_LENGTH else 0

    def cut(text: str) -> str:
        part = text[start : start + MAX_LENGTH]
        return "..." * (start > 0) + part + "..." * (start + MAX_LENGTH < len(text))

    return cut(was), cut(now)
