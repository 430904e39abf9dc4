"""Synthetic corpora, split by a stable hash of each item.

Equal items are assigned to the same split, which keeps only the first of them. A split of size n
contains the first n items assigned to it, so changing n does not affect other splits.
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
    """Returns the rows of each `[section]`; two or more spaces separate cells. `-` means empty."""
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
    """Fills each split up to its size with the first items that `draw()` generates for it.

    The items of one `draw` call stay together: a hash of the first item's key selects the split for
    all of them. They are dropped if the split already has an item with this key.
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
