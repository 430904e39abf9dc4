"""A language model reads packed documents as if each stood alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.model.layers import NO_DROPOUT
from transformer.model.positions.registry import fitting_names
from variants import full_but

B, L, P, V = 3, 7, 2, 23
ALONE = {"num_encoder_layers": 0}
# Documents of 3, 2 and 2 tokens; of 1 and 6; of 5, and two places of padding.
SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 3, 3], [1, 2, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
KINDS = [
    *({"positions": name} for name in fitting_names(tiny_config())),
    {"tied_embeddings": "all", "norm_position": "pre"},
    {"scan_layers": True, "num_kv_heads": 1},
]
FEW = [KINDS[0], {"positions": "rotary"}, {"positions": "relative_shaw"}, KINDS[-1]]


def logits(model, variables, tokens, mask, segments=None):
    @jax.jit
    def compute(variables, tokens, mask, segments):
        arguments = tokens, None, None, mask, NO_DROPOUT, segments
        features = model.apply(variables, *arguments, method="decode")
        return model.apply(variables, features, method="logits")

    return compute(variables, tokens, mask, segments)


@pytest.mark.parametrize("kind", full_but(FEW, KINDS), ids=str)
def test_packed_documents_are_read_as_if_each_stood_alone(kind):
    model, variables = tiny_model(**ALONE, **kind)
    target, places = tiny_inputs().target, np.asarray(SEGMENTS)
    documents = [(row, places[row] == n) for row in range(B) for n in set(places[row]) - {0}]
    # Each in a row of its own, which padding fills up.
    rows, masks = np.zeros((2, len(documents), L), int)
    for n, (row, own) in enumerate(documents):
        rows[n, : own.sum()] = target[row, own]
        masks[n, : own.sum()] = 1
    packed = logits(model, variables, target, SEGMENTS > 0, SEGMENTS)
    alone = logits(model, variables, jnp.asarray(rows), jnp.asarray(masks > 0))
    for n, (row, own) in enumerate(documents):
        np.testing.assert_allclose(packed[row, own], alone[n, masks[n] > 0], rtol=1e-4, atol=1e-5)
