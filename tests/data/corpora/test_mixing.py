"""An epoch has the pairs of each corpus in proportion; each is drawn before any again."""

import collections

import numpy as np
import pytest

from transformer.data.batches import BatchPlan
from transformer.data.buckets import mix, proportions
from transformer.data.token_store import TokenStore

SIZES = 97, 41, 7


def make_plan(seed=5, weights=(1.0, 1.0, 1.0), temperature=1.0, num_buckets=3, **changes):
    """A plan over random pairs of three corpora."""
    rng = np.random.default_rng(11)
    lengths = rng.integers(1, 23, sum(SIZES))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    store = TokenStore(rng.integers(4, 97, offsets[-1]).astype(np.int32), offsets)
    settings = {"mixture": mix(SIZES, weights, temperature), **changes}
    return BatchPlan(store, store, seed, 300, num_buckets, 2, **settings)


def epoch(plan: BatchPlan, number: int) -> list[int]:
    first = number * plan.epoch_length
    return [j for i in range(first, first + plan.epoch_length) for j in plan.indices(i)[1]]


def of_corpora(indices) -> list[int]:
    """How many of the pairs are of each corpus."""
    return np.histogram(indices, [0, *np.cumsum(SIZES)])[0].tolist()


@pytest.mark.parametrize(
    ("weights", "temperature", "expected"),
    [
        ((1.0, 1.0), 1.0, (0.8, 0.2)),
        ((1.0, 3.0), 2.0, (0.4, 0.6)),
        ((3.0, 1.0), 1e9, (0.75, 0.25)),
    ],
)
def test_proportions_are_weights_times_roots_of_sizes(weights, temperature, expected):
    assert proportions([100, 25], weights, temperature) == pytest.approx(expected)


def test_every_epoch_has_the_proportions_exactly():
    weights, temperature = (1.0, 2.5, 9.0), 5.0
    plan = make_plan(weights=weights, temperature=temperature)
    expected = np.rint(proportions(SIZES, weights, temperature) * sum(SIZES)).tolist()
    assert plan.drawn == expected
    for number in (0, 1, 10):
        assert of_corpora(epoch(plan, number)) == expected
    assert expected != list(SIZES)


def test_every_pair_is_drawn_before_any_is_drawn_again():
    plan = make_plan(temperature=4.0)
    counts = collections.Counter()
    for number in range(5):
        counts.update(epoch(plan, number))
        for bucket in plan.buckets:
            for part in bucket.parts:
                own = [counts[j] for j in part.members.tolist()]
                assert max(own) - min(own) <= 1
    assert counts[sum(SIZES) - 1] > 3 * counts[0]  # of the smallest corpus and of the largest
