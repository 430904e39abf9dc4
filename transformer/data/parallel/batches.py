"""Batches of sentence pairs, and the plan of all of them in length buckets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.corpora.mixing import Mixture
from transformer.data.plan import Plan
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, Ids
from transformer.data.tokenizer.sampling import Sampler


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
      samplers: of source and target, None for a side that has one segmentation. Each epoch draws
        another one of each text, of a length that fits into its bucket.
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
        samplers: Sequence[Sampler | None] = (None, None),
    ):
        self.source, self.target, self.samplers = source, target, samplers
        rooms = (
            sampler.rooms if sampler else store.lengths
            for store, sampler in zip((source, target), samplers, strict=True)
        )
        lengths = np.maximum(*rooms) + 1
        super().__init__(lengths, seed, tokens, num_buckets, multiple, sentences, mixture)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions, both sides, that hold padding."""
        source, target = (
            sampler.mean_lengths if sampler else store.lengths
            for store, sampler in zip((self.source, self.target), self.samplers, strict=True)
        )
        return 1.0 - self.epoch_sum(source + target + 2) / (2 * self.positions)

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> Batch:
        """Returns the same as `make_batch`, of deterministic segmentations."""
        columns = np.arange(length)
        source, source_lengths = self.source.gather(numbers, length)
        labels, label_lengths = self.target.gather(numbers, length)
        target = np.roll(labels, 1, axis=-1)
        target[..., 0] = np.where(numbers < 0, PAD_ID, BOS_ID)
        source[columns == source_lengths[..., None]] = EOS_ID
        labels[columns == label_lengths[..., None]] = EOS_ID
        return Batch(source, target, labels)

    def stack(self, plans: "Sequence[BatchPlan]", i: int) -> Batch:
        # Draws are made row by row.
        return Plan.stack(self, plans, i) if any(self.samplers) else super().stack(plans, i)

    def __getitem__(self, i: int) -> Batch:
        if not any(self.samplers):
            return super().__getitem__(i)
        bucket, indices = self.indices(i)
        sources, targets = (
            [side[j] if ids is None else ids for j, ids in zip(indices, drawn, strict=True)]
            for side, drawn in zip((self.source, self.target), self._segment(i), strict=True)
        )
        return make_batch(sources, targets, bucket.rows, bucket.length)

    def _segment(self, i: int) -> list[list[Ids | None]]:
        """The drawn segmentations of both sides of batch i, None for a deterministic one."""
        bucket, indices = self.indices(i)
        return [
            sampler.draw(indices, bucket.length - 1, (self.seed, i))
            if sampler
            else [None] * len(indices)
            for sampler in self.samplers
        ]

    def fallback_fraction(self, sentences: int = 2000) -> float:
        """Returns the fraction of sentences whose draws are too long for their batch.

        Their deterministic segmentation is read in place of a drawn one.

        Args:
          sentences: of the first batches, that are counted.
        """
        batches = min(self.epoch_length, -(-sentences * self.epoch_length // len(self.source)))
        rows = [
            ids
            for i in range(batches)
            for sampler, drawn in zip(self.samplers, self._segment(i), strict=True)
            if sampler
            for ids in drawn
        ]
        return rows.count(None) / max(1, len(rows))
