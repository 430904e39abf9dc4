"""Decoding a token at a time with a cache gives the logits of the full pass, whoever's history."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import tiny_config, tiny_inputs, tiny_model
from transformer.model.positions.registry import fitting_names
from variants import full_but

pytestmark = pytest.mark.device

B, P, STEPS, V = 3, 4, 5, 23


@functools.lru_cache(4)
def programs(model):
    """The three of a model: the cache's start, a step, and the full pass."""
    start = jax.jit(functools.partial(model.apply, method="init_cache"), static_argnums=(3, 4))
    one_step = jax.jit(functools.partial(model.apply, method="decode_step"))
    return start, one_step, jax.jit(model.apply)


def search(model, variables, reorder):
    """Random tokens and parents. Returns the logits [STEPS, B, P, V] and each one's own history."""
    rng = np.random.default_rng(0)
    source, _, source_mask, _ = tiny_inputs()
    start, one_step, _ = programs(model)
    # Room for more steps than are done: what is still empty must not be read.
    cache = start(variables, source, source_mask, P, STEPS + 4)
    histories = np.zeros((B, P, 0), int)
    logits, all_histories = [], []
    for step in range(STEPS):
        if step:
            parents = rng.integers(P, size=(B, P))
            histories = np.take_along_axis(histories, parents[:, :, None], axis=1)
            cache = reorder(cache, jnp.asarray(parents))
        tokens = rng.integers(V, size=(B, P))
        histories = np.concatenate([histories, tokens[:, :, None]], axis=2)
        out, cache = one_step(variables, jnp.asarray(tokens), cache)
        logits.append(out)
        all_histories.append(np.pad(histories, [(0, 0), (0, 0), (0, STEPS - step - 1)]))
    return np.array(logits), np.array(all_histories)


def full_pass(model, variables, histories):
    """The logits after the last token of each history, each as a target of its own."""
    source, _, source_mask, _ = tiny_inputs()
    target = jnp.asarray(histories.reshape(-1, STEPS))

    def each(x):
        return jnp.tile(jnp.repeat(x, P, axis=0), (STEPS, 1))

    mask = jnp.ones(target.shape, bool)
    _, _, apply = programs(model)
    logits = apply(variables, each(source), target, each(source_mask), mask)
    logits = np.asarray(logits).reshape(STEPS, B, P, STEPS, V)
    return np.array([logits[step, :, :, step] for step in range(STEPS)])


@pytest.mark.parametrize(
    "positions", full_but(("rotary", "relative_shaw", "alibi"), fitting_names(tiny_config()))
)
def test_stepwise_logits_are_the_full_passs_on_each_hypothesis_own_history(positions):
    # What is read of the encoder is its output: one layer will do.
    model, variables = tiny_model(num_encoder_layers=1, positions=positions)
    logits, histories = search(model, variables, lambda cache, parents: cache.reorder(parents))
    np.testing.assert_allclose(logits, full_pass(model, variables, histories), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda cache, parents: cache,
        lambda cache, parents: cache.reorder(parents[::-1]),
        lambda cache, parents: cache.reorder(parents).replace(index=cache.index - 1),
    ],
    ids=["never reordered", "other parents", "a step behind"],
)
def test_the_comparison_sees_a_cache_that_is_wrong(wrong):
    model, variables = tiny_model(num_encoder_layers=1)
    logits, histories = search(model, variables, wrong)
    difference = np.abs(logits - full_pass(model, variables, histories))
    np.testing.assert_allclose(difference[0], 0.0, atol=1e-5)  # before anything is reordered
    assert (difference[2:].max(axis=(1, 2, 3)) > 0.01).all()


@pytest.mark.full
def test_a_cache_that_grows_is_one_that_had_the_room_from_the_start():
    model, variables = tiny_model(num_encoder_layers=1)
    source, _, source_mask, _ = tiny_inputs()
    start, one_step, _ = programs(model)

    def after_a_step(room):
        cache = start(variables, source, source_mask, P, room)
        return one_step(variables, jnp.arange(B * P).reshape(B, P), cache)[1]

    small, large = after_a_step(2), after_a_step(STEPS)
    leaves = (jax.tree.leaves(cache) for cache in (small.grow(STEPS), large))
    for grown, expected in zip(*leaves, strict=True):
        np.testing.assert_array_equal(grown, expected)
    assert small.layers[0].keys.shape != large.layers[0].keys.shape  # control
