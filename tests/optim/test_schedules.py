"""Schedules are those of their papers, on numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.optim.schedules import SCHEDULES, learning_rate

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


@pytest.mark.parametrize(
    ("fraction", "by_hand"),
    [
        (0.0, {2: 1.0, 19: 2.0, 20: 2.0}),
        (1.0, {2: 1.0, 5: 1.0, 20: 0.0}),
    ],
)
def test_the_fraction_of_wsd_that_decays_may_be_none_or_all(fraction, by_hand):
    values = rates("wsd", list(by_hand), decay_fraction=fraction)
    np.testing.assert_allclose(values, list(by_hand.values()), atol=1e-6)


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
