"""Schedules and optimizers are those of their papers, on numbers worked out by hand or in loops."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from places import ROOT
from transformer.optim.optimizers import make_optimizer
from transformer.optim.schedules import (
    FALLING,
    SCHEDULES,
    describe_unusual_peak,
    learning_rate,
    remaining_rate,
)

CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem != "__init__")
# d_model 16, factor or peak 2, warmup 4, 20 updates in all, of which wsd's last 10 decay.
HPARAMS = {"learning_rate": 2.0, "warmup_steps": 4, "total_steps": 20, "decay_fraction": 0.5}
BY_HAND = {
    # 2 * 16^-.5 = .5, times min(step^-.5, step / 8): step 4 is the peak, .5 * 4^-.5.
    "noam": {1: 0.0625, 2: 0.125, 4: 0.25, 16: 0.125, 64: 0.0625},
    "inverse_sqrt": {1: 0.5, 2: 1.0, 4: 2.0, 16: 1.0, 64: 0.5},
    # (1 + cos(pi p)) / 2 of the peak, p from 0 at 4 to 1 at 20: a third of the way is cos 60°.
    "cosine": {1: 0.5, 2: 1.0, 4: 2.0, 8: 1.0 + 0.5**0.5, 12: 1.0, 16: 1.0 - 0.5**0.5, 20: 0.0,
               25: 0.0},
    # Down by 2 / 16 with each update.
    "linear": {1: 0.5, 2: 1.0, 4: 2.0, 5: 1.875, 12: 1.0, 19: 0.125, 20: 0.0, 25: 0.0},
    # 1 - sqrt(p) of the peak, p from 0 at 10 to 1 at 20.
    "wsd": {1: 0.5, 4: 2.0, 10: 2.0, 12: 2.0 - 2.0 * 0.2**0.5, 19: 2.0 - 2.0 * 0.9**0.5, 20: 0.0,
            25: 0.0},
    "constant": {1: 0.5, 2: 1.0, 4: 2.0, 5: 2.0, 64: 2.0},
}  # fmt: skip


def rates(name, updates, **changes):
    hparams = {**HPARAMS, **changes}
    return np.array([float(learning_rate(name, n, hparams, 16)) for n in updates])


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_worked_out_by_hand(name):
    updates = list(BY_HAND[name])
    by_hand = list(BY_HAND[name].values())
    np.testing.assert_allclose(rates(name, updates), by_hand, rtol=1e-5, atol=1e-6)
    # Controls: one update off, or a slower warmup, is something else.
    assert np.abs(rates(name, [n + 1 for n in updates]) - by_hand).max() > 0.01
    assert np.abs(rates(name, updates, warmup_steps=8) - by_hand).max() > 0.01


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_to_a_peak_at_the_end_of_warmup(name):
    values = rates(name, range(1, 65))
    assert np.argmax(values) == 4 - 1
    np.testing.assert_allclose(np.diff(values[:4]), values[0], rtol=1e-5)
    assert (np.diff(values[3:]) <= 1e-6).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rest_of_a_rate_that_falls_to_zero_is_a_fraction_of_its_peak(name):
    falls = rates(name, [20])[0] < 1e-6
    assert (name in FALLING) == falls
    for update, rate in BY_HAND[name].items():
        expected = rate / 2.0 if falls else 0.0
        assert remaining_rate(name, update, HPARAMS) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("fraction", "by_hand"),
    [
        (0.0, {2: 1.0, 19: 2.0, 20: 2.0}),
        (1.0, {2: 1.0, 5: 1.0, 20: 0.0}),
        (0.25, {15: 2.0, 20: 0.0}),
    ],
)
def test_the_fraction_of_wsd_that_decays_may_be_none_or_all(fraction, by_hand):
    values = rates("wsd", list(by_hand), decay_fraction=fraction)
    np.testing.assert_allclose(values, list(by_hand.values()), atol=1e-6)


def test_the_papers_base_model_peaks_at_7e_4():
    # 512^-.5 * 4000^-.5 = 1 / sqrt(2048000)
    hparams = {"learning_rate": 1.0, "warmup_steps": 4000}
    peak = learning_rate("noam", 4000, hparams, 512)
    np.testing.assert_allclose(peak, 6.98771e-4, rtol=1e-5)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_no_config_that_comes_with_this_has_an_unusual_peak(path):
    config = importlib.import_module(f"configs.{path.stem}").get_config()
    for width in (config.model.d_model, config.model.bag_of_embeddings_width):
        assert describe_unusual_peak(config.optimizer, width) == ""


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_warmup_starts_at_the_peak_and_is_finite(name):
    values = rates(name, range(1, 30), warmup_steps=0)
    assert np.isfinite(values).all()
    assert np.argmax(values) == 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_compiled_schedule_serves_all_hyperparameters(name):
    compiled = jax.jit(lambda update, hparams: learning_rate(name, update, hparams, 16))
    for peak in (2.0, 3.0):
        hparams = {**HPARAMS, "learning_rate": peak}
        hparams = {key: jnp.float32(value) for key, value in hparams.items()}
        rate = compiled(jnp.int32(2), hparams)
        assert rate.dtype == jnp.float32
        np.testing.assert_allclose(rate, rates(name, [2]) * peak / 2.0, rtol=1e-5)
    assert compiled._cache_size() == 1


# --- optimizers

BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-9  # [5.3]
RATES = [0.1, 0.2, 0.05, 0.3, 0.1]


def start():
    rng = np.random.default_rng(0)
    return {"kernel": rng.normal(size=(3, 5)), "bias": rng.normal(size=7)}


def gradients(n=5):
    rng = np.random.default_rng(1)
    return [{"kernel": rng.normal(size=(3, 5)), "bias": rng.normal(size=7)} for _ in range(n)]


def as_float32(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def ours(steps, name="adam", decay=0.0, clip=0.0, accumulate=1, rates=RATES, weights=None):
    """All parameters after each of the gradients `steps`; every `accumulate`-th is due."""
    optimizer = make_optimizer(name, BETA1, BETA2, EPSILON, clip, accumulate)
    params = as_float32(start())
    state = optimizer.init(params)

    @jax.jit
    def advance(params, state, gradient, rate, decay, weight, due):
        updates, state = optimizer.update(
            gradient, state, params, learning_rate=rate, weight_decay=decay, weight=weight, due=due
        )
        return jax.tree.map(jnp.add, params, updates), state

    history = []
    for n, (gradient, rate) in enumerate(zip(steps, rates, strict=False)):
        weight = 1.0 if weights is None else weights[n]
        due = 0 if (n + 1) % accumulate else (n + 1) // accumulate
        params, state = advance(params, state, as_float32(gradient), rate, decay, weight, due)
        history.append(params)
    return history


def by_loop(steps, decay=None, rates=RATES):
    """Kingma and Ba 2015, algorithm 1, number by number; `decay` of each parameter by name.

    Decay is Loshchilov and Hutter 2019, algorithm 2, line 12, with its eta as the learning rate.
    """
    params = start()
    history = []
    m = {name: np.zeros_like(x) for name, x in params.items()}
    v = {name: np.zeros_like(x) for name, x in params.items()}
    for t, (gradient, rate) in enumerate(zip(steps, rates, strict=False), start=1):
        for name, x in params.items():
            for i in np.ndindex(x.shape):
                g = gradient[name][i]
                m[name][i] = BETA1 * m[name][i] + (1 - BETA1) * g
                v[name][i] = BETA2 * v[name][i] + (1 - BETA2) * g**2
                m_hat, v_hat = m[name][i] / (1 - BETA1**t), v[name][i] / (1 - BETA2**t)
                pull = (decay or {}).get(name, 0.0) * x[i]
                x[i] -= rate * (m_hat / (np.sqrt(v_hat) + EPSILON) + pull)
        history.append({name: x.copy() for name, x in params.items()})
    return history


def distance(one, other):
    """The largest difference of any parameter at any time."""
    differences = jax.tree.map(lambda a, b: np.abs(np.float64(a) - b).max(), one, other)
    return max(jax.tree.leaves(differences))


def norm(tree):
    return np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(tree)))


def scaled(tree, factor):
    return jax.tree.map(lambda x: factor * x, tree)


def shortened(tree, longest):
    return scaled(tree, min(1.0, longest / norm(tree)))


def test_adam_is_a_loop_in_float64():
    assert distance(ours(gradients()), by_loop(gradients())) < 1e-5
    # Controls: other rates, or gradients in another order, end elsewhere.
    assert distance(ours(gradients()), by_loop(gradients(), rates=RATES[::-1])) > 0.01
    assert distance(ours(gradients()), by_loop(gradients()[::-1])) > 0.01


def test_the_first_step_of_adam_is_the_learning_rate_long_whatever_the_gradient():
    (after,) = ours([scaled(gradients(1)[0], 1e3)])
    steps = jax.tree.map(lambda a, b: np.abs(a - b), after, start())
    for step in jax.tree.leaves(steps):
        np.testing.assert_allclose(step, RATES[0], rtol=1e-4)  # bias correction makes it so


def test_adamw_decays_matrices_only_and_apart_from_the_gradient():
    decayed = by_loop(gradients(), decay={"kernel": 0.3})
    assert distance(ours(gradients(), "adamw", decay=0.3), decayed) < 1e-5
    # Controls: decay of vectors too, and decay inside the gradient (L2), are something else.
    both = by_loop(gradients(), decay={"kernel": 0.3, "bias": 0.3})
    assert distance(ours(gradients(), "adamw", decay=0.3), both) > 0.01
    regularised = [{**g, "kernel": g["kernel"] + 0.3 * start()["kernel"]} for g in gradients()]
    assert distance(by_loop(regularised), decayed) > 0.01


def test_adam_does_not_decay():
    assert distance(ours(gradients(), "adam", decay=0.3), by_loop(gradients())) < 1e-5


def test_long_gradients_are_shortened_together_and_short_ones_left():
    steps = gradients()
    clip = float(np.median([norm(step) for step in steps]))
    expected = by_loop([shortened(step, clip) for step in steps])
    assert distance(ours(steps, clip=clip), expected) < 1e-5
    assert distance(ours(steps, clip=clip), by_loop(steps)) > 1e-3  # control
    assert distance(ours(steps, clip=0.0), by_loop(steps)) < 1e-5  # zero never clips


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_accumulated_gradients_are_one_update_with_their_mean(name):
    steps = gradients(6)
    decay = 0.3 if name == "adamw" else 0.0
    means = [
        jax.tree.map(lambda *g: sum(g) / 3, *steps[:3]),
        jax.tree.map(lambda *g: sum(g) / 3, *steps[3:]),
    ]
    history = ours(steps, name, decay, accumulate=3, rates=[0.1] * 6)
    expected = by_loop(means, decay={"kernel": decay}, rates=[0.1] * 2)
    for n, params in enumerate(history):
        wanted = as_float32(start()) if n < 2 else expected[(n - 2) // 3]
        assert distance(params, wanted) < (0.0 if n < 2 else 1e-5) + 1e-12
    # Control: one update a gradient ends elsewhere.
    single = ours(steps, name, decay, rates=[0.1] * 6)
    assert distance(single[-1], expected[-1]) > 0.01


def weighted(gradients, weights):
    """Their mean by weight; one of weight zero has no part, whatever it is."""
    parts = [(g, w) for g, w in zip(gradients, weights, strict=True) if w]
    total = sum(w for _, w in parts)
    return jax.tree.map(lambda *xs: sum(x * w for x, (_, w) in zip(xs, parts, strict=True)) / total,
                        *(g for g, _ in parts))  # fmt: skip


def test_accumulated_gradients_weigh_as_much_as_their_tokens():
    steps, weights = gradients(9), [5.0, 1.0, 90.0, 0.0, 7.0, 30.0, 0.0, 0.0, 0.0]
    steps[3] = scaled(steps[3], np.nan)
    history = ours(steps, accumulate=3, rates=[0.1] * 9, weights=weights)
    means = [weighted(steps[:3], weights[:3]), weighted(steps[3:6], weights[3:6])]
    expected = by_loop(means, rates=[0.1] * 2)
    assert distance(history[2], expected[0]) < 1e-5
    assert distance(history[5], expected[1]) < 1e-5
    assert distance(history[8], history[5]) == 0.0  # an update of no token moves nothing
    # Control: the mean of the means ends elsewhere.
    separate = [weighted(steps[:3], [1, 1, 1]), weighted(steps[3:6], [0, 1, 1])]
    assert distance(by_loop(separate, rates=[0.1] * 2)[-1], expected[-1]) > 0.01


def test_the_mean_of_accumulated_gradients_is_clipped_not_each():
    steps = gradients(3)
    mean = jax.tree.map(lambda *g: sum(g) / 3, *steps)
    # A second, short one follows: Adam's first step has one length whatever the gradient's.
    small = scaled(mean, 0.1)
    assert norm(small) < 1.0 < norm(mean)
    both = [*steps, *(scaled(step, 0.1) for step in steps)]
    history = ours(both, clip=1.0, accumulate=3, rates=[0.1] * 6)
    assert distance(history[-1], by_loop([shortened(mean, 1.0), small], rates=[0.1] * 2)[-1]) < 1e-5
    # Controls: nothing clipped, and each gradient clipped before the mean.
    assert distance(history[-1], by_loop([mean, small], rates=[0.1] * 2)[-1]) > 1e-3
    each = jax.tree.map(lambda *g: sum(g) / 3, *(shortened(step, 1.0) for step in steps))
    assert distance(history[-1], by_loop([each, small], rates=[0.1] * 2)[-1]) > 1e-3
