"""Random segmentations of normalised text: BPE-dropout and unigram sampling.

sentencepiece draws such too, but its generator is salted with the process: its draws cannot be made
again by a run that resumes.

Source: Provilkov et al. 2020, algorithm 1; Kudo 2018, section 3.2, over all segmentations.
"""

import bisect
import functools
import itertools
import math
import operator
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from transformer.data.tokenizer.ids import UNK_ID

BLANK = "▁"  # before a word
UNK_PENALTY = 10.0  # of an unknown character, below the lowest score; as in sentencepiece
CACHED = 2**16  # states of words, or lattices, that are remembered
SHORT = 24  # characters of a word that is


class _State(NamedTuple):
    """A word between two merges."""

    pieces: tuple[str, ...]
    merges: tuple[int, ...]  # where two pieces can be merged, the best first
    after: "dict[int, _State]"  # each of those that was made


class Draws:
    """Draws segmentations by a bpe or unigram model.

    Args:
      proto: the model.
    """

    def __init__(self, proto: Any):
        pieces = list(enumerate(proto.pieces))
        normal = [(i, p) for i, p in pieces if p.type == p.NORMAL]
        symbols = sorted((p.piece for _, p in pieces if p.type == p.USER_DEFINED), key=len)
        self._ids = {p.piece: i for i, p in pieces if p.type in (p.NORMAL, p.USER_DEFINED)}
        self._bytes = [i for i, p in pieces if p.type == p.BYTE]
        self._scores = {p.piece: p.score for _, p in normal}
        self._longest = max(map(len, self._scores), default=1)
        self._unknown = min(self._scores.values(), default=0.0) - UNK_PENALTY
        # No piece goes on behind a blank, but of a model that was trained so.
        words = f"{BLANK}?[^{BLANK}]+|{BLANK}"
        if any(BLANK in piece[1:] for piece in self._scores):
            words = ".+"
        self._words = re.compile(words, re.DOTALL)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, reversed(symbols)))})")
        self._has_symbols = bool(symbols)
        is_bpe = proto.trainer_spec.model_type == proto.trainer_spec.BPE
        self._draw_word = self._drop_merges if is_bpe else self._walk_lattice
        self._words_met: dict[str, _State] = {}
        self._states_met = 0
        self._cached_lattice = functools.lru_cache(CACHED)(self._lattice)

    def draw(self, text: str, strength: float, seed: int) -> list[int]:
        """Returns the ids of a segmentation of a normalised text; see `Tokenizer.sample`."""
        uniform = random.Random(seed).random
        parts = self._symbols.split(text) if self._has_symbols else [text]
        pieces: list[str] = []
        for number, part in enumerate(parts):
            if number % 2:
                pieces.append(part)
                continue
            for word in self._words.findall(part):
                pieces += self._draw_word(word, strength, uniform)
        return list(self._numbers(pieces))

    def _numbers(self, pieces: list[str]) -> Iterator[int]:
        """The ids of pieces; a character without one is spelt in bytes, or a run is unknown."""
        before = None
        for piece in pieces:
            number = self._ids.get(piece, UNK_ID)
            if number != UNK_ID:
                yield number
            elif self._bytes:
                yield from (self._bytes[byte] for byte in piece.encode())
            elif before != UNK_ID:
                yield UNK_ID
            before = number

    def _drop_merges(
        self, word: str, dropout: float, uniform: Callable[[], float]
    ) -> tuple[str, ...]:
        state = self._words_met.get(word) or self._meet(tuple(word))
        if len(word) <= SHORT:
            self._words_met[word] = state
        while True:
            for place in state.merges:  # the best of those that this step does not drop
                if uniform() >= dropout:
                    state = state.after.get(place) or self._merge(state, place)
                    break
            else:
                return state.pieces

    def _merge(self, state: "_State", place: int) -> "_State":
        pieces = state.pieces
        merged = pieces[place] + pieces[place + 1]
        state.after[place] = self._meet((*pieces[:place], merged, *pieces[place + 2 :]))
        return state.after[place]

    def _meet(self, pieces: tuple[str, ...]) -> "_State":
        self._states_met += 1
        if self._states_met > CACHED:
            self._states_met = 0
            self._words_met.clear()
        scores = self._scores
        merged = map(operator.add, pieces, pieces[1:])
        found = sorted((-scores[piece], i) for i, piece in enumerate(merged) if piece in scores)
        return _State(pieces, tuple(i for _, i in found), {})

    def _walk_lattice(self, word: str, alpha: float, uniform: Callable[[], float]) -> list[str]:
        lattice = (self._cached_lattice if len(word) <= SHORT else self._lattice)(word, alpha)
        end, pieces = len(word), []
        while end:
            starts, sums = lattice[end]
            # Rounding may leave the last sum a little below one.
            start = starts[min(bisect.bisect(sums, uniform()), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _lattice(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """For each place, where the piece that ends there starts, and sums of the probabilities."""
        totals, lattice = [0.0], [([], [])]  # log-sums over all segmentations up to a place
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end])
                if score is None and start == end - 1:
                    score = self._unknown
                if score is not None:
                    starts.append(start)
                    logs.append(totals[start] + alpha * score)
            highest = max(logs)
            weights = [math.exp(log - highest) for log in logs]
            total = sum(weights)
            totals.append(highest + math.log(total))
            sums = list(itertools.accumulate(weight / total for weight in weights))
            lattice.append((starts, sums))
        return lattice
