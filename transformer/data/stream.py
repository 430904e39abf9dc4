"""Streams of batches from any number on, and pseudo-random permutations."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

# Items up to which all of a permutation cost less than some of `index_shuffle`, which walks through
# 2 ** 16 numbers to stay among few.
SMALL = 4096


def stream(batches: Any, first: int, prefetch: int) -> Iterator[Any]:
    """Yields batches[first] and all after it, `prefetch` of them made ahead in the background."""
    import grain  # of which a model in use has no need

    dataset = grain.MapDataset.source(_Tail(batches, first))
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


@dataclasses.dataclass(frozen=True)
class _Tail:
    """A plan from batch `first` on, as a random-access source for grain."""

    plan: Any
    first: int

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> Any:
        return self.plan[self.first + index]
