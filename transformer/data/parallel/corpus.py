"""Preparation of parallel corpora: cleaning, tokenizers, encoding, and sampled segmentations."""

import collections
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt64
from ml_collections import ConfigDict

from transformer.data.batches import EOS_ID, PAD_ID, UNK_ID, Batch, Ids
from transformer.data.characters import split_words
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
from transformer.data.parallel.modifiers import (
    MAX_PAIRS,
    Augmentation,
    augmentation_of,
    learn_lexicon,
)
from transformer.data.parallel.training_pairs import HeldOutReport, TrainingPairs, undirected
from transformer.data.placeholders import NAMES, PLACEHOLDER_RULE, read_pair
from transformer.data.token_store import TokenStore, cached_arrays
from transformer.data.tokenizer import Tokenizer, with_symbols
from transformer.data.tokenizer.draws import make_random, strengths_of
from transformer.data.words import TERM
from transformer.errors import UserError

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")
TOKEN_LIMITS = ("too_many_tokens", "token_ratio")  # fields of `CleaningReport`
# Number of precomputed samples per pair, which the epochs use in turn to choose the bucket of the
# pair. Modification changes the length of a pair more than segmentation does.
PLANNED_SEGMENTATIONS, PLANNED_MODIFICATIONS = 2, 4
LEXICON_PAIRS = 200_000  # maximum number of pairs of which the linked words are learnt
TRIES = 4  # attempts to sample a pair that fits its bucket, before the precomputed sample is used


# A batch with links [B, L, M]: whether each label is linked to each source token.
LinkedBatch = collections.namedtuple("LinkedBatch", (*Batch._fields, "links"))


class WordLinks(NamedTuple):
    """Links between words of sentence pairs, which become links between their tokens.

    Attributes:
      pairs: the links of each pair; see `flat_links`.
      starts: whether each token of the source and of the target vocabulary begins a word.
    """

    pairs: TokenStore
    starts: tuple[Bool[np.ndarray, "_"], Bool[np.ndarray, "_"]]

    def link(self, batch: Batch, rows: Sequence[int | Ids]) -> LinkedBatch:
        """Returns the batch with links, given the index of the pair in each row, or its links.

        Each token of a target word is linked to the first token of each source word that is linked
        to the word. The index -1 is of a padding row.
        """
        words = np.zeros((*batch.labels.shape, np.shape(batch.source)[-1]), bool)
        for place, row in zip(np.ndindex(batch.labels.shape[:-1]), rows, strict=False):
            flat = row if not isinstance(row, int) else self.pairs[row] if row >= 0 else ()
            i, j = np.array(flat, int).reshape(-1, 2).T
            words[(*place, j, i)] = True
        firsts, starts = self.starts[0][batch.source], self.starts[1][batch.labels]
        by_label = np.take_along_axis(words, starts.cumsum(-1)[..., None] - 1, axis=-2)
        links = np.take_along_axis(by_label, firsts.cumsum(-1)[..., None, :] - 1, axis=-1)
        links &= firsts[..., None, :] & ~np.isin(batch.labels, (PAD_ID, EOS_ID))[..., None]
        return LinkedBatch(*batch, links)


def flat_links(pair: Pair, ids: Sequence[Ids], tokenizers: Sequence[Tokenizer]) -> list[int]:
    """Returns a pair's links (i, j) as i, j, i, j and so on.

    There are none if the tokens of a side begin more or fewer words than its text has, as with
    adjacent unknown words or a script that the tokenizer normalises.
    """
    for text, numbers, tokenizer in zip(pair[:2], ids, tokenizers, strict=True):
        if tokenizer.word_starts[np.array(numbers, int)].sum() != len(split_words(text)):
            return []
    return [*itertools.chain(*(pair.alignment or ()))]


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
      links: the word links of the pairs, or None.
    """

    texts: tuple[TokenStore, TokenStore]
    tokens: tuple[TokenStore, TokenStore]
    tokenizers: tuple[Tokenizer, Tokenizer]
    strengths: tuple[float, float]
    augmentation: Augmentation
    max_tokens: int
    cache: Path
    links: WordLinks | None

    def draw(
        self, numbers: Sequence[int], key: tuple[int, int], epoch: int, lengths: range
    ) -> list[Sequence[Ids]]:
        """Samples [source, target, links] of each pair; the longer side's length is in `lengths`.

        `key` seeds the samples. If `TRIES` attempts fail, the epoch's precomputed sample is used.
        """
        random, planned = make_random(*key), epoch % self.planned_draws

        def draw(number: int) -> Sequence[Ids]:
            for _ in range(TRIES):
                ids = self._draw(number, random)
                if max(map(len, ids[:2])) in lengths:
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
            drawn[:, i, number] = [*map(len, ids[:2])]
        return drawn

    def _pair(self, number: int) -> Pair:
        source, target = (texts[number].tobytes().decode() for texts in self.texts)
        links = self.links and map(tuple, self.links.pairs[number].reshape(-1, 2).tolist())
        return Pair(source, target, links and tuple(links))

    @functools.cached_property
    def _lexicon(self):
        count = len(self.tokens[0])
        return learn_lexicon(map(self._pair, range(0, count, -(-count // LEXICON_PAIRS))))

    def _draw(self, number: int, random: Random) -> Sequence[Ids]:
        """Samples the token ids of both sides of a pair, and its links."""
        numbers = range(number, min(number + MAX_PAIRS, len(self.tokens[0])))
        changed = self.augmentation.draw(
            lambda: [*map(self._pair, numbers)], random, lambda: self._lexicon
        )
        pair = changed and read_pair(changed, self.tokenizers[0].words, training=True)
        pair, ids = pair or self._pair(number), []
        for text, tokens, tokenizer, strength in zip(
            pair[:2], self.tokens, self.tokenizers, self.strengths, strict=True
        ):
            if strength:
                ids.append(tokenizer.sample(tokenizer.normalize(text), strength, random.random))
            else:
                ids.append(tokenizer.encode([text])[0] if changed else tokens[number])
        unknown = changed and any(UNK_ID in side for side in ids)
        if max(map(len, ids)) >= self.max_tokens or unknown:
            pair, ids = self._pair(number), [tokens[number] for tokens in self.tokens]
        return [*ids, flat_links(pair, ids, self.tokenizers) if self.links else ()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus(Encoded):
    """Cleaned and encoded training data, with tokenizers and cleaning reports.

    Attributes:
      reports: one cleaning report per corpus, in the order in which the corpora are concatenated.
      held_out: a report for each held-out split.
      hashes: hashes (see `undirected`) of all pairs, even if token limits drop them.
      sampler: samples modifications and segmentations, or None if the pairs are fixed.
      links: the word links of the pairs, or None if they are not needed.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    reports: tuple[CleaningReport, ...]
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "pairs"]
    sampler: PairSampler | None = None
    links: WordLinks | None = None

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
    with_links: bool = False,
) -> Corpus:
    """Encodes and concatenates the training pairs of one or more corpora.

    Args:
      folder: a run's folder with tokenizers, which are used if they were trained on this data.
      symbols: source strings that are always one token.
      initial: folder of an earlier run whose tokenizers are kept or extended, or None.
      with_links: whether to encode the word links of the pairs, too.
    """
    joined = map("".join, zip(*(corpus.fingerprints for corpus in corpora), strict=True))
    fingerprints = [hashlib.sha256(each.encode()).hexdigest() for each in joined]
    names = NAMES * settings.placeholders + TERM * (data.augment_glossary > 0)
    settings = with_symbols(settings, names)
    augmentation = augmentation_of(data, (*settings.symbols, *symbols))
    folders = {"folder": folder, "initial": initial}
    make = functools.partial(make_tokenizer, data=data, settings=settings, **folders)
    tokenizers = _pair_tokenizers(corpora, fingerprints, augmentation, make, settings, symbols)
    limits = [(own.max_tokens, own.max_token_ratio) for own in texts_of(data)]
    rule = f"pairs {PLACEHOLDER_RULE}" if settings.placeholders else "pairs"
    strengths = strengths_of(settings, [tokenizer.kind for tokenizer in tokenizers])
    sampled = bool(any(strengths) or augmentation.fractions)
    digests = [_digest_links(corpora)] if with_links else []
    encoded = encode_training_text(
        _parallel_parts(corpora, limits, tokenizers, with_links),
        dict(zip(SIDES, tokenizers, strict=True)),
        (rule, *fingerprints, *(corpus.report.kept for corpus in corpora), *limits, *digests),
        data,
        settings,
        initial,
        with_texts=sampled,
    )
    links, sampler = _word_links(encoded, tokenizers) if with_links else None, None
    if sampled:
        digests = [encoded.arrays_digest, *(tokenizer.digest for tokenizer in tokenizers)]
        key = repr((*digests, *strengths, *augmentation.key, max(limits)[0]))
        sampler = PairSampler(
            (encoded.side("source_text"), encoded.side("target_text")),
            (encoded.side("source"), encoded.side("target")),
            (tokenizers[0], tokenizers[1]),
            strengths,
            augmentation,
            max(limits)[0],
            cache_folder(data) / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.drawn",
            links,
        )
    reports = (
        corpus.report.without(**{name: encoded.notes[f"{number} {name}"] for name in TOKEN_LIMITS})
        for number, corpus in enumerate(corpora)
    )
    return Corpus(
        **vars(encoded),
        source_tokenizer=tokenizers[0],
        target_tokenizer=tokenizers[1],
        reports=tuple(map(check_kept, reports)),
        held_out=dict(itertools.chain(*(corpus.held_out.items() for corpus in corpora))),
        hashes=undirected(np.concatenate([corpus.hashes for corpus in corpora])),
        sampler=sampler,
        links=links,
    )


def _digest_links(corpora: Sequence[TrainingPairs]) -> str:
    digest = hashlib.sha256()
    for pair in itertools.chain(*(corpus.cleaned for corpus in corpora)):
        digest.update(repr(pair.alignment).encode())
    return digest.hexdigest()


def _word_links(encoded: Encoded, tokenizers: Sequence[Tokenizer]) -> WordLinks:
    if not encoded.notes["linked"]:
        raise UserError("no training pair has word links: name a file in config.data.train_links")
    return WordLinks(encoded.side("links"), (tokenizers[0].word_starts, tokenizers[1].word_starts))


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
    with_links: bool,
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
            ids = [[*itertools.compress(own, marks)] for own in ids]
            lines = ([*itertools.compress(own, marks)] for own in texts)
            dropped = int((~short).sum()), int((short & ~balanced).sum())
            names = (f"{number} {name}" for name in TOKEN_LIMITS)
            part = EncodedPart(
                dict(zip(SIDES, ids, strict=True)),
                counts=dict(zip(names, dropped, strict=True)),
                texts=dict(zip(SIDES, lines, strict=True)),
            )
            if with_links:
                each = zip(itertools.compress(chunk, marks), zip(*ids, strict=True), strict=True)
                links = [flat_links(pair, two, tokenizers) for pair, two in each]
                totals = {**part.counts, "linked": sum(map(bool, links))}
                part = part._replace(lists={"links": links}, counts=totals)
            yield part
