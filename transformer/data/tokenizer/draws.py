"""Random segmentations of normalised text (subword regularisation).

sentencepiece can also sample, but it seeds its random generator in each process, so a resumed run
could not reproduce the samples.

Source: BPE-dropout, Provilkov et al. 2020, algorithm 1; subword regularization, Kudo 2018, section
3.2, over all segmentations.
"""

import bisect
import functools
import hashlib
import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict

from transformer.config.keys import having
from transformer.data.batches import UNK_ID
from transformer.errors import UserError

WORD_START = "▁"  # precedes each word
UNK_PENALTY = 10.0  # lowest score minus the score of unknown characters, as in sentencepiece
CACHED = 2**16  # number of words in the cache
SHORT = 24  # maximum characters of a cached word
# The key of `config.tokenizer` with the sampling strength, for each tokenizer kind.
KEYS = {kind: having(f"draws_{kind}")[0].removeprefix("tokenizer.") for kind in ("bpe", "unigram")}


class Draws:
    """Samples segmentations from a BPE or unigram model."""

    def __init__(self, proto: Any):
        pieces = list(enumerate(proto.pieces))
        symbols = sorted((p.piece for _, p in pieces if p.type == p.USER_DEFINED), key=len)
        self._ids = {p.piece: i for i, p in pieces if p.type in (p.NORMAL, p.USER_DEFINED)}
        self._bytes = [i for i, p in pieces if p.type == p.BYTE]
        self._scores = {p.piece: p.score for _, p in pieces if p.type == p.NORMAL}
        self._longest = max(map(len, self._scores), default=1)
        self._unknown = min(self._scores.values(), default=0.0) - UNK_PENALTY
        self._words = re.compile(f"{WORD_START}?[^{WORD_START}]+|{WORD_START}", re.DOTALL)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, reversed(symbols)))})")
        self._has_symbols = bool(symbols)
        is_bpe = proto.trainer_spec.model_type == proto.trainer_spec.BPE
        self._draw_word = self._drop_merges if is_bpe else self._walk_lattice
        self._cached_best = functools.lru_cache(CACHED)(self._best)
        self._cached_lattice = functools.lru_cache(CACHED)(self._lattice)

    def draw(self, text: str, strength: float, uniform: Callable[[], float]) -> list[int]:
        """Samples the token ids of a normalised text; see `Tokenizer.sample`."""
        parts = self._symbols.split(text) if self._has_symbols else [text]
        ids: list[int] = []
        for number, part in enumerate(parts):
            if number % 2:
                ids.append(self._ids[part])
                continue
            for word in self._words.findall(part):
                drawn = self._draw_word(word, strength, uniform)
                joined = ids and ids[-1] == UNK_ID == drawn[0]  # one run of unknown characters
                ids += drawn[1:] if joined else drawn
        return ids

    def _ids_of(self, pieces: Iterable[str]) -> Iterator[int]:
        """Yields the ids of pieces; unknown characters become bytes, or UNK_ID once per run."""
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

    def _drop_merges(self, word: str, dropout: float, uniform: Callable[[], float]) -> list[int]:
        """Encodes a word with BPE-dropout; `dropout` is the probability of dropping a merge."""
        ids, merges = (self._cached_best if len(word) <= SHORT else self._best)(word)
        # The number of merges before the first dropped merge is geometrically distributed.
        first = uniform()
        if first < (1.0 - dropout) ** merges:
            return ids
        count = int(math.log(first) / math.log1p(-dropout)) if dropout < 1.0 else 0
        pieces = list(word)
        for _ in range(min(count, merges - 1)):  # guards against rounding errors
            _merge(pieces, self._merges(pieces)[0])
        places = self._merges(pieces)[1:]
        while (place := next((p for p in places if uniform() >= dropout), None)) is not None:
            _merge(pieces, place)
            places = self._merges(pieces)
        return list(self._ids_of(pieces))

    def _merges(self, pieces: Sequence[str]) -> list[int]:
        """Returns the positions of possible merges, best first; ties are ordered left to right."""
        pairs = enumerate(map("".join, itertools.pairwise(pieces)))
        scores = {place: self._scores[pair] for place, pair in pairs if pair in self._scores}
        return sorted(scores, key=scores.__getitem__, reverse=True)

    def _best(self, word: str) -> tuple[list[int], int]:
        """Returns the ids of a word encoded without dropout, and the number of merges."""
        pieces = list(word)
        while places := self._merges(pieces):
            _merge(pieces, places[0])
        return list(self._ids_of(pieces)), len(word) - len(pieces)

    def _walk_lattice(self, word: str, alpha: float, uniform: Callable[[], float]) -> list[int]:
        """Samples a segmentation of a word, from the last character to the first."""
        lattice = (self._cached_lattice if len(word) <= SHORT else self._lattice)(word, alpha)
        end, pieces = len(word), []
        while end:
            starts, sums = lattice[end]
            # Rounding may leave the last sum slightly below one.
            start = starts[min(bisect.bisect(sums, uniform()), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return list(self._ids_of(reversed(pieces)))

    def _lattice(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """Returns the possible starts and their cumulative probabilities for each piece end."""
        totals, lattice = [0.0], [([], [])]  # log-sum-exp over all segmentations up to an end
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


def _merge(pieces: list[str], place: int) -> None:
    """Merges the piece at position `place` with the next piece."""
    pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


# -- strength of sampling


def strength_of(settings: ConfigDict, kind: str) -> float:
    """Returns the BPE dropout or the unigram alpha of a tokenizer kind, or 0 for no sampling."""
    for other, key in KEYS.items():
        if settings[key] and kind != other:
            raise UserError(
                f"tokenizer.{key}={settings[key]:g} is for subwords of kind {other}, and these are "
                f"of kind {kind}: set config.tokenizer.{key}=0"
            )
    return settings[KEYS[kind]] if kind in KEYS else 0.0


def strengths_of(settings: ConfigDict, kinds: Sequence[str]) -> tuple[float, float]:
    """Returns `strength_of` for source and target, or 0 for a side that is not sampled."""
    source, target = (strength_of(settings, kind) for kind in kinds)
    sides = settings.sampling_sides
    return source * (sides != "target"), target * (sides != "source")


def make_random(*key: object) -> random.Random:
    """Returns a random generator seeded by `key`, identical in every process."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))
