"""Weight decay pulls at matrices alone, however the parameters of layers are kept."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import reference
from runs import toy_config
from tiny_models import tiny_config, tiny_inputs
from transformer.model.build import REGISTRY
from transformer.model.classifier import Classifier
from transformer.model.stack import stacked_modules
from transformer.optim import OptimizerConfig
from transformer.optim.optimizers import make_optimizer
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun
from variants import EACH_VALUE, MODELS, VARIANTS

pytestmark = pytest.mark.device

# In every place a vector, or not a matrix that a decay would regularise.
VECTORS = {"bias", "scale", "query_key_scale"}
VECTORS |= {"relative_bias", "grid_bias", "peepholes", "talk_scores", "talk_weights"}


def of_one_number(params):
    """Small arrays for others: which of them decay must not depend on sizes."""
    return jax.tree.map(lambda x: np.ones((1,) * x.ndim, x.dtype), params)


def decayed(params, stacked):
    """Names of the parameters that an update without any gradient changes, without layers."""
    params = of_one_number(params)
    optimizer = make_optimizer(OptimizerConfig("adamw"), stacked)
    gradient = jax.tree.map(jnp.zeros_like, params)
    numbers = {"learning_rate": 0.1, "weight_decay": 0.5}
    updates, _ = optimizer.update(gradient, optimizer.init(params), params, **numbers)
    moved = {"/".join(path) for path, step in flatten_dict(updates).items() if np.any(step)}
    return {re.sub(r"(_layers)_\d+", r"\1", name) for name in moved}


def vectors(names):
    return {name for name in names if VECTORS.intersection(name.split("/"))}


def of_model(fields, scan_layers):
    config = tiny_config(**{**fields, "scan_layers": scan_layers})
    return decayed(reference.parameters(config), stacked_modules(config))


@pytest.mark.full
@pytest.mark.parametrize(
    "fields",
    [*EACH_VALUE, *(pytest.param(model, marks=pytest.mark.slow) for model in MODELS.values())],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_every_variant_decays_the_same_parameters_with_and_without_scan(fields):
    apart, scanned = (of_model(fields, scan) for scan in (False, True))
    assert apart == scanned
    assert not vectors(scanned)
    assert {"decoder_layers/feed_forward/inner/kernel", "target_embedding/table"} <= scanned


def test_taking_the_axis_of_layers_for_one_of_theirs_would_be_seen():
    fields = VARIANTS["norm of queries"][0]
    params = reference.parameters(tiny_config(**fields, scan_layers=True))
    seen = vectors(decayed(params, stacked=()))
    assert "encoder_layers/self_attention/query_norm/scale" in seen
    assert "decoder_layers/feed_forward/outer/bias" in seen
    assert vectors({"a/bias", "b/kernel"}) == {"a/bias"}
    assert vectors({"relative_bias/table", "embedding/table"}) == {"relative_bias/table"}


@pytest.mark.full
@pytest.mark.parametrize("kind", REGISTRY)
@pytest.mark.parametrize("cell", ["lstm_peephole", "gru"])
def test_classifiers_and_recurrent_models_decay_no_vector(kind, cell):
    found = []
    for scan in (False, True):
        config = tiny_config(architecture=kind, cell=cell, scan_layers=scan, num_decoder_layers=0)
        model = Classifier(config, 3, "attention")
        tokens = tiny_inputs().source
        shapes = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens > 0)["params"]
        params = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), shapes)
        found.append(decayed(params, stacked_modules(config)))
    assert found[0] == found[1]
    assert not vectors(found[0])
    assert {"output/kernel", "attention_pooling/hidden/kernel"} <= found[0]
    assert any("encoder_layers" in name for name in found[0])


@pytest.mark.full
@pytest.mark.parametrize("share_layers", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_s_own_step_decays_no_vector_of_a_scanned_stack(share_layers, tmp_path):
    changes = {
        "model.scan_layers": True,
        "model.share_layers": share_layers,
        "optimizer.name": "adamw",
        "optimizer.learning_rate": 0.5,
    }
    steps, step = {}, None
    for decay in (0.5, 0.0):
        config = toy_config(tmp_path, **changes, **{"optimizer.weight_decay": decay})
        task = TranslationTask(config)
        trainer = Trainer([TrainingRun(task, config, tmp_path / str(decay))], train_step=step)
        step = trainer.train_step  # the decay is an argument of it
        state, _ = step(
            trainer.fresh_state(), trainer.placement.put_batch(task.plan[0]), trainer.hparams
        )
        steps[decay] = flatten_dict(state.params)
    names = {
        "/".join(path) for path, x in steps[0.0].items() if not np.array_equal(x, steps[0.5][path])
    }
    assert not vectors(names)
    assert "encoder_layers/self_attention/query/kernel" in names
