"""The best continuations are found without sorting the vocabulary, and nothing overflows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.decoding.continuations import NEVER, best_continuations, group_maxima, log_sum_exp


@pytest.mark.parametrize("vocab", [7, 600, 731])
@pytest.mark.parametrize("forbidden", [(), (0, 3), (5, 1)])
def test_the_best_continuations_are_those_of_a_sort_of_all(vocab, forbidden):
    rng = np.random.default_rng(vocab)
    # Whole numbers, of which many are equal; subtractions of halves are exact.
    logits = jnp.asarray(rng.integers(-9, 9, (3, 5, vocab)), jnp.float32)
    logits = logits.at[:, 2, jnp.array(forbidden, int)].set(20.0)
    shift = jnp.asarray(rng.integers(0, 4, (3, 5)) / 2, jnp.float32)
    found = best_continuations(logits, group_maxima(logits), shift, 10, forbidden)
    table = (logits - shift[..., None]).at[:, :, jnp.array(forbidden, int)].set(NEVER)
    best, places = jax.lax.top_k(table.reshape(3, -1), 10)
    np.testing.assert_array_equal(found.log_probs, best)
    np.testing.assert_array_equal(found.parents * vocab + found.tokens, places)


def test_the_logarithm_of_the_sum_of_exponentials_does_not_overflow():
    logits = jnp.asarray(np.random.default_rng(0).normal(1e4, 5, (2, 3, 11)), jnp.float32)
    np.testing.assert_allclose(
        log_sum_exp(logits, logits.max(axis=2)), jax.nn.logsumexp(logits, axis=2), rtol=1e-6
    )
