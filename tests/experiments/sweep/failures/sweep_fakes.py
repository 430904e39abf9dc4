"""Sweeps of seeds whose trainers fail as told."""

import weakref
from types import SimpleNamespace

import jax

from configs import quickstart
from experiments.sweep import worker as sweep_worker
from experiments.sweep.study import Study
from experiments.sweep.trial_configs import plan_trials
from log_lines import heard
from transformer.errors import UserError
from transformer.training.run import TrainingRun

FULL_MEMORY = "RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."


def out_of_memory():
    return jax.errors.JaxRuntimeError(FULL_MEMORY)


class Fakes:
    """Trainers that fail as told, and count.

    Args:
      errors: what training raises, by seed; each is made when it is raised.
      missing: numbers of trials whose text cannot be read.
    """

    def __init__(self, monkeypatch, errors=None, missing=()):
        self.errors, self.missing = errors or {}, missing
        self.trained, self.done = [], []
        self._made_before, self._failed = [], []
        # What the tests before have compiled is of use to those that come.
        monkeypatch.setattr(jax, "clear_caches", lambda: None)
        monkeypatch.setattr(sweep_worker, "TrainingRun", self._one)
        monkeypatch.setattr(sweep_worker, "Trainer", self._trainer)
        monkeypatch.setattr(sweep_worker, "_prepare", lambda trials, runs: None)
        monkeypatch.setattr(sweep_worker, "_load_task", self._load_task)
        monkeypatch.setattr(sweep_worker.Worker, "_score", lambda *told: self._score(*told))

    def _score(self, worker, trial, attempt, task):
        self.done.append(trial.number)
        worker.study.end(attempt, 1.0, "complete")

    def _load_task(self, trial, other):
        if trial.number in self.missing:
            raise UserError("train.en is not a file")
        return SimpleNamespace(with_config=lambda config: None)

    def _run(self, configs):
        self.trained.append([config.seed for config in configs])
        for config in configs:
            if config.seed in self.errors:
                self._failed = self._made_before
                raise self.errors[config.seed]()
        return True

    def _made(self, configs, **more):
        # After an error, what came before must be gone.
        assert [ref for ref in self._failed if ref() is not None] == []
        self._failed = []
        made = _Program(run=lambda: self._run(configs), stop_signal=None, **more)
        self._made_before.append(weakref.ref(made))
        return made

    def _one(self, task, config, folder):
        made = TrainingRun.__new__(TrainingRun)  # without checkpoints and an optimizer
        made.config, made.total_steps = config, 1
        return made

    def _trainer(self, runs, **more):
        configs = [run.config for run in runs]
        return self._made(configs, runs=runs, failures={}, train_step=None)


class _Program(SimpleNamespace):
    pass


def study_of(folder, count=4, trials=(), **changes) -> Study:
    """The study of trials, by default of seeds."""
    config = quickstart.get_config()
    config.update_from_flattened_dict(changes)
    trials = trials or [{"seed": seed} for seed in range(count)]
    return Study(config, plan_trials(config, trials, folder), None, folder)


def work(folder, count=4, **changes):
    """Trains a sweep of seeds; returns its states, the reasons and what was said."""
    study = study_of(folder, count, **changes)
    with heard() as said:
        sweep_worker.Worker(study).work()
    return [study.states()[n] for n in range(count)], study.notes(), said
