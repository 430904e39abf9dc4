"""What training reads of a pair of sentences: draws of modifications and of segmentations."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.encode import Encoded, cache_folder
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MAX_PAIRS, Augmentation
from transformer.data.placeholders import read_pair
from transformer.data.token_store import TextStore, TokenStore, cached_arrays
from transformer.data.tokenizer import UNK_ID, Ids, Tokenizer
from transformer.data.tokenizer.draws import make_random, sampling_key, strengths_of

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

    def draw(
        self, numbers: Sequence[int], key: tuple[int, int], epoch: int, lengths: range
    ) -> list[Sequence[Ids]]:
        """Returns the tokens of both sides of pairs, the longer of which has one of these lengths.

        After `TRIES` other draws, a function of `key`, it is the planned draw of the epoch.
        """
        random, planned = make_random(*key), epoch % self.planned_draws

        def draw(number: int) -> Sequence[Ids]:
            for _ in range(TRIES):
                ids = self._draw(number, random)[1]
                if max(map(len, ids)) in lengths:
                    return ids
            return self._draw(number, make_random("pair", number, planned))[1]

        return [*map(draw, numbers)]

    @property
    def planned_draws(self) -> int:
        """Planned draws of each pair."""
        return PLANNED_MODIFICATIONS if self.augmentation.fractions else PLANNED_SEGMENTATIONS

    def plan(self) -> tuple[Int[np.ndarray, "2 draws pairs"], dict[str, float]]:
        """Returns `drawn`, and by modifier the fraction of the planned draws that it changed."""
        drawn = np.zeros((2, self.planned_draws, len(self.tokens[0])), np.int32)
        changes: collections.Counter[str] = collections.Counter()
        for number, i in itertools.product(range(drawn.shape[2]), range(drawn.shape[1])):
            name, ids = self._draw(number, make_random("pair", number, i))
            drawn[:, i, number] = [*map(len, ids)]
            changes[name] += 1
        return drawn, {name: changes[name] / drawn[0].size for name in self.augmentation.fractions}

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

    arrays, fractions, _ = cached_arrays(folder, make)
    return dataclasses.replace(sampler, drawn=arrays["drawn"]), fractions
