"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning.report import CleaningReport, check_kept
from transformer.data.cleaning.rules import SHORT_SENTENCE, rules_of
from transformer.data.encode import (
    Encoded,
    EncodedBuilder,
    Restartable,
    TokenizerText,
    batched,
    prepare,
)
from transformer.data.pairs import Pair
from transformer.data.parallel.held_out_checks import HeldOutReport
from transformer.data.parallel.modifiers import Augmentation, augmentation_of
from transformer.data.parallel.sampler import MODIFIED, PairSampler
from transformer.data.parallel.trained_on import Earlier
from transformer.data.parallel.training import TrainingPairs, clean
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.data.tokenizer.sampling import cache_key, make_generator
from transformer.data.tokenizer.symbols import warn_of_tags
from transformer.data.tokenizer.train import spells_in_bytes
from transformer.data.unknown import Lost

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")
TAGS_SHOWN = 20_000  # pairs that show whether there are tags


class TrainingText(NamedTuple):
    """The training pairs of one corpus, cleaned.

    Attributes:
      pairs: restartable, canonical.
      report: counts of the pairs that cleaning dropped.
      fingerprints: of the sources and the targets.
      max_tokens: of a side, with its end; longer pairs will be dropped.
      max_token_ratio: of the tokens of both sides, see `_balanced`; other pairs will be dropped.
      held_out: the reports on the other splits.
      hashes: of the pairs, see `pair_hash`.
    """

    pairs: Iterable[Pair]
    report: CleaningReport
    fingerprints: Sequence[str]
    max_tokens: int
    max_token_ratio: float
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "pairs"]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training text, cleaned and encoded, with its tokenizers and the report of cleaning.

    Attributes:
      reports: of each of several corpora, whose pairs follow one another.
      unknown_fraction: of the tokens, those that are not in the vocabulary.
      lost: the unknown words or characters.
      held_out: the reports on the other splits.
      hashes: of the pairs before limits in tokens drop some, see `pair_hash`.
      sampler: draws what is read of each pair; None if it is always the same.
      modified: by modifier, the fraction of the pairs that it changes.
      arrays_digest: see `Encoded`.
    """

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    reports: tuple[CleaningReport, ...]
    unknown_fraction: float
    lost: Lost
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "pairs"]
    sampler: PairSampler | None = None
    modified: Mapping[str, float] = dataclasses.field(default_factory=dict)
    arrays_digest: str = ""

    @property
    def report(self) -> CleaningReport:
        """The report of all corpora together."""
        return functools.reduce(CleaningReport.add, self.reports)


def tokenizer_names(joint: bool) -> tuple[str, ...]:
    """Returns the files of a run's tokenizers, the source's first."""
    return ("tokenizer.model",) if joint else ("tokenizer.source.model", "tokenizer.target.model")


def prepare_corpus(
    pairs: Iterable[Pair],
    data,
    settings,
    folder: Path | None = None,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
    initial: Path | None = None,
    earlier: Earlier | None = None,
) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if possible.

    Args:
      pairs: see `read_training_text`.
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      held_out: the pairs of other splits, to look for in the training text.
      initial: folder of the run whose tokenizers are kept or grow, if any.
      earlier: see `read_training_text`.

    Raises:
      UserError: see `read_training_text` and `encode_corpora`.
    """
    text = read_training_text(pairs, data, held_out or {}, earlier)
    return encode_corpora([text], data, settings, folder, initial=initial)


def read_training_text(
    pairs: Iterable[Pair],
    data: ConfigDict,
    held_out: Mapping[str, Iterable[Pair]],
    earlier: Earlier | None = None,
) -> TrainingText:
    """Returns the training pairs of one corpus, cleaned.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; it is
        never held in memory. Those of files are already cleaned.
      data: `config.data`.
      held_out: the pairs of other splits, to look for in the training text.
      earlier: the pairs that earlier runs were trained on, to look for those of other splits.

    Raises:
      UserError: nothing is left after cleaning.
    """
    if not isinstance(pairs, TrainingPairs):
        pairs = clean(pairs, rules_of(data), held_out)
    check_kept(pairs.report)
    reports = {
        split: dataclasses.replace(report, earlier=earlier and earlier.count(held_out[split]))
        for split, report in pairs.held_out.items()
    }
    return TrainingText(
        Restartable(pairs.cleaned),
        pairs.report,
        pairs.fingerprints,
        data.max_tokens,
        data.max_token_ratio,
        reports,
        pairs.hashes,
    )


def encode_corpora(
    corpora: Sequence[TrainingText],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    symbols: Sequence[str] = (),
    initial: Path | None = None,
) -> Corpus:
    """Returns the training pairs of one or several corpora as tokens, one corpus after another.

    Args:
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      symbols: strings of sources that are always one token.
      initial: folder of the run whose tokenizers are kept or grow, if any.

    Raises:
      UserError: nothing is left of a corpus, the vocabulary does not suit the text, or too many
        tokens are unknown.
    """
    fingerprints = [_joined(each) for each in zip(*(c.fingerprints for c in corpora), strict=True)]
    pairs = Restartable(lambda: itertools.chain(*(corpus.pairs for corpus in corpora)))
    warn_of_tags(itertools.islice(pairs, TAGS_SHOWN), (*settings.symbols, *symbols))
    both: list[tuple[int, ...]] = [(0, 1)] if settings.joint else [(0,), (1,)]
    augmentation = augmentation_of(data, (*settings.symbols, *symbols))
    sampling = settings, augmentation, max(corpus.max_tokens for corpus in corpora)
    draws = (*cache_key(settings), *augmentation.key)
    modified = augmentation.of_case() if spells_in_bytes(settings) else augmentation
    texts = [
        TokenizerText(
            _sentences(Restartable(lambda: _modified(pairs, modified)), sides),
            "".join((*(fingerprints[side] for side in sides), *map(str, modified.key))),
            sum(corpus.report.kept for corpus in corpora) * len(sides),
            tuple(side == 0 for side in sides),
            folder and _file(folder, name),
            initial and _file(initial, name),
            symbols if 0 in sides else (),
        )
        for name, sides in zip(tokenizer_names(settings.joint), both, strict=True)
    ]

    def encode(tokenizers: Sequence[Tokenizer], partial: Path) -> Encoded:
        builder = EncodedBuilder(partial, bool(draws), source=tokenizers[0], target=tokenizers[-1])
        dropped = [_encode(builder, corpus, tokenizers) for corpus in corpora]
        encoded = builder.build(dropped=dropped, **{MODIFIED: {}})
        return PairSampler.of(encoded, tokenizers, *sampling).plan(encoded) if draws else encoded

    limits = [n for c in corpora for n in (c.report.kept, c.max_tokens, c.max_token_ratio)]
    key = ("pairs", *fingerprints, *limits, *draws)
    tokenizers, encoded = prepare(texts, encode, key, data, settings)
    reports = tuple(
        corpus.report.without(**own)
        for corpus, own in zip(corpora, encoded.notes["dropped"], strict=True)
    )
    for report in reports:
        check_kept(report)
    return Corpus(
        encoded.store("source"),
        encoded.store("target"),
        tokenizers[0],
        tokenizers[-1],
        reports,
        encoded.unknown_fraction,
        encoded.lost,
        dict(itertools.chain(*(corpus.held_out.items() for corpus in corpora))),
        np.concatenate([corpus.hashes for corpus in corpora]),
        PairSampler.of(encoded, tokenizers, *sampling) if draws else None,
        {name: encoded.notes[MODIFIED][name] for name in augmentation.fractions},
        encoded.arrays_digest,
    )


def _joined(fingerprints: Sequence[str]) -> str:
    """One fingerprint of texts that follow one another."""
    if len(fingerprints) == 1:
        return fingerprints[0]
    return hashlib.sha256("".join(fingerprints).encode()).hexdigest()


def _file(folder: Path, name: str) -> Path:
    """The file of a run's tokenizer; both sides have one file if their tokenizers are equal."""
    return folder / (name if (folder / name).exists() else tokenizer_names(True)[0])


def _sentences(pairs: Iterable[Pair], sides: Sequence[int]) -> Iterable[str]:
    """The sentences of one side or both of pairs, restartable."""
    return Restartable(lambda: (_side(pair, side) for pair in pairs for side in sides))


def _side(pair: Pair, side: int) -> str:
    return (pair.source, pair.target)[side]


def _modified(pairs: Iterable[Pair], augmentation: Augmentation) -> Iterator[Pair]:
    """The pairs as tokenizers are trained on them, so that words in capitals get subwords."""
    random = make_generator("tokenizer")
    for pair in pairs:
        yield augmentation.draw(lambda pair=pair: [pair], random)[1] or pair


def _encode(
    builder: EncodedBuilder,
    corpus: TrainingText,
    tokenizers: Sequence[Tokenizer],
) -> dict[str, int]:
    """Adds a corpus's tokens; returns how many pairs are dropped, by field of `CleaningReport`."""
    too_long = unbalanced = 0
    for chunk in batched(corpus.pairs, ENCODE_AT_ONCE):
        encoded = zip(
            tokenizers[0].encode([pair.source for pair in chunk]),
            tokenizers[-1].encode([pair.target for pair in chunk]),
            strict=True,
        )
        # End-of-sentence takes one position.
        short = [
            (pair, ids)
            for pair, ids in zip(chunk, encoded, strict=True)
            if max(map(len, ids)) + 1 <= corpus.max_tokens
        ]
        kept = [own for own in short if _balanced(*own[1], corpus.max_token_ratio)]
        too_long += len(chunk) - len(short)
        unbalanced += len(short) - len(kept)
        for side, name in enumerate(SIDES):
            texts = [_side(pair, side) for pair, _ in kept]
            builder.add(name, [ids[side] for _, ids in kept], texts)
    return {"too_many_tokens": too_long, "token_ratio": unbalanced}


def _balanced(source: Ids, target: Ids, max_ratio: float) -> bool:
    """Whether the ratio of the sides' tokens, ten added to both, is small enough; 0 allows any."""
    counts = len(source) + SHORT_SENTENCE, len(target) + SHORT_SENTENCE
    return not max_ratio or max(counts) <= max_ratio * min(counts)


def preview(pairs: Iterable[Pair], corpus: Corpus, count: int = 3) -> list[Mapping[str, str]]:
    """Returns the first pairs with their tokens, to check the tokenizers by eye."""
    tokenizers = {"source": corpus.source_tokenizer, "target": corpus.target_tokenizer}
    return [
        {
            name: " ".join(tokenizer.pieces(tokenizer.encode([getattr(pair, name)])[0]))
            for name, tokenizer in tokenizers.items()
        }
        for pair in itertools.islice(pairs, count)
    ]
