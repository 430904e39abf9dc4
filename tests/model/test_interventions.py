"""Interventions change what the equations say they change, and nothing else."""

import jax
import numpy as np
import pytest
from test_stepwise import full_pass, search
from test_transformer import by_loops, leaks

import reference
from tiny_models import holey_inputs, tiny_inputs, tiny_model
from transformer.model.interventions import ATTENTIONS, Change, depth_of, variables
from variants import EACH_VALUE, MODELS, VARIANTS, full_but

B, M, L = 3, 5, 7
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
VECTORS = [
    ("encoder_layers", "self_attention_residual", "sublayer"),
    ("encoder_layers", "feed_forward_residual", "stream"),
    ("decoder_layers", "self_attention_residual", "stream"),
    ("decoder_layers", "cross_attention_residual", "sublayer"),
    ("decoder_layers", "feed_forward_residual", "sublayer"),
]
EMBEDDINGS = [("encoder_embedding",), ("decoder_embedding",)]
PLACES = [(*names, place) for names in ATTENTIONS.values() for place in ("weights", "heads")]
PLACES += VECTORS + EMBEDDINGS


def draw(config, places=PLACES):
    """Random changes of all positions of these places, in every layer."""
    random, heads, changes = np.random.default_rng(0), config.num_heads, {}
    for stack, *path in places:
        length = M if stack.startswith("encoder") else L
        keys = M if path[:1] == ["cross_attention"] else length
        shapes = {
            "weights": [(1, heads, length, keys), (1, heads, length, 1), (1, heads, length, keys)],
            "heads": [(1, length, heads, 1)] * 2 + [(1, length, heads, config.head_width)],
        }
        vector = [(1, length, 1)] * 2 + [(1, length, config.d_model)]
        depth = depth_of(stack, config) if path else 1
        sizes = shapes.get((stack, *path)[-1], vector)
        by_layer = {n: Change(*(random.normal(size=x) for x in sizes)) for n in range(depth)}
        changes[stack, *path] = by_layer if path else by_layer[0]
    return changes


def by_equation(changes, config):
    """The function `change` of the reference for these changes."""

    def change(place, layer, x, *at):
        if place not in changes:
            return x
        of_place = changes[place]
        if not isinstance(of_place, Change):
            of_place = of_place[0 if config.share_layers else layer]
        scale, amount, value = (array[0] for array in of_place)
        if not at:
            shape = (len(x), config.num_heads, -1) if place[-1] == "heads" else x.shape
            y = scale * x.reshape(shape) + amount * value
            return y.reshape(x.shape)
        i, keys = at
        logits = np.array([reference.softmax(row) for row in value[:, i, keys]])
        return scale[:, i, keys] * x + amount[:, i] * logits

    return change


def changed(name, places=PLACES):
    model, own = tiny_model(**name)
    places = [p for p in places if model.config.has_encoder or "cross" not in p[1:2]]
    changes = draw(model.config, places)
    return model, {**own, "interventions": variables(changes, model.config)}, changes


@pytest.mark.parametrize("name", full_but(["rotary", "scanned"], MODELS))
def test_changes_of_all_places_equal_the_equations_in_float64(name):
    model, own, changes = changed(MODELS[name])
    inputs, change = tiny_inputs(), by_equation(changes, model.config)
    logits = jax.jit(model.apply)(own, *inputs)
    expected = by_loops(own["params"], inputs, model.config, change)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=2e-5)
    assert np.abs(expected - by_loops(own["params"], inputs, model.config)).max() > 0.1


@pytest.mark.parametrize("place", full_but(PLACES[:2], PLACES), ids="-".join)
def test_a_change_of_one_place_equals_the_equations_and_hides_what_masks_hide(place):
    model, own, changes = changed(SMALL, [place])
    logits = jax.jit(model.apply)(own, *tiny_inputs())
    expected = by_loops(
        own["params"], tiny_inputs(), model.config, by_equation(changes, model.config)
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-6, atol=1e-5)
    # All rows attend, and no position is without gradient of itself: see `leaks`.
    half = {p: {0: Change(0.5, 0.5 * (p[-1] == "weights"))} for p in [place] if len(p) > 1}
    half = half or {place: Change(0.5)}
    own = {**own, "interventions": variables(half, model.config)}
    assert leaks(model, own, holey_inputs()) == set()


@pytest.mark.parametrize(
    "fields",
    [*full_but(EACH_VALUE[:1], EACH_VALUE), {}],
    ids=lambda f: "-".join(map(str, f.values())),
)
def test_steps_of_decoding_have_the_changes_of_their_positions(fields):
    model, own, _ = changed({"num_encoder_layers": 1, **fields})
    logits, histories = search(model, own, lambda cache, parents: cache.reorder(parents))
    np.testing.assert_allclose(logits, full_pass(model, own, histories), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", full_but(["rotary"], VARIANTS))
def test_the_change_to_the_same_value_changes_no_bit(name):
    """Without a compiler, which fuses the products differently."""
    model, own = tiny_model(**{**SMALL, **MODELS[name]})
    places = [p for p in PLACES if model.config.has_encoder or "cross" not in p[1:2]]
    same = {p: {0: Change()} if len(p) > 1 else Change() for p in places}
    ours = model.apply({**own, "interventions": variables(same, model.config)}, *tiny_inputs())
    np.testing.assert_array_equal(ours, model.apply(own, *tiny_inputs()))


def test_a_model_without_interventions_has_the_program_of_one_without_places(monkeypatch):
    model, own = tiny_model(**SMALL)

    def program(own):
        return jax.jit(lambda *x: model.apply(*x)).lower(own, *tiny_inputs()).as_text()

    before = program(own)
    for module in ("attention", "layers", "transformer"):
        name = f"transformer.model.{module}.intervene"
        monkeypatch.setattr(name, lambda module, place, x, *others: x)
    assert program(own) == before
    monkeypatch.undo()
    same = variables({("encoder_embedding",): Change(2.0)}, model.config)
    assert program({**own, "interventions": same}) != before  # control
