"""Dropout: what it drops, where it acts, and that it costs nothing without a rate."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import random, tiny_inputs, tiny_model
from transformer.model.layers import (
    NO_DROPOUT,
    Dropout,
    DropoutRates,
    FeedForward,
    LayerDrop,
    hash_uniform,
)

pytestmark = pytest.mark.device

B, L, D = 3, 7, 22
LARGE = (101, 997)  # elements for statistics: about 1e5
EACH_RATE = list(DropoutRates._fields)


def drop(x, rate, seed=0):
    return Dropout().apply({}, x, rate, rngs={"dropout": jax.random.key(seed)})


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_dropout_keeps_its_share_and_the_expectation(rate):
    out = np.asarray(drop(jnp.ones(LARGE), rate))
    kept = out != 0.0
    n = out.size
    assert abs(kept.mean() - (1 - rate)) < 4 * (rate * (1 - rate) / n) ** 0.5
    np.testing.assert_allclose(out[kept], 1 / (1 - rate), rtol=1e-6)
    assert abs(out.mean() - 1.0) < 4 * (rate / (1 - rate) / n) ** 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_of_rectified_numbers_is_that_after_relu_and_so_is_its_gradient(dtype):
    x = random(*LARGE).astype(dtype)

    def together(x):
        return Dropout(rectified=True).apply({}, x, 0.25, rngs={"dropout": jax.random.key(0)})

    expected, back_expected = jax.vjp(lambda x: drop(nn.relu(x), 0.25), x)
    found, back = jax.vjp(together, x)
    np.testing.assert_array_equal(found, expected)
    g = random(*LARGE, seed=1).astype(dtype)
    np.testing.assert_array_equal(back(g)[0], back_expected(g)[0])
    kept = [a for a in jax.tree.leaves(back) if a.size > 1]
    assert [(a.shape, a.dtype) for a in kept] == [(x.shape, x.dtype)]
    assert np.isnan(together(x.at[3, 5].set(jnp.nan))[3, 5]) or found[3, 5] == 0
    assert np.isnan(Dropout(rectified=True).apply({}, jnp.array([jnp.nan]), 0.0)).all()


def test_other_keys_and_other_modules_drop_other_elements():
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Dropout()(x, 0.5), Dropout()(x, 0.5)

    x = jnp.ones(LARGE)
    one, two = Twice().apply({}, x, rngs={"dropout": jax.random.key(0)})
    for other in (two, Twice().apply({}, x, rngs={"dropout": jax.random.key(1)})[0]):
        agree = np.mean((one == 0) == (other == 0))
        assert abs(agree - 0.5) < 4 * 0.5 / x.size**0.5
    again, _ = Twice().apply({}, x, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(one, again)


def correlations(uniform):
    """Of neighbours along each axis, two apart, and of the diagonal."""
    u = np.asarray(uniform) - 0.5
    pairs = [
        (u[1:], u[:-1]),
        (u[:, 1:], u[:, :-1]),
        (u[:, 2:], u[:, :-2]),
        (u[1:, 1:], u[:-1, :-1]),
    ]
    return [np.mean(a * b) * 12 for a, b in pairs]


def test_neighbouring_elements_and_rows_drop_independently():
    bound = 4 / (LARGE[0] * LARGE[1]) ** 0.5
    for seed in range(3):
        uniform = hash_uniform(jax.random.bits(jax.random.key(seed), (2,)), LARGE)
        assert 0 <= uniform.min() < 1e-3
        assert 1 - 1e-3 < uniform.max() < 1
        counts = np.histogram(uniform, bins=64, range=(0, 1))[0]
        expected = uniform.size / 64
        assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * (2 * 63) ** 0.5  # chi squared
        assert np.abs(correlations(uniform)).max() < bound
    # Control: numbers that go up with the index.
    ramp = jnp.linspace(0, 1, LARGE[0] * LARGE[1]).reshape(LARGE)
    assert np.abs(correlations(ramp)).max() > bound


def test_whole_vectors_are_dropped_or_scaled_up():
    x = random(50, 97, 5)
    rngs = {"dropout": jax.random.key(0)}
    dropped = Dropout(whole=True).apply({}, x, jnp.float32(0.3), rngs=rngs)
    kept = np.any(dropped != 0, axis=-1)
    np.testing.assert_allclose(dropped, np.where(kept[..., None], x / 0.7, 0.0), rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 4 * (0.7 * 0.3 / kept.size) ** 0.5
    assert 0 < kept[0].sum() < 97  # of each text its own
    assert not np.array_equal(kept[0], kept[1])
    single = drop(x, 0.3)  # control: numbers of a vector by themselves
    assert np.any((single == 0) & np.any(single != 0, axis=-1, keepdims=True))


# --- the four dropouts of the model


@pytest.fixture(scope="module")
def training():
    """The model's logits with given rates, in one compiled program, and without any."""
    model, variables = tiny_model(num_encoder_layers=1, num_decoder_layers=1)
    inputs = tiny_inputs()

    @jax.jit
    def run(rates, seed):
        rngs = {"dropout": jax.random.key(seed)}
        return model.apply(variables, *inputs, rates, rngs=rngs)

    return run, model.apply(variables, *inputs), model, variables, inputs


def only(name, rate=0.5):
    return DropoutRates(**{field: rate if field == name else 0.0 for field in EACH_RATE})


UNITS = [name for name in EACH_RATE if name != "layer"]  # a layer has a test of its own


@pytest.mark.full
def test_rates_of_zero_change_nothing(training):
    run, plain, model, variables, inputs = training
    np.testing.assert_allclose(
        run(DropoutRates(*[0.0] * len(EACH_RATE)), 0), plain, rtol=1e-5, atol=1e-5
    )
    # As Python numbers they need no random numbers, and leave the very same program.
    static = jax.make_jaxpr(lambda v: model.apply(v, *inputs, DropoutRates()))(variables)
    none = jax.make_jaxpr(lambda v: model.apply(v, *inputs))(variables)
    assert str(static) == str(none)
    some = jax.make_jaxpr(
        lambda v: model.apply(
            v, *inputs, DropoutRates(embedding=0.1), rngs={"dropout": jax.random.key(0)}
        )
    )(variables)
    assert str(some) != str(none)


# Calls of Dropout with a rate in a model of one encoder and one decoder layer, by the paper's
# figure 1: embeddings 2; sub-layers 2 + 3; attentions 1 + 2; feed-forward 2. The tokens of 3 texts
# are 15 and 21 where they are on one axis.
SITES = {
    "embedding": {(3, 5, 22): 1, (3, 7, 22): 1},
    "residual": {(15, 22): 2, (21, 22): 3},
    "attention": {(3, 2, 5, 5): 1, (3, 2, 7, 7): 1, (3, 2, 7, 5): 1},
    "activation": {(15, 13): 1, (21, 13): 1},
    "word": {(3, 5, 22): 1, (3, 7, 22): 1},
}


@pytest.mark.parametrize("name", UNITS)
def test_each_dropout_acts_at_its_own_places(training, name):
    *_, model, variables, inputs = training
    seen = {}

    def spy(next_call, args, kwargs, context):
        if isinstance(context.module, Dropout) and args[1] != 0.0:
            seen[args[0].shape] = seen.get(args[0].shape, 0) + 1
        return next_call(*args, **kwargs)

    def run(variables):
        return model.apply(variables, *inputs, only(name), rngs={"dropout": jax.random.key(0)})

    with nn.intercept_methods(spy):
        jax.eval_shape(run, variables)
    assert seen == SITES[name]


def test_a_dropped_layer_hands_on_what_it_got_and_a_kept_one_what_it_made():
    before, after = jnp.zeros((2, 3, 5)), jnp.ones((2, 3, 5))

    @jax.jit
    def drop(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return LayerDrop().apply({}, before, after, jnp.float32(0.3), rngs=rngs)

    outs = np.array([drop(seed) for seed in range(200)])
    kept = outs.reshape(200, -1).mean(axis=1)
    assert set(kept) == {0.0, 1.0}  # whole, and not scaled up
    assert abs(kept.mean() - 0.7) < 4 * (0.7 * 0.3 / 200) ** 0.5
    assert LayerDrop().apply({}, before, after, NO_DROPOUT.layer) is after


def test_dropping_all_layers_leaves_the_embeddings(training):
    *_, model, variables, inputs = training
    rates = DropoutRates(layer=jnp.float32(1.0))
    rngs = {"dropout": jax.random.key(0)}
    dropped = model.apply(variables, *inputs, rates, rngs=rngs, method="features")
    params = reference.float64(variables["params"])
    table = params["target_embedding"]["table"]
    expected = reference.embed(params, "decoder", table, np.asarray(inputs.target[0]), model.config)
    np.testing.assert_allclose(dropped[0], expected, rtol=1e-5, atol=1e-5)


def test_layers_are_traced_once_and_each_drops_on_its_own():
    """Otherwise one mask would be that of all layers: two outputs, not one for each subset."""
    model, variables = tiny_model(num_encoder_layers=3)
    source, mask = tiny_inputs().source, tiny_inputs().source_mask
    traced = []

    def spy(next_call, args, kwargs, context):
        traced.extend([context.module] * isinstance(context.module, FeedForward))
        return next_call(*args, **kwargs)

    @jax.jit
    def run(seed):
        rates, rngs = DropoutRates(layer=jnp.float32(0.5)), {"dropout": jax.random.key(seed)}
        return model.apply(variables, source, mask, rates, rngs=rngs, method="encode")

    with nn.intercept_methods(spy):
        outs = [run(seed) for seed in range(100)]
        assert len(traced) == 1
        model.apply(variables, source, mask, method="encode")  # control: in no program
        assert len(traced) == 1 + 3
    assert len({np.asarray(out).tobytes() for out in outs}) == 2**3
