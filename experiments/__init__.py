"""The use of the library; `experiments.train(config, workdir)` trains a run from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from transformer.runs.loaded import LoadedRun


def train(
    config: "ConfigDict | str | Path",
    workdir: str | Path,
    settings: Mapping[str, Any] | None = None,
) -> "LoadedRun":
    """Trains, scores and reports a run, or resumes it; returns it.

    Its log goes to standard output. An interrupt (Ctrl-C, or stopping the cell of a notebook) saves
    the run: the same call resumes it.

    Args:
      config: the experiment, or the name of its file, such as "configs/own_text.py".
      settings: {dotted key: value} of the config to change, as `--config.key=value` does.
    """
    # Here, so that an import of the package does not start JAX.
    from experiments.command import command
    from experiments.process.config import Experiment, read_experiment
    from experiments.process.options import Options
    from experiments.process.process import logging_to
    from transformer.config import assign, complete
    from transformer.errors import UserError
    from transformer.runs.loaded import load

    if isinstance(config, str | Path):
        experiment = read_experiment(str(config))
    else:
        experiment = Experiment(complete(config))
    if experiment.is_sweep:
        raise UserError(f"{config} is a sweep: train it with --config={config} on the command line")
    settings = settings or {}
    for key, value in settings.items():
        assign(experiment.config, key, value)
    overrides = [(key, str(value)) for key, value in settings.items()]
    folder = Path(workdir).expanduser()
    with logging_to("stdout"):
        if command.run(command.Command("train", str(folder), experiment, overrides, Options())):
            raise KeyboardInterrupt(f"{folder} was stopped: the same call resumes it")
    return load(folder)
