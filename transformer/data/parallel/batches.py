"""From pairs of sentences to batches: cleaning, encoding, length buckets, a plan of all batches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.pairs import CleaningReport, CleaningRules, Pair, check_kept, clean, rules_of
from transformer.data.parallel.held_out import HeldOut, HeldOutCounter
from transformer.data.text_files import training_text
from transformer.data.token_store import TokenStore, cached_arrays
from transformer.data.tokenizer import BEGIN, END, PAD, UNKNOWN, Ids, Tokenizer, train_tokenizer
from transformer.data.unknown import Lost, LostCounter, check_unknown

ENCODE_AT_ONCE = 20_000  # pairs


class Batch(NamedTuple):
    """Token ids of B sentence pairs, padded with 0. A row of padding alone is no sentence.

    The decoder reads `target`, which starts with begin-of-sentence, and predicts `labels`, the
    same shifted left by one and ending in end-of-sentence. `source` ends in end-of-sentence.
    """

    source: Int[np.ndarray, "B M"]
    target: Int[np.ndarray, "B L"]
    labels: Int[np.ndarray, "B L"]


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], rows: int, length: int) -> Batch:
    """Returns the batch of up to `rows` encoded pairs, each without begin and end.

    Args:
      length: of all three arrays, in tokens; begin or end of sentence included.
    """
    source, target, labels = (np.full((rows, length), PAD, np.int32) for _ in range(3))
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = ids
        source[row, len(ids)] = END
    for row, ids in enumerate(targets):
        target[row, 0] = BEGIN
        target[row, 1 : len(ids) + 1] = ids
        labels[row, : len(ids)] = ids
        labels[row, len(ids)] = END
    return Batch(source, target, labels)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training text, cleaned and encoded, with its tokenizers and what cleaning found.

    `lost` is what of it the tokenizers do not know, `held_out` what was found of other splits.
    """

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: CleaningReport
    unknown_share: float
    lost: Lost
    held_out: Mapping[str, HeldOut]


def tokenizer_names(joint: bool) -> tuple[str, ...]:
    """Returns the files of a run's tokenizers, the source's first."""
    return ("tokenizer.model",) if joint else ("tokenizer.source.model", "tokenizer.target.model")


def prepare_corpus(
    pairs: Iterable[Pair],
    data,
    tokenizer,
    folder: Path | None = None,
    say: Callable[[str], None] = print,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if they can.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; at no
        time is it held in memory.
      data: `config.data`.
      tokenizer: `config.tokenizer`.
      folder: of a run, whose tokenizers are taken if they are of this text.
      say: called with a line where the cache is damaged.
      held_out: the pairs of other splits, to look for in the training text.

    Raises:
      UserError: nothing is left after cleaning, the vocabulary does not suit the text, or too
        many tokens are unknown.
    """
    cache = Path(data.cache_dir or "~/.cache/transformer").expanduser()
    rules = rules_of(data)
    others = HeldOutCounter(held_out or {}, rules)
    report, contents = _read(pairs, rules, others)

    def train(name: str, *sides: int) -> Tokenizer:
        return train_tokenizer(
            _Texts(pairs, rules, sides),
            tokenizer,
            cache,
            "".join(contents[side] for side in sides),
            count=report.kept * len(sides),
            saved=folder and folder / name,
            name=training_text(data),
            say=say,
        )

    names = tokenizer_names(tokenizer.joint)
    if tokenizer.joint:
        source_tokenizer = target_tokenizer = train(names[0], 0, 1)
    else:
        source_tokenizer, target_tokenizer = train(names[0], 0), train(names[1], 1)
    tokenizers = source_tokenizer, target_tokenizer

    def encode() -> dict[str, np.ndarray]:
        return _encode(clean(pairs, rules, CleaningReport()), *tokenizers, data.max_tokens)

    key = [*contents, *(own.digest for own in tokenizers), str(data.max_tokens)]
    name = f"{hashlib.sha256(' '.join(key).encode()).hexdigest()[:24]}.tokens"
    arrays = cached_arrays(cache / name, encode, say)
    too_long, unknown, tokens = (int(count) for count in arrays["counts"])
    report = dataclasses.replace(report, too_many_tokens=too_long, kept=report.kept - too_long)
    check_kept(report)
    lost = Lost.from_array(arrays["lost"])
    check_unknown(unknown / tokens, data.max_unknown_share, lost)
    return Corpus(
        TokenStore(arrays["source"], arrays["source_offsets"]),
        TokenStore(arrays["target"], arrays["target_offsets"]),
        *tokenizers,
        report,
        unknown / tokens,
        lost,
        others.held_out(),
    )


def _read(
    pairs: Iterable[Pair], rules: CleaningRules, others: HeldOutCounter
) -> tuple[CleaningReport, list[str]]:
    """Returns what cleaning finds, and a fingerprint of each side of what it keeps."""
    report = CleaningReport()
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in clean(pairs, rules, report):
        others.look(pair)
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    check_kept(report)
    return report, [digest.hexdigest() for digest in digests]


@dataclasses.dataclass(frozen=True)
class _Texts:
    """The sentences of one side or both of cleaned pairs, read anew by each iteration."""

    pairs: Iterable[Pair]
    rules: CleaningRules
    sides: tuple[int, ...]

    def __iter__(self) -> Iterator[str]:
        for pair in clean(self.pairs, self.rules, CleaningReport()):
            for side in self.sides:
                yield pair[side]


def _encode(
    pairs: Iterator[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_tokens: int,
) -> dict[str, np.ndarray]:
    """Returns the pairs' tokens, and counts of what was found."""
    tokenizers = {"source": source_tokenizer, "target": target_tokenizer}
    stores = {name: ([], [np.zeros(1, np.int64)]) for name in tokenizers}
    too_long = unknown = tokens = 0
    lost = LostCounter()
    while chunk := list(itertools.islice(pairs, ENCODE_AT_ONCE)):
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
        for side, (name, tokenizer) in enumerate(tokenizers.items()):
            rows = [ids[side] for _, ids in kept]
            stores[name][1].append(np.fromiter(map(len, rows), np.int64, len(rows)))
            array = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
            stores[name][0].append(array)
            tokens += len(array)
            if count := int((array == UNKNOWN).sum()):
                unknown += count
                lost.add(tokenizer, [pair[side] for pair, _ in kept], rows)
    arrays = {
        "counts": np.array([too_long, unknown, max(tokens, 1)]),
        "lost": lost.lost().to_array(),
    }
    for name, (parts, lengths) in stores.items():
        arrays[name] = np.concatenate(parts)
        arrays[f"{name}_offsets"] = np.cumsum(np.concatenate(lengths), dtype=np.int64)
    return arrays


class BatchPlan(BucketPlan):
    """All training batches of sentence pairs there will ever be, see `BucketPlan`.

    Args:
      source, target: encoded sentences of equal number; a pair is as long as its longer side,
        with its end.
      tokens: a side of a batch.
    """

    def __init__(
        self,
        source: TokenStore,
        target: TokenStore,
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        sentences: int = 0,
    ):
        self.source, self.target = source, target
        lengths = np.maximum(source.lengths, target.lengths) + 1
        super().__init__(lengths, seed, tokens, num_buckets, multiple, sentences)

    @property
    def padding_share(self) -> float:
        """Share of an epoch's positions, both sides, that hold padding."""
        tokens = self.source.offsets[-1] + self.target.offsets[-1] + 2 * len(self.source)
        return 1.0 - float(tokens) / (2 * self.positions)

    def __getitem__(self, i: int) -> Batch:
        bucket, indices = self.indices(i)
        sentences = ([side[j] for j in indices] for side in (self.source, self.target))
        return make_batch(*sentences, bucket.rows, bucket.length)


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
