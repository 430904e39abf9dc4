"""Runs a command: reads and validates the config, and calls the function of the mode.

A run's folder may come from another person. Its config has the paths of corpora and caches, and a
cache contains machine code. Therefore only the modes that read the corpus (`READ_TEXT`) use corpus
paths of the config, which are logged. The cache is always the user's own.
"""

import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.checks import check
from transformer.config import assign, complete, default_config, flatten
from transformer.config.keys import having
from transformer.data.corpora import texts_of
from transformer.data.encode import cache_folder
from transformer.data.files.locate import corpus_folder
from transformer.errors import UserError
from transformer.files import partial_folder
from transformer.runs.run import Run
from transformer.runs.workdir import (
    COMMAND,
    check_folder,
    is_sweep,
    load_config,
    refuse_sweep,
    run_folder,
    stored_run,
)
from ..process import recipe
from ..process.config import Experiment, override, read_experiment
from ..process.modes import CLEAN, EVALUATE, MODES, PLAN, READ_TEXT, TRAIN, Options
from ..process.process import keep_program_memory, keep_programs, logging_to
from ..sweep.trial_configs import load_sweep, over_seeds

logger = logging.getLogger(__name__)


class Command(NamedTuple):
    """A parsed command line."""

    mode: str
    workdir: str | None  # None without --workdir
    experiment: Experiment | None  # config file with overrides, or None
    overrides: list[tuple[str, str]]  # (key, text) pairs
    options: Options


def run_command(command: Command) -> int:
    """Runs a command; returns 0, or a nonzero exit code if a signal ended its training."""
    if "://" in (command.workdir or ""):
        from .bucket import mirror

        with mirror(str(command.workdir), command.mode == TRAIN) as folder:
            return run_command(command._replace(workdir=str(folder)))
    folder, mode = run_folder(command.workdir or "").absolute(), MODES[command.mode]
    stored = stored_run(command.workdir or "")
    if stored and command.experiment is None and mode.name not in READ_TEXT:
        with partial_folder(folder) as place:
            shutil.copytree(stored, place, dirs_exist_ok=True)
            place.rename(folder)
        logger.info(f"copied the trained run {stored.name} of this package to {folder}")
    if command.workdir is not None:  # before anything in the folder is read, locked or written
        check_folder(folder, linked=mode.name != TRAIN or command.options.linked_checkpoints)
    if mode.name == EVALUATE and is_sweep(folder):
        _evaluate_sweep(command, folder)
        return 0
    experiment = _experiment_of(command, folder)
    config = experiment.config
    _keep_compiled_programs(config.data)
    if mode.name in (TRAIN, PLAN):
        keep_program_memory()
    options = command.options
    if options.trial is not None and not experiment.is_sweep:
        raise UserError("--trial is for sweeps: --config names none")
    function = mode.load(config.task)
    if mode.name == TRAIN:
        return function(experiment, folder, options)
    for file in function(Run(folder, config), *([options] if mode.flags else [])) or ():
        print(file, flush=True)
    return 0


def train_run(config: Any, workdir: str | Path, settings: Mapping[str, Any] | None) -> Path:
    """Trains a run and returns its folder; see `transformer.train`."""
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
        if run_command(Command(TRAIN, str(folder), experiment, overrides, Options())):
            raise KeyboardInterrupt(f"{folder} was stopped: the same call resumes it")
    return folder


def train(experiment: Experiment, folder: Path, options: Options) -> int:
    """Trains a run or a sweep; returns the exit code."""
    # Imported only if needed, since importing statistics and Optuna takes a second.
    if experiment.is_sweep:
        options.refuse(("processes",), "is for one run: start each worker of a sweep without it")
        from ..sweep.sweep import sweep

        stopped_by = sweep(*experiment, folder, options.trial)
    else:
        from ..evaluate.run import train as train_one

        if not (folder / "config.json").exists():
            refuse_sweep(folder)
        run = Run(folder, experiment.config)
        stopped_by = train_one(run, options.processes or "")
    return 128 + stopped_by if stopped_by else 0


def _evaluate_sweep(command: Command, folder: Path) -> None:
    """Evaluates the runs of a sweep, each with the config saved in its folder."""
    from ..evaluate.evaluate import evaluate_sweep, finished_runs

    if command.experiment is not None:
        raise UserError(
            f"{folder} holds a sweep, whose runs have their own configs: leave out --config"
        )
    places = [run.folder for run in finished_runs(folder)]
    runs = [Run(p, _experiment_of(command._replace(workdir=str(p)), p).config) for p in places]
    for run in runs:
        check(run.config, "model")
    _keep_compiled_programs(runs[0].config.data)
    evaluate_sweep(runs, folder, command.options)


def _experiment_of(command: Command, folder: Path) -> Experiment:
    """Returns the validated experiment of the command or of the run's folder, with overrides."""
    reads_text, keys = command.mode in READ_TEXT, [key for key, _ in command.overrides]
    has_run = command.workdir is not None and (folder / "config.json").exists()
    if command.options.seeds is not None:
        command = command._replace(experiment=over_seeds(command.experiment, command.options.seeds))
    experiment = command.experiment or _saved_experiment(command, folder, has_run)
    config = experiment.config
    # Cleaning needs no recipe; each trial of a sweep has its own corpus and recipe row.
    has_no_row = command.mode == CLEAN or (command.mode == TRAIN and experiment.is_sweep)
    if command.experiment is None:
        for key, text in command.overrides:
            override(config, key, text)
        if reads_text and (line := describe_text(Run(folder, config))):
            logger.info(line)
    elif (reads_text or has_run) and not has_no_row:
        recipe.apply(config, keys, None if reads_text else load_config(folder))
    # For sweeps, each trial is checked instead, since it may override keys that are invalid here.
    check(config, *(("model", "training") if reads_text and not experiment.is_sweep else ()))
    return experiment


def _saved_experiment(command: Command, folder: Path, has_run: bool) -> Experiment:
    """Returns the experiment saved in a folder, or the default config without --workdir."""
    reads_text = command.mode in READ_TEXT
    experiment = load_sweep(folder) if command.mode == TRAIN and not has_run else None
    if reads_text and experiment is None and not has_run:
        refuse_sweep(folder)
        raise UserError(
            "--config is missing: name the experiment, such as configs/quickstart.py; --workdir "
            f"alone resumes a run, and {folder} has none"
        )
    if experiment is None and command.workdir is None:
        return Experiment(default_config())
    experiment = experiment or Experiment(load_config(folder))
    forget_places(experiment.config, reads_text)
    return experiment


def forget_places(config: ConfigDict, training: bool) -> None:
    """Resets the keys for paths and addresses in a run's saved config to their defaults.

    If `training`, the corpus paths are kept, as is a TFDS folder that contains the dataset.
    Otherwise, only the values that `segments.source_language` reads are kept: the name of the
    training file without its folder, and whether there is a target file.
    """
    data, defaults = config.data, flatten(default_config())
    dataset = Path(data.tfds_dir, re.split("[/:]", data.tfds_name)[0] or "none").expanduser()
    is_prepared = training and dataset.is_dir()

    def is_forgotten(key: str) -> bool:
        written = key in having("written") and not (key == "data.tfds_dir" and is_prepared)
        return written or (not training and key in having("path"))

    data.corpora = tuple(
        {k: v for k, v in corpus.items() if k != "tfds_dir" and not is_forgotten(f"data.{k}")}
        for corpus in data.corpora
    )
    if not training:
        defaults["data.train_source"] = Path(data.train_source).name
        if not data.train_target:
            defaults["data.train_target"] = ""
    for key in filter(is_forgotten, flatten(config)):
        assign(config, key, defaults[key])


def describe_text(run: Run) -> str | None:
    """Returns a line that lists the files and datasets that a run's saved config names, or None."""
    config, folder = run.config, run.folder
    names = [config.tokenizer.model, config.tokenizer.target_model]
    if not run.step:
        names += [config.train[key] for key in ("init_from", "source_vectors", "target_vectors")]
    texts = [str(Path(name).expanduser().absolute()) for name in names if name]
    for data in texts_of(config.data):
        if data.source == "files":
            ends = "_source", "_target", "_links"
            files = [value for key, value in data.items() if key.endswith(ends)]
            texts += [str(corpus_folder(data) / Path(file).expanduser()) for file in files if file]
        elif data.source == "tfds":
            place = data.tfds_dir or "the folder of TensorFlow Datasets"
            texts.append(f"{data.tfds_name!a} in {place}")
    name = "config.json" if (folder / "config.json").exists() else COMMAND
    return f"reads {', '.join(texts)}, named in {folder / name}" if texts else None


def _keep_compiled_programs(data: ConfigDict) -> None:
    """Enables JAX's compilation cache in the data cache, unless the environment sets a folder."""
    if data.cache_dir or "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        keep_programs(cache_folder(data) / "programs")
