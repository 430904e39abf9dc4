"""Holds out text from a training text, for splits without a file of their own."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, UInt64
from ml_collections import ConfigDict

from transformer.data.splits import SPLITS
from transformer.errors import UserError

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Numbers = Int[np.ndarray, "usable"]  # of items, from zero
Ranks = UInt64[np.ndarray, "items"]


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
    """Returns the training text and the splits held out of it, see `choose`.

    An item whose key is held out is in no training text, whatever `holdout` is.

    Args:
      text: not held in memory, but read twice, and by each iteration of the training split.
      sizes: of the splits to take, in items.
      settings: `config.data`, for `holdout`, a key of `STRATEGIES`, and `seed`.
      key: the key of an item; items with an empty key are not taken.

    Raises:
      UserError: the text is empty or too small, or cannot be read.
    """
    known = np.fromiter(
        ((bool(name), rank(name, settings.seed)) for name in map(key, text)),
        [("usable", bool), ("rank", np.uint64)],
    )
    taken = choose(text, known["rank"], known["usable"], sizes, settings)
    ranks = known["rank"][list(itertools.chain(*taken.values()))]
    gone = np.flatnonzero(known["usable"] & np.isin(known["rank"], ranks))
    train = Without(text, frozenset(gone.tolist())) if len(gone) else text
    return {"train": train, **take(text, taken)}


def take(text: Text[Item], taken: Mapping[str, Collection[int]]) -> dict[str, list[Item]]:
    """Returns the items of some numbers, from zero, by split."""
    split_of = {number: split for split, numbers in taken.items() for number in numbers}
    held: dict[str, list[Item]] = {split: [] for split in taken}
    for number, item in enumerate(text) if split_of else ():
        if number in split_of:
            held[split_of[number]].append(item)
    return held


def choose(
    text: Text,
    ranks: Ranks,
    usable: Bool[np.ndarray, "items"],
    sizes: Mapping[str, int],
    settings: ConfigDict,
) -> dict[str, list[int]]:
    """Returns the numbers, from zero and ascending, of the items to hold out, by split.

    With "end", the last usable items are taken, the splits in the order of `sizes`.

    With "hash", the keys with the smallest hashes are taken until the splits are full, so the
    choice depends only on the seed and the key, not on the position. All items of a key go to the
    same split, so no key is in two splits. If a key has more items than fit, it stays in the
    training text; hence a split has at most, and nearly always exactly, its size.

    Args:
      text: for messages.
      ranks: of the key of each item, see `rank`.
      usable: the items that may be taken.
      sizes, settings: see `hold_out`.

    Raises:
      UserError: the text is empty or too small.
    """
    check_not_empty(text, len(ranks))
    taken, full = STRATEGIES[settings.holdout](np.flatnonzero(usable), ranks, sizes)
    check_room(text, sizes, len(ranks), full)
    return taken


def splits_held_out(settings: ConfigDict) -> list[str]:
    """Returns the splits without a file of their own, which are held out of the training text."""
    if settings.source != "files":
        return []
    return [split for split in SPLITS[1:] if not getattr(settings, f"{split}_source")]


def check_not_empty(text: Text, count: int) -> None:
    """Raises UserError if a text has no items."""
    if not count:
        raise UserError(f"{text.source} has no lines: name a file with sentences")


def check_room(text: Text, sizes: Mapping[str, int], count: int, full: bool = True) -> None:
    """Checks that a text has more items than should be held out of it.

    Args:
      sizes: of the splits to take, in items.
      count: of its items.
      full: whether each split could be filled, and something is left to train on.

    Raises:
      TooFewError: it has not, or not so.
    """
    if full and count > sum(sizes.values()):
        return
    asked = " and ".join(f"config.data.{split}_size={n}" for split, n in sizes.items())
    lower = f", for example to {count // 10} each" if count >= 20 else ""
    raise TooFewError(
        f"{text.source} has {count:,} examples, and too few different ones, to hold out {asked}: "
        f"lower the sizes{lower}, or name files in "
        + " and ".join(f"config.data.{split}_source" for split in sizes)
    )


def _by_hash(
    numbers: Numbers, ranks: Ranks, sizes: Mapping[str, int]
) -> tuple[dict[str, list[int]], bool]:
    # The smallest ones are enough, since each has at least one item.
    keys, counts = np.unique(ranks[numbers], return_counts=True)
    wanted = sum(sizes.values())
    groups = _fill(keys[:wanted].tolist(), counts[:wanted].tolist(), sizes)
    taken = {
        split: numbers[np.isin(ranks[numbers], np.array(own, np.uint64))].tolist()
        for split, own in groups.items()
    }
    return taken, not any(sizes[split] and not own for split, own in taken.items())


def _from_end(
    numbers: Numbers, ranks: Ranks, sizes: Mapping[str, int]
) -> tuple[dict[str, list[int]], bool]:
    wanted = sum(sizes.values())
    last = iter(numbers[max(0, len(numbers) - wanted) :].tolist())
    taken = {split: list(itertools.islice(last, size)) for split, size in sizes.items()}
    return taken, len(numbers) >= wanted


STRATEGIES = {"hash": _by_hash, "end": _from_end}  # of `data.holdout`


def _fill(
    keys: Sequence[int], counts: Sequence[int], sizes: Mapping[str, int]
) -> dict[str, list[int]]:
    """Returns the keys, smallest first, that each split has room for."""
    room = dict(sizes)
    taken: dict[str, list[int]] = {split: [] for split in sizes}
    for key, count in zip(keys, counts, strict=True):
        split = next((split for split in room if count <= room[split]), None)
        if split:
            taken[split].append(key)
            room[split] -= count
    return taken


@dataclasses.dataclass(frozen=True)
class Without:
    """The items of a text without those of some numbers, from zero."""

    text: Iterable
    taken: frozenset[int]

    def __iter__(self) -> Iterator:
        return (item for number, item in enumerate(self.text) if number not in self.taken)


def rank(name: str, seed: int) -> int:
    """Returns a hash of a key, which the seed changes."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big")
