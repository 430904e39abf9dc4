"""The trials in a sweep's folder, for messages if it is given in place of a run's folder."""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.config import flatten
from transformer.errors import UserError
from transformer.files import parse_json, read_file
from transformer.metrics.registry import rank

COMMAND = "sweep.json"  # has the command that trains a sweep, see `experiments.sweep.saved`
WORKDIR = re.compile(r"--?workdir(=|$)")


class Trial(NamedTuple):
    """A trial: its folder, whose name is its number, its settings and its score."""

    folder: Path
    settings: dict[str, Any]
    score: float | None

    @property
    def name(self) -> str:
        """Its folder within the sweep's, and its settings."""
        values = ", ".join(f"{key.split('.')[-1]}={value}" for key, value in self.settings.items())
        return f"trials/{self.folder.name} ({values or 'as configured'})"


def find_trials(folder: Path) -> list[Trial]:
    """Returns the trials of a sweep's folder, the best on validation first; empty for a run's.

    A trial whose files cannot be read is left out.
    """
    configs: dict[Path, dict[str, Any]] = {}
    for path in sorted(folder.glob("trials/*/config.json")):
        if config := _read_object(path, {"train": dict}):
            configs[path.parent] = flatten(ConfigDict(config))
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    differing = [key for key in keys if len({repr(c.get(key)) for c in configs.values()}) > 1]
    trials = []
    for place, config in configs.items():
        scores = _read_object(place / "results.json", {"validation": dict}).get("validation", {})
        numbers = {name: float(x) for name, x in scores.items() if isinstance(x, int | float)}
        metric = config.get("train.best_metric", "")
        settings = {key: config.get(key) for key in differing}
        trial = Trial(place, settings, numbers.get(metric))
        trials.append(([-x for x in rank(numbers, metric)], place.name, trial))
    return [trial for *_, trial in sorted(trials)]


def is_sweep(folder: Path) -> bool:
    """Returns whether a folder holds a sweep with trials."""
    return not (folder / "config.json").exists() and any(folder.glob("trials/*/config.json"))


def refuse_sweep(folder: Path) -> None:
    """Raises UserError, which names the best trial, if a folder is a sweep's and not a run's."""
    command = _read_object(folder / COMMAND, {"command": str}).get("command")
    trials = find_trials(folder)
    if not trials and not command:
        return
    name = "none of its trials has begun"
    if trials:
        best = shlex.quote(str(trials[0].folder))
        name = f"name one of its trials, such as {best}, the best on validation"
    again = f". To resume the sweep, type: {at_folder(command, folder)}" if command else ""
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


def _read_object(path: Path, shape: Any) -> dict[str, Any]:
    """The content of a JSON file; empty if it is missing or damaged, or has another shape."""
    try:
        content, wrong = parse_json(read_file(path), shape)
    except OSError:
        return {}
    return {} if wrong else content
