"""The trials in a sweep's folder, for messages if it is given in place of a run's folder."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.keys import flatten
from transformer.metrics.registry import rank
from transformer.storage.reading import parse_json, read_file

COMMAND = "sweep.json"  # has the command that trains a sweep, see `experiments.sweep.saved`
WORKDIR = re.compile(r"--?workdir(=|$)")
MAX_TOLD = 10


class Found(NamedTuple):
    """A trial: its folder, whose name is its number, its settings and its score."""

    folder: Path
    settings: dict[str, Any]
    metric: str
    score: float | None

    @property
    def name(self) -> str:
        """Its folder within the sweep's, and its settings."""
        told = ", ".join(f"{key.split('.')[-1]}={value}" for key, value in self.settings.items())
        return f"trials/{self.folder.name} ({told or 'as configured'})"

    def __str__(self) -> str:
        score = "not finished" if self.score is None else f"{self.metric} {self.score:.4g}"
        return f"{self.name}: {score}"


def find_trials(folder: Path) -> list[Found]:
    """Returns the trials of a sweep's folder, the best on validation first; empty for a run's.

    A trial whose files cannot be read is left out.
    """
    configs, results = {}, {}
    for path in sorted(folder.glob("trials/*/config.json")):
        config = _read(path)
        if isinstance(config.get("train"), dict):
            try:
                configs[path.parent] = flatten(ConfigDict(config))
            except (ValueError, AttributeError):  # of a name that a ConfigDict has itself
                continue
            results[path.parent] = _read(path.with_name("results.json"))
    told = _differing(list(configs.values()))
    trials = []
    for place, config in configs.items():
        metric, scores = config.get("train.best_metric", ""), results[place].get("validation")
        scores = scores if isinstance(scores, dict) else {}
        scores = {name: float(x) for name, x in scores.items() if isinstance(x, int | float)}
        trial = Found(place, {key: config.get(key) for key in told}, metric, scores.get(metric))
        trials.append(([-x for x in rank(scores, metric)], place.name, trial))
    return [trial for *_, trial in sorted(trials)]


def is_sweep(folder: Path) -> bool:
    """Whether a folder is a sweep's that has trials."""
    return not (folder / "config.json").exists() and any(folder.glob("trials/*/config.json"))


def refuse_sweep(folder: Path) -> None:
    """Raises UserError, which names the trials, if a folder is a sweep's and not a run's."""
    command = _read(folder / COMMAND).get("command")
    trials = find_trials(folder)
    if not trials and command is None:
        return
    listed = "; ".join(map(str, trials[:MAX_TOLD]))
    more = f"; and {len(trials) - MAX_TOLD} more" if len(trials) > MAX_TOLD else ""
    name = (
        f"name one of its trials, such as {shlex.quote(str(trials[0].folder))}. Best first: "
        f"{listed}{more}"
        if trials
        else "none of its trials has begun"
    )
    again = ""
    if isinstance(command, str):
        again = f". To resume the sweep, type: {at_folder(command, folder)}"
    raise UserError(f"{folder} holds a sweep, not a run: {name}{again}")


def at_folder(command: str, folder: Path) -> str:
    """Returns the command of a sweep with the folder that it is in now as its --workdir."""
    try:
        words = shlex.split(command)
        start = max(i for i, word in enumerate(words) if WORKDIR.match(word))
    except ValueError:  # it has no such flag, or was changed by hand
        return command
    end = start + (1 if "=" in words[start] else 2)
    place = words[start].partition("=")[2] or "".join(words[start + 1 : end])
    if Path(place).expanduser().resolve() == folder.resolve():
        return command
    return shlex.join([*words[:start], f"--workdir={folder}", *words[end:]])


def _differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The keys in which configs differ."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(c.get(key) != configs[0].get(key) for c in configs)]


def _read(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty if it is missing, damaged or not an object."""
    try:
        found, wrong = parse_json(read_file(path), dict)
    except OSError:
        return {}
    return {} if wrong else found
