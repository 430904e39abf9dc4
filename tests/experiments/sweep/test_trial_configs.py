"""All trials of a sweep are built, checked and grouped before one of them trains."""

from pathlib import Path

import pytest

from configs import quickstart
from experiments.process.config import read_experiment
from experiments.sweep import trial_configs
from source_settings import refused
from transformer import tasks
from transformer.config import flatten
from transformer.config.keys import KEYS

FOLDER = Path("sweep")


def plan(*trials, config=None):
    return trial_configs.plan_trials(config or quickstart.get_config(), trials, FOLDER)


def test_a_trial_is_the_config_with_its_values_set():
    trials = plan({"seed": 3}, {"model.num_heads": 2, "optimizer.learning_rate": 1})
    assert [trial.number for trial in trials] == [0, 1]
    assert trials[0].config.seed == 3
    assert trials[1].config.model.num_heads == 2
    assert trials[1].config.optimizer.learning_rate == 1.0
    assert [trial.folder for trial in trials] == [FOLDER / "trials/000", FOLDER / "trials/001"]
    # Nothing else differs, and the config they start from is as it was.
    before = flatten(quickstart.get_config())
    assert {k for k, v in flatten(trials[0].config).items() if v != before[k]} == {"seed"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"model.num_head": 2}, ("there is no key config.model.num_head", "model.num_heads")),
        ({"model.num_heads": 3}, ("model.num_heads=3", "128")),
        ({"task": "translation"}, ("config.task", "a trial cannot set it")),
        (["seed"], ("['seed']", "dict")),
    ],
)
def test_a_wrong_trial_is_named_with_its_number(values, says):
    with refused("trial 2 of the sweep: ", *says):
        plan({"seed": 1}, {"seed": 2}, values)


def test_every_task_signs_its_scores_with_keys():
    signed = set().union(*(about.signs for about in KEYS.values()))
    assert signed == tasks.REGISTRY.keys()


def test_trials_whose_scores_will_not_be_comparable_are_refused():
    config, key = quickstart.get_config(), "evaluate.sacrebleu_tokenizer"
    with refused(f"config.{key} cannot differ (13a and intl)"):
        plan({key: "13a"}, {key: "intl"})
    # Also where one trial has the value of the config.
    with refused(f"config.{key}"):
        plan({key: "intl"}, {"seed": 1})
    # The control: all have one value.
    assert len(plan(*({key: "intl", "seed": seed} for seed in range(2)))) == 2
    with refused(f"{key} cannot differ"):
        trial_configs.check_space({key: ["13a", "intl"]}, config)
    trial_configs.check_space({key: ["intl"], "data.seed": [1, 2]}, config)


@pytest.mark.full
@pytest.mark.parametrize("size", ["grammar", "copy", "multi30k"])
@pytest.mark.parametrize(
    "name", ["positions", "heads", "size", "norm", "regularisation", "architectures"]
)
def test_the_shipped_sweeps_have_trials_at_every_size(name, size):
    experiment = read_experiment(f"configs/sweeps/{name}.py:{size}")
    trials = trial_configs.plan_trials(*experiment[:2], FOLDER)
    assert len(trials) >= 15
    assert experiment.config.sweep.baseline < len(trials)


def test_a_password_stays_out_of_the_trials():
    config = quickstart.get_config()
    config.sweep.storage = "mysql://me:secret@there/x"
    [trial] = plan({"seed": 1}, config=config)
    assert "secret" not in str(trial.config)


def test_two_equal_trials_are_both_named():
    with refused("trial 2 (seed=1) is the same as trial 0 (seed=1)"):
        plan({"seed": 1}, {"seed": 0}, {"seed": 1})
    # Also if one sets the config's own value.
    heads = quickstart.get_config().model.num_heads
    with refused("the same as trial 0"):
        plan({"seed": 1}, {"seed": 1, "model.num_heads": heads})


def test_runs_that_differ_in_numbers_alone_share_a_program():
    trials = plan(
        {"seed": 1, "optimizer.learning_rate": 1e-4, "optimizer.warmup_steps": 7},
        {"model.dropout_residual": 0.3, "train.label_smoothing": 0.2},
        {"model.dropout_residual": 0.0},  # which compiles to another step
        {"model.d_ff": 64},
        {"seed": 2},
    )
    programs = [trial_configs.structure(trial.config) for trial in trials]
    assert list(map(programs.index, programs)) == [0, 0, 2, 3, 0]


def test_runs_are_vmapped_on_accelerators_unless_they_are_pruned_or_use_flash_attention():
    config = quickstart.get_config()

    def vmapped(on_accelerator=True, **settings):
        config.sweep.update(settings)
        return trial_configs.is_vmapped(config.sweep, [config.model], on_accelerator)

    assert [vmapped(), vmapped(False), vmapped(False, parallel="vmap")] == [True, False, True]
    assert not vmapped(prune=True)
    assert vmapped(prune=False)
    config.model.attention_implementation = "flash"
    assert not vmapped()
