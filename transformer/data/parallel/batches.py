"""Batches of sentence pairs, and the plan of all of them in length buckets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.corpora.mixing import Mixture
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, Ids


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. A row of padding alone is not a sentence.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, the
    same shifted left by one and ending in end-of-sentence. `source` ends in end-of-sentence.
    """

    source: Int[np.ndarray, "B M"]
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Returns the batch of up to `rows` encoded pairs, each without begin and end.

    Args:
      length: of all three arrays, in tokens; begin or end of sentence included.
    """
    source, target, labels = (np.full((rows, length), PAD_ID, np.int32) for _ in range(3))
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = EOS_ID
    for row, ids in enumerate(targets):
        target[row, 0] = BOS_ID
        target[row, 1 : len(ids) + 1] = ids
        labels[row, : len(ids)] = ids
        labels[row, len(ids)] = EOS_ID
    return Batch(source, target, labels)


class BatchPlan(BucketPlan[Batch]):
    """All training batches of sentence pairs, see `BucketPlan`.

    Args:
      source, target: the same number of encoded sentences; the length of a pair is that of its
        longer side, with its end.
      tokens: of each side of a batch.
      mixture: of several corpora; None for each pair once an epoch.
    """

    def __init__(
        self,
        source: TokenStore,
        target: TokenStore,
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        sentences: int = 0,
        mixture: Mixture | None = None,
    ):
        self.source, self.target = source, target
        lengths = np.maximum(source.lengths, target.lengths) + 1
        super().__init__(lengths, seed, tokens, num_buckets, multiple, sentences, mixture)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions, both sides, that hold padding."""
        tokens = self.epoch_sum(self.source.lengths + self.target.lengths + 2)
        return 1.0 - tokens / (2 * self.positions)

    def __getitem__(self, i: int) -> Batch:
        bucket, indices = self.indices(i)
        sources, targets = ([side[j] for j in indices] for side in (self.source, self.target))
        return make_batch(sources, targets, bucket.rows, bucket.length)
