"""Statistics of attention heads: means over the rows of their weights.

A row holds the weights of one query. It counts if its value is defined, so padding never counts.
Statistics are pairs of sum and count, which can be added over batches, see `RowSums`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


class RowSums(NamedTuple):
    """A statistic of each head, summed over rows, and the number of rows that counted."""

    total: Float[Array, "*layers H"]
    count: Float[Array, "*layers"]

    def mean(self) -> Float[np.ndarray, "*layers H"]:
        """Returns the mean over rows; NaN if no row counted."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total) / np.asarray(self.count)[..., None]


def head_statistics(
    weights: Float[Array, "B H L M"],
    mask: Bool[Array, "B L M"],
    ends: Bool[Array, "B M"] | None = None,
    within: bool = True,
) -> dict[str, RowSums]:
    """Returns the statistics of each head, by name, that apply to its kind of attention.

    Args:
      ends: see `end_fraction`; None if no key is an end of a sentence.
      within: whether queries and keys are in the same sequence, so that they have a distance in
        tokens.
    """
    statistics = {
        "entropy": entropy(weights, mask),
        "relative_entropy": relative_entropy(weights, mask),
        "diagonality": diagonality(weights, mask),
    }
    if within:
        statistics["distance"] = distance(weights, mask)
    if ends is not None:
        statistics["end_fraction"] = end_fraction(weights, mask, ends)
    return statistics


def entropy(weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"]) -> RowSums:
    """Returns the entropy of the rows in nats: 0 for one key, log M for M keys of equal weight.

    Args:
      weights: each row sums to one over the keys that it may attend to.
      mask: True where a query may attend to a key; a row of padding is all False.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    return _sum_rows(_entropies(weights), mask.any(axis=-1))


def relative_entropy(weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"]) -> RowSums:
    """Returns the entropy of the rows divided by the largest possible entropy, from 0 to 1.

    The largest possible entropy is the logarithm of the number of keys that the query may attend
    to. So sentences of different lengths are comparable, and so are the rows of a decoder, the
    first of which see few keys. A query with a single key does not count.
    """
    keys = mask.sum(axis=-1)
    largest = jnp.log(jnp.maximum(keys, 2).astype(jnp.float32))
    return _sum_rows(_entropies(weights) / largest[:, None], keys > 1)


def distance(weights: Float[Array, "B H L L"], mask: Bool[Array, "B L L"]) -> RowSums:
    """Returns the mean distance |i - j| in tokens from a query i to the keys j it attends to.

    In a decoder, the distance to the token just read, the one before the written token, is 0.

    Source: Vig and Belinkov 2019, "Analyzing the Structure of Attention in a Transformer Language
    Model"; this is the mean of their attention distance over rows.
    """
    places = jnp.arange(weights.shape[-1])
    apart = jnp.abs(places[:, None] - places).astype(jnp.float32)
    return _sum_rows((weights * apart).sum(axis=-1), mask.any(axis=-1))


def end_fraction(
    weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"], ends: Bool[Array, "B M"]
) -> RowSums:
    """Returns the fraction of the weights on end-of-sentence keys, where heads often rest.

    Args:
      ends: True at keys that are end-of-sentence.

    Source: Clark et al. 2019, section 3.2, for the separator of BERT.
    """
    on_ends = jnp.where(ends[:, None, None], weights, 0.0).sum(axis=-1)
    return _sum_rows(on_ends, mask.any(axis=-1))


def diagonality(weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"]) -> RowSums:
    """Returns how close the rows are to the diagonal: 1 on it, 0 as far away as possible.

    For query i it is 1 - sum_j a_ij |i - j| / max_j |i - j|, over the keys j that it may attend to.
    If the numbers of queries and keys differ, i is scaled so that the last query is at the position
    of the last key. A query that sees only the key on the diagonal does not count.

    Source: Zhang, Loweimi, Bell and Renals 2021, "On the Usefulness of Self-Attention for
    Automatic Speech Recognition with Transformers", for the self-attention of encoders.
    """
    queries, keys = mask.any(axis=2), mask.any(axis=1)
    last_query, last_key = (side.sum(axis=1, keepdims=True) - 1 for side in (queries, keys))
    scale = last_key / jnp.maximum(last_query, 1)
    places = jnp.arange(mask.shape[1]) * scale
    apart = jnp.abs(places[:, :, None] - jnp.arange(mask.shape[2]))
    farthest = jnp.where(mask, apart, 0.0).max(axis=-1)
    counted = farthest > 0
    away = (weights * apart[:, None]).sum(axis=-1) / jnp.where(counted, farthest, 1.0)[:, None]
    return _sum_rows(1.0 - away, counted)


def _entropies(weights: Float[Array, "B H L M"]) -> Float[Array, "B H L"]:
    return jax.scipy.special.entr(weights).sum(axis=-1)


def _sum_rows(values: Float[Array, "B H L"], rows: Bool[Array, "B L"]) -> RowSums:
    total = jnp.where(rows[:, None], values, 0.0).sum(axis=(0, 2))
    return RowSums(total, rows.sum().astype(jnp.float32))
