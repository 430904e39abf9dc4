"""Batches of sentence pairs, and the plan of all training batches in length buckets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan, Part, Plan

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # in every vocabulary
Ids = Sequence[int] | Int[np.ndarray, "_"]  # token ids of one sentence


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. A row of padding only is not a sentence.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, the
    same shifted left by one and ending in end-of-sentence. `source` ends in end-of-sentence; for
    captioning, it is a named tuple of pictures.
    """

    source: Int[np.ndarray, "B M"] | tuple
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Returns the batch of up to `rows` encoded pairs; `length` includes the begin or end token."""
    source = stack_rows(sources, rows, length, end=[EOS_ID])
    return Batch(source, *make_targets(targets, rows, length))


def make_targets(
    targets: Sequence[Ids], rows: int, length: int
) -> tuple[Int[np.ndarray, "rows length"], Int[np.ndarray, "rows length"]]:
    """Returns the target and the labels of a batch."""
    target = stack_rows(targets, rows, length, begin=[BOS_ID])
    return target, stack_rows(targets, rows, length, end=[EOS_ID])


def stack_rows(
    sequences: Sequence[Ids], rows: int, length: int, begin: Ids = (), end: Ids = ()
) -> Int[np.ndarray, "rows length"]:
    """Returns up to `rows` sequences, each with its begin and end token, in `length` columns."""
    tokens = np.full((rows, length), PAD_ID, np.int32)
    for row, ids in enumerate([*begin, *ids, *end] for ids in sequences):
        tokens[row, : len(ids)] = ids
    return tokens


class BatchPlan(BucketPlan[Batch]):
    """All training batches of sentence pairs, see `BucketPlan`.

    The length of a pair is that of its longer side, with its end token. A `sampler` draws the
    tokens of each pair in each epoch. The bucket of a pair follows from one of its planned
    draws, which epochs take in turn, and a batch draws among all lengths of its bucket. So each
    draw is as frequent as without buckets.
    """

    # Takes stores, such as a TokenStore, and perhaps a PairSampler.
    def __init__(self, source: Any, target: Any, *numbers: Any, sampler: Any = None, **named: Any):
        self.source, self.target, self.sampler = source, target, sampler
        plain = [store.lengths[None] for store in (source, target)]
        self._lengths = [*sampler.drawn] if sampler else plain
        super().__init__(np.maximum(*self._lengths) + 1, *numbers, **named)

    @property
    def padding_fraction(self) -> float:
        """Fraction of an epoch's positions, on both sides, that hold padding."""
        source, target = self._lengths
        return 1.0 - self.epoch_sum(source + target + 2) / (2 * self.positions)

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> Batch:
        """Returns the same batch as `make_batch`, for deterministic segmentations."""
        labels, lengths = self.target.gather(numbers, length)
        target = np.roll(labels, 1, axis=-1)
        target[..., 0] = np.where(numbers < 0, PAD_ID, BOS_ID)
        labels[np.arange(length) == lengths[..., None]] = EOS_ID
        return Batch(self.read_sources(numbers, length), target, labels)

    def read_sources(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> Any:
        """Returns the sources of a batch."""
        source, lengths = self.source.gather(numbers, length)
        source[np.arange(length) == lengths[..., None]] = EOS_ID
        return source

    def stack(self, plans: "Sequence[BatchPlan]", i: int) -> Batch:
        # A sampler draws row by row.
        return Plan.stack(self, plans, i) if self.sampler else super().stack(plans, i)

    def part(self, i: int, part: Part) -> Batch:
        if self.sampler is None:
            return super().part(i, part)
        place = self._place(i)
        shortest = self.buckets[place.number - 1].length if place.number else 0
        lengths = range(shortest, place.bucket.length)  # the end token takes one more position
        numbers = self._sentences(place)
        pairs = self.sampler.draw(numbers, (self.seed, i), place.epoch, lengths)
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        batch: Any = make_batch(sources, targets, place.bucket.rows, place.bucket.length)
        return Batch(*map(part.cut, batch))
