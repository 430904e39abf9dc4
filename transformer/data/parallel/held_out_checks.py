"""Checks of held-out pairs: what cleaning would drop of them, and what the training text has too.

Pairs that are taken out of the training text keep the rules of its cleaning, see `sources`. A file
of its own, as a published test set is, stays whole, so that scores can be compared; what the rules
would drop of it is counted, and so is what occurs in the training text.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from transformer.data.cleaning.report import CleaningReport
from transformer.data.cleaning.rules import CleaningRules
from transformer.data.pairs import Pair

NAMED = 5  # lines


@dataclasses.dataclass(frozen=True)
class HeldOutReport:
    """The pairs of a split that are not as they should be.

    Attributes:
      size: pairs of the split.
      faults: what cleaning would drop.
      blank: the first pairs with an empty side, from one.
      repeated: how many occur in the training text.
    """

    size: int
    faults: CleaningReport
    blank: tuple[int, ...]
    repeated: int

    def describe(self, split: str) -> list[str]:
        """Returns the lines to print at the start, none if all is well."""
        lines = []
        if dropped := self.faults.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            where = f"; empty in line {', '.join(map(str, self.blank))}" if self.blank else ""
            more = ", ..." if self.faults.empty > len(self.blank) else ""
            lines.append(
                f"{split}: all {self.size:,} pairs are scored, though cleaning would drop {reasons}"
                f"{where}{more}"
            )
        if self.repeated:
            lines.append(
                f"{split}: {self.repeated:,} of {self.size:,} pairs occur in the training text"
            )
        return lines

    def counts(self) -> dict[str, int]:
        """Returns the same for a table."""
        dropped = {f"of them {reason}": n for reason, n in self.faults.dropped.items()}
        return dropped | ({"of them in the training text": self.repeated} if self.repeated else {})

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "HeldOutReport":
        """Returns what `dataclasses.asdict` and JSON made these fields of."""
        faults, blank = CleaningReport(**fields["faults"]), tuple(fields["blank"])
        return cls(**{**fields, "faults": faults, "blank": blank})


class HeldOutChecker:
    """Checks held-out pairs, and looks for them while the training text is read.

    Args:
      splits: the pairs by split; their sides are held in memory.
      rules: of cleaning, but of duplicates, with the scripts that are usual.
    """

    def __init__(self, splits: Mapping[str, Iterable[Pair]], rules: CleaningRules):
        self._found: dict[str, tuple[CleaningReport, list[int]]] = {}
        # Where each pair is held out, and how often.
        self._places: dict[tuple[str, str], collections.Counter[str]] = {}
        self._repeated: set[tuple[str, str]] = set()
        for split, pairs in splits.items():
            report, blank = CleaningReport(), []
            for number, pair in enumerate(pairs, 1):
                sides = pair.source.strip(), pair.target.strip()
                report.count(fault := rules.fault(*sides))
                if fault == "empty" and len(blank) < NAMED:
                    blank.append(number)
                if fault != "empty":
                    self._places.setdefault(sides, collections.Counter())[split] += 1
            self._found[split] = report, blank

    def check(self, pair: Pair) -> None:
        """Remembers a pair of the training text that is held out too; others cost a hash."""
        if pair[:2] in self._places:
            self._repeated.add(pair[:2])

    def reports(self) -> dict[str, HeldOutReport]:
        """Returns what was found, by split."""
        repeated: collections.Counter[str] = collections.Counter()
        for sides in self._repeated:
            repeated.update(self._places[sides])
        return {
            split: HeldOutReport(report.total, report, tuple(blank), repeated[split])
            for split, (report, blank) in self._found.items()
        }
