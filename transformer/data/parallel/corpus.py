"""Preparation of parallel corpora: cleaning, tokenizers, encoding, and sampled segmentations."""

import collections
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
from jaxtyping import Int, UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning import SHORT_SENTENCE, CleaningReport, check_kept
from transformer.data.corpora import texts_of
from transformer.data.encode import (
    TOKENIZER,
    Encoded,
    EncodedPart,
    Restartable,
    batched,
    cache_folder,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MAX_PAIRS, Augmentation, augmentation_of
from transformer.data.parallel.training_pairs import HeldOutReport, TrainingPairs, undirected
from transformer.data.placeholders import NAMES, PLACEHOLDER_RULE, read_pair
from transformer.data.token_store import TokenStore, cached_arrays
from transformer.data.tokenizer import UNK_ID, Ids, Tokenizer, with_symbols
from transformer.data.tokenizer.draws import make_random, strengths_of

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")
TOKEN_LIMITS = ("too_many_tokens", "token_ratio")  # fields of `CleaningReport`
# Number of precomputed samples per pair, which the epochs use in turn to choose the bucket of the
# pair. Modification changes the length of a pair more than segmentation does.
PLANNED_SEGMENTATIONS, PLANNED_MODIFICATIONS = 2, 4
TRIES = 4  # attempts to sample a pair that fits its bucket, before the precomputed sample is used


@dataclasses.dataclass(frozen=True)
class PairSampler:
    """Samples a modification of each training pair and a segmentation of each side.

    Samples depend only on the random generator and the texts, not on the process or thread.

    Attributes:
      texts: canonical texts of source and target, in UTF-8.
      tokens: the deterministic segmentation of each side.
      strengths: sampling strength for each side (see `strength_of`), or 0 for no sampling.
      max_tokens: maximum length of a sampled side, including the end token. If a sample is longer,
        or has unknown tokens from a modifier, the original tokens are used.
      cache: folder for the lengths of the precomputed samples.
    """

    texts: tuple[TokenStore, TokenStore]
    tokens: tuple[TokenStore, TokenStore]
    tokenizers: tuple[Tokenizer, Tokenizer]
    strengths: tuple[float, float]
    augmentation: Augmentation
    max_tokens: int
    cache: Path

    def draw(
        self, numbers: Sequence[int], key: tuple[int, int], epoch: int, lengths: range
    ) -> list[Sequence[Ids]]:
        """Samples the token ids of each pair so that the longer side's length is in `lengths`.

        `key` seeds the samples. If `TRIES` attempts fail, the epoch's precomputed sample is used.
        """
        random, planned = make_random(*key), epoch % self.planned_draws

        def draw(number: int) -> Sequence[Ids]:
            for _ in range(TRIES):
                ids = self._draw(number, random)
                if max(map(len, ids)) in lengths:
                    return ids
            return self._draw(number, make_random("pair", number, planned))

        return [*map(draw, numbers)]

    @property
    def planned_draws(self) -> int:
        """Number of precomputed samples per pair."""
        return PLANNED_MODIFICATIONS if self.augmentation.fractions else PLANNED_SEGMENTATIONS

    @functools.cached_property
    def drawn(self) -> Int[np.ndarray, "2 draws pairs"]:
        """Number of tokens on both sides of the precomputed samples of each pair."""
        return cached_arrays(self.cache, lambda _: ({"drawn": self._plan()}, {}))[0]["drawn"]

    def _plan(self) -> Int[np.ndarray, "2 draws pairs"]:
        drawn = np.zeros((2, self.planned_draws, len(self.tokens[0])), np.int32)
        for number, i in itertools.product(range(drawn.shape[2]), range(drawn.shape[1])):
            ids = self._draw(number, make_random("pair", number, i))
            drawn[:, i, number] = [*map(len, ids)]
        return drawn

    def _text(self, side: int, number: int) -> str:
        return self.texts[side][number].tobytes().decode()

    def _draw(self, number: int, random: Random) -> Sequence[Ids]:
        """Samples the token ids of both sides of a pair."""
        numbers = range(number, min(number + MAX_PAIRS, len(self.tokens[0])))
        pair = self.augmentation.draw(
            lambda: [Pair(self._text(0, i), self._text(1, i)) for i in numbers], random
        )
        sides, ids = None, []
        if pair:
            sides = read_pair(pair, self.tokenizers[0].words, training=True)[:2]
        for side, tokenizer in enumerate(self.tokenizers):
            if strength := self.strengths[side]:
                text = tokenizer.normalize(sides[side] if sides else self._text(side, number))
                ids.append(tokenizer.sample(text, strength, random.random))
            else:
                plain = self.tokens[side][number]
                ids.append(tokenizer.encode([sides[side]])[0] if sides else plain)
        unknown = pair and any(UNK_ID in side for side in ids)
        if max(map(len, ids)) < self.max_tokens and not unknown:
            return ids
        return [tokens[number] for tokens in self.tokens]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus(Encoded):
    """Cleaned and encoded training data, with tokenizers and cleaning reports.

    Attributes:
      reports: one cleaning report per corpus, in the order in which the corpora are concatenated.
      held_out: a report for each held-out split.
      hashes: hashes (see `undirected`) of all pairs, even if token limits drop them.
      sampler: samples modifications and segmentations, or None if the pairs are fixed.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    reports: tuple[CleaningReport, ...]
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "pairs"]
    sampler: PairSampler | None = None

    @property
    def source(self) -> TokenStore:
        """The encoded sources."""
        return self.side("source")

    @property
    def target(self) -> TokenStore:
        """The encoded targets."""
        return self.side("target")

    @property
    def report(self) -> CleaningReport:
        """The combined report on all corpora."""
        counts = (collections.Counter(report.counts) for report in self.reports)
        return CleaningReport(sum(counts, collections.Counter()))


def tokenizer_names(joint: bool) -> tuple[str, ...]:
    """Returns the file names of a run's tokenizers, source first."""
    return (TOKENIZER,) if joint else ("tokenizer.source.model", "tokenizer.target.model")


def encode_corpora(
    corpora: Sequence[TrainingPairs],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    symbols: Sequence[str] = (),
    initial: Path | None = None,
) -> Corpus:
    """Encodes and concatenates the training pairs of one or more corpora.

    Args:
      folder: a run's folder with tokenizers, which are used if they were trained on this data.
      symbols: source strings that are always one token.
      initial: folder of an earlier run whose tokenizers are kept or extended, or None.
    """
    joined = map("".join, zip(*(corpus.fingerprints for corpus in corpora), strict=True))
    fingerprints = [hashlib.sha256(each.encode()).hexdigest() for each in joined]
    settings = with_symbols(settings, NAMES if settings.placeholders else ())
    augmentation = augmentation_of(data, (*settings.symbols, *symbols))
    make = functools.partial(
        make_tokenizer, data=data, settings=settings, folder=folder, initial=initial
    )
    tokenizers = _pair_tokenizers(corpora, fingerprints, augmentation, make, settings, symbols)
    limits = [(own.max_tokens, own.max_token_ratio) for own in texts_of(data)]
    rule = f"pairs {PLACEHOLDER_RULE}" if settings.placeholders else "pairs"
    strengths = strengths_of(settings, [tokenizer.kind for tokenizer in tokenizers])
    sampled = bool(any(strengths) or augmentation.fractions)
    encoded = encode_training_text(
        _parallel_parts(corpora, limits, tokenizers),
        dict(zip(SIDES, tokenizers, strict=True)),
        (rule, *fingerprints, *(corpus.report.kept for corpus in corpora), *limits),
        data,
        settings,
        initial,
        with_texts=sampled,
    )
    sampler = None
    if sampled:
        longest = max(max_tokens for max_tokens, _ in limits)
        digests = [encoded.arrays_digest, *(tokenizer.digest for tokenizer in tokenizers)]
        key = repr((*digests, *strengths, *augmentation.key, longest))
        sampler = PairSampler(
            (encoded.side("source_text"), encoded.side("target_text")),
            (encoded.side("source"), encoded.side("target")),
            (tokenizers[0], tokenizers[1]),
            strengths,
            augmentation,
            longest,
            cache_folder(data) / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.drawn",
        )
    reports = tuple(
        corpus.report.without(**{name: encoded.notes[f"{number} {name}"] for name in TOKEN_LIMITS})
        for number, corpus in enumerate(corpora)
    )
    for report in reports:
        check_kept(report)
    return Corpus(
        **vars(encoded),
        source_tokenizer=tokenizers[0],
        target_tokenizer=tokenizers[1],
        reports=reports,
        held_out=dict(itertools.chain(*(corpus.held_out.items() for corpus in corpora))),
        hashes=undirected(np.concatenate([corpus.hashes for corpus in corpora])),
        sampler=sampler,
    )


def _pair_tokenizers(
    corpora: Sequence[TrainingPairs],
    fingerprints: Sequence[str],
    augmentation: Augmentation,
    make: Callable[..., Tokenizer],
    settings: ConfigDict,
    symbols: Sequence[str],
) -> list[Tokenizer]:
    """Returns the source and target tokenizers; see `encode_corpora`."""
    pairs = Restartable(lambda: itertools.chain(*(corpus.cleaned for corpus in corpora)))
    count = sum(corpus.report.kept for corpus in corpora)
    words = functools.cache(lambda: augmentation.words.learn(pairs))
    tokenizers: list[Tokenizer] = []
    for number, name in enumerate(tokenizer_names(settings.joint)):
        sides = (0, 1) if settings.joint else (number,)
        tokenizer = make(
            Restartable(
                lambda sides=sides: (
                    read_pair(pair, words(), training=True)[:2][side]
                    for pair in pairs
                    for side in sides
                )
            ),
            "".join(fingerprints[side] for side in sides),
            file=name,
            model=(settings.model, settings.target_model)[number],
            symbols=symbols if 0 in sides else (),
            count=count * len(sides),
            reads=tuple(side == 0 for side in sides),
            words=words if 0 in sides else None,
        )
        tokenizers += [tokenizer.writer() if side else tokenizer for side in sides]
    return tokenizers


def _parallel_parts(
    corpora: Sequence[TrainingPairs],
    limits: Sequence[tuple[int, float]],
    tokenizers: Sequence[Tokenizer],
) -> Iterator[EncodedPart]:
    """Yields encoded pairs within the token limits of their corpus, and counts of dropped pairs."""
    read = functools.partial(read_pair, words=tokenizers[0].words, training=True)
    for number, (corpus, (max_tokens, max_ratio)) in enumerate(zip(corpora, limits, strict=True)):
        for chunk in batched(map(read, corpus.cleaned), ENCODE_AT_ONCE):
            texts = [[pair.source for pair in chunk], [pair.target for pair in chunk]]
            ids = [tokenizer.encode(own) for tokenizer, own in zip(tokenizers, texts, strict=True)]
            counts = np.array([[*map(len, side)] for side in ids])
            short = counts.max(axis=0) + 1 <= max_tokens
            counts += SHORT_SENTENCE
            balanced = counts.max(axis=0) <= (max_ratio or np.inf) * counts.min(axis=0)
            marks = (short & balanced).tolist()
            ids = ([*itertools.compress(own, marks)] for own in ids)
            lines = ([*itertools.compress(own, marks)] for own in texts)
            dropped = int((~short).sum()), int((short & ~balanced).sum())
            names = (f"{number} {name}" for name in TOKEN_LIMITS)
            yield EncodedPart(
                dict(zip(SIDES, ids, strict=True)),
                counts=dict(zip(names, dropped, strict=True)),
                texts=dict(zip(SIDES, lines, strict=True)),
            )
