"""A translation has at most `max_ratio` times the tokens of its source and `max_extra` more."""

import jax
import jax.numpy as jnp
import numpy as np

from configs import base
from tiny_models import tiny_config
from transformer.data.tokenizer import EOS_ID
from transformer.inference.search import BeamSearch
from transformer.model.build import build_model


def make_model():
    return build_model(tiny_config(tied_embeddings="none", positions="sinusoidal"))


def make_search(model=None, **changes) -> BeamSearch:
    decode = base.get_config().decode
    decode.update({"max_ratio": 1.5, "max_extra": 2, **changes})
    return BeamSearch(model or make_model(), decode)


def test_the_limits_by_hand():
    limits = make_search().max_lengths(jnp.array([0, 3, 9, 1]), 11)
    assert limits.tolist() == [0, 6, 11, 3]
    other = make_search(max_ratio=0.0, max_extra=0).max_lengths(jnp.array([0, 3, 9, 1]), 11)
    assert other.tolist() == [0, 1, 1, 1]


def test_the_limit_of_a_translation_is_that_of_its_own_source_whatever_the_padding():
    model = make_model()
    sources = np.zeros((3, 9), np.int32)
    for row, length in enumerate((2, 4, 5)):
        sources[row, :length] = 5 + np.arange(length)
    tokens, mask = jnp.asarray(sources), jnp.asarray(sources != 0)
    variables = model.init(jax.random.key(0), tokens, tokens, mask, mask)
    # The logit of the end is zero, so that another token is always the most probable one.
    table = variables["params"]["output_embedding"]["table"]
    variables["params"]["output_embedding"]["table"] = table.at[EOS_ID].set(0.0)
    search = make_search(model)
    for length in (5, 9):
        found = search.search(variables, sources[:, :length], 1, 20)
        assert [int(hypotheses.lengths[0]) for hypotheses in found] == [5, 8, 9]
