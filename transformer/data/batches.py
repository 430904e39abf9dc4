"""Batches of sentence pairs, and a length-bucketed plan for all training batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan, Part, Plan

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # the same in every vocabulary
Ids = Sequence[int] | Int[np.ndarray, "_"]  # token ids of one sentence


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. Unused rows contain only padding.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, which is
    the target shifted left by one and ends in end-of-sentence. `source` ends in end-of-sentence, or
    is a `PictureText` for image captioning.
    """

    source: Int[np.ndarray, "B M"] | tuple
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Batches up to `rows` pairs, padded to `length` tokens including the begin or end token."""
    source = stack_rows(sources, rows, length, end=[EOS_ID])
    return Batch(source, *make_targets(targets, rows, length))


def make_targets(
    targets: Sequence[Ids], rows: int, length: int
) -> tuple[Int[np.ndarray, "rows length"], Int[np.ndarray, "rows length"]]:
    """Returns the decoder inputs (`target`) and the labels of a batch."""
    target = stack_rows(targets, rows, length, begin=[BOS_ID])
    return target, stack_rows(targets, rows, length, end=[EOS_ID])


def stack_rows(
    sequences: Sequence[Ids], rows: int, length: int, begin: Ids = (), end: Ids = ()
) -> Int[np.ndarray, "rows length"]:
    """Stacks up to `rows` sequences with begin and end tokens, padded to `length` tokens."""
    tokens = np.full((rows, length), PAD_ID, np.int32)
    for row, ids in enumerate([*begin, *ids, *end] for ids in sequences):
        tokens[row, : len(ids)] = ids
    return tokens


class BatchPlan(BucketPlan[Any]):
    """All training batches of sentence pairs; see `BucketPlan`.

    The length of a pair is the length of its longer side, including the end token. A `sampler`
    samples the tokens of each pair again in each epoch. The bucket of the pair is determined by one
    of a few precomputed samples, which epochs use in turn. Then the pair is sampled among all
    lengths in this bucket. So bucketing does not change how frequent each sample is.
    """

    links: Any = None  # a WordLinks, which links the tokens of each batch

    # `source` and `target` are stores, such as a TokenStore; `sampler` is a PairSampler or None.
    def __init__(self, source: Any, target: Any, *numbers: Any, sampler: Any = None, **named: Any):
        self.source, self.target, self.sampler = source, target, sampler
        plain = [store.lengths[None] for store in (source, target)]
        lengths = [*sampler.drawn] if sampler else plain
        super().__init__(np.maximum(*lengths) + 1, *numbers, **named)
        self.mean_lengths = sum(lengths) / 2 + 1

    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> Any:
        """Returns the batch that `make_batch` would return for these pairs without sampling."""
        labels, lengths = self.target.gather(numbers, length)
        target = np.roll(labels, 1, axis=-1)
        target[..., 0] = np.where(numbers < 0, PAD_ID, BOS_ID)
        labels[np.arange(length) == lengths[..., None]] = EOS_ID
        batch = Batch(self.read_sources(numbers, length), target, labels)
        return batch if self.links is None else self.links.link(batch, numbers.ravel().tolist())

    def read_sources(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> Any:
        """Returns the source side of a batch."""
        source, lengths = self.source.gather(numbers, length)
        source[np.arange(length) == lengths[..., None]] = EOS_ID
        return source

    def stack(self, plans: "Sequence[BatchPlan]", i: int) -> Any:
        # A sampler handles pairs one at a time, so each plan makes its own batch.
        return Plan.stack(self, plans, i) if self.sampler else super().stack(plans, i)

    def part(self, i: int, part: Part) -> Any:
        if self.sampler is None:
            return super().part(i, part)
        place = self._place(i)
        shortest = self.buckets[place.number - 1].length if place.number else 0
        lengths = range(shortest, place.bucket.length)  # the end token takes one more position
        numbers = self._sentences(place)
        pairs = self.sampler.draw(numbers, (self.seed, i), place.epoch, lengths)
        sources, targets, links = ([pair[side] for pair in pairs] for side in range(3))
        batch: Any = make_batch(sources, targets, place.bucket.rows, place.bucket.length)
        batch = batch if self.links is None else self.links.link(batch, links)
        return type(batch)(*map(part.cut, batch))
