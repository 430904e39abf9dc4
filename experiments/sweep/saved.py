"""The experiment of a sweep as saved in its folder, and sweeps over the seeds of any config."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer import variants
from transformer.config.keys import having
from transformer.errors import UserError
from transformer.files import read_json, write_json
from transformer.runs.workdir import COMMAND, ESSENTIAL, parse_config
from ..process.config import Experiment

MAX_SEEDS = 1000
CONFIG_FLAG = re.compile(r"--?config(=|$)")


def over_seeds(experiment: Experiment | None, seeds: int) -> Experiment:
    """Returns the sweep that trains a config with `seeds` seeds, from `config.seed` on."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds={seeds} is not between 1 and {MAX_SEEDS:,}")
    if experiment is None:
        raise UserError(
            f"--seeds={seeds} needs --config; a sweep that has begun resumes with --workdir alone"
        )
    if experiment.is_sweep:
        raise UserError(
            f"--seeds={seeds} is for a config without sweep() or space(): let the sweep set seeds"
        )
    first = experiment.config.seed
    return experiment._replace(trials=[{"seed": first + i} for i in range(seeds)])


def save_sweep(
    folder: Path, config: ConfigDict, trials: Sequence[Mapping[str, Any]] | None
) -> None:
    """Saves what is needed to resume a sweep: its command and, for a grid, its experiment.

    If the trials are in a database, only the command is saved: the address may hold a password.

    Args:
      trials: dotted keys and values of each trial of a grid; None for a search.
    """
    content: dict[str, Any] = {"command": command_of(folder)}
    if trials is not None and not config.sweep.storage:
        content |= {"config": config.to_dict(), "trials": [dict(values) for values in trials]}
    variants.save(folder, content)
    write_json(folder / COMMAND, content)


def load_sweep(folder: Path) -> Experiment | None:
    """Returns the experiment that `save_sweep` wrote; None if the folder has none."""
    path, fix = folder / COMMAND, "name the sweep's --config, which writes it again"
    if not path.exists():
        return None
    variants.check(folder)
    content = read_json(path, {"command": str, "config?": ESSENTIAL, "trials?": [dict]}, fix)
    if "config" not in content:
        return None
    config, trials = parse_config(content["config"], path, fix), content.get("trials", [])
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
    """Returns the command that started a sweep, without the address of its database.

    If a sweep is resumed without its config, it is the command saved in the folder.
    """
    flags = [flag for flag in sys.argv[1:] if "config.sweep.storage=" not in flag]
    path = folder / COMMAND
    if path.exists() and not any(map(CONFIG_FLAG.match, flags)):
        return read_json(path, {"command": str}, "name the sweep's --config")["command"]
    return f"python {shlex.join([Path(sys.argv[0]).name, *flags])}"
