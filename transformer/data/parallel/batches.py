"""Batches of sentence pairs, and the plan of all of them in length buckets."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan, Place
from transformer.data.corpora.mixing import Mixture
from transformer.data.plan import Plan
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, Ids
from transformer.data.tokenizer.sampling import Sampler, make_generator


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
        another one of each text. Its bucket is that of one of the planned draws, which epochs take
        in turn, and a batch draws among the segmentations of all lengths of its bucket. So each
        segmentation is as frequent as among free draws.
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
        self._lengths = [
            sampler.lengths if sampler else store.lengths[None]
            for store, sampler in zip((source, target), samplers, strict=True)
        ]
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
        return Plan.stack(self, plans, i) if any(self.samplers) else super().stack(plans, i)

    def __getitem__(self, i: int) -> Batch:
        if not any(self.samplers):
            return super().__getitem__(i)
        place, uniform = self._place(i), make_generator(self.seed, i)
        pairs = [self._segment(number, place, uniform) for number in self._sentences(place)]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        return make_batch(sources, targets, place.bucket.rows, place.bucket.length)

    def _segment(self, number: int, place: Place, uniform: Callable[[], float]) -> list[Ids]:
        """A segmentation of each side of a pair, the longer of which has a length of a bucket.

        Each side is drawn again given the length of the other, as in Gibbs sampling.
        """
        shortest = self.buckets[place.number - 1].length if place.number else 0
        lengths = self._lengths[1]
        other, ids = lengths[place.epoch % len(lengths)][number], []
        for store, sampler in zip((self.source, self.target), self.samplers, strict=True):
            fitting = range(shortest if other < shortest else 0, place.bucket.length)
            drawn = sampler and sampler.draw(number, place.epoch, uniform, fitting)
            ids.append(store[number] if drawn is None else drawn)
            other = len(ids[0])
        return ids
