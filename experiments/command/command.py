"""A command: its config is read, checked and given to its mode."""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import base
from experiments import recipe
from experiments.command import safety
from experiments.compile_cache import keep_programs
from experiments.config import Experiment, override
from experiments.modes import BENCHMARK, CLEAN, EVALUATE, MODES, PLAN, READ_TEXT, TRAIN
from experiments.options import Options
from experiments.process import exit_code, keep_program_memory, logging_to
from experiments.sweep.saved import load_sweep, over_seeds
from transformer.config import check, check_model, check_scores, check_start
from transformer.errors import UserError
from transformer.trials import is_sweep, refuse_sweep
from transformer.workdir import check_folder, load_config, run_folder

logger = logging.getLogger(__name__)

# The keys to lower if the memory is too small, in training and in other modes.
MEMORY = "--config.decode.batch_size or --config.decode.beam_size"
MEMORY_OF_TRAINING = (
    "--config.data.batch_tokens and --config.data.batch_multiple, or if it was an evaluation, "
    "--config.decode.batch_size"
)


class Command(NamedTuple):
    """The content of a command line.

    Attributes:
      mode: its name.
      workdir: folder of the run; None for a mode that needs none.
      experiment: of the config file, overrides set; None for a run that was started.
      overrides: (key, text) of the config.
      options: the flags that only some modes read.
    """

    mode: str
    workdir: str | None
    experiment: Experiment | None
    overrides: list[tuple[str, str]]
    options: Options


def execute(command: Command) -> int:
    """Runs a command; returns its exit code.

    It is 2 after one line about a user error, and 128 + n if signal n ended the training early.
    """
    memory = MEMORY_OF_TRAINING if command.mode in READ_TEXT else MEMORY
    with logging_to(MODES[command.mode].log):
        return exit_code(lambda: run(command), command.workdir or "", memory)


def run(command: Command) -> int:
    """Runs a command; returns its exit code, which is 0 but for a training that a signal ended.

    Raises:
      UserError: the command line, the config, the run's folder or its text has a mistake.
    """
    folder, mode = run_folder(command.workdir or "").absolute(), MODES[command.mode]
    options = command.options
    if command.workdir is not None:
        check_folder(folder)  # before anything in it is read, locked or written
    if mode.name == EVALUATE and is_sweep(folder):
        _evaluate_sweep(command, folder)
        return 0
    experiment = _read(command, folder)
    config = experiment.config
    _keep_compiled(config)
    if mode.name in (TRAIN, PLAN):
        keep_program_memory()
    if options.trial is not None and not experiment.is_sweep:
        raise UserError("--trial is for sweeps: --config names none")
    if mode.name in (PLAN, BENCHMARK) and experiment.is_sweep:
        logger.info(
            f"--config is a sweep: this {mode.name} is of one run, without the keys that trials set"
        )
    function = mode.load(config.task)
    if mode.name == TRAIN:
        return function(experiment, folder, options)
    for file in function(config, folder, *([options] if mode.flags else [])) or ():
        print(file, flush=True)
    return 0


def train(experiment: Experiment, folder: Path, options: Options) -> int:
    """Trains a run or a sweep; returns the exit code."""
    # Each only if it is needed: statistics and Optuna take a second.
    if experiment.is_sweep:
        from experiments.sweep.sweep import sweep

        stopped_by = sweep(*experiment, folder, options.trial)
    else:
        from experiments.run import train as train_run

        if not (folder / "config.json").exists():
            refuse_sweep(folder)
        stopped_by = train_run(experiment.config, folder)
    return 128 + stopped_by if stopped_by else 0


def _evaluate_sweep(command: Command, folder: Path) -> None:
    """Evaluates the runs of a sweep, each by the config of its folder."""
    from experiments.evaluate.evaluate import evaluate_sweep, finished_runs

    if command.experiment is not None:
        raise UserError(
            f"{folder} holds a sweep, whose runs have their own configs: leave out --config"
        )
    runs = finished_runs(folder)
    configs = {own: _read(command._replace(workdir=str(own)), own).config for own in runs}
    for config in configs.values():
        check_model(config)
    _keep_compiled(configs[runs[0]])
    evaluate_sweep(configs, folder, command.options)


def _read(command: Command, folder: Path) -> Experiment:
    """The experiment of the command, or of the run's folder, with the overrides, checked."""
    reads_text = command.mode in READ_TEXT
    has_run = command.workdir is not None and (folder / "config.json").exists()
    if command.options.seeds is not None:
        experiment = over_seeds(command.experiment, command.options.seeds)
    else:
        experiment = command.experiment or _kept(command, folder, has_run)
    config = experiment.config
    if command.experiment is None:
        for key, text in command.overrides:
            override(config, key, text)
    # The config of a run's folder has the values of its recipe, and cleaning needs none.
    if command.experiment is not None and command.mode != CLEAN:
        given = [key for key, _ in command.overrides]
        saved = load_config(folder) if has_run and not reads_text else None
        if command.mode == TRAIN and experiment.is_sweep:
            recipe.check_given(config, given)  # each trial has its own text, and so its own row
        elif reads_text or saved is not None:
            recipe.apply(config, given, saved)
    check(config)
    if command.mode in (*READ_TEXT, EVALUATE):
        check_scores(config)
    if reads_text and not experiment.is_sweep:  # whose trials may set keys that do not fit
        check_model(config)
        check_start(config)
    if command.experiment is None:
        safety.check_fetched(config, [key for key, _ in command.overrides])
        if reads_text and (line := safety.describe_text(config, folder)):
            logger.info(line)
    return experiment


def _kept(command: Command, folder: Path, has_run: bool) -> Experiment:
    """The experiment of a folder, for a command that names no config; base.py's without a folder.

    Raises:
      UserError: the mode reads text, and the folder has no run or sweep to resume.
    """
    reads_text = command.mode in READ_TEXT
    experiment = None
    if command.mode == TRAIN and not has_run:
        experiment = load_sweep(folder)
    if reads_text and experiment is None and not has_run:
        refuse_sweep(folder)
        raise UserError(
            "--config is missing: name the experiment, such as configs/quickstart.py; --workdir "
            f"alone resumes a run, and {folder} has none"
        )
    if experiment is None and command.workdir is None:
        return Experiment(base.get_config(), None, None)
    experiment = experiment or Experiment(load_config(folder), None, None)
    safety.forget_places(experiment.config, reads_text)
    return experiment


def _keep_compiled(config: ConfigDict) -> None:
    """Lets XLA keep compiled programs next to the tokenizers, so that a second start is quick.

    If the environment names a folder, and no flag or config does, they are kept there.
    """
    if not config.data.cache_dir and "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    cache = Path(config.data.cache_dir or "~/.cache/transformer").expanduser()
    keep_programs(cache / "programs")
