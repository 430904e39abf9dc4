"""From pairs of sentences to batches: cleaning, encoding, length buckets, a plan of all batches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.buckets import BucketPlan
from transformer.data.pairs import CleaningReport, CleaningRules, Pair, check_kept, clean
from transformer.data.token_store import TokenStore, load_arrays, save_arrays
from transformer.data.tokenizer import BEGIN, END, PAD, UNKNOWN, Ids, Tokenizer, train_tokenizer
from transformer.errors import RunError

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
    """Training text, cleaned and encoded, with its tokenizers and what cleaning found."""

    source: TokenStore
    target: TokenStore
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: CleaningReport
    unknown_share: float


def prepare_corpus(pairs: Iterable[Pair], data, tokenizer) -> Corpus:
    """Returns the training corpus; tokenizers and encoded text come from the cache if they can.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; at no
        time is it held in memory.
      data: `config.data`.
      tokenizer: `config.tokenizer`.

    Raises:
      UserError: nothing is left after cleaning, the vocabulary does not suit the text, or too
        many tokens are unknown.
    """
    cache = Path(data.cache_dir or "~/.cache/transformer").expanduser()
    rules = CleaningRules(data.max_characters, data.max_length_ratio, data.remove_duplicates)
    report = CleaningReport()
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in clean(pairs, rules, report):
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    check_kept(report)
    contents = [digest.hexdigest() for digest in digests]

    if tokenizer.joint:
        source_tokenizer = target_tokenizer = train_tokenizer(
            _Texts(pairs, rules, (0, 1)), tokenizer, cache, "".join(contents)
        )
    else:
        source_tokenizer, target_tokenizer = (
            train_tokenizer(_Texts(pairs, rules, (i,)), tokenizer, cache, contents[i])
            for i in range(2)
        )
    key = [*contents, source_tokenizer.digest, target_tokenizer.digest, str(data.max_tokens)]
    folder = cache / f"{hashlib.sha256(' '.join(key).encode()).hexdigest()[:24]}.tokens"
    if not folder.exists():
        kept = clean(pairs, rules, CleaningReport())
        _encode(kept, source_tokenizer, target_tokenizer, data.max_tokens, folder)
    arrays = load_arrays(folder)
    too_long, unknown, tokens = (int(count) for count in arrays["counts"])
    report = dataclasses.replace(report, too_many_tokens=too_long, kept=report.kept - too_long)
    check_kept(report)
    check_unknown(unknown / tokens, data.max_unknown_share)
    return Corpus(
        TokenStore(arrays["source"], arrays["source_offsets"]),
        TokenStore(arrays["target"], arrays["target_offsets"]),
        source_tokenizer,
        target_tokenizer,
        report,
        unknown / tokens,
    )


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


def check_unknown(share: float, limit: float) -> None:
    """Raises RunError where more than a share `limit` of the training tokens is unknown."""
    if share > limit:
        raise RunError(
            f"{share:.1%} of the training tokens are unknown, more than "
            f"data.max_unknown_share={limit:.1%}: raise --config.tokenizer.vocab_size or "
            "--config.tokenizer.character_coverage"
        )


def _encode(
    pairs: Iterator[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_tokens: int,
    folder: Path,
) -> None:
    """Writes the pairs' tokens below `folder`, which appears when all of it is there."""
    stores = {"source": ([], [0]), "target": ([], [0])}
    too_long = unknown = tokens = 0
    while chunk := list(itertools.islice(pairs, ENCODE_AT_ONCE)):
        encoded = zip(
            source_tokenizer.encode([pair.source for pair in chunk]),
            target_tokenizer.encode([pair.target for pair in chunk]),
            strict=True,
        )
        flat = {"source": [], "target": []}
        for sides in encoded:
            # The end of the sentence takes a place of its own.
            if max(map(len, sides)) + 1 > max_tokens:
                too_long += 1
                continue
            for name, ids in zip(flat, sides, strict=True):
                flat[name] += ids
                stores[name][1].append(stores[name][1][-1] + len(ids))
        for name, ids in flat.items():
            array = np.array(ids, np.int32)
            tokens += len(array)
            unknown += int((array == UNKNOWN).sum())
            stores[name][0].append(array)
    arrays = {"counts": np.array([too_long, unknown, max(tokens, 1)])}
    for name, (parts, offsets) in stores.items():
        arrays[name] = np.concatenate(parts)
        arrays[f"{name}_offsets"] = np.array(offsets, np.int64)
    save_arrays(folder, arrays)


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
