"""A configuration that describes no model is refused, with the value and the choices."""

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from source_settings import refused
from tiny_models import tiny_config
from transformer.model import build, layers
from transformer.model.config import (
    ATTENTION_IMPLEMENTATIONS,
    DTYPES,
    NORM_POSITIONS,
    NORMS,
    QUERY_KEY_NORMS,
    TIED_EMBEDDINGS,
)
from transformer.model.masks import look_ahead_mask, padding_mask
from transformer.model.positions import registry
from transformer.model.recurrent import attention, cells

CHOICES = {
    "architecture": build.REGISTRY,
    "cell": cells.REGISTRY,
    "recurrent_attention": attention.REGISTRY,
    "positions": registry.REGISTRY,
    "activation": layers.ACTIVATIONS,
    "norm": NORMS,
    "norm_position": NORM_POSITIONS,
    "query_key_norm": QUERY_KEY_NORMS,
    "attention_implementation": ATTENTION_IMPLEMENTATIONS,
    "tied_embeddings": TIED_EMBEDDINGS,
    "dtype": DTYPES,
    "matmul_dtype": DTYPES,
}


# Fields of a model that is refused, what the line says, and fields with which it is accepted.
REFUSED = [
    ({"num_heads": 5}, "num_heads=5 does not divide model.d_model=22", {"head_size": 7}),
    ({"num_heads": 6, "head_size": 3, "num_kv_heads": 4}, "num_kv_heads=4", {"num_kv_heads": 3}),
    ({"d_ff": 0}, "d_ff=0 is out of range: it must be from 1", {"d_ff": 1}),
    ({"num_encoder_layers": 0, "num_decoder_layers": 0}, "both 0", {"num_decoder_layers": 1}),
    (
        {"tied_embeddings": "all", "source_vocab_size": 17},
        "tied_embeddings='all' needs one vocabulary",
        {"tied_embeddings": "decoder"},
    ),
    (
        {"architecture": "recurrent", "d_model": 21},
        "model.d_model=21 must be even: each direction",
        {"num_encoder_layers": 0},
    ),
    ({"positions": "sinusoidal+quux"}, "positions='quux'", {"positions": "sinusoidal+alibi"}),
    (
        {"cross_positions": "alibi+split"},
        "cross_positions='alibi+split'",
        {"cross_positions": "alibi"},
    ),
    (
        {"d_model": 21, "num_heads": 3, "positions": "alibi+split"},
        "positions='alibi+split' pairs sines with cosines: model.d_model=21",
        {"positions": "learned"},
    ),
    (
        {"positions": "relative_bias", "bias_buckets": 11},
        "bias_buckets=11 must be less than model.bias_distance=11",
        {"bias_distance": 12},
    ),
    ({"encoder_positions": "rotary", "head_size": 7}, "'rotary'", {"num_encoder_layers": 0}),
]


@pytest.mark.parametrize(("changes", "says", "others"), REFUSED)
def test_an_invalid_model_is_refused_and_a_similar_valid_one_is_accepted(changes, says, others):
    with refused(says):
        build.build_model(tiny_config(**changes))
    build.build_model(tiny_config(**changes | others))


@pytest.mark.parametrize("field", CHOICES)
def test_an_unknown_name_is_named_with_all_choices(field):
    with refused(f"model.{field}='quux'", *CHOICES[field]):
        build.build_model(tiny_config(**{field: "quux"}))


def test_a_recurrent_model_has_no_heads_or_positions_to_check():
    changes = {"num_heads": 5, "positions": "learned", "max_length": 3}
    assert build.build_model(tiny_config(architecture="recurrent", **changes)).max_positions is None
    assert build.build_model(tiny_config(**changes | {"num_heads": 2})).max_positions == 3


def test_heads_and_cross_attention_are_those_of_the_architecture():
    for changes, heads, cross in (
        ({}, True, True),
        ({"num_encoder_layers": 0}, True, False),
        ({"architecture": "recurrent"}, False, True),
        ({"architecture": "recurrent", "recurrent_attention": "none"}, False, False),
        ({"architecture": "recurrent", "num_encoder_layers": 0}, False, False),
        ({"architecture": "bag_of_embeddings"}, False, False),
    ):
        config = tiny_config(**changes)
        assert (build.has_heads(config), build.has_cross_attention(config)) == (heads, cross)


def test_shapes_in_signatures_are_checked_while_these_tests_run():
    mask, there = np.ones((3, 5), bool), jnp.arange(5)
    assert padding_mask(look_ahead_mask(there, there)[0, 0]).shape == (5, 1, 1, 5)
    with pytest.raises(jaxtyping.TypeCheckError):
        padding_mask(look_ahead_mask(there, there))  # four axes for two
    with pytest.raises(jaxtyping.TypeCheckError):
        padding_mask(mask)  # NumPy's array, where one of jax is promised
