"""Batches of sentence pairs: the plan of all in length buckets, and what is drawn of each pair."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.buckets import BucketPlan, Mixture, Part, Plan
from transformer.data.encode import Encoded, cache_folder
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MAX_PAIRS, Augmentation
from transformer.data.placeholders import read_pair
from transformer.data.token_store import TextStore, TokenStore, cached_arrays
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Ids, Tokenizer
from transformer.data.tokenizer.draws import make_generator, sampling_key, strengths_of
from transformer.model.vision.inputs import PictureText

# Draws of each pair when it is encoded, by which epochs in turn choose its batch: of segmentations,
# and of modifications, whose lengths differ more.
PLANNED_SEGMENTATIONS, PLANNED_MODIFICATIONS = 2, 4
TRIES = 4  # draws of a pair in search of a length of its batch, before the planned draw is taken


@dataclasses.dataclass(frozen=True)
class PairSampler:
    """Draws a modification of a training pair and a segmentation of each side.

    Draws are a function of their generator and of the texts alone, in every process and thread.

    Attributes:
      texts: of source and target, canonical.
      tokens: the deterministic segmentation of each side.
      strengths: of the draws of each side's segmentations, see `strength_of`; 0 for none.
      max_tokens: of a side of a draw, with its end. A pair that would be longer, or get unknown
        tokens from a modifier, is read as it is.
      drawn: lengths of the sides of the planned draws of each pair, in tokens.
    """

    texts: tuple[TextStore, TextStore]
    tokens: tuple[TokenStore, TokenStore]
    tokenizers: tuple[Tokenizer, Tokenizer]
    strengths: tuple[float, float]
    augmentation: Augmentation
    max_tokens: int
    drawn: Int[np.ndarray, "2 draws pairs"]

    def draw(self, number: int, epoch: int, random: Random, lengths: range) -> Sequence[Ids]:
        """Returns the tokens of both sides of a draw whose longer side has one of these lengths.

        After `TRIES` others, it is the planned draw of the epoch, which has.
        """
        for _ in range(TRIES):
            ids = self._draw(number, random)[1]
            if max(map(len, ids)) in lengths:
                return ids
        return self._draw(number, self._planned(number, epoch % self.planned_draws))[1]

    @property
    def planned_draws(self) -> int:
        """Planned draws of each pair."""
        return PLANNED_MODIFICATIONS if self.augmentation.fractions else PLANNED_SEGMENTATIONS

    def plan(self) -> tuple[Int[np.ndarray, "2 draws pairs"], dict[str, float]]:
        """Returns `drawn`, and by modifier the fraction of the planned draws that it changed."""
        drawn = np.zeros((2, self.planned_draws, len(self.tokens[0])), np.int32)
        changes: collections.Counter[str] = collections.Counter()
        for number, i in itertools.product(range(drawn.shape[2]), range(drawn.shape[1])):
            name, ids = self._draw(number, self._planned(number, i))
            drawn[:, i, number] = [*map(len, ids)]
            changes[name] += 1
        return drawn, {name: changes[name] / drawn[0].size for name in self.augmentation.fractions}

    @staticmethod
    def _planned(number: int, draw: int) -> Random:
        return make_generator("pair", number, draw)

    def _draw(self, number: int, random: Random) -> tuple[str, Sequence[Ids]]:
        """The name of the modifier, '' for none, and the tokens of both sides."""
        numbers = range(number, min(number + MAX_PAIRS, len(self.tokens[0])))
        name, pair = self.augmentation.draw(
            lambda: [Pair(self.texts[0][i], self.texts[1][i]) for i in numbers], random
        )
        sides, ids = None, []
        if pair:
            sides = read_pair(pair, self.tokenizers[0].words, training=True)[:2]
        for side, tokenizer in enumerate(self.tokenizers):
            if strength := self.strengths[side]:
                text = tokenizer.normalize(sides[side] if sides else self.texts[side][number])
                ids.append(tokenizer.sample(text, strength, random.random))
            else:
                plain = self.tokens[side][number]
                ids.append(tokenizer.encode([sides[side]])[0] if sides else plain)
        unknown = name and any(UNK_ID in side for side in ids)
        if max(map(len, ids)) < self.max_tokens and not unknown:
            return name, ids
        return "", [tokens[number] for tokens in self.tokens]


def make_sampler(
    encoded: Encoded,
    tokenizers: Sequence[Tokenizer],
    augmentation: Augmentation,
    max_tokens: int,
    data: ConfigDict,
    settings: ConfigDict,
) -> tuple[PairSampler, Mapping[str, float]]:
    """Returns the sampler of an encoded corpus, its plan from the cache, and what it modifies."""
    sampler = PairSampler(
        (encoded.text("source"), encoded.text("target")),
        (encoded.side("source"), encoded.side("target")),
        (tokenizers[0], tokenizers[1]),
        strengths_of(settings, [tokenizer.kind for tokenizer in tokenizers]),
        augmentation,
        max_tokens,
        np.zeros((2, 0, 0), np.int32),
    )
    digests = [encoded.arrays_digest, *(tokenizer.digest for tokenizer in tokenizers)]
    key = repr((*digests, *sampling_key(settings), *augmentation.key, max_tokens))
    folder = cache_folder(data) / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.drawn"

    def make(_: Path) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        drawn, fractions = sampler.plan()
        return {"drawn": drawn}, fractions

    arrays, fractions, _ = cached_arrays(folder, make, "drawn from")
    return dataclasses.replace(sampler, drawn=arrays["drawn"]), fractions


# -- batches


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. A row of padding alone is not a sentence.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, the
    same shifted left by one and ending in end-of-sentence. `source` ends in end-of-sentence; of
    captions, it is pictures.
    """

    source: Int[np.ndarray, "B M"] | PictureText
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Returns the batch of up to `rows` encoded pairs; `length` includes the begin or the end."""
    source = np.full((rows, length), PAD_ID, np.int32)
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = EOS_ID
    return Batch(source, *make_targets(targets, rows, length))


def make_targets(
    targets: Sequence[Ids], rows: int, length: int
) -> tuple[Int[np.ndarray, "rows length"], Int[np.ndarray, "rows length"]]:
    """Returns the target and the labels of a batch."""
    target, labels = (np.full((rows, length), PAD_ID, np.int32) for _ in range(2))
    for row, ids in enumerate(targets):
        target[row, 0] = BOS_ID
        target[row, 1 : len(ids) + 1] = ids
        labels[row, : len(ids)] = ids
        labels[row, len(ids)] = EOS_ID
    return target, labels


class BatchPlan(BucketPlan[Batch]):
    """All training batches of sentence pairs, see `BucketPlan`.

    The length of a pair is that of its longer side, with its end. A `sampler` draws what is read of
    each pair in each epoch. The bucket of a pair is that of one of its planned draws, which epochs
    take in turn, and a batch draws among all of the lengths of its bucket. So each draw is as
    frequent as among free ones.
    """

    def __init__(
        self,
        source: Any,  # TokenStore or PictureStore
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
        # Draws are made row by row.
        return Plan.stack(self, plans, i) if self.sampler else super().stack(plans, i)

    def part(self, i: int, part: Part) -> Batch:
        if self.sampler is None:
            return super().part(i, part)
        place, random = self._place(i), make_generator(self.seed, i)
        shortest = self.buckets[place.number - 1].length if place.number else 0
        lengths = range(shortest, place.bucket.length)  # without the end, which takes one position
        numbers = self._sentences(place)
        pairs = [self.sampler.draw(number, place.epoch, random, lengths) for number in numbers]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        batch: Any = make_batch(sources, targets, place.bucket.rows, place.bucket.length)
        return Batch(*map(part.cut, batch))
