"""Positional encodings are those of section 3.5, and of them only the learned ones end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.errors import UserError
from transformer.model.positions.additive import sinusoid_angles
from transformer.model.positions.base import STACK_HOOKS
from transformer.model.positions.registry import SumOfPositions

pytestmark = pytest.mark.device

D = 22


def encoding(name, length, d_model=D, **kwargs):
    """What an encoding adds to embeddings of zeros."""
    config = tiny_config(positions=name, d_model=d_model, head_size=4, **kwargs)
    p = reference.parameters(config).get("decoder_positions", {})
    module = SumOfPositions(config, names=name, hooks=STACK_HOOKS)
    zeros = jnp.zeros((1, length, d_model))
    return np.asarray(module.apply({"params": p}, zeros, jnp.arange(length), method="add")[0])


# d_model 4: angles pos / 10000^0 and pos / 10000^(2/4) = pos / 100. From a table of sines:
# sin 1 = .841471, cos 1 = .540302, sin 2 = .909297, cos 2 = -.416147, sin .01 = .010000,
# cos .01 = .999950, sin .02 = .019999, cos .02 = .999800.
BY_HAND = {
    "sinusoidal": [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.010000, 0.999950],
        [0.909297, -0.416147, 0.019999, 0.999800],
    ],
    "split": [
        [0.0, 0.0, 1.0, 1.0],
        [0.841471, 0.010000, 0.540302, 0.999950],
        [0.909297, 0.019999, -0.416147, 0.999800],
    ],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_sinusoids_of_the_first_positions_are_those_of_a_table(name):
    np.testing.assert_allclose(encoding(name, 3, d_model=4), BY_HAND[name], atol=1e-6)


def test_far_positions_are_exact_enough_for_float32():
    angles = sinusoid_angles(jnp.array([511]), 512)[0]
    expected = 511 / 10000 ** (np.arange(0, 512, 2) / 512)
    np.testing.assert_allclose(np.sin(np.float64(angles)), np.sin(expected), atol=5e-4)


def test_learned_positions_end_with_their_table():
    model, variables = tiny_model(positions="learned", max_length=6)
    source, target, source_mask, target_mask = tiny_inputs()

    def shape(length):
        inputs = (source, target[:, :length], source_mask, target_mask[:, :length])
        return jax.eval_shape(model.apply, variables, *inputs).shape

    assert shape(6) == (3, 6, 23)
    with pytest.raises(UserError, match=r"7 tokens .*model\.max_length=6"):
        shape(7)
    with pytest.raises(UserError, match=r"7 tokens .*model\.max_length=6"):
        model.apply(variables, source, source_mask, 2, 7, method="init_cache")
