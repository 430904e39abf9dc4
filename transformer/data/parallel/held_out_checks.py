"""Checks of held-out pairs: the rules of cleaning, and overlap with the training text.

Pairs that are taken out of the training text satisfy the rules of its cleaning, see `sources`. A
separate file, such as a published test set, is never filtered, so that scores are comparable; the
pairs that the rules would drop are counted, and so are those that occur in the training text.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transformer.data.cleaning.report import CleaningReport
from transformer.data.cleaning.rules import CleaningRules
from transformer.data.pairs import Pair, canonical

NAMED = 5  # lines
EARLIER = "the training text of earlier runs"


@dataclasses.dataclass(frozen=True)
class HeldOutReport:
    """The faults of the pairs of a split.

    Attributes:
      size: pairs of the split.
      faults: the pairs that cleaning would drop.
      blank: the first pairs with an empty side, from one.
      repeated: how many pairs occur in the training text.
      earlier: how many occur in that of the runs that this one goes on from; None if there are
        none.
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

    def without_repeated(self) -> "HeldOutReport":
        """Returns the report after the repeated pairs were dropped from the training text."""
        return dataclasses.replace(self, repeated=0)

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


class HeldOutChecker:
    """Checks held-out pairs, and looks for them while the training text is read.

    Args:
      splits: the pairs by split; their sides are held in memory.
      rules: of cleaning, except duplicates, with the usual scripts.
    """

    def __init__(self, splits: Mapping[str, Iterable[Pair]], rules: CleaningRules):
        self._found: dict[str, tuple[CleaningReport, list[int]]] = {}
        # The splits of each held-out pair, and how often it occurs.
        self._places: dict[tuple[str, str], collections.Counter[str]] = {}
        self._repeated: set[tuple[str, str]] = set()
        for split, pairs in splits.items():
            report, blank = CleaningReport(), []
            for number, pair in enumerate(pairs, 1):
                sides = canonical(pair)[:2]
                report.count(fault := rules.fault(*sides))
                if fault == "empty" and len(blank) < NAMED:
                    blank.append(number)
                if fault != "empty":
                    self._places.setdefault(sides, collections.Counter())[split] += 1
            self._found[split] = report, blank

    def check(self, pair: Pair) -> None:
        """Records a pair of the training text if it is held out too."""
        if pair[:2] in self._places:
            self._repeated.add(pair[:2])

    def checked(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the pairs of the training text, each checked."""
        for pair in pairs:
            self.check(pair)
            yield pair

    def reports(self) -> dict[str, HeldOutReport]:
        """Returns the report on each split."""
        repeated: collections.Counter[str] = collections.Counter()
        for sides in self._repeated:
            repeated.update(self._places[sides])
        return {
            split: HeldOutReport(report.total, report, tuple(blank), repeated[split])
            for split, (report, blank) in self._found.items()
        }
