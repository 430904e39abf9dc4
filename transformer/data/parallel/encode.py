"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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
from transformer.data.unknown import Lost

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training text, cleaned and encoded, with its tokenizers and the report of cleaning.

    Attributes:
      unknown_fraction: of the tokens, those that are not in the vocabulary.
      lost: the unknown words or characters.
      held_out: the reports on the other splits.
    """

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: CleaningReport
    unknown_fraction: float
    lost: Lost
    held_out: Mapping[str, HeldOutReport]


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
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; it is
        never held in memory.
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      held_out: the pairs of other splits, to look for in the training text.
      initial: folder of the run whose tokenizers are kept or grow, if any.

    Raises:
      UserError: nothing is left after cleaning, the vocabulary does not suit the text, or too
        many tokens are unknown.
    """
    rules = rules_of(data)
    checker = HeldOutChecker(held_out or {}, rules)
    kept, report, fingerprints = _read(pairs, rules, checker)
    groups = [(0, 1)] if settings.joint else [(0,), (1,)]
    texts = [
        TokenizerText(
            _sentences(kept, sides),
            "".join(fingerprints[side] for side in sides),
            report.kept * len(sides),
            folder and folder / name,
            initial and initial / name,
        )
        for name, sides in zip(tokenizer_names(settings.joint), groups, strict=True)
    ]

    def encode(tokenizers: Sequence[Tokenizer]) -> Encoded:
        return _encode(kept, tokenizers[0], tokenizers[-1], data.max_tokens)

    key = ("pairs", *fingerprints, data.max_tokens)
    tokenizers, encoded = prepare(texts, encode, key, data, settings)
    too_long = encoded.notes["too_long"]
    report = dataclasses.replace(report, too_many_tokens=too_long, kept=report.kept - too_long)
    check_kept(report)
    source, target = map(encoded.store, SIDES)
    return Corpus(
        source,
        target,
        tokenizers[0],
        tokenizers[-1],
        report,
        encoded.unknown_fraction,
        encoded.lost,
        checker.reports(),
    )


def _read(
    pairs: Iterable[Pair], rules: CleaningRules, checker: HeldOutChecker
) -> tuple[Iterable[Pair], CleaningReport, list[str]]:
    """Returns the pairs that cleaning keeps, its report, and a fingerprint of each side."""
    report, kept = CleaningReport(), bytearray()
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in clean(pairs, rules, report, kept):
        checker.check(pair)
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    check_kept(report)
    again = Restartable(lambda: map(strip, itertools.compress(pairs, kept)))
    return again, report, [digest.hexdigest() for digest in digests]


def _sentences(pairs: Iterable[Pair], sides: Sequence[int]) -> Iterable[str]:
    """The sentences of one side or both of pairs, restartable."""
    return Restartable(lambda: (_side(pair, side) for pair in pairs for side in sides))


def _side(pair: Pair, side: int) -> str:
    return (pair.source, pair.target)[side]


def _encode(
    pairs: Iterable[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_tokens: int,
) -> Encoded:
    """Returns the pairs' tokens, and records how many pairs are dropped as too long."""
    builder = EncodedBuilder(source=source_tokenizer, target=target_tokenizer)
    too_long = 0
    for chunk in batched(pairs, ENCODE_AT_ONCE):
        encoded = zip(
            source_tokenizer.encode([pair.source for pair in chunk]),
            target_tokenizer.encode([pair.target for pair in chunk]),
            strict=True,
        )
        # End-of-sentence takes one position.
        kept = [
            (pair, ids)
            for pair, ids in zip(chunk, encoded, strict=True)
            if max(map(len, ids)) + 1 <= max_tokens
        ]
        too_long += len(chunk) - len(kept)
        for side, name in enumerate(SIDES):
            texts = [_side(pair, side) for pair, _ in kept]
            builder.add(name, [ids[side] for _, ids in kept], texts)
    return builder.build(too_long=too_long)


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
