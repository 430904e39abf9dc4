"""Length buckets, and the plan of all batches from them."""

import dataclasses

import numpy as np
from jaxtyping import Int

from transformer.data.plan import BatchT, Plan
from transformer.data.stream import shuffle

SHAPE_SEED = 0  # of the order of batches by shape


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Sentences that share one static shape: `rows` of them, of up to `length` tokens each."""

    length: int
    rows: int
    members: Int[np.ndarray, "sentences"]

    @property
    def batches(self) -> int:
        """Batches in one epoch, over which sentences are spread evenly, so some rows are empty."""
        return -(-len(self.members) // self.rows)


class BucketPlan(Plan[BatchT]):
    """All training batches: batch i is a function of (seed, i) alone.

    An epoch holds each sentence once, in batches whose order and content are shuffled in each
    epoch. The pseudo-random permutation is evaluated element by element and never stored, so that
    batch i costs the same for any i. The shape of batch i is the same for any seed, so that runs of
    different seeds can train as one program; the seed determines which sentences it holds.

    Args:
      lengths: of the sentences, in tokens.
      tokens: maximum tokens of a batch, including padding; a batch has at least `multiple` rows.
      num_buckets: maximum number of lengths. They minimise padding, given that the sentences of
        each bucket fill at least half a batch.
      multiple: rows of a batch are a multiple of this.
      sentences: maximum rows of a batch, unless that is less than `multiple`; 0 for no limit.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, "sentences"],
        seed: int,
        tokens: int,
        num_buckets: int,
        multiple: int,
        sentences: int = 0,
    ):
        self.seed = seed

        def max_sentences(length):
            """The maximum number of sentences of a length in a batch."""
            rows = np.minimum(tokens // length, sentences or tokens) // multiple * multiple
            return np.maximum(rows, multiple)

        half = -(-max_sentences(np.arange(1, lengths.max() + 1)) // 2)
        bounds = bucket_lengths(lengths, num_buckets, half)
        assigned = np.searchsorted(bounds, lengths)
        self.buckets = []
        for i, length in enumerate(bounds):
            members = np.flatnonzero(assigned == i)
            batches = -(-len(members) // int(max_sentences(length)))
            # Batches are filled evenly, rather than leaving a last one with few rows, since each is
            # one step. See also `indices`.
            rows = -(-len(members) // (batches * multiple)) * multiple
            self.buckets.append(Bucket(length, rows, members))
        self._ends = np.cumsum([bucket.batches for bucket in self.buckets])
        self.epoch_length = int(self._ends[-1])

    @property
    def positions(self) -> int:
        """Tokens of an epoch's batches, padding included."""
        return sum(bucket.batches * bucket.rows * bucket.length for bucket in self.buckets)

    def indices(self, i: int) -> tuple[Bucket, list[int]]:
        """Returns batch i's bucket and the sentences in it, from zero."""
        epoch, place = divmod(i, self.epoch_length)
        place = shuffle([place], self.epoch_length, (SHAPE_SEED, epoch, 0))[0]
        number = int(np.searchsorted(self._ends, place, side="right"))
        bucket = self.buckets[number]
        batch = place - int(self._ends[number]) + bucket.batches
        places = even_part(len(bucket.members), bucket.batches, batch)
        shuffled = shuffle(places, len(bucket.members), (self.seed, epoch, number + 1))
        return bucket, bucket.members[shuffled].tolist()


def even_part(size: int, parts: int, number: int) -> range:
    """Returns part `number`, from zero, of `size` things; the parts' sizes differ by at most one.

    So 97 things in 4 parts are 25, 24, 24 and 24.
    """
    return range(-(-number * size // parts), -(-(number + 1) * size // parts))


def bucket_lengths(
    lengths: Int[np.ndarray, "sentences"], count: int, min_sentences: Int[np.ndarray, "longest"]
) -> list[int]:
    """Returns at most `count` lengths, ascending, that together minimise the number of positions.

    Every sentence is padded to the smallest length that holds it. Dynamic programming over the
    histogram of lengths: the best k buckets up to length b are the best k - 1 up to some a < b
    and one bucket for all longer than a.

    Args:
      min_sentences: minimum number of sentences in a bucket, for maximum lengths of 1, 2, ...
        tokens. If there are fewer in total, one bucket has them all.
    """
    sentences = np.concatenate([[0], np.cumsum(np.bincount(lengths)[1:])])
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
