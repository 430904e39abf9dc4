"""A plan: all training batches by number."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from transformer.data.stream import stream

BatchT = TypeVar("BatchT")


class Plan(abc.ABC, Generic[BatchT]):
    """All training batches: batch i is a function of (seed, i) alone.

    Attributes:
      epoch_length: batches in one epoch.
    """

    epoch_length: int

    @abc.abstractmethod
    def __getitem__(self, i: int) -> BatchT:
        """Returns batch i, from zero."""

    def stack(self, plans: "Sequence[Plan[BatchT]]", i: int) -> BatchT:
        """Returns batch i of several plans, each array with a leading axis of plans.

        Args:
          plans: equal to this one but for their seeds.
        """
        batches: list[Any] = [plan[i] for plan in plans]
        return type(batches[0])(*map(np.stack, zip(*batches, strict=True)))

    def start_at(self, i: int, prefetch: int) -> Iterator[BatchT]:
        """Yields batch i and all after it, `prefetch` of them made ahead in the background."""
        return stream(self, i, prefetch)
