"""A configuration that describes no model is refused, with the value and the choices."""

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from tiny_models import TINY, tiny_config
from transformer.errors import UserError
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
NEEDS = {  # what some choices need of other fields
    "flash": {"dtype": "bfloat16", "head_size": 8},
    "grid_sinusoidal": {"patch_size": 2, "d_model": 24},
    "grid_rotary": {"patch_size": 2, "head_size": 8},
    "grid_bias": {"patch_size": 2},
}


def message(**changes) -> str:
    with pytest.raises(UserError) as error:
        build.build_model(tiny_config(**changes))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_heads_that_do_not_divide_the_width_are_named_with_those_that_do():
    text = message(num_heads=5)
    assert "num_heads=5" in text
    assert "d_model=22" in text
    assert "choose one of 1, 2, 11, 22, or set model.head_size" in text
    assert build.build_model(tiny_config(num_heads=5, head_size=7)).config.head_width == 7


@pytest.mark.parametrize("field", CHOICES)
def test_an_unknown_name_is_named_with_all_choices(field):
    text = message(**{field: "quux"})
    assert f"model.{field}='quux'" in text
    for choice in CHOICES[field]:
        assert choice in text


@pytest.mark.parametrize(("field", "choice"), [(f, c) for f, cs in CHOICES.items() for c in cs])
def test_every_choice_the_error_offers_is_accepted(field, choice):
    changes = {field: choice} | NEEDS.get(choice, {})
    assert getattr(build.build_model(tiny_config(**changes)).config, field) == choice


def test_one_table_for_two_vocabularies_is_refused():
    changes = {"tied_embeddings": "all", "source_vocab_size": 17, "target_vocab_size": 23}
    text = message(**changes)
    assert "tied_embeddings='all'" in text
    assert "tied_embeddings='decoder'" in text
    tiny_config(**{**changes, "source_vocab_size": 23})
    tiny_config(**{**changes, "tied_embeddings": "decoder"})


MAY_BE_ZERO = (
    "head_size",
    "patch_size",
    "num_kv_heads",
    "num_encoder_layers",
    "num_decoder_layers",
)
SIZES = [name for name, value in TINY.items() if type(value) is int and name not in MAY_BE_ZERO]


@pytest.mark.parametrize("field", SIZES)
def test_a_size_below_one_is_refused(field):
    changes = {"positions": "relative_bias"} if field == "bias_buckets" else {}
    assert f"model.{field}" in message(**{field: 0, **changes})


@pytest.mark.parametrize("field", ["num_encoder_layers", "num_decoder_layers"])
@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_a_model_may_lack_one_side_but_not_both(kind, field):
    assert getattr(tiny_config(architecture=kind, **{field: 0}), field) == 0
    assert f"model.{field}=-1" in message(architecture=kind, **{field: -1})
    assert "both 0" in message(architecture="recurrent", num_encoder_layers=0, num_decoder_layers=0)


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


def test_the_two_directions_of_an_encoder_need_an_even_width():
    text = message(architecture="recurrent", d_model=21)
    assert "d_model=21" in text
    assert "direction" in text
    # The control: there are no directions without an encoder.
    build.build_model(tiny_config(architecture="recurrent", d_model=21, num_encoder_layers=0))


def test_key_heads_that_do_not_divide_the_heads_are_named_with_those_that_do():
    text = message(num_heads=6, head_size=3, num_kv_heads=4)
    assert "model.num_kv_heads=4" in text
    assert text.endswith("1, 2, 3, 6")


def test_a_sum_of_encodings_is_checked_name_by_name():
    assert tiny_config(positions="sinusoidal+alibi").positions == "sinusoidal+alibi"
    assert "'quux'" in message(positions="sinusoidal+quux")
    assert "model.decoder_positions='quux'" in message(decoder_positions="quux")


def test_encodings_of_an_attention_that_is_not_there_neither_limit_nor_refuse():
    learned = {"positions": "learned", "decoder_positions": "alibi", "max_length": 3}
    rotary = {"encoder_positions": "rotary", "cross_positions": "rotary", "head_size": 7}
    alone = tiny_config(**learned | rotary, num_encoder_layers=0)
    assert build.build_model(alone).max_positions is None
    # The control: with an encoder they do both.
    assert build.build_model(tiny_config(**learned)).max_positions == 3
    assert "model.encoder_positions='rotary'" in message(**rotary)
    # A misspelt name is refused all the same.
    assert "'quux'" in message(encoder_positions="quux", num_encoder_layers=0)


def test_what_acts_on_embeddings_cannot_act_between_two_sequences():
    assert "model.cross_positions='alibi+split'" in message(cross_positions="alibi+split")
    assert tiny_config(cross_positions="alibi").cross_positions == "alibi"


def test_fewer_buckets_than_a_side_needs_are_refused():
    text = message(positions="relative_bias", bias_buckets=11)
    assert "model.bias_buckets=11" in text
    assert "model.bias_distance=11" in text


@pytest.mark.parametrize("positions", ["sinusoidal", "alibi+split"])
def test_sines_and_cosines_need_an_even_width(positions):
    text = message(d_model=21, num_heads=3, positions=positions)
    assert f"model.positions='{positions}'" in text
    assert "model.d_model=21" in text
    # The control: other encodings take it.
    build.build_model(tiny_config(d_model=21, num_heads=3, positions="learned"))


def test_shapes_in_signatures_are_checked_while_these_tests_run():
    mask, there = np.ones((3, 5), bool), jnp.arange(5)
    assert padding_mask(look_ahead_mask(there, there)[0, 0]).shape == (5, 1, 1, 5)
    with pytest.raises(jaxtyping.TypeCheckError):
        padding_mask(look_ahead_mask(there, there))  # four axes for two
    with pytest.raises(jaxtyping.TypeCheckError):
        padding_mask(mask)  # NumPy's array, where one of jax is promised
