"""Numbers of attention heads are what they are by hand, and what loops over their rows give."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.snapshots import head_statistics

BATCH, HEADS, QUERIES, KEYS = 3, 2, 5, 7


statistics = jax.jit(head_statistics, static_argnames="within")


def drawn(seed: int, causal: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random weights, their mask and ends; sentences of different lengths, the last of no token."""
    rng = np.random.default_rng(seed)
    lengths = [(7, 7), (4, 4), (0, 0)] if causal else [(QUERIES, KEYS), (4, 3), (0, 0)]
    mask, ends = np.zeros((BATCH, *lengths[0]), bool), np.zeros((BATCH, KEYS), bool)
    for b, (queries, keys) in enumerate(lengths):
        mask[b, :queries, :keys] = np.tril(np.ones((queries, keys))) if causal else True
        ends[b, :keys] = np.arange(keys) == keys - 1
    raw = rng.exponential(size=(BATCH, HEADS, *lengths[0])) * mask[:, None]
    weights = raw / np.maximum(raw.sum(axis=-1, keepdims=True), 1e-30)
    return weights.astype(np.float32), mask, ends


def by_loops(weights, mask, ends) -> dict[str, list[float]]:
    """All statistics, row by row in float64."""
    found: dict[str, list[list[float]]] = {}
    for head in range(weights.shape[1]):
        rows: dict[str, list[float]] = {}
        for b, i in np.argwhere(mask.any(axis=-1)):
            row, keys = weights[b, head, i].astype(np.float64), np.flatnonzero(mask[b, i])
            nats = -sum(p * math.log(p) for p in row[keys] if p > 0)
            rows.setdefault("end_fraction", []).append(sum(row[ends[b]]))
            if len(keys) > 1:
                rows.setdefault("relative_entropy", []).append(nats / math.log(len(keys)))
            if mask.shape[1] == mask.shape[2]:
                rows.setdefault("distance", []).append(sum(row[j] * abs(i - j) for j in keys))
            last_query = np.flatnonzero(mask[b].any(axis=1))[-1]
            last_key = np.flatnonzero(mask[b].any(axis=0))[-1]
            place = i * last_key / last_query
            if far := max(abs(place - j) for j in keys):
                near = 1 - sum(row[j] * abs(place - j) for j in keys) / far
                rows.setdefault("diagonality", []).append(near)
        for name, values in rows.items():
            found.setdefault(name, []).append(values)
    return {name: np.mean(values, axis=1).tolist() for name, values in found.items()}


@pytest.mark.parametrize("causal", [False, True])
def test_all_statistics_are_those_of_a_loop_over_rows_without_padding(causal):
    weights, mask, ends = drawn(0, causal)
    found = statistics(*map(jnp.asarray, (weights, mask, ends)), within=causal)
    expected = by_loops(weights, mask, ends)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].mean(), values, rtol=2e-6, err_msg=name)
    # What a sink takes of a row counts for the end of the sentence only.
    others = weights * np.random.default_rng(1).uniform(0.2, 0.9, (*weights.shape[:3], 1))
    of_sinks = statistics(*map(jnp.asarray, (others, mask, ends)), within=causal)
    expected["end_fraction"] = by_loops(others, mask, ends)["end_fraction"]
    for name, values in expected.items():
        np.testing.assert_allclose(of_sinks[name].mean(), values, rtol=2e-6, err_msg=name)
    as_if_padding_counted = by_loops(weights, np.ones_like(mask), ends)
    counted = as_if_padding_counted["relative_entropy"]
    assert not np.allclose(found["relative_entropy"].mean(), counted, rtol=0.1)
