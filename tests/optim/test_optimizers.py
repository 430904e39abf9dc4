"""Optimizers are those of their papers, in loops in float64, and fit all that a run does."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from paper_loops import (
    BETA1,
    BETA2,
    EPSILON,
    MOMENTUM,
    PAPERS,
    RATES,
    SHAPES,
    adam,
    by_loop,
    draw,
    start,
)

import reference
from tiny_models import tiny_config
from transformer.model.stack import stacked_modules
from transformer.optim import OptimizerConfig
from transformer.optim.optimizers import make_optimizer
from transformer.optim.parameters import named_leaves
from variants import VARIANTS

pytestmark = pytest.mark.device

NAMES = ("adam", "adamw", "lion", "muon", "adafactor")
DECAY = 0.3


def nested(flat):
    """A tree of parameters, given one of names."""
    tree = {}
    for name, x in flat.items():
        *modules, last = name.split("/")
        inner = tree
        for module in modules:
            inner = inner.setdefault(module, {})
        inner[last] = x
    return tree


def gradients(n=5):
    return [draw(seed) for seed in range(1, n + 1)]


def as_float32(flat):
    return {name: jnp.asarray(x, jnp.float32) for name, x in flat.items()}


def config_of(name, accumulate=1, clip=0.0):
    limits = {"clip_norm": clip, "gradient_accumulation_steps": accumulate}
    return OptimizerConfig(name, BETA1, BETA2, EPSILON, MOMENTUM, **limits)


def make(name, accumulate=1, stacked=(), clip=0.0):
    return make_optimizer(config_of(name, accumulate, clip), stacked)


def ours(name, steps, decay=0.0, rates=RATES, clip=0.0, accumulate=1):
    """All parameters after each of the gradients, by name; every `accumulate`-th is due."""
    optimizer = make(name, accumulate, clip=clip)
    params = nested(as_float32(start()))
    state = optimizer.init(params)

    @jax.jit
    def advance(params, state, gradient, rate, due):
        numbers = {"learning_rate": rate, "weight_decay": decay, "weight": 1.0, "due": due}
        updates, state = optimizer.update(gradient, state, params, **numbers)
        return optax.apply_updates(params, updates), state

    history = []
    for n, (gradient, rate) in enumerate(zip(steps, rates, strict=False), start=1):
        due = 0 if n % accumulate else n // accumulate
        params, state = advance(params, state, nested(as_float32(gradient)), rate, due)
        history.append(dict(zip(sorted(SHAPES), jax.tree.leaves(params), strict=True)))
    return history


def distance(one, other):
    """The largest difference of any parameter at any time."""
    return max(
        np.abs(np.float64(a[name]) - b[name]).max()
        for a, b in zip(one, other, strict=True)
        for name in SHAPES
    )


@pytest.mark.parametrize("decay", [0.0, DECAY])
@pytest.mark.parametrize("name", NAMES)
def test_each_optimizer_is_a_loop_in_float64_and_decays_matrices(name, decay):
    history = ours(name, gradients(), decay)
    decay = 0.0 if name == "adam" else decay  # which does not decay
    assert distance(history, by_loop(gradients(), PAPERS[name], decay)) < 2e-5
    # Controls: other rates, another decay, or gradients in another order, end elsewhere.
    assert distance(history, by_loop(gradients(), PAPERS[name], decay, RATES[::-1])) > 0.01
    assert distance(history, by_loop(gradients(), PAPERS[name], decay + 0.1)) > 0.01
    assert distance(history, by_loop(gradients()[::-1], PAPERS[name], decay)) > 0.01


def norm(gradient):
    return np.sqrt(sum((x**2).sum() for x in gradient.values()))


def scaled(gradient, factor):
    return {name: factor * x for name, x in gradient.items()}


def shortened(gradient, longest):
    return scaled(gradient, min(1.0, longest / norm(gradient)))


def mean(gradients):
    return {name: sum(g[name] for g in gradients) / len(gradients) for name in SHAPES}


def test_long_gradients_are_shortened_together_and_short_ones_left():
    steps = gradients()
    clip = float(np.median([norm(step) for step in steps]))
    expected = by_loop([shortened(step, clip) for step in steps], adam)
    assert distance(ours("adam", steps, clip=clip), expected) < 1e-5
    assert distance(ours("adam", steps, clip=clip), by_loop(steps, adam)) > 1e-3  # control
    assert distance(ours("adam", steps, clip=0.0), by_loop(steps, adam)) < 1e-5  # never clips


def momenta(state):
    return [x for name, x in named_leaves(state).items() if "matrix" in name and "/mu/" in name]


@pytest.mark.parametrize("scan_layers", [False, True])
def test_muon_takes_all_kernels_of_a_model_and_nothing_else(scan_layers):
    config = tiny_config(**VARIANTS["talking heads"][0], scan_layers=scan_layers)
    params = reference.parameters(config)
    state = make("muon", stacked=stacked_modules(config)).init(params)
    kernels = [x for name, x in named_leaves(params).items() if name.endswith("kernel")]
    assert len(kernels) > 10
    expected = Counter(x.shape for x in kernels)
    assert {x.shape[1:]: len(x) for x in momenta(state)} == expected
    assert any("talk_scores" in name for name in named_leaves(params))
    wrong = make("muon", stacked=()).init(params)  # control: an axis of layers is one too many
    assert bool(momenta(wrong)) != scan_layers


@pytest.mark.parametrize("name", NAMES[2:])
def test_stacked_layers_are_updated_as_separate_ones(name):
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 5), "bias": (5,), "scale": ()}

    def layer():
        return {key: jnp.asarray(rng.normal(size=s), jnp.float32) for key, s in shapes.items()}

    def stack(trees):
        return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)

    @functools.cache
    def compiled(stacked):
        optimizer = make(name, stacked=stacked)
        return optimizer.init, jax.jit(optimizer.update)

    def step(params, gradients, stacked):
        init, update = compiled(stacked)
        state = init(params)
        for gradient in gradients:
            numbers = {"learning_rate": 0.1, "weight_decay": 0.5}
            updates, state = update(gradient, state, params, **numbers)
        return updates

    layers, all_gradients = [layer(), layer()], [[layer(), layer()] for _ in range(3)]
    apart = [
        step({"layers": own}, [{"layers": g[i]} for g in all_gradients], ())["layers"]
        for i, own in enumerate(layers)
    ]
    both = {"layers": stack(layers)}, [{"layers": stack(g)} for g in all_gradients]
    together = step(*both, ("layers",))["layers"]
    for key in shapes:
        np.testing.assert_allclose(together[key], stack(apart)[key], rtol=1e-5, atol=1e-6)
    mixed = step(*both, ())["layers"]  # control: the axis of layers taken for a parameter's
    assert any(not np.allclose(mixed[key], together[key], atol=1e-3) for key in shapes)


@pytest.mark.parametrize("name", NAMES)
def test_accumulated_gradients_are_one_clipped_update_with_their_mean(name):
    steps = gradients(6)
    means = [mean(steps[:3]), mean(steps[3:])]
    history = ours(name, steps, DECAY, [0.1] * 6, clip=1.0, accumulate=3)
    expected = ours(name, means, DECAY, [0.1] * 2, clip=1.0)
    assert distance(history[:2], [as_float32(start())] * 2) == 0.0
    assert distance(history[2::3], expected) < 2e-5
    assert distance(ours(name, steps, DECAY, [0.1] * 6)[2::3], expected) > 0.01  # control
