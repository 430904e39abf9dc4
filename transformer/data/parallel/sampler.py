"""What a batch reads of a training pair is drawn when the batch is made."""

import collections
import dataclasses
from collections.abc import Sequence
from random import Random

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.encode import Encoded
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MAX_PAIRS, Augmentation
from transformer.data.token_store import TextStore, TokenStore
from transformer.data.tokenizer import UNK_ID, Ids, Tokenizer
from transformer.data.tokenizer.sampling import make_generator, strengths_of

# Draws of each pair when it is encoded, by which epochs in turn choose its batch: of segmentations,
# and of modifications, whose lengths differ more.
PLANNED_SEGMENTATIONS, PLANNED_MODIFICATIONS = 2, 4
TRIES = 4  # draws of a pair in search of a length of its batch, before the planned draw is taken
DRAWN, MODIFIED = "drawn", "modified"  # an array and a note of an encoded corpus


@dataclasses.dataclass(frozen=True)
class PairSampler:
    """Draws a modification of a training pair and a segmentation of each side.

    Draws are a function of their generator and of the texts alone, in every process and thread.

    Attributes:
      texts: of source and target, canonical.
      tokens: the deterministic segmentation of each side.
      tokenizers: of source and target.
      strengths: of the draws of each side's segmentations, see `strength_of`; 0 for none.
      augmentation: how pairs are modified.
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

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        tokenizers: Sequence[Tokenizer],
        settings: ConfigDict,
        augmentation: Augmentation,
        max_tokens: int,
    ) -> "PairSampler":
        """Returns the sampler of a corpus that is encoded with its texts.

        Args:
          tokenizers: one for both sides, or one each.
          settings: `config.tokenizer`.
        """
        return cls(
            (encoded.text("source"), encoded.text("target")),
            (encoded.store("source"), encoded.store("target")),
            (tokenizers[0], tokenizers[-1]),
            strengths_of(settings, tokenizers),
            augmentation,
            max_tokens,
            encoded.arrays.get(DRAWN, np.zeros((2, 0, 0), np.int32)),  # before they are planned
        )

    def draw(self, number: int, epoch: int, random: Random, lengths: range) -> Sequence[Ids]:
        """Returns the tokens of source and target of a draw of a pair, without ends.

        After `TRIES` others, it is the planned draw.

        Args:
          epoch: which has a planned draw of one of these lengths.
          lengths: of the longer side, in tokens.
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

    def plan(self, encoded: Encoded) -> Encoded:
        """Returns the corpus with `drawn`, and the fraction of these that each modifier changed."""
        count = len(self.tokens[0])
        drawn = np.zeros((2, self.planned_draws, count), np.int32)
        changes: collections.Counter[str] = collections.Counter()
        for number in range(count):
            for i in range(self.planned_draws):
                name, ids = self._draw(number, self._planned(number, i))
                drawn[:, i, number] = [*map(len, ids)]
                changes[name] += 1
        fractions = {name: changes[name] / drawn[0].size for name in self.augmentation.fractions}
        arrays, notes = {**encoded.arrays, DRAWN: drawn}, {**encoded.notes, MODIFIED: fractions}
        return dataclasses.replace(encoded, arrays=arrays, notes=notes)

    @staticmethod
    def _planned(number: int, draw: int) -> Random:
        return make_generator("pair", number, draw)

    def _draw(self, number: int, random: Random) -> tuple[str, Sequence[Ids]]:
        """The name of the modifier, '' for none, and the tokens of both sides."""
        numbers = range(number, min(number + MAX_PAIRS, len(self.tokens[0])))
        name, pair = self.augmentation.draw(
            lambda: [Pair(self.texts[0][i], self.texts[1][i]) for i in numbers], random
        )
        sides, ids = (pair.source, pair.target) if pair else None, []
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
