"""Attention snapshots: weights and statistics of all heads for fixed texts during training.

Statistics are means over the rows of attention weights; a row holds the weights of one query. It
counts if its value is defined, so padding never counts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from transformer.analysis.alignment import (
    GoldLinks,
    Words,
    alignment_scores,
    most_attended,
    word_weights,
)
from transformer.analysis.attention import KIND_SIDES, BatchAttention

READABLE = 32  # maximum tokens of a text that is readable in a figure
MAP_BYTES = 2**28  # maximum bytes of a batch's attention weights; statistics need much less


class Snapshot(NamedTuple):
    """The attention of a model's heads in fixed texts.

    Attributes:
      arrays: the arrays to save, by names that `experiments/attention/snapshots.py` lists; empty if
        there is nothing to snapshot.
      numbers: the numbers to log: the mean of each statistic over the heads of a kind, and the
        lowest alignment error rate.
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]


class LinkedPair(NamedTuple):
    """The words of a sentence pair, and their gold links."""

    source: Words
    target: Words
    gold: GoldLinks


class HeadSnapshots:
    """Takes attention snapshots of a model; compiled once, since all batches have one shape.

    Args:
      attend: (variables, batch) -> the attention within a batch, by kind.
      batches: batches of all texts; the first rows are those whose weights are saved.
      kept: the source and target tokens of these rows as the model reads them, if it has that side,
        up to the saved length.
      linked: all pairs in the order of the rows; empty if their gold links are unknown.
    """

    def __init__(
        self,
        attend: Callable[[Any, Any], dict[str, BatchAttention]],
        batches: Sequence[Any],
        kept: Sequence[tuple[list[str], list[str]]],
        linked: Sequence[LinkedPair] = (),
    ):
        self._attend, self._batches, self._kept, self._linked = attend, batches, kept, linked
        self._longest = [max((len(tokens[i]) for tokens in kept), default=0) for i in (0, 1)]
        self._run = jax.jit(self._of_batch)

    def __call__(self, variables: Any) -> Snapshot:
        """Returns the snapshot; it is empty if there are no batches or no heads."""
        if not self._batches:
            return Snapshot({}, {})
        statistics, maps, links = [], [], []
        for batch in self._batches:  # one at a time, since the weights for links are large
            of_rows, sums, cross = self._run(variables, batch)
            statistics.append(jax.device_get(sums))
            if len(maps) < len(self._kept):
                maps += _statistics_by_text(jax.device_get(of_rows))
            if cross is not None:
                links += self._links(jax.device_get(cross), self._linked[len(links) :])
        sums = jax.tree.map(lambda *parts: sum(parts), *statistics)
        arrays = {f"statistics/{name}": rows.mean() for name, rows in sums.items()}
        numbers = {
            "_".join(reversed(name.split("/"))): float(arrays[f"statistics/{name}"].mean())
            for name in sums
        }
        if links:
            scores = alignment_scores(links, (pair.gold for pair in self._linked))
            for name, each in zip(("aer", "precision", "recall"), scores, strict=True):
                arrays[f"statistics/cross/{name}"] = each.astype(np.float32)
            numbers["aer_cross"] = float(scores.error_rate.min())
        for n, (tokens, attention) in enumerate(zip(self._kept, maps, strict=False)):
            sentence = f"sentences/{n}"
            for kind, (weights, norms) in attention.items():
                queries, keys = (len(tokens[side]) for side in KIND_SIDES[kind])
                arrays[f"{sentence}/weights/{kind}"] = weights[..., :queries, :keys]
                if norms is not None:
                    arrays[f"{sentence}/value_norms/{kind}"] = norms[..., :keys]
            for side, texts in zip(("source", "target"), tokens, strict=True):
                arrays[f"{sentence}/{side}_tokens"] = np.array(texts, np.str_)
        return Snapshot(arrays, numbers)

    def _of_batch(self, variables: Any, batch: Any):
        """Returns weights and value norms to save, statistics of all rows, and weights for links.

        All batches return the first, which are small, so that one program is enough.
        """
        first, maps, sums, cross = len(self._kept), {}, {}, None
        for kind, (weights, norms, mask, ends) in self._attend(variables, batch).items():
            queries, keys = (self._longest[side] for side in KIND_SIDES[kind])
            first_norms = None if norms is None else norms[:, :first, :, :keys]
            maps[kind] = weights[:, :first, :, :queries, :keys], first_norms
            statistics = functools.partial(
                head_statistics, mask=mask, ends=ends, within=kind != "cross"
            )
            for name, rows in jax.vmap(statistics)(weights).items():
                sums[f"{kind}/{name}"] = rows
            if kind == "cross" and self._linked:
                cross = weights
        return maps, sums, cross

    @staticmethod
    def _links(
        batch: Float[np.ndarray, "layers B H L M"], pairs: Sequence[LinkedPair]
    ) -> list[Float[np.ndarray, "layers H _ _"]]:
        """Returns each head's links in the sentence pairs of a batch, the first ones of `pairs`."""
        links = []
        for weights, (source, target, _) in zip(batch.swapaxes(0, 1), pairs, strict=False):
            of_pair = weights[..., : len(target.of_tokens) + 1, : len(source.of_tokens) + 1]
            links.append(most_attended(word_weights(of_pair, source, target)))
        return links


def _statistics_by_text(maps: Any) -> list[Any]:
    """Returns the saved arrays of each row of a batch."""
    rows = {array.shape[1] for array in jax.tree.leaves(maps)} or {0}
    return [jax.tree.map(lambda x, n=n: x[:, n], maps) for n in range(*rows)]


class Parts(NamedTuple):
    """Text numbers in batches of `rows` x `length` tokens; the last batch may be incomplete."""

    texts: list[list[int]]
    rows: int
    length: int


def batch_rows(length: int, maps: int, tokens: int) -> int:
    """Returns the number of texts of a length in a snapshot's batch, at least one.

    It is at most that of one device in training, and at most the number whose attention weights
    take `MAP_BYTES`: training holds the weights of one layer at a time, a snapshot those of all
    layers.

    Args:
      maps: number of attention maps of a text, over all kinds, layers and heads.
      tokens: number of tokens in a training batch.
    """
    in_training = tokens // (length * jax.local_device_count())
    return max(1, min(in_training, MAP_BYTES // (4 * max(1, maps) * length**2)))


def divide(lengths: Sequence[int], longest: int, kept: int, maps: int, tokens: int) -> Parts:
    """Returns the texts in batches of one shape, beginning with those to save.

    The saved texts are spread over those short enough to be readable in a figure; if there are too
    few, they are the shortest texts.

    Args:
      lengths: number of tokens of all texts.
      longest: texts with more tokens are left out.
      kept: number of texts to save.
      maps, tokens: see `batch_rows`.
    """
    fitting = [i for i, length in enumerate(lengths) if length <= longest]
    readable = sum(lengths[i] <= READABLE for i in fitting)
    short = sorted(sorted(fitting, key=lambda i: lengths[i])[: max(kept, readable)])
    order = kept_first(fitting, short, kept)
    length = max((lengths[i] for i in order), default=1)
    rows = min(len(order), batch_rows(length, maps, tokens))
    return Parts([order[i : i + rows] for i in range(0, len(order), rows or 1)], rows, length)


def kept_first(texts: Sequence[int], candidates: Sequence[int], kept: int) -> list[int]:
    """Returns the numbers of all texts, beginning with `kept` evenly spread candidates."""
    kept = min(kept, len(candidates))
    first = [candidates[i * len(candidates) // kept] for i in range(kept)]
    return first + [i for i in texts if i not in first]


# -- statistics of heads


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
