"""Positional encodings are those of section 3.5, and of them only the learned ones end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import tiny_inputs, tiny_model
from transformer.errors import UserError
from transformer.model.positions.additive import sinusoid_angles

pytestmark = pytest.mark.device

D = 22


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
