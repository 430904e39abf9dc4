"""Attention snapshots: weights and statistics of all heads for fixed texts during training.

Statistics are means over the rows of attention weights; a row contains the weights of one query.
Rows for which a statistic is undefined, such as padding, are excluded.
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

READABLE = 32  # maximum number of tokens of a text that is readable in a figure
MAP_BYTES = 2**28  # maximum size of a batch's attention weights in bytes; statistics need much less


class Snapshot(NamedTuple):
    """The attention of all heads of a model on fixed texts.

    Attributes:
      arrays: the arrays to save, keyed by the names listed in `experiments/attention/snapshots.py`;
        empty if there is nothing to snapshot.
      numbers: the metrics to log: the mean of each statistic over all heads of a kind of attention,
        and the lowest alignment error rate of any head.
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]


class LinkedPair(NamedTuple):
    """The words of a sentence pair, and their gold links."""

    source: Words
    target: Words
    gold: GoldLinks


class HeadSnapshots:
    """Takes attention snapshots of a model, with one compiled program for all batches.

    Args:
      attend: a function (variables, batch) -> the attention of the batch, keyed by kind.
      batches: all texts in batches of the same shape; the weights of the first rows are saved.
      kept: the source and target tokens of the saved rows as the model reads them, up to the saved
        length; the token list of a side that the model does not have is empty.
      linked: all sentence pairs in row order; empty if the gold links are unknown.
      lens: a function (variables, batch) -> the loss after each decoder layer, or None.
    """

    def __init__(
        self,
        attend: Callable[[Any, Any], dict[str, BatchAttention]],
        batches: Sequence[Any],
        kept: Sequence[tuple[list[str], list[str]]],
        linked: Sequence[LinkedPair] = (),
        lens: Callable[[Any, Any], "RowSums"] | None = None,
    ):
        self._attend, self._batches, self._kept, self._linked = attend, batches, kept, linked
        self._lens = lens
        self._longest = [max((len(tokens[i]) for tokens in kept), default=0) for i in (0, 1)]
        self._run = jax.jit(self._of_batch)

    def __call__(self, variables: Any) -> Snapshot:
        """Returns a snapshot, which is empty if there are no batches or no heads."""
        if not self._batches:
            return Snapshot({}, {})
        statistics, maps, links = [], [], []
        for batch in self._batches:  # one at a time, since the weights for links are large
            of_rows, sums, cross = self._run(variables, batch)
            statistics.append(jax.device_get(sums))
            if len(maps) < len(self._kept):
                of_rows = jax.device_get(of_rows)
                rows = {array.shape[1] for array in jax.tree.leaves(of_rows)} or {0}
                maps += [jax.tree.map(lambda x, n=n: x[:, n], of_rows) for n in range(*rows)]
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
        """Returns the arrays to save, the statistics of all rows, and the weights for links.

        Every batch returns the (small) arrays to save, so that one compiled program is enough.
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
        if self._lens:
            sums["decoder_self/lens"] = self._lens(variables, batch)
        return maps, sums, cross

    @staticmethod
    def _links(
        batch: Float[np.ndarray, "layers B H L M"], pairs: Sequence[LinkedPair]
    ) -> list[Float[np.ndarray, "layers H _ _"]]:
        """Returns each head's alignment links in a batch, whose pairs come first in `pairs`."""
        links = []
        for weights, (source, target, _) in zip(batch.swapaxes(0, 1), pairs, strict=False):
            of_pair = weights[..., : len(target.of_tokens) + 1, : len(source.of_tokens) + 1]
            links.append(most_attended(word_weights(of_pair, source, target)))
        return links


class Parts(NamedTuple):
    """The text indices of each batch of shape [rows, length]; the last batch may be incomplete."""

    texts: list[list[int]]
    rows: int
    length: int


def batch_rows(length: int, maps: int, tokens: int) -> int:
    """Returns the snapshot batch size (at least one) for texts of a given length.

    It is at most the batch size per device in training, and at most the number of texts whose
    attention weights fit in `MAP_BYTES`: training holds the weights of one layer at a time, while a
    snapshot holds the weights of all layers.

    Args:
      maps: number of attention maps per text, over all kinds, layers and heads.
      tokens: number of tokens in a training batch.
    """
    in_training = tokens // (length * jax.local_device_count())
    return max(1, min(in_training, MAP_BYTES // (4 * max(1, maps) * length**2)))


def divide(lengths: Sequence[int], longest: int, kept: int, maps: int, tokens: int) -> Parts:
    """Divides the texts into batches of the same shape, starting with the texts to save.

    The texts to save are evenly spread over the texts that are short enough to be readable in a
    figure. If there are too few readable texts, the shortest texts are saved.

    Args:
      lengths: number of tokens in each text.
      longest: maximum number of tokens; longer texts are left out.
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
    """Returns the indices of all texts, with `kept` evenly spread candidates first."""
    kept = min(kept, len(candidates))
    first = [candidates[i * len(candidates) // kept] for i in range(kept)]
    return first + [i for i in texts if i not in first]


# -- statistics of heads


class RowSums(NamedTuple):
    """A statistic of each head, summed over rows, and the number of rows in the sum."""

    total: Float[Array, "*layers H"]
    count: Float[Array, "*layers"]

    def mean(self) -> Float[np.ndarray, "*layers H"]:
        """Returns the mean over rows, or NaN if there are no rows."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total) / np.asarray(self.count)[..., None]


def head_statistics(
    weights: Float[Array, "B H L M"],
    mask: Bool[Array, "B L M"],
    ends: Bool[Array, "B M"] | None = None,
    within: bool = True,
) -> dict[str, RowSums]:
    """Returns the per-head statistics that apply to a kind of attention, keyed by name.

    With attention sinks, a row sums to less than 1. It is then divided by its sum for all
    statistics but `end_fraction`, which is a fraction of all weight, that of the sink included.

    Args:
      ends: see `end_fraction`; None if no key is end-of-sentence.
      within: whether queries and keys are in the same sequence, so that distances are defined.
    """
    total = jnp.maximum(weights.sum(axis=-1, keepdims=True), jnp.finfo(jnp.float32).tiny)
    of_tokens = weights / total
    statistics = {
        "relative_entropy": relative_entropy(of_tokens, mask),
        "diagonality": diagonality(of_tokens, mask),
    }
    if within:
        statistics["distance"] = distance(of_tokens, mask)
    if ends is not None:
        statistics["end_fraction"] = end_fraction(weights, mask, ends)
    return statistics


def relative_entropy(weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"]) -> RowSums:
    """Returns the entropy of the weights divided by the maximum entropy, between 0 and 1.

    The maximum entropy is the logarithm of the number of keys that a query may attend to. The ratio
    is comparable between sentences of different lengths, and between the rows of a decoder, the
    first of which can attend to few keys. Queries with a single key are excluded.

    Args:
      weights: each row sums to 1 over its unmasked keys.
      mask: True where a query may attend to a key; a row of padding is all False.

    Source: after the entropy of Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    keys = mask.sum(axis=-1)
    largest = jnp.log(jnp.maximum(keys, 2).astype(jnp.float32))
    entropy = jax.scipy.special.entr(weights).sum(axis=-1)
    return _sum_rows(entropy / largest[:, None], keys > 1)


def distance(weights: Float[Array, "B H L L"], mask: Bool[Array, "B L L"]) -> RowSums:
    """Returns the attention-weighted mean distance |i - j| in tokens from query i to keys j.

    In a decoder, the distance from a query to its own input token is 0.

    Source: Vig and Belinkov 2019, "Analyzing the Structure of Attention in a Transformer Language
    Model"; this is their attention distance, averaged over rows.
    """
    places = jnp.arange(weights.shape[-1])
    apart = jnp.abs(places[:, None] - places).astype(jnp.float32)
    return _sum_rows((weights * apart).sum(axis=-1), mask.any(axis=-1))


def end_fraction(
    weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"], ends: Bool[Array, "B M"]
) -> RowSums:
    """Returns the fraction of attention on end-of-sentence, which heads often use as a no-op.

    Args:
      ends: True at end-of-sentence keys.

    Source: Clark et al. 2019, section 3.2, for BERT's separator token.
    """
    on_ends = jnp.where(ends[:, None, None], weights, 0.0).sum(axis=-1)
    return _sum_rows(on_ends, mask.any(axis=-1))


def diagonality(weights: Float[Array, "B H L M"], mask: Bool[Array, "B L M"]) -> RowSums:
    """Returns the closeness of attention to the diagonal: 1 on the diagonal, 0 farthest from it.

    For query i, this is 1 - sum_j a_ij |i - j| / max_j |i - j|, over the unmasked keys j. If the
    numbers of queries and keys differ, i is scaled so that the last query is at the position of the
    last key. Queries that can attend only to the key on the diagonal are excluded.

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


def _sum_rows(values: Float[Array, "B H L"], rows: Bool[Array, "B L"]) -> RowSums:
    total = jnp.where(rows[:, None], values, 0.0).sum(axis=(0, 2))
    return RowSums(total, rows.sum().astype(jnp.float32))
