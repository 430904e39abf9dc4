"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from transformer.data.tokenizer.sampling import (
    SampledTexts,
    Sampler,
    cache_key,
    make_sampler,
    strengths_of,
)
from transformer.data.unknown import Lost

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training text, cleaned and encoded, with its tokenizers and what cleaning found.

    Attributes:
      unknown_fraction: of the tokens, those that are not in the vocabulary.
      lost: the same by name.
      held_out: what was found of other splits.
      samplers: of source and target, whose segmentations are drawn; None of a side that has one.
    """

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: CleaningReport
    unknown_fraction: float
    lost: Lost
    held_out: Mapping[str, HeldOutReport]
    samplers: tuple[Sampler | None, Sampler | None] = (None, None)


def tokenizer_names(joint: bool) -> tuple[str, ...]:
    """Returns the files of a run's tokenizers, the source's first."""
    return ("tokenizer.model",) if joint else ("tokenizer.source.model", "tokenizer.target.model")


def prepare_corpus(
    pairs: Iterable[Pair],
    data,
    settings,
    folder: Path | None = None,
    log: Callable[[str], None] = print,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if they can.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; at no
        time is it held in memory.
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: of a run, whose tokenizers are taken if they are of this text.
      log: called with a line for each damaged file of the cache.
      held_out: the pairs of other splits, to look for in the training text.

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
            folder and _saved(folder, name),
        )
        for name, sides in zip(tokenizer_names(settings.joint), groups, strict=True)
    ]

    def encode(tokenizers: Sequence[Tokenizer]) -> Encoded:
        strengths = strengths_of(settings, tokenizers)
        return _encode(kept, tokenizers[0], tokenizers[-1], data.max_tokens, strengths)

    key = ("pairs", *fingerprints, data.max_tokens, *cache_key(settings))
    tokenizers, encoded = prepare(texts, encode, key, data, settings, log)
    too_long = encoded.notes["too_long"]
    report = dataclasses.replace(report, too_many_tokens=too_long, kept=report.kept - too_long)
    check_kept(report)
    source, target = map(encoded.store, SIDES)
    strengths = strengths_of(settings, tokenizers)
    return Corpus(
        source,
        target,
        tokenizers[0],
        tokenizers[-1],
        report,
        encoded.unknown_fraction,
        encoded.lost,
        checker.reports(),
        (
            make_sampler(encoded.arrays, SIDES[0], source, tokenizers[0], strengths[0]),
            make_sampler(encoded.arrays, SIDES[1], target, tokenizers[-1], strengths[1]),
        ),
    )


def _saved(folder: Path, name: str) -> Path:
    """The file of a run's tokenizer, which is one if those of both sides are equal."""
    return folder / (name if (folder / name).exists() else tokenizer_names(True)[0])


def _read(
    pairs: Iterable[Pair], rules: CleaningRules, checker: HeldOutChecker
) -> tuple[Iterable[Pair], CleaningReport, list[str]]:
    """Returns the pairs that cleaning keeps, what it finds, and a fingerprint of each side."""
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
    strengths: tuple[float, float],
) -> Encoded:
    """Returns the pairs' tokens, and what their samplers read.

    Noted is how many pairs are dropped as too long.
    """
    tokenizers = {"source": source_tokenizer, "target": target_tokenizer}
    builder = EncodedBuilder(**tokenizers)
    sampled = {
        name: SampledTexts(name, tokenizers[name], strength)
        for name, strength in zip(SIDES, strengths, strict=True)
        if strength
    }
    too_long = 0
    for chunk in batched(pairs, ENCODE_AT_ONCE):
        encoded = zip(
            source_tokenizer.encode([pair.source for pair in chunk]),
            target_tokenizer.encode([pair.target for pair in chunk]),
            strict=True,
        )
        # The end of the sentence takes a place of its own.
        kept = [
            (pair, ids)
            for pair, ids in zip(chunk, encoded, strict=True)
            if max(map(len, ids)) + 1 <= max_tokens
        ]
        too_long += len(chunk) - len(kept)
        for side, name in enumerate(SIDES):
            texts = [_side(pair, side) for pair, _ in kept]
            builder.add(name, [ids[side] for _, ids in kept], texts)
            if name in sampled:
                sampled[name].add(texts)
    arrays = {key: array for texts in sampled.values() for key, array in texts.arrays().items()}
    return builder.build(arrays, too_long=too_long)


def preview(pairs: Iterable[Pair], corpus: Corpus, count: int = 3) -> list[Mapping[str, str]]:
    """Returns the first pairs with their tokens, for people to check the tokenizers by eye."""
    tokenizers = {"source": corpus.source_tokenizer, "target": corpus.target_tokenizer}
    return [
        {
            name: " ".join(tokenizer.pieces(tokenizer.encode([getattr(pair, name)])[0]))
            for name, tokenizer in tokenizers.items()
        }
        for pair in itertools.islice(pairs, count)
    ]
