"""Training batches that are computed from their index, with length buckets and mixed corpora."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

BatchT = TypeVar("BatchT")
# Stream(make, first) yields make(first), make(first + 1) and so on.
Stream = Callable[[Callable[[int], Any], int], Iterator[Any]]
SMALL = 256  # maximum number of items for which the whole permutation is generated
ROUNDS = 6  # number of rounds of the Feistel network for larger permutations


class Part(NamedTuple):
    """The rows of a batch that one process creates: row groups `first` to `end`, exclusive.

    A batch is divided into `groups` row groups of equal size, of which the last may be padding.
    """

    first: int
    end: int
    groups: int

    def rows(self, count: int) -> slice:
        """Returns this part's slice of `count` rows; the slice may end beyond the last row."""
        each = -(-count // self.groups)
        return slice(self.first * each, self.end * each)

    def cut(self, array: np.ndarray) -> np.ndarray:
        """Returns the rows of `array` that belong to this part, padded with zeros."""
        rows = self.rows(len(array))
        array = array[rows]
        lacking = rows.stop - rows.start - len(array)
        return np.pad(array, [(0, lacking)] + [(0, 0)] * (array.ndim - 1)) if lacking else array


WHOLE = Part(0, 1, 1)


class Plan(abc.ABC, Generic[BatchT]):
    """All training batches: batch i is a function of (seed, i) alone.

    A subclass defines `__getitem__`, or `part` if it can compute some rows of a batch alone.
    """

    epoch_length: int

    def __getitem__(self, i: int) -> BatchT:
        """Returns batch i, counted from zero."""
        return self.part(i, WHOLE)

    def part(self, i: int, part: Part) -> BatchT:
        """Returns the rows of batch i in the given part."""
        batch: Any = self[i]
        return type(batch)(*map(part.cut, batch))

    def stack(self, plans: "Sequence[Plan[BatchT]]", i: int) -> BatchT:
        """Returns batch i of plans with different seeds, stacked along a new first axis."""
        batches: list[Any] = [plan[i] for plan in plans]
        return type(batches[0])(*map(np.stack, zip(*batches, strict=True)))

    def start_at(self, i: int, stream: Stream, part: Part = WHOLE) -> Iterator[BatchT]:
        """Yields the given part of batches i, i + 1, and so on, which `stream` computes."""
        return stream(lambda i: self.part(i, part), i)


def shuffle(
    places: Sequence[int] | Int[np.ndarray, "places"], size: int, stream: tuple[int, ...]
) -> Int[np.ndarray, "places"]:
    """Applies a random permutation of range(size), seeded by `stream`, to the indices `places`.

    For many items, the permutation is a Feistel network (Luby and Rackoff 1988) over the next even
    number of bits, so it need not be stored. A value of at least `size` is mapped again until the
    result is below `size` (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    sequence = np.random.SeedSequence(stream)
    if size <= SMALL:
        keys = sequence.generate_state(size, np.uint64)
        return np.argsort(keys, kind="stable")[np.asarray(places, np.int64)]
    half = np.uint64(-(-(size - 1).bit_length() // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    images = np.array(places, np.uint64)
    beyond = np.arange(len(images))
    while len(beyond):
        high, low = images[beyond] >> half, images[beyond] & mask
        for key in sequence.generate_state(ROUNDS, np.uint64):
            high, low = low, high ^ (_mix(low ^ key) & mask)
        images[beyond] = high << half | low
        beyond = beyond[images[beyond] >= size]
    return images.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """Hashes 64-bit integers with the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


# -- length buckets


class Mixture(NamedTuple):
    """Corpus sizes, and the mean number of times that an epoch uses each sentence of a corpus."""

    sizes: tuple[int, ...]
    factors: tuple[float, ...]


class Share(NamedTuple):
    """The sentences of one corpus in a bucket, and the number of samples per epoch (`drawn`)."""

    members: Int[np.ndarray, "sentences"]
    drawn: int


class Bucket(NamedTuple):
    """Sentences batched with one static shape: `rows` sequences of up to `length` tokens.

    The sentences are spread evenly over `batches` batches per epoch, so some rows may be empty.
    """

    length: int
    rows: int
    batches: int
    parts: tuple[Share, ...]

    @property
    def drawn(self) -> int:
        """Number of sentences in this bucket per epoch, including repetitions."""
        return sum(part.drawn for part in self.parts)


class Place(NamedTuple):
    """The position of a batch: epoch, bucket index, bucket, and index within the bucket."""

    epoch: int
    number: int
    bucket: Bucket
    batch: int


class BucketPlan(Plan[BatchT]):
    """All training batches: batch i is a function of (seed, i) alone.

    An epoch contains each sentence once. The sentences are assigned to batches, and the batches are
    ordered, by new permutations in each epoch. The permutations are evaluated element by element
    and never stored, so the cost of batch i does not depend on i. The shape of batch i is the same
    for any seed, so runs with different seeds can share one compiled program.

    With a mixture, an epoch contains some sentences several times or not at all. For each corpus
    and bucket, epochs go through an endless sequence of permutations of the sentences, so after any
    number of epochs, the numbers of uses of these sentences differ by at most one.

    Args:
      lengths: sentence lengths in tokens; if it is a 2-D array, epochs use its rows in turn.
      tokens: maximum number of tokens per batch, including padding. A batch may exceed it to have
        at least `multiple` rows, or `sentences` rows if `sentences` is smaller.
      num_buckets: maximum number of bucket lengths, which are chosen to minimise padding such that
        the sentences of each bucket fill at least half a batch.
      multiple: the number of rows is a multiple of this value, or of `sentences` if it is smaller.
      sentences: maximum number of rows per batch, or 0 for no limit.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, "*epochs sentences"],
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        sentences: int = 0,
        mixture: Mixture | None = None,
    ):
        self.seed, self.mean_lengths = seed, lengths  # over the sides of a sentence
        multiple = min(multiple, sentences or multiple)
        in_turn = np.atleast_2d(lengths)
        self._mixed = mixture is not None
        mixture = mixture or Mixture((in_turn.shape[1],), (1.0,))
        factors = np.repeat(mixture.factors, mixture.sizes)
        weights = np.broadcast_to(factors / len(in_turn), in_turn.shape).ravel()

        def max_sentences(length):
            """Returns the maximum number of sentences of the given length per batch."""
            rows = np.minimum(tokens // length, sentences or tokens) // multiple * multiple
            return np.maximum(rows, multiple)

        half = -(-max_sentences(np.arange(1, lengths.max() + 1)) // 2)
        bounds = bucket_lengths(in_turn.ravel(), num_buckets, half, weights)
        self._in_turn = [_buckets(bounds, own, mixture) for own in in_turn]
        for i, same in enumerate(zip(*self._in_turn, strict=True)):
            count = max(bucket.drawn for bucket in same)
            batches = -(-count // int(max_sentences(bounds[i])))
            # Batches are filled evenly because each batch is one training step. Otherwise, the last
            # batch could have few sentences.
            rows = -(-count // (batches * multiple)) * multiple
            for buckets in self._in_turn:
                buckets[i] = buckets[i]._replace(rows=rows, batches=batches)
        self.buckets = self._in_turn[0]
        self._ends = np.cumsum([bucket.batches for bucket in self.buckets])
        self.epoch_length = int(self._ends[-1])

    @property
    def padding_fraction(self) -> float:
        """Fraction of padding tokens, as the mean over all epochs."""
        tokens = sum(bucket.batches * bucket.rows * bucket.length for bucket in self.buckets)
        used = sum(
            float(own[part.members].sum()) * part.drawn / max(1, len(part.members))
            for own, buckets in zip(np.atleast_2d(self.mean_lengths), self._in_turn, strict=True)
            for bucket in buckets
            for part in bucket.parts
        )
        return 1.0 - used / len(self._in_turn) / tokens

    @property
    def drawn(self) -> list[int]:
        """Number of sentences that an epoch samples from each corpus."""
        parts = zip(*(bucket.parts for bucket in self.buckets), strict=True)
        return [sum(part.drawn for part in own) for own in parts]

    @abc.abstractmethod
    def gather(self, numbers: Int[np.ndarray, "*plans rows"], length: int) -> BatchT:
        """Returns the batch of the sentences with indices `numbers`; -1 gives a padding row."""

    def part(self, i: int, part: Part) -> BatchT:
        place = self._place(i)
        return self.gather(self._rows(place, part), place.bucket.length)

    def stack(self, plans: "Sequence[BucketPlan[BatchT]]", i: int) -> BatchT:
        place = self._place(i)  # the same for any seed
        rows = np.stack([plan._rows(place) for plan in plans])
        return self.gather(rows, place.bucket.length)

    def indices(self, i: int) -> tuple[Bucket, list[int]]:
        """Returns the bucket and the sentence indices, from zero, of batch i."""
        place = self._place(i)
        return place.bucket, self._sentences(place)

    def _place(self, i: int) -> Place:
        epoch, place = divmod(i, self.epoch_length)
        # The batch order, and therefore the order of batch shapes, is the same for any seed.
        place = int(shuffle([place], self.epoch_length, (0, epoch, 0))[0])
        number = int(np.searchsorted(self._ends, place, side="right"))
        bucket = self._in_turn[epoch % len(self._in_turn)][number]
        return Place(epoch, number, bucket, place - int(self._ends[number]) + bucket.batches)

    def _rows(self, place: Place, part: Part = WHOLE) -> Int[np.ndarray, "rows"]:
        """Returns the sentence index, from zero, of each row in `part`; -1 marks an empty row."""
        here = part.rows(place.bucket.rows)
        sentences = self._sentences(place, here)
        rows = np.full(here.stop - here.start, -1)
        rows[: len(sentences)] = sentences
        return rows

    def _sentences(self, place: Place, rows: slice = slice(None)) -> list[int]:
        epoch, number, bucket, batch = place
        places = even_part(bucket.drawn, bucket.batches, batch)[rows]
        key = self.seed, epoch, number + 1
        if self._mixed:
            return self._draw(place, shuffle(places, bucket.drawn, key))
        [(members, _)] = bucket.parts
        return members[shuffle(places, len(members), key)].tolist()

    def _draw(self, place: Place, rows: Int[np.ndarray, "rows"]) -> list[int]:
        """Returns the sentence index for each of the given rows of a bucket with mixed corpora."""
        sentences, first = np.zeros(len(rows), np.int64), 0
        turn = place.epoch // len(self._in_turn)
        for corpus, (members, drawn) in enumerate(place.bucket.parts):
            # Each corpus fills its rows with the next sentences of its permutation sequence.
            own = (first <= rows) & (rows < first + drawn)
            laps, places = np.divmod(turn * drawn + rows - first, max(1, len(members)))
            for lap in np.unique(laps[own]).tolist():
                here = own & (laps == lap)
                key = (self.seed, lap, place.number + 1, corpus + 1)
                sentences[here] = members[shuffle(places[here], len(members), key)]
            first += drawn
        return sentences.tolist()


def _buckets(
    bounds: Sequence[int], lengths: Int[np.ndarray, "sentences"], mixture: Mixture
) -> list[Bucket]:
    """Returns the buckets, in which `rows` and `batches` are not yet set."""
    assigned, ends, corpora = np.searchsorted(bounds, lengths), np.cumsum(mixture.sizes), []
    for size, end, factor in zip(mixture.sizes, ends, mixture.factors, strict=True):
        own = assigned[end - size : end]
        held = np.bincount(own, minlength=len(bounds))
        drawn = np.diff(np.rint(factor * np.cumsum(held)), prepend=0).astype(np.int64)
        drawn = np.maximum(drawn, held > 0)  # so that every sentence is sampled eventually
        members = [end - size + np.flatnonzero(own == i) for i in range(len(bounds))]
        corpora.append([Share(*part) for part in zip(members, drawn.tolist(), strict=True)])
    parts = zip(*corpora, strict=True)
    return [Bucket(length, 0, 0, own) for length, own in zip(bounds, parts, strict=True)]


def mix(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> Mixture:
    """Returns a mixture whose epochs have about as many sentences as all corpora together.

    With temperature 1 and equal weights, all sentences are sampled equally often. With infinite
    temperature, all corpora are sampled equally often. Source: Arivazhagan et al. 2019, section 4.
    """
    exact = proportions(sizes, weights, temperature) * sum(sizes) / np.array(sizes)
    # Logarithms may differ in the last bit between machines, but sentence counts must not.
    return Mixture(tuple(sizes), tuple(float(f"{factor:.9g}") for factor in exact))


def proportions(
    sizes: Sequence[int], weights: Sequence[float], temperature: float
) -> Float[np.ndarray, "corpora"]:
    """Returns the sampling proportions: each corpus's fraction of an epoch's sentences."""
    logits = np.log(np.array(weights)) + np.log(np.array(sizes)) / temperature
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def even_part(size: int, parts: int, number: int) -> range:
    """Returns the item indices in part `number` of `parts` nearly equal parts, all from zero."""
    return range(-(-number * size // parts), -(-(number + 1) * size // parts))


def bucket_lengths(
    lengths: Int[np.ndarray, "sentences"],
    count: int,
    min_sentences: Int[np.ndarray, "longest"],
    weights: Float[np.ndarray, "sentences"] | None = None,
) -> list[int]:
    """Returns at most `count` bucket lengths, in ascending order, that minimise padding.

    Every sentence is padded to the smallest bucket length that fits. Uses dynamic programming over
    the length histogram: the best k buckets up to length b are the best k - 1 buckets up to some
    a < b, and one bucket for lengths from a + 1 to b.

    Args:
      min_sentences: minimum number of sentences in a bucket, for each bucket length of 1, 2, ...
        tokens. If there are fewer sentences in total, one bucket holds all sentences.
      weights: the weight of each sentence, or None if all weights are 1.
    """
    sentences = np.concatenate([[0], np.cumsum(np.bincount(lengths, weights)[1:])])
    longest = len(sentences) - 1
    cost = np.full(longest + 1, np.inf)
    cost[0] = 0.0
    choices = []
    for _ in range(min(count, longest)):
        last = np.arange(1, longest + 1)
        held = sentences[last, None] - sentences[None, :]
        options = cost[None, :] + held * last[:, None]
        too_few = held < min_sentences[:, None]
        options[too_few | (last[:, None] <= np.arange(longest + 1))] = np.inf
        choice = np.concatenate([[0], options.argmin(axis=1)])
        choices.append(choice)
        cost = np.concatenate([[0.0], options.min(axis=1)])
    bounds, bound = [], longest
    for choice in reversed(choices):
        if bound:
            bounds.append(int(bound))
            bound = choice[bound]
    return bounds[::-1]
