"""From pairs of sentences to batches: cleaning, encoding, length buckets, a plan of all batches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.pairs import CleaningReport, CleaningRules, Pair, check_kept, clean
from transformer.data.stream import shuffle, stream
from transformer.data.token_store import TokenStore, load_arrays, save_arrays
from transformer.data.tokenizer import BEGIN, END, PAD, UNKNOWN, Ids, Tokenizer, train_tokenizer
from transformer.errors import RunError

ENCODE_AT_ONCE = 20_000  # pairs
SHAPE_SEED = 0  # of the order of batches by shape


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


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Sentences that share one static shape: `rows` pairs of up to `length` tokens a side."""

    length: int
    rows: int
    members: Int[np.ndarray, "sentences"]

    @property
    def batches(self) -> int:
        """Batches in one epoch; the last may have empty rows."""
        return -(-len(self.members) // self.rows)


class BatchPlan:
    """All training batches there will ever be: batch i is a function of (seed, i) alone.

    An epoch holds each sentence once, in batches whose order and content are shuffled anew. A
    pseudo-random permutation is evaluated where it is needed and nowhere stored, so that batch i
    costs the same for any i. The shape of batch i is the same for any seed, so that runs of
    unlike seeds can train as one program; which sentences it holds is the seed's.

    Args:
      source, target: encoded sentences of equal number.
      tokens: a side of a batch, padding included, at most; a bucket has at least one multiple.
      num_buckets: at most so many lengths, chosen to leave the least padding.
      multiple: rows of a batch are a multiple of this.
      sentences: rows of a batch at most, unless that is less than a multiple; 0 for no limit.
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
        self.source, self.target, self.seed = source, target, seed
        lengths = np.maximum(source.lengths, target.lengths) + 1
        bounds = bucket_lengths(lengths, num_buckets)
        assigned = np.searchsorted(bounds, lengths)
        self.buckets = []
        for i, length in enumerate(bounds):
            members = np.flatnonzero(assigned == i)
            most = min(tokens // length, sentences or tokens) // multiple * multiple
            batches = -(-len(members) // max(most, multiple))
            # Evenly filled batches, rather than full ones and a last with few rows.
            rows = -(-len(members) // (batches * multiple)) * multiple
            self.buckets.append(Bucket(length, rows, members))
        self._ends = np.cumsum([bucket.batches for bucket in self.buckets])

    @property
    def epoch_length(self) -> int:
        """Batches in one epoch."""
        return int(self._ends[-1])

    @property
    def padding_share(self) -> float:
        """Share of an epoch's positions, both sides, that hold padding."""
        places = sum(2 * bucket.batches * bucket.rows * bucket.length for bucket in self.buckets)
        tokens = self.source.offsets[-1] + self.target.offsets[-1] + 2 * len(self.source)
        return 1.0 - float(tokens) / places

    def indices(self, i: int) -> tuple[Bucket, list[int]]:
        """Returns batch i's bucket and the sentences in it, from zero."""
        epoch, place = divmod(i, self.epoch_length)
        place = shuffle([place], self.epoch_length, (SHAPE_SEED, epoch, 0))[0]
        number = int(np.searchsorted(self._ends, place, side="right"))
        bucket = self.buckets[number]
        first = (place - int(self._ends[number]) + bucket.batches) * bucket.rows
        places = range(first, min(first + bucket.rows, len(bucket.members)))
        shuffled = shuffle(places, len(bucket.members), (self.seed, epoch, number + 1))
        return bucket, bucket.members[shuffled].tolist()

    def __getitem__(self, i: int) -> Batch:
        bucket, indices = self.indices(i)
        sentences = ([side[j] for j in indices] for side in (self.source, self.target))
        return make_batch(*sentences, bucket.rows, bucket.length)

    def start_at(self, i: int, prefetch: int) -> Iterator[Batch]:
        """Yields batch i and all after it, `prefetch` of them made ahead in the background."""
        return stream(self, i, prefetch)


def bucket_lengths(lengths: Int[np.ndarray, "sentences"], count: int) -> list[int]:
    """Returns at most `count` lengths, ascending, that together need the fewest positions.

    Every sentence is padded to the smallest length that holds it. Dynamic programming over the
    histogram of lengths: the best k buckets up to length b are the best k - 1 up to some a < b
    and one of all that is longer than a.
    """
    sentences = np.concatenate([[0], np.cumsum(np.bincount(lengths)[1:])])
    longest = len(sentences) - 1
    cost = np.full(longest + 1, np.inf)
    cost[0] = 0.0
    choices = []
    for _ in range(min(count, longest)):
        last = np.arange(1, longest + 1)
        options = cost[None, :] + (sentences[last, None] - sentences[None, :]) * last[:, None]
        options[last[:, None] <= np.arange(longest + 1)] = np.inf
        choice = np.concatenate([[0], options.argmin(axis=1)])
        choices.append(choice)
        cost = np.concatenate([[0.0], options.min(axis=1)])
    bounds, bound = [], longest
    for choice in reversed(choices):
        if bound:
            bounds.append(int(bound))
            bound = choice[bound]
    return bounds[::-1]


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
