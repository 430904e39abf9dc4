"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from transformer.data.encode import (
    Encoded,
    EncodedBuilder,
    Restartable,
    TokenizerText,
    batched,
    prepare,
)
from transformer.data.pairs import (
    CleaningReport,
    CleaningRules,
    Pair,
    check_kept,
    clean,
    rules_of,
    strip,
)
from transformer.data.parallel.held_out_checks import HeldOutChecker, HeldOutReport
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Tokenizer
from transformer.data.tokenizer.sampling import (
    SampledTexts,
    Sampler,
    cache_key,
    make_samplers,
    sampled_texts,
)
from transformer.data.unknown import Lost

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")


class TrainingText(NamedTuple):
    """The training pairs of one corpus, cleaned.

    Attributes:
      pairs: restartable, without white space around them.
      report: counts of what cleaning dropped.
      fingerprints: of the sources and the targets.
      max_tokens: of a side, with its end; longer pairs will be dropped.
      held_out: the reports on the other splits.
    """

    pairs: Iterable[Pair]
    report: CleaningReport
    fingerprints: Sequence[str]
    max_tokens: int
    held_out: Mapping[str, HeldOutReport]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training text, cleaned and encoded, with its tokenizers and the report of cleaning.

    Attributes:
      reports: of each of several corpora, whose pairs follow one another.
      unknown_fraction: of the tokens, those that are not in the vocabulary.
      lost: the unknown words or characters.
      held_out: the reports on the other splits.
      samplers: of source and target, whose segmentations are drawn; None of a side that has one.
    """

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    reports: tuple[CleaningReport, ...]
    unknown_fraction: float
    lost: Lost
    held_out: Mapping[str, HeldOutReport]
    samplers: tuple[Sampler | None, ...] = (None, None)

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
) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if possible.

    Args:
      pairs: see `read_training_text`.
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      held_out: the pairs of other splits, to look for in the training text.
      initial: folder of the run whose tokenizers are kept or grow, if any.

    Raises:
      UserError: see `read_training_text` and `encode_corpora`.
    """
    text = read_training_text(pairs, data, held_out or {})
    return encode_corpora([text], data, settings, folder, initial=initial)


def read_training_text(
    pairs: Iterable[Pair], data: ConfigDict, held_out: Mapping[str, Iterable[Pair]]
) -> TrainingText:
    """Returns the training pairs of one corpus, cleaned.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; it is
        never held in memory.
      data: `config.data`.
      held_out: the pairs of other splits, to look for in the training text.

    Raises:
      UserError: nothing is left after cleaning.
    """
    rules = rules_of(data)
    checker = HeldOutChecker(held_out, rules)
    kept, report, fingerprints = _read(pairs, rules, checker)
    return TrainingText(kept, report, fingerprints, data.max_tokens, checker.reports())


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
    count = sum(corpus.report.kept for corpus in corpora)
    texts = [
        TokenizerText(
            _sentences(pairs, sides),
            "".join(fingerprints[side] for side in sides),
            count * len(sides),
            folder and _file(folder, name),
            initial and _file(initial, name),
            symbols if 0 in sides else (),
        )
        for name, sides in zip(
            tokenizer_names(settings.joint),
            [(0, 1)] if settings.joint else [(0,), (1,)],
            strict=True,
        )
    ]

    def encode(tokenizers: Sequence[Tokenizer]) -> Encoded:
        builder = EncodedBuilder(source=tokenizers[0], target=tokenizers[-1])
        sampled = sampled_texts(SIDES, settings, tokenizers)
        dropped = [_encode(builder, sampled, corpus, tokenizers) for corpus in corpora]
        arrays = {k: array for texts in sampled.values() for k, array in texts.arrays().items()}
        return builder.build(arrays, dropped=dropped)

    counts = [number for c in corpora for number in (c.report.kept, c.max_tokens)]
    key = ("pairs", *fingerprints, *counts, *cache_key(settings))
    tokenizers, encoded = prepare(texts, encode, key, data, settings)
    reports = tuple(
        corpus.report.without(**own)
        for corpus, own in zip(corpora, encoded.notes["dropped"], strict=True)
    )
    for report in reports:
        check_kept(report)
    source, target = map(encoded.store, SIDES)
    return Corpus(
        source,
        target,
        tokenizers[0],
        tokenizers[-1],
        reports,
        encoded.unknown_fraction,
        encoded.lost,
        {split: report for corpus in corpora for split, report in corpus.held_out.items()},
        make_samplers(encoded.arrays, SIDES, (source, target), settings, tokenizers),
    )


def fingerprints_of(pairs: Iterable[Pair]) -> list[str]:
    """Returns a fingerprint of the sources of pairs, and one of their targets."""
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    return [digest.hexdigest() for digest in digests]


def _joined(fingerprints: Sequence[str]) -> str:
    """One fingerprint of texts that follow one another."""
    if len(fingerprints) == 1:
        return fingerprints[0]
    return hashlib.sha256("".join(fingerprints).encode()).hexdigest()


def _file(folder: Path, name: str) -> Path:
    """The file of a run's tokenizer; both sides have one file if their tokenizers are equal."""
    return folder / (name if (folder / name).exists() else tokenizer_names(True)[0])


def _read(
    pairs: Iterable[Pair], rules: CleaningRules, checker: HeldOutChecker
) -> tuple[Iterable[Pair], CleaningReport, list[str]]:
    """Returns the pairs that cleaning keeps, its report, and a fingerprint of each side."""
    report, kept = CleaningReport(), bytearray()
    checked = checker.checked(clean(pairs, rules, report, kept))
    fingerprints = fingerprints_of(checked)
    check_kept(report)
    again = Restartable(lambda: map(strip, itertools.compress(pairs, kept)))
    return again, report, fingerprints


def _sentences(pairs: Iterable[Pair], sides: Sequence[int]) -> Iterable[str]:
    """The sentences of one side or both of pairs, restartable."""
    return Restartable(lambda: (_side(pair, side) for pair in pairs for side in sides))


def _side(pair: Pair, side: int) -> str:
    return (pair.source, pair.target)[side]


def _encode(
    builder: EncodedBuilder,
    sampled: Mapping[str, SampledTexts],
    corpus: TrainingText,
    tokenizers: Sequence[Tokenizer],
) -> dict[str, int]:
    """Adds a corpus's tokens; returns how many pairs are dropped, by field of `CleaningReport`."""
    too_long = 0
    for chunk in batched(corpus.pairs, ENCODE_AT_ONCE):
        encoded = zip(
            tokenizers[0].encode([pair.source for pair in chunk]),
            tokenizers[-1].encode([pair.target for pair in chunk]),
            strict=True,
        )
        # End-of-sentence takes one position.
        kept = [
            (pair, ids)
            for pair, ids in zip(chunk, encoded, strict=True)
            if max(map(len, ids)) + 1 <= corpus.max_tokens
        ]
        too_long += len(chunk) - len(kept)
        for side, name in enumerate(SIDES):
            texts = [_side(pair, side) for pair, _ in kept]
            builder.add(name, [ids[side] for _, ids in kept], texts)
            if name in sampled:
                sampled[name].add(texts)
    return {"too_many_tokens": too_long}


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
