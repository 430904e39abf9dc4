"""A translation has at most `max_ratio` times the tokens of its source and `max_extra` more."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs import base
from tiny_models import tiny_config
from transformer.data.tokenizer import EOS_ID
from transformer.inference.search import BeamSearch
from transformer.inference.translator import Translator
from transformer.model.build import build_model


def make_model():
    return build_model(tiny_config(tied_embeddings="none", positions="sinusoidal"))


def test_the_limits_by_hand():
    decode = ConfigDict({"max_ratio": 1.5, "max_extra": 2})
    translator = SimpleNamespace(decode=decode, max_length=11)
    limits = [Translator._max_target_length(translator, length) for length in (3, 9, 1)]
    assert limits == [6, 11, 3]
    decode.update({"max_ratio": 0.0, "max_extra": 0})
    assert Translator._max_target_length(translator, 9) == 1


def test_a_translation_ends_at_its_own_limit_whatever_the_padding():
    model = make_model()
    sources = np.zeros((3, 9), np.int32)
    for row, length in enumerate((2, 4, 5)):
        sources[row, :length] = 5 + np.arange(length)
    tokens, mask = jnp.asarray(sources), jnp.asarray(sources != 0)
    variables = model.init(jax.random.key(0), tokens, tokens, mask, mask)
    # The logit of the end is zero, so that another token is always the most probable one.
    table = variables["params"]["output_embedding"]["table"]
    variables["params"]["output_embedding"]["table"] = table.at[EOS_ID].set(0.0)
    search = BeamSearch(model, base.get_config().decode)
    limits = np.array([5, 8, 9], np.int32)
    for length in (5, 9):
        found = search.search(variables, sources[:, :length], limits, 1, 20)
        assert [int(hypotheses.lengths[0]) for hypotheses in found] == [5, 8, 9]
