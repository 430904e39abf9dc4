"""Holds out text from a training text, for splits without a file of their own."""

import collections
import dataclasses
import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from ml_collections import ConfigDict

from transformer.data.splits import SPLITS
from transformer.errors import UserError

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class TooFewError(UserError):
    """A text has fewer items than should be held out of it."""


@runtime_checkable
class Text(Protocol[Item_co]):
    """The items of a file, read from its start by each iteration."""

    @property
    def source(self) -> Path: ...

    def __iter__(self) -> Iterator[Item_co]: ...


def hold_out(
    text: Text[Item], sizes: Mapping[str, int], settings: ConfigDict, key: Callable[[Item], str]
) -> dict[str, Iterable[Item]]:
    """Returns the training text and the splits held out of it, after reading it once.

    With "end", the last items with a key are taken, the splits in the order of `sizes`.

    With "hash", the keys with the smallest hashes are taken until the splits are full, so the
    choice depends only on the seed and the key, not on the position. All items of a key go to the
    same split, so no key is in two splits. If a key has more items than fit, it stays in the
    training text; hence a split has at most, and nearly always exactly, its size.

    Args:
      text: not held in memory, but read by each iteration of the training split.
      sizes: of the splits to take, in items.
      settings: `config.data`, for `holdout`, a key of `STRATEGIES`, and `seed`.
      key: the key of an item; items with an empty key are not taken.

    Raises:
      UserError: the text is empty or too small, or cannot be read.
    """
    return STRATEGIES[settings.holdout](text, sizes, settings.seed, key)


def splits_held_out(settings: ConfigDict) -> list[str]:
    """Returns the splits without a file of their own, which are held out of the training text."""
    if settings.source != "files":
        return []
    return [split for split in SPLITS[1:] if not getattr(settings, f"{split}_source")]


def check_not_empty(text: Text, count: int) -> None:
    """Raises UserError if a text has no items."""
    if not count:
        raise UserError(f"{text.source} has no lines: name a file with sentences")


def _check_sizes(text: Text, sizes: Mapping[str, int], count: int, full: bool) -> None:
    if full and count > sum(sizes.values()):
        return
    asked = " and ".join(f"--config.data.{split}_size={n}" for split, n in sizes.items())
    raise TooFewError(
        f"{text.source} has {count:,} examples, and too few different ones, to hold out {asked}: "
        "lower the sizes, or name files in "
        + " and ".join(f"--config.data.{split}_source" for split in sizes)
    )


def _by_hash(
    text: Text[Item], sizes: Mapping[str, int], seed: int, key: Callable[[Item], str]
) -> dict[str, Iterable[Item]]:
    groups, count = _smallest(text, sum(sizes.values()), seed, key)
    check_not_empty(text, count)
    taken = _fill(groups, sizes)
    full = not any(sizes[split] and not keys for split, keys in taken.items())
    _check_sizes(text, sizes, count, full)
    held = {
        split: [item for _, item in sorted(itertools.chain(*(groups[rank] for rank in ranks)))]
        for split, ranks in taken.items()
    }
    gone = frozenset(n for rank in itertools.chain(*taken.values()) for n, _ in groups[rank])
    return {"train": _Without(text, gone) if gone else text, **held}


def _from_end(
    text: Text[Item], sizes: Mapping[str, int], seed: int, key: Callable[[Item], str]
) -> dict[str, Iterable[Item]]:
    wanted, count = sum(sizes.values()), 0
    last: collections.deque[tuple[int, Item]] = collections.deque(maxlen=wanted)
    for count, item in enumerate(text, 1):
        if key(item):
            last.append((count, item))
    check_not_empty(text, count)
    _check_sizes(text, sizes, count, full=len(last) == wanted)
    items = (item for _, item in last)
    held = {split: list(itertools.islice(items, size)) for split, size in sizes.items()}
    taken = frozenset(number for number, _ in last)
    return {"train": _Without(text, taken) if taken else text, **held}


STRATEGIES = {"hash": _by_hash, "end": _from_end}  # of `data.holdout`


def _smallest(
    text: Iterable[Item], wanted: int, seed: int, key: Callable[[Item], str]
) -> tuple[dict[int, list[tuple[int, Item]]], int]:
    """Returns the `wanted` keys of smallest hash, the item numbers of each, and the text's size.

    These are enough, since each has at least one item.
    """
    heap: list[int] = []  # negated, so that the largest is first
    groups: dict[int, list[tuple[int, Item]]] = {}
    count = 0
    for count, item in enumerate(text, 1):
        if not wanted or not (name := key(item)):
            continue
        rank = _rank(name, seed)
        if rank in groups:
            if len(groups[rank]) <= wanted:  # one more than fits will do
                groups[rank].append((count, item))
        elif len(heap) < wanted:
            heapq.heappush(heap, -rank)
            groups[rank] = [(count, item)]
        elif rank < -heap[0]:
            del groups[-heapq.heapreplace(heap, -rank)]
            groups[rank] = [(count, item)]
    return groups, count


def _fill(groups: Mapping[int, list], sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """Returns the hashes, smallest first, of the groups that each split has room for."""
    room = dict(sizes)
    taken: dict[str, list[int]] = {split: [] for split in sizes}
    for rank in sorted(groups):
        split = next((split for split in room if len(groups[rank]) <= room[split]), None)
        if split:
            taken[split].append(rank)
            room[split] -= len(groups[rank])
    return taken


@dataclasses.dataclass(frozen=True)
class _Without:
    """The items of a text without those of some numbers, from one."""

    text: Iterable
    taken: frozenset[int]

    def __iter__(self) -> Iterator:
        return (item for number, item in enumerate(self.text, 1) if number not in self.taken)


def _rank(name: str, seed: int) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")
