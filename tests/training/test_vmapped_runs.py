"""A run that trains with others as one program is the run that it would have been alone."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_resume import saved_steps

from runs import identical, lines, newest_state, toy_config, without_search
from transformer.errors import UserError
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun

# Seeds, rates, schedule, smoothing, decay, dropout and R-Drop.
CHANGES = [
    {
        "seed": 5,
        "model.dropout_attention": 0.5,
        "optimizer.weight_decay": 0.2,
        "optimizer.decay_fraction": 0.9,
        "train.r_drop": 3.0,
        "train.guided_alignment": 0.2,
    },
    {
        "optimizer.learning_rate": 0.003,
        "optimizer.warmup_steps": 4,
        "train.label_smoothing": 0.3,
        "train.r_drop": 0.5,
        "train.guided_alignment": 0.9,
    },
]


def folders(root, count):
    made = [root / str(i) for i in range(count)]
    for folder in made:
        folder.mkdir(parents=True, exist_ok=True)
    return made


def trainer_of(tasks, configs, folders, devices=None):
    runs = [TrainingRun(*each) for each in zip(tasks, configs, folders, strict=True)]
    return Trainer(runs, devices, snapshots=False)


def together(root, configs, lead=None, devices=None):
    """What trains these configs as one program, below `root`."""
    lead = TranslationTask(lead if lead is not None else configs[0])
    tasks = [lead.with_config(config) for config in configs]
    return trainer_of(tasks, configs, folders(root, len(configs)), devices)


@pytest.fixture
def unsearched():
    with without_search():
        yield


@pytest.mark.full
def test_each_run_is_what_it_would_have_been_alone(tmp_path, unsearched):
    common = {
        "optimizer.name": "adamw",
        "optimizer.schedule": "wsd",
        "train.evaluate_every": 4,
        "evaluate.max_sentences": 2,
    }
    configs = [toy_config(tmp_path / "cache", **common, **changes) for changes in CHANGES]
    lead = toy_config(tmp_path / "cache", **common, **CHANGES[-1])
    trainer = together(tmp_path / "together", configs, lead)
    assert trainer.run()
    for i, (config, alone) in enumerate(
        zip(configs, folders(tmp_path / "alone", len(configs)), strict=True)
    ):
        task = TranslationTask(config)
        assert trainer_of([task], [config], [alone]).run()
        mine = tmp_path / "together" / str(i)
        for ours, theirs in zip(lines(mine), lines(alone), strict=True):
            assert ours.keys() == theirs.keys()
            for name, value in theirs.items():
                if isinstance(value, str):
                    assert ours[name] == value
                else:
                    assert ours[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
        states = [newest_state(task, config, folder) for folder in (mine, alone)]
        close = jax.tree.map(
            lambda a, b: np.allclose(a, b, rtol=1e-5, atol=2e-5), *(s.params for s in states)
        )
        assert all(jax.tree.leaves(close))
        # The data are the same to the bit.
        plan = trainer.runs[i].task.plan
        for batch in (0, 7, 10**6):
            for ours, theirs in zip(plan[batch], task.plan[batch], strict=True):
                np.testing.assert_array_equal(ours, theirs)


class Poisoned(TranslationTask):
    """A task whose loss is not a number where labels are smoothed by more than 0.35."""

    def loss(self, params, batch, hparams, key):
        sums = super().loss(params, batch, hparams, key)
        diverges = hparams["label_smoothing"] > 0.35
        return sums._replace(loss=sums.loss * jnp.where(diverges, jnp.nan, 1.0))


@pytest.mark.full
def test_a_run_that_diverges_or_loses_patience_does_not_disturb_the_others(tmp_path, unsearched):
    common = {
        "train.evaluate_every": 2,
        "evaluate.max_sentences": 1,
        "train.max_nonfinite_steps": 3,
    }
    changes = [
        {"train.label_smoothing": 0.4},  # made to diverge
        {},
        {"train.patience": 1, "optimizer.learning_rate": 0.0},  # never better than at first
    ]
    configs = [toy_config(tmp_path / "cache", **common, **each) for each in changes]
    lead = Poisoned(configs[0])
    tasks = [lead.with_config(config) for config in configs]
    trainer = trainer_of(tasks, configs, folders(tmp_path / "together", 3))
    assert trainer.run()
    assert list(trainer.failures) == [0]
    assert "not finite in 3 steps" in trainer.failures[0]
    steps = [[line["step"] for line in lines(tmp_path / f"together/{i}", "train")] for i in (1, 2)]
    assert steps == [list(range(1, 9)), [1, 2, 3, 4]]
    [alone] = folders(tmp_path / "alone", 1)
    assert trainer_of([TranslationTask(configs[1])], [configs[1]], [alone]).run()
    for ours, theirs in zip(lines(tmp_path / "together/1"), lines(alone), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


def seeds(tmp_path, name, count=2, **changes):
    changes = {"evaluate.max_sentences": 1, "train.evaluate_every": 3, **changes}
    configs = [toy_config(tmp_path / "cache", seed=seed, **changes) for seed in range(count)]
    return together(tmp_path / name, configs)


def same_runs(tmp_path, whole, *names) -> bool:
    """Whether two trainings left the same lines and the same bits."""
    for i, run in enumerate(whole.runs):
        folders = [tmp_path / name / str(i) for name in names]
        states = [newest_state(run.task, run.config, folder) for folder in folders]
        if lines(folders[0]) != lines(folders[1]) or not identical(*states):
            return False
    return True


@pytest.mark.slow
def test_runs_that_were_killed_go_on_as_if_they_had_not_been(tmp_path):
    whole = seeds(tmp_path, "whole", **{"train.steps": 7})
    assert whole.run()
    # Killed between the runs' last saves: one has ended, the other is a save behind.
    assert seeds(tmp_path, "broken", **{"train.steps": 7}).run()
    shutil.rmtree(tmp_path / "broken/1/checkpoints/7")
    before = (tmp_path / "broken/0/metrics.jsonl").read_text()
    assert seeds(tmp_path, "broken", **{"train.steps": 7}).run()
    assert (tmp_path / "broken/0/metrics.jsonl").read_text() == before
    assert same_runs(tmp_path, whole, "whole", "broken")


@pytest.mark.slow
def test_runs_at_different_steps_lose_no_checkpoint(tmp_path, unsearched):
    assert seeds(tmp_path, "early", **{"train.steps": 3}).run()
    before = (tmp_path / "early/0/metrics.jsonl").read_text()
    shutil.rmtree(tmp_path / "early/1/checkpoints/3")
    with pytest.raises(UserError, match="2 runs cannot train together from the steps 0, 3"):
        seeds(tmp_path, "early", **{"train.steps": 6}).run()
    assert saved_steps(tmp_path / "early/0") == [3]
    assert (tmp_path / "early/0/metrics.jsonl").read_text() == before
