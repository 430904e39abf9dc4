"""Plans: all training batches by number, streams of them, and pseudo-random permutations."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Int

BatchT = TypeVar("BatchT")
# Items up to which all of a permutation cost less than some of `index_shuffle`, which walks through
# 2 ** 16 numbers to stay among few.
SMALL = 4096


class Plan(abc.ABC, Generic[BatchT]):
    """All training batches: batch i is a function of (seed, i) alone."""

    epoch_length: int

    @abc.abstractmethod
    def __getitem__(self, i: int) -> BatchT:
        """Returns batch i, from zero."""

    def stack(self, plans: "Sequence[Plan[BatchT]]", i: int) -> BatchT:
        """Returns batch i of plans that differ in their seeds, with a leading axis of plans."""
        batches: list[Any] = [plan[i] for plan in plans]
        return type(batches[0])(*map(np.stack, zip(*batches, strict=True)))

    def start_at(self, i: int, prefetch: int) -> Iterator[BatchT]:
        """Yields batch i and all after it, see `stream`."""
        return stream(self, i, prefetch)


def stream(batches: Any, first: int, prefetch: int) -> Iterator[Any]:
    """Yields batches[first] and all after it, `prefetch` of them made ahead in the background."""
    import grain  # of which a model in use has no need

    dataset = grain.MapDataset.range(first, first + 2**62).map(batches.__getitem__)
    options = grain.ReadOptions(num_threads=min(prefetch, 2), prefetch_buffer_size=prefetch)
    return iter(dataset.to_iter_dataset(options))


def shuffle(places: Sequence[int], size: int, stream: tuple[int, ...]) -> list[int]:
    """Returns the images of positions under the stream's permutation of `size` items."""
    from grain.experimental import index_shuffle

    seed = int(np.random.SeedSequence(stream).generate_state(1)[0])
    return [index_shuffle(place, size - 1, seed, rounds=4) for place in places]


def permute(
    places: Sequence[int] | Int[np.ndarray, "places"], size: int, stream: tuple[int, ...]
) -> list[int]:
    """Returns the same as `shuffle`, by another permutation, which is fast for few items too."""
    if size > SMALL:
        return shuffle(np.asarray(places).tolist(), size, stream)
    keys = np.random.SeedSequence(stream).generate_state(size, np.uint64)
    return np.argsort(keys, kind="stable")[np.asarray(places)].tolist()
