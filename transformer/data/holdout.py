"""Text held out from a training text, for splits that have no text of their own."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, UInt64
from ml_collections import ConfigDict

from transformer.data.splits import SPLITS
from transformer.errors import UserError

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
STRATEGIES = ("hash", "end")  # of `data.holdout`


class TooFewError(UserError):
    """A text has fewer items than are to be held out of it."""


@runtime_checkable
class Text(Protocol[Item_co]):
    """The items of a file, read from its start by each iteration."""

    @property
    def source(self) -> Path: ...

    def __iter__(self) -> Iterator[Item_co]: ...


def hold_out(
    text: Text[Item], sizes: Mapping[str, int], settings: ConfigDict, key: Callable[[Item], str]
) -> dict[str, Iterable[Item]]:
    """Returns the training text and the splits taken out of it, see `choose`.

    Args:
      text: held nowhere, but read twice, and by each iteration of the training split.
      sizes: of the splits to take, in items.
      settings: `config.data`, for `holdout`, one of `STRATEGIES`, and `seed`.
      key: what an item is known by; items whose key is empty are not taken.

    Raises:
      UserError: the text is empty or too small, or cannot be read.
    """
    names = map(key, text)
    known = np.fromiter(
        ((bool(name), rank(name, settings.seed)) for name in names),
        [("usable", bool), ("rank", np.uint64)],
    )
    return take(text, choose(text, known["rank"], known["usable"], sizes, settings))


def take(text: Text[Item], taken: Mapping[str, Collection[int]]) -> dict[str, Iterable[Item]]:
    """Returns the items of some numbers, from zero, by split, and the rest as training text."""
    split_of = {number: split for split, numbers in taken.items() for number in numbers}
    held: dict[str, list[Item]] = {split: [] for split in taken}
    for number, item in enumerate(text) if split_of else ():
        if number in split_of:
            held[split_of[number]].append(item)
    return {"train": Without(text, frozenset(split_of)) if split_of else text, **held}


def choose(
    text: Text,
    ranks: UInt64[np.ndarray, "items"],
    usable: Bool[np.ndarray, "items"],
    sizes: Mapping[str, int],
    settings: ConfigDict,
) -> dict[str, list[int]]:
    """Returns the numbers, from zero and ascending, of the items that splits take out of a text.

    With "end", the last usable items are taken, the splits in the order of `sizes`.

    With "hash", who is taken depends on the seed and on the key alone, never on its place: the keys
    with the smallest hashes, until the splits are full. All items of a key go the same way, so none
    lies in two splits. A key with more items than there is room for stays in the training text;
    hence a split has at most, and nearly always exactly, its size.

    Args:
      text: for messages.
      ranks: see `rank`, of the key of each item.
      usable: which items may be taken.
      sizes, settings: see `hold_out`.

    Raises:
      UserError: the text is empty or too small.
    """
    if settings.holdout not in STRATEGIES:
        raise UserError(
            f"--config.data.holdout={settings.holdout!r} is unknown: choose one of "
            f"{', '.join(STRATEGIES)}"
        )
    check_not_empty(text, len(ranks))
    wanted, numbers = sum(sizes.values()), np.flatnonzero(usable)
    if settings.holdout == "end":
        last = numbers[len(numbers) - wanted if wanted < len(numbers) else 0 :]
        _check_sizes(text, sizes, len(ranks), full=len(last) == wanted)
        numbered = iter(last.tolist())
        return {split: list(itertools.islice(numbered, size)) for split, size in sizes.items()}
    # Each has at least one item, so that these are enough.
    keys, counts = np.unique(ranks[numbers], return_counts=True)
    taken = _fill(keys[:wanted].tolist(), counts[:wanted].tolist(), sizes)
    full = not any(sizes[split] and not own for split, own in taken.items())
    _check_sizes(text, sizes, len(ranks), full)
    return {
        split: numbers[np.isin(ranks[numbers], np.array(own, np.uint64))].tolist()
        for split, own in taken.items()
    }


def splits_held_out(settings: ConfigDict) -> list[str]:
    """Returns the splits that are taken out of the training text, having no file of their own."""
    if settings.source != "files":
        return []
    return [split for split in SPLITS[1:] if not getattr(settings, f"{split}_source")]


def check_not_empty(text: Text, count: int) -> None:
    """Raises UserError if a text turned out to have no items."""
    if not count:
        raise UserError(f"{text.source} has no lines: name a file with sentences")


def _check_sizes(text: Text, sizes: Mapping[str, int], count: int, full: bool) -> None:
    if full and count > sum(sizes.values()):
        return
    asked = " and ".join(f"--config.data.{split}_size={n}" for split, n in sizes.items())
    raise TooFewError(
        f"{text.source} has {count:,} examples, and too few different ones, to held out {asked}: "
        "lower the sizes, or name files in "
        + " and ".join(f"--config.data.{split}_source" for split in sizes)
    )


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
