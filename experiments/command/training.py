"""Training from Python, as `--mode=train` does it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.command.command import Command, run
from experiments.config import Experiment, read_experiment
from experiments.modes import TRAIN
from experiments.options import Options
from experiments.process import logging_to
from transformer.api.run import LoadedRun, load
from transformer.errors import UserError
from transformer.keys import assign, complete


def train(
    config: ConfigDict | str | Path,
    workdir: str | Path,
    settings: Mapping[str, Any] | None = None,
) -> LoadedRun:
    """Trains, scores and reports a run, or resumes it; returns it.

    Its log goes to standard output. An interrupt (Ctrl-C, or stopping the cell of a notebook) saves
    the run: the same call resumes it.

    Args:
      config: the experiment, or the name of its file, such as "configs/own_text.py".
      workdir: folder of the run.
      settings: {dotted key: value} of the config to change, as `--config.key=value` does.

    Raises:
      UserError: as the command; or the file is of a sweep.
      KeyboardInterrupt: a signal ended the training early.
    """
    if isinstance(config, ConfigDict):
        experiment = Experiment(complete(config), None, None)
    else:
        experiment = read_experiment(str(config))
    if experiment.is_sweep:
        raise UserError(f"{config} is a sweep: train it with --config={config} on the command line")
    given = [(key, str(value)) for key, value in (settings or {}).items()]
    for key, value in (settings or {}).items():
        assign(experiment.config, key, value)
    folder = Path(workdir).expanduser()
    with logging_to("stdout"):
        if run(Command(TRAIN, str(folder), experiment, given, Options())):
            raise KeyboardInterrupt(f"{folder} was stopped: the same call resumes it")
    return load(folder)
