"""R-Drop of each task: two passes over a batch, of different dropout, whose tokens count once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from runs import toy_config
from transformer.config.keys import having
from transformer.model.losses import TERMS
from transformer.tasks import REGISTRY

pytestmark = pytest.mark.full

TASKS = {
    "translation": {},
    "language_model": {"data.context": 16},
    "classification": {"data.source": "toy_reviews", "tokenizer.vocab_size": 400},
    "image_classification": {
        **{"data.source": "digits", "model.picture_size": 8, "model.picture_channels": 1},
        **{"model.patch_size": 2, "train.mixup": 0.5},
    },
}


@pytest.mark.parametrize("name", TASKS)
def test_passes_differ_by_their_dropout_and_count_half_each(name, tmp_path):
    changes = {"task": name, "train.best_metric": "loss", "train.r_drop": 2.0, **TASKS[name]}
    task = REGISTRY[name](toy_config(tmp_path, **changes))
    batch, hparams = jax.tree.map(jnp.asarray, task.plan[0]), task.hparams()
    params = task.draw_params(jax.random.key(1))
    loss = jax.jit(lambda hparams, seed: task.loss(params, batch, hparams, jax.random.key(seed)))
    none, one, two = (loss(hparams | {"r_drop": weight}, 0) for weight in (0.0, 1.0, 2.0))
    assert loss._cache_size() == 1
    assert one.loss - none.loss > 1e-3 * none.loss
    np.testing.assert_allclose(two.loss - one.loss, one.loss - none.loss, rtol=1e-3)
    np.testing.assert_array_equal(two[1:], none[1:])
    single = {key: value for key, value in hparams.items() if key != "r_drop"}
    assert none.weight == loss(single, 0).weight > 1
    draws = [(loss(hparams | {"r_drop": 0.0}, i).loss, loss(single, i).loss) for i in range(20)]
    np.testing.assert_allclose(*np.mean(draws, axis=0), rtol=0.1)
    # Control: without dropout the passes are the same, and those of one pass.
    still = {key: 0.0 if key.startswith("dropout_") else x for key, x in single.items()}
    np.testing.assert_allclose(loss(still | {"r_drop": 9.0}, 0), loss(still, 0), rtol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_a_step_without_r_drop_has_no_argument_for_it(weight, tmp_path):
    hparams = REGISTRY["translation"](toy_config(tmp_path, **{"train.r_drop": weight})).hparams()
    assert ("r_drop" in hparams) == bool(weight)
    assert {f"train.{name}" for name in TERMS} <= {*having("traced_above_zero")}
