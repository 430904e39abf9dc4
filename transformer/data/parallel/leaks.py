"""Whether pairs that a translator is scored on are among those that it was trained on.

They are looked for by their hashes, see `Survey`, in the training text of a run and in that of the
run that it starts from. The text of the other run may be gone or have grown since, so each run
keeps the hashes of its training pairs, and of those of the runs before it: `trained_on.npz` has
`pairs` and `earlier`, eight bytes for each pair, ascending.

Pairs that are taken out of the training text satisfy the rules of its cleaning, see `sources`. A
separate file, such as a published test set, is never filtered, so that scores are comparable; the
pairs that the rules would drop are counted.
"""

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt64

from transformer.data.cleaning.rules import CleaningReport, CleaningRules
from transformer.data.cleaning.survey import pair_hash, undirected
from transformer.data.pairs import Pair, canonical
from transformer.errors import UserError
from transformer.storage.files import whole_file
from transformer.storage.reading import open_arrays

NAMED = 5  # lines
EARLIER = "the training text of earlier runs"
FILE = "trained_on.npz"
FIX = (
    "restore the original, or delete it: then a run that starts from this one cannot tell whether "
    "it is scored on pairs that this one was trained on"
)

logger = logging.getLogger(__name__)
Hashes = UInt64[np.ndarray, "_"]
NOTHING = np.zeros(0, np.uint64)


@dataclasses.dataclass(frozen=True)
class HeldOutReport:
    """The faults of the pairs of a split.

    Attributes:
      size, faults: pairs of the split, and those that cleaning would drop.
      blank: the first pairs with an empty side, from one.
      repeated: how many pairs occur in the training text.
      earlier: how many occur in that of the runs that this one goes on from, in either direction;
        None if there are none.
    """

    size: int
    faults: CleaningReport
    blank: tuple[int, ...]
    repeated: int
    earlier: int | None = None

    def describe(self, split: str) -> list[str]:
        """Returns the lines to print at the start; none if there are no faults."""
        lines = []
        if dropped := self.faults.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            where = f"; empty in pair {', '.join(map(str, self.blank))}" if self.blank else ""
            more = ", ..." if self.faults.empty > len(self.blank) else ""
            lines.append(
                f"{split}: all {self.size:,} pairs are scored, though cleaning would drop {reasons}"
                f"{where}{more}"
            )
        if self.repeated:
            lines.append(
                f"{split}: {self.repeated:,} of {self.size:,} pairs occur in the training text"
            )
        if self.earlier:
            lines.append(
                f"warning: {split}: {self.earlier:,} of {self.size:,} pairs occur in {EARLIER}: "
                "the scores are too good"
            )
        return lines

    def counts(self) -> dict[str, int]:
        """Returns the same for a table."""
        dropped = {f"of them {reason}": n for reason, n in self.faults.dropped.items()}
        repeated = {"of them in the training text": self.repeated} if self.repeated else {}
        earlier = {} if self.earlier is None else {f"of them in {EARLIER}": self.earlier}
        return dropped | repeated | earlier

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "HeldOutReport":
        """Returns the report that `dataclasses.asdict` and JSON turned into these fields."""
        faults, blank = CleaningReport(**fields["faults"]), tuple(fields["blank"])
        return cls(**{**fields, "faults": faults, "blank": blank})


def check_held_out(
    splits: Mapping[str, Iterable[Pair]],
    rules: CleaningRules,
    trained: Hashes,
    earlier: Hashes | None,
) -> dict[str, HeldOutReport]:
    """Returns the report on each split.

    Args:
      rules: of cleaning, except duplicates, with the usual scripts.
      trained: `pair_hash` of the training pairs.
      earlier: see `read_earlier`.
    """
    reports, trained = {}, np.sort(trained)
    for split, pairs in splits.items():
        sides = [canonical(pair)[:2] for pair in pairs]
        faults, report = [rules.fault(*own) for own in sides], CleaningReport()
        for fault in faults:
            report.count(fault)
        blank = (number for number, fault in enumerate(faults, 1) if fault == "empty")
        hashes = np.fromiter(itertools.starmap(pair_hash, sides), np.uint64)
        reports[split] = HeldOutReport(
            len(sides),
            report,
            tuple(itertools.islice(blank, NAMED)),
            int(among(hashes, trained).sum()),
            None if earlier is None else int(among(undirected(hashes), earlier).sum()),
        )
    return reports


def read_earlier(init_from: str, folder: Path | None) -> Hashes | None:
    """Returns the undirected hashes of the pairs that earlier runs were trained on, ascending.

    None if it starts from no other, or from one that does not tell, which a warning says.

    Args:
      init_from: `config.train.init_from`.
      folder: of the run; once it has begun, it keeps them itself.
    """
    if not init_from:
        return None
    source, hashes = Path(init_from).expanduser(), NOTHING
    if folder and (folder / FILE).exists():
        _, hashes = _read(folder / FILE)
    elif (source / FILE).exists():
        hashes = _union(*_read(source / FILE))
    if len(hashes):
        return hashes
    logger.warning(
        "warning: not checked whether pairs for validation and test occur in the training text "
        "of %a, which has no %s",
        str(source.absolute()),
        FILE,
    )
    return None


def save(folder: Path, pairs: Hashes, earlier: Hashes | None) -> None:
    """Adds the pairs that a run is trained on to those of its earlier trainings, in its folder."""
    path, before = folder / FILE, NOTHING if earlier is None else earlier
    known = _read(path)[0] if path.exists() else NOTHING
    pairs = _union(undirected(pairs), known)
    if not path.exists() or len(known) < len(pairs):
        with whole_file(path, binary=True) as file:
            np.savez(file, pairs=pairs, earlier=before)


def seen_line(folder: Path, pairs: Sequence[Pair]) -> str | None:
    """Returns a line with how many pairs a run, or one before it, was trained on; None for none."""
    if not (folder / FILE).exists():
        return None
    hashes = np.array([pair_hash(*canonical(pair)[:2]) for pair in pairs], np.uint64)
    if not (count := int(among(undirected(hashes), _union(*_read(folder / FILE))).sum())):
        return None
    return (
        f"warning: the model was trained on {count:,} of these {len(pairs):,} pairs "
        f"({count / len(pairs):.1%}): scores of pairs that it has not seen are lower"
    )


def among(hashes: UInt64[np.ndarray, "pairs"], others: Hashes) -> Bool[np.ndarray, "pairs"]:
    """Returns whether each of some hashes is one of others, ascending; `np.isin` is slower."""
    if not len(others):
        return np.zeros(len(hashes), bool)
    return others.take(np.searchsorted(others, hashes), mode="clip") == hashes


def _union(*hashes: Hashes) -> Hashes:
    """The different hashes, ascending; `np.unique` takes thirty times as long."""
    ascending = np.sort(np.concatenate(hashes))
    return ascending[np.diff(ascending, prepend=ascending[:1] + 1) != 0]


def _read(path: Path) -> tuple[Hashes, Hashes]:
    """The hashes of the pairs of a run, and of the runs before it."""
    try:
        with open_arrays(path) as arrays:
            pairs, earlier = arrays["pairs"], arrays["earlier"]
        if {(a.ndim, a.dtype.kind) for a in (pairs, earlier)} != {(1, "u")}:
            raise ValueError("it has no lists of hashes")
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error}): {FIX}") from None
    return pairs, earlier
