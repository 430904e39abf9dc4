"""Batches of sentence pairs, and the plan of all of them in length buckets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.batch_plan import Plan
from transformer.data.buckets import BucketPlan, Mixture
from transformer.data.parallel.sampler import PairSampler
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, Ids
from transformer.data.tokenizer.draws import make_generator


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. A row of padding alone is not a sentence.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, the
    same shifted left by one and ending in end-of-sentence. `source` ends in end-of-sentence.
    """

    source: Int[np.ndarray, "B M"]
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Returns the batch of up to `rows` encoded pairs; `length` includes the begin or the end."""
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

    The length of a pair is that of its longer side, with its end. A `sampler` draws what is read of
    each pair in each epoch. The bucket of a pair is that of one of its planned draws, which epochs
    take in turn, and a batch draws among all of the lengths of its bucket. So each draw is as
    frequent as among free ones.
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
        sampler: PairSampler | None = None,
    ):
        self.source, self.target, self.sampler = source, target, sampler
        plain = [store.lengths[None] for store in (source, target)]
        self._lengths = [*sampler.drawn] if sampler else plain
        lengths = np.maximum(*self._lengths) + 1
        super().__init__(lengths, seed, tokens, num_buckets, multiple, sentences, mixture)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions, both sides, that hold padding."""
        source, target = self._lengths
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
        return Plan.stack(self, plans, i) if self.sampler else super().stack(plans, i)

    def __getitem__(self, i: int) -> Batch:
        if self.sampler is None:
            return super().__getitem__(i)
        place, random = self._place(i), make_generator(self.seed, i)
        shortest = self.buckets[place.number - 1].length if place.number else 0
        lengths = range(shortest, place.bucket.length)  # without the end, which takes one position
        numbers = self._sentences(place)
        pairs = [self.sampler.draw(number, place.epoch, random, lengths) for number in numbers]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        return make_batch(sources, targets, place.bucket.rows, place.bucket.length)
