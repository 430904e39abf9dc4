"""The pairs that runs were trained on, as hashes in a run's folder.

A run that starts from another's weights must not be scored on pairs that these weights were trained
on. The text of the other run may be gone or have grown since, so each run keeps the hashes of its
training pairs, and of those of the runs before it: `trained_on.npz` has `pairs` and `earlier`,
eight bytes for each pair, ascending, and `unknown`, the folders of the runs before it that have no
such file.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt64

from transformer.data.cleaning.survey import pair_hash
from transformer.data.pairs import Pair, canonical
from transformer.errors import UserError
from transformer.storage.files import whole_file
from transformer.storage.reading import open_arrays

FILE = "trained_on.npz"
KINDS = {"pairs": "u", "earlier": "u", "unknown": "U"}  # of the arrays, as NumPy calls them
FIX = (
    "restore the original, or delete it: then a run that starts from this one cannot tell whether "
    "it is scored on pairs that this one was trained on"
)

logger = logging.getLogger(__name__)
Hashes = UInt64[np.ndarray, "_"]  # see `pair_hash`
NOTHING = np.zeros(0, np.uint64)


class Earlier(NamedTuple):
    """The pairs of the runs before one: of that from which it starts, and of those before that.

    Attributes:
      hashes: of their training pairs, ascending.
      unknown: folders of those that do not tell theirs.
    """

    hashes: Hashes = NOTHING
    unknown: tuple[str, ...] = ()

    def has(self, hashes: UInt64[np.ndarray, "pairs"]) -> Bool[np.ndarray, "pairs"]:
        """Returns whether each of some pairs is one of these."""
        return among(hashes, self.hashes)

    def count(self, pairs: Iterable[Pair]) -> int | None:
        """Returns how many pairs are among these, in either direction; None if no run tells."""
        if not len(self.hashes):
            return None
        sides = (canonical(pair)[:2] for pair in pairs)
        return int(self.has(np.fromiter((pair_hash(*own) for own in sides), np.uint64)).sum())

    def digest(self) -> str:
        """Returns a fingerprint of the hashes."""
        return hashlib.sha256(np.ascontiguousarray(self.hashes).data).hexdigest()


def read_earlier(init_from: str, folder: Path | None) -> Earlier | None:
    """Returns the pairs of the runs before one, and warns of those that do not tell theirs.

    Args:
      init_from: `config.train.init_from`.
      folder: of the run; once it has begun, it keeps them itself.

    Returns:
      None if the run starts from no other.

    Raises:
      UserError: the file that has them is damaged.
    """
    if not init_from:
        return None
    source = Path(init_from).expanduser()
    if folder and (folder / FILE).exists():
        _, earlier = _read(folder / FILE)
    elif (source / FILE).exists():
        pairs, before = _read(source / FILE)
        earlier = Earlier(_union(pairs, before.hashes), before.unknown)
    else:
        earlier = Earlier(unknown=(str(source.absolute()),))
    if earlier.unknown:
        logger.warning(
            "warning: not checked whether pairs for validation and test occur in the training text "
            "of %s, which has no %s",
            " or ".join(map(ascii, earlier.unknown)),
            FILE,
        )
    return earlier


def save(folder: Path, pairs: Hashes, earlier: Earlier | None) -> None:
    """Adds the pairs that a run is trained on to those of its earlier trainings, in its folder.

    Raises:
      UserError: the file is there and is damaged.
    """
    path, earlier = folder / FILE, earlier or Earlier()
    known = _read(path)[0] if path.exists() else NOTHING
    pairs = _union(pairs, known)
    if path.exists() and len(known) == len(pairs):
        return
    unknown = np.array(earlier.unknown, np.str_)
    with whole_file(path, binary=True) as file:
        np.savez(file, pairs=pairs, earlier=earlier.hashes, unknown=unknown)


def seen_line(folder: Path, pairs: Sequence[Pair]) -> str | None:
    """Returns a line with how many pairs a run, or one before it, was trained on; None for none."""
    if not (folder / FILE).exists():
        return None
    hashes, before = _read(folder / FILE)
    if not (count := Earlier(_union(hashes, before.hashes)).count(pairs)):
        return None
    return (
        f"warning: the model was trained on {count:,} of these {len(pairs):,} pairs "
        f"({count / len(pairs):.1%}): scores of pairs that it has not seen are lower"
    )


def among(hashes: UInt64[np.ndarray, "pairs"], known: Hashes) -> Bool[np.ndarray, "pairs"]:
    """Returns whether each of some hashes is one of others; `np.isin` takes ten times as long.

    Args:
      known: ascending.
    """
    found = np.zeros(len(hashes), bool)
    if len(known):
        order = np.argsort(hashes)
        places = np.searchsorted(known, hashes[order])
        found[order] = known.take(places, mode="clip") == hashes[order]
    return found


def _union(*hashes: Hashes) -> Hashes:
    """The different hashes, ascending; `np.unique` takes thirty times as long."""
    found = np.sort(np.concatenate(hashes))
    return found[np.diff(found, prepend=found[:1] + 1) != 0]


def _read(path: Path) -> tuple[Hashes, Earlier]:
    """The pairs of a run, and those of the runs before it."""
    try:
        with open_arrays(path) as arrays:
            found = {name: arrays[name] for name in KINDS}
        for name, array in found.items():
            if array.ndim != 1 or array.dtype.kind != KINDS[name]:
                raise ValueError(f"{name} is not a list of its kind")
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error}): {FIX}") from None
    unknown = tuple(map(str, found["unknown"]))
    return found["pairs"], Earlier(found["earlier"], unknown)
