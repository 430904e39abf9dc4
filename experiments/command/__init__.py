"""The commands, and `train` for use from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def train(config: Any, workdir: str | Path, settings: Mapping[str, Any]) -> Path:
    """Trains a run, see `transformer.train`; returns its folder."""
    # Imported here, so that the command rejects a misspelt flag before jax has started.
    from transformer.config import assign, complete
    from transformer.errors import UserError
    from ..process.config import Experiment, read_experiment
    from ..process.options import Options
    from ..process.process import logging_to
    from . import command

    if isinstance(config, str | Path):
        experiment = read_experiment(str(config))
    else:
        experiment = Experiment(complete(config))
    if experiment.is_sweep:
        raise UserError(f"{config} is a sweep: train it with --config={config} on the command line")
    for key, value in settings.items():
        assign(experiment.config, key, value)
    overrides = [(key, str(value)) for key, value in settings.items()]
    folder = Path(workdir).expanduser()
    with logging_to("stdout"):
        if command.run_command(
            command.Command("train", str(folder), experiment, overrides, Options())
        ):
            raise KeyboardInterrupt(f"{folder} was stopped: the same call resumes it")
    return folder
