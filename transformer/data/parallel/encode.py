"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

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
from transformer.data.parallel.training import TrainingPairs, clean
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Ids, Tokenizer
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
    log: Callable[[str], None] = print,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if they can.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; at no
        time is it held in memory. Those of files come cleaned.
      data: `config.data`.
      settings: `config.tokenizer`.
      folder: of a run, whose tokenizers are taken if they are of this text.
      log: called with a line for each damaged file of the cache.
      held_out: the pairs of other splits, to look for in the training text.

    Raises:
      UserError: nothing is left after cleaning, the vocabulary does not suit the text, or too
        many tokens are unknown.
    """
    if not isinstance(pairs, TrainingPairs):
        pairs = clean(pairs, rules_of(data), held_out or {})
    check_kept(pairs.report)
    kept, report, fingerprints = Restartable(pairs.cleaned), pairs.report, pairs.fingerprints
    groups = [(0, 1)] if settings.joint else [(0,), (1,)]
    texts = [
        TokenizerText(
            _sentences(kept, sides),
            "".join(fingerprints[side] for side in sides),
            report.kept * len(sides),
            folder and folder / name,
        )
        for name, sides in zip(tokenizer_names(settings.joint), groups, strict=True)
    ]

    def encode(tokenizers: Sequence[Tokenizer], folder: Path) -> Encoded:
        limits = data.max_tokens, data.max_token_ratio
        return _encode(kept, tokenizers[0], tokenizers[-1], *limits, folder)

    key = ("pairs", *fingerprints, data.max_tokens, data.max_token_ratio)
    tokenizers, encoded = prepare(texts, encode, key, data, settings, log)
    kept_here = report.kept - sum(encoded.notes.values())
    report = dataclasses.replace(report, **encoded.notes, kept=kept_here)
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
        pairs.held_out,
    )


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
    max_token_ratio: float,
    folder: Path,
) -> Encoded:
    """Returns the pairs' tokens; noted is how many pairs are dropped, see `CleaningReport`."""
    builder = EncodedBuilder(folder, source=source_tokenizer, target=target_tokenizer)
    too_long = uneven = 0
    for chunk in batched(pairs, ENCODE_AT_ONCE):
        sides = zip(
            source_tokenizer.encode([pair.source for pair in chunk]),
            target_tokenizer.encode([pair.target for pair in chunk]),
            strict=True,
        )
        # The end of the sentence takes a place of its own.
        short = [
            (pair, ids)
            for pair, ids in zip(chunk, sides, strict=True)
            if max(map(len, ids)) + 1 <= max_tokens
        ]
        kept = [own for own in short if _even(*own[1], max_token_ratio)]
        too_long += len(chunk) - len(short)
        uneven += len(short) - len(kept)
        for side, name in enumerate(SIDES):
            texts = [_side(pair, side) for pair, _ in kept]
            builder.add(name, [ids[side] for _, ids in kept], texts)
    return builder.build(too_many_tokens=too_long, token_ratio=uneven)


def _even(source: Ids, target: Ids, max_ratio: float) -> bool:
    """Whether the tokens of two sides are in a ratio, ten added to both; 0 allows any."""
    numbers = len(source) + SHORT_SENTENCE, len(target) + SHORT_SENTENCE
    return not max_ratio or max(numbers) <= max_ratio * min(numbers)


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
