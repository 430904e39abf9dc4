"""Frozen parameters never move, not by a bit, and rates follow the first pattern that matches."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import base
from experiments.process.config import override
from experiments.results import run_tables as tables
from experiments.sweep.trial_configs import structure
from runs import identical
from source_settings import refused
from transformer.checks import check
from transformer.config import complete, flatten
from transformer.errors import UserError
from transformer.model.losses import TokenSums
from transformer.optim import OptimizerConfig
from transformer.optim.optimizers import make_optimizer
from transformer.optim.parameters import ParameterRules, rules_of
from transformer.training.step import init_state, make_train_step

# Minus zero, and numbers whose mean of seven in float32 is another.
KERNEL = np.array([[-0.0, 0.0, 0.1], [1 / 3, -2.7, 1e-20]], np.float32)
NUMBERS = {"learning_rate": 0.1, "warmup_steps": 0.0, "weight_decay": 0.5, "ema_decay": 0.9,
           "seed": np.uint32(0), "batches": np.int32(6)}  # fmt: skip


def start():
    return {"inner": {"kernel": jnp.asarray(KERNEL)}, "outer": jnp.arange(1.0, 6.0)}


def loss(params, batch, hparams, key):
    """Pulls both at targets; the gradient of the kernel is `batch` times as long."""
    pull = batch * (params["inner"]["kernel"] - 3.0) ** 2
    value = pull.sum() + ((params["outer"] - 2.0) ** 2).sum()
    one = jnp.ones(())
    return TokenSums(value, value, one, one)


def states(rules, clip=1.0, accumulate=1, scale=1.0, name="adamw"):
    """The states before and after each of six steps."""
    limits = {"clip_norm": clip, "gradient_accumulation_steps": accumulate}
    optimizer = make_optimizer(OptimizerConfig(name, **limits), (), rules.factor)
    step = jax.jit(make_train_step(loss, optimizer, "constant", 4, accumulate, rules))
    state = init_state(start(), optimizer, True, rules)
    return list(
        itertools.accumulate(range(6), lambda s, _: step(s, scale, NUMBERS)[0], initial=state)
    )


@pytest.mark.parametrize("accumulate", [1, 2])
def test_frozen_parameters_keep_every_bit_with_clipping_decay_and_averages(accumulate):
    last = states(ParameterRules("inner"), accumulate=accumulate)[-1]
    for params in (last.params, last.ema):
        assert np.asarray(params["inner"]["kernel"]).tobytes() == KERNEL.tobytes()
        assert not np.array_equal(params["outer"], start()["outer"])
    # Control: without the rule they move.
    last = states(ParameterRules(), accumulate=accumulate)[-1]
    assert not np.isclose(last.params["inner"]["kernel"], KERNEL).any()


def test_the_gradient_of_frozen_parameters_has_no_part_in_clipping():
    # Adam's second moments tell gradients of other lengths apart.
    near, far = (states(ParameterRules("inner"), scale=s)[-1].opt_state for s in (1.0, 1e3))
    assert identical(near, far)
    near, far = (states(ParameterRules(), scale=s)[-1].opt_state for s in (1.0, 1e3))
    nu = [jax.tree.leaves(each)[-1] for each in (near, far)]
    assert not np.allclose(*nu, rtol=0.1)


def test_a_rate_is_multiplied_by_the_factor_of_the_first_pattern_that_matches():
    rules = ParameterRules("", (("kernel", 0.25), ("inner|outer", 0.5)))
    assert [rules.factor(name) for name in ("inner/kernel", "outer", "norm")] == [0.25, 0.5, 1.0]
    plain, scaled = (states(r)[:2] for r in (ParameterRules(), rules))
    assert identical(plain[0].params, scaled[0].params)
    for name, factor in (("inner", 0.25), ("outer", 0.5)):
        moved = [
            jax.tree.leaves(after.params[name])[0] - jax.tree.leaves(before.params[name])[0]
            for before, after in (plain, scaled)
        ]
        np.testing.assert_allclose(moved[1], factor * moved[0], rtol=1e-5)


# -- keys


def train_keys(**changes) -> ConfigDict:
    config = base.get_config()
    config.train.update(changes)
    return config


NAMES = ("encoder_layers_0/norm/scale", "encoder_layers_1/norm/scale", "output/kernel")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"freeze": "encodr_layers_0"}, ("train.freeze has 'encodr", "encoder_layers_N, output")),
        ({"freeze": "e"}, ("train.freeze='e' matches all", "nothing is left to train")),
        ({"freeze": "("}, ("train.freeze='(' is not a regular expression", "backslash")),
        ({"learning_rate_factors": (("outptu", 0.1),)}, ("learning_rate_factors has 'outptu'",)),
        ({"learning_rate_factors": (("output", 0),)}, ("factor 0", "config.train.freeze")),
        ({"learning_rate_factors": ((0.1, "output"),)}, ("pairs of a pattern and a factor",)),
    ],
)
def test_a_wrong_pattern_or_factor_is_named_with_the_fix(keys, says):
    config = train_keys(**keys)
    with refused(*says):
        check(config)
        rules_of(config.train, lambda: dict.fromkeys(NAMES, 1))


def test_factors_are_read_from_the_command_line_kept_in_json_and_shown_as_they_were_typed():
    config = base.get_config()
    text = "layers_{0,1}/=0.1,output=2e-3"
    override(config, "train.learning_rate_factors", text)
    assert config.train.learning_rate_factors == (("layers_{0,1}/", 0.1), ("output", 0.002))
    again = complete(ConfigDict({"train": flatten(config.train)}))
    assert flatten(again) == flatten(config)
    shown = tables.command(tables.differing(config))
    assert "--config.train.learning_rate_factors=layers_{0,1}/=0.1,output=0.002" in shown
    override(config, "train.learning_rate_factors", "output=0.5")
    assert config.train.learning_rate_factors == (("output", 0.5),)
    with pytest.raises(UserError, match="must be of type list, as"):
        override(base.get_config(), "train.learning_rate_factors", "output")


@pytest.mark.parametrize(
    "change", [{"freeze": "a"}, {"init_pattern": "a"}, {"learning_rate_factors": (("a", 0.5),)}]
)
def test_runs_of_other_rules_share_no_compiled_step(change):
    assert structure(train_keys(**change)) != structure(base.get_config())
    assert structure(train_keys(label_smoothing=0.3)) == structure(base.get_config())
