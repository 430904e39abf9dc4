"""Synthetic corpora, split by a stable hash of each item.

Equal items are in the same split, which keeps the first one. Each split is the first n of its items
in one infinite stream: its size does not change the other splits or its own beginning.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from transformer.errors import UserError

Item = TypeVar("Item")

SPLIT_OF_HASH = ("test", "validation") + ("train",) * 18


def read_tables(path: Path) -> dict[str, list[list[str]]]:
    """Returns the rows of each `[section]`; two or more spaces separate cells, `-` is empty."""
    tables, rows = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = tables[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            rows.append(["" if cell == "-" else cell for cell in re.split("  +", line)])
    return tables


def fill(
    draw: Callable[[], Sequence[Item]], key: Callable[[Item], str], sizes: Mapping[str, int]
) -> dict[str, list[Item]]:
    """Returns the first items of each split, up to its size, in the stream of `draw()`.

    Items drawn together stay together. The key of their first item is hashed; if this key was drawn
    before, they are dropped.
    """
    splits: dict[str, list[Item]] = {split: [] for split in sizes}
    names: set[str] = set()
    wanted = sum(sizes.values())
    for _ in range(1000 + 100 * wanted):
        if all(len(splits[split]) >= size for split, size in sizes.items()):
            break
        items = draw()
        name = key(items[0])
        split = SPLIT_OF_HASH[zlib.crc32(name.encode()) % len(SPLIT_OF_HASH)]
        if split in splits and len(splits[split]) < sizes[split] and name not in names:
            names.add(name)
            splits[split] += items
    for split, items in splits.items():
        if len(items) < sizes[split]:
            raise UserError(
                f"config.data.{split}_size={sizes[split]} is more than there are different "
                f"items: set it to {len(items)} or less"
            )
    return {split: items[: sizes[split]] for split, items in splits.items()}
