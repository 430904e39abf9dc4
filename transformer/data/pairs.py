"""Sentence pairs, the items of a parallel corpus, and their cleaning."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ml_collections import ConfigDict

from transformer.errors import UserError

# Added to both lengths before their ratio is taken: "Ja." may well be "Yes, of course I do."
SHORT_SENTENCE = 10


class Pair(NamedTuple):
    """A sentence and its translation, as raw text.

    `alignment` holds gold word links (i, j), both from zero, between the
    whitespace-separated words of `source` and `target`; it is None if unknown.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class CleaningRules:
    """The conditions for a pair to be trained on. In any case, no side may be empty.

    The length ratio is the longer side over the shorter one, with ten added to both so that short
    sentences are kept. It is computed in characters and in UTF-8 bytes, and the smaller ratio is
    used: characters suit Russian and English, bytes suit Chinese and English, because one Chinese
    character of three bytes often stands for a word. Words are not used, since Chinese and Thai do
    not put spaces between them.

    Args:
      max_characters: maximum length of a side, in Unicode code points.
      max_length_ratio: maximum ratio, at least 1; `inf` keeps all.
      remove_duplicates: keep only the first of pairs that are equal on both sides.

    Raises:
      UserError: a limit would drop every pair.
    """

    max_characters: int
    max_length_ratio: float
    remove_duplicates: bool

    def __post_init__(self):
        for name in ("max_characters", "max_length_ratio"):
            value = getattr(self, name)
            if not value >= 1:
                raise UserError(
                    f"--config.data.{name}={value} would drop every pair: set it to 1 or more"
                )

    def fault(self, source: str, target: str) -> str:
        """Returns the first rule that two sides break, as `CleaningReport` calls it; '' if none.

        Args:
          source, target: without white space around them.
        """
        if not source or not target:
            return "empty"
        if max(len(source), len(target)) > self.max_characters:
            return "too_long"
        return "length_ratio" if self.differ_in_length(source, target) else ""

    def differ_in_length(self, source: str, target: str) -> bool:
        """Whether the lengths differ by more than `max_length_ratio`."""
        characters = len(source), len(target)
        if _ratio(*characters) <= self.max_length_ratio:
            return False
        return _ratio(len(source.encode()), len(target.encode())) > self.max_length_ratio


def rules_of(settings: ConfigDict) -> CleaningRules:
    """Returns the rules of `config.data`."""
    return CleaningRules(
        settings.max_characters, settings.max_length_ratio, settings.remove_duplicates
    )


def _ratio(a: int, b: int) -> float:
    return (max(a, b) + SHORT_SENTENCE) / (min(a, b) + SHORT_SENTENCE)


@dataclass
class CleaningReport:
    """How many pairs were read and kept, and the first reason why each of the others was not.

    As text it is one line. `too_many_tokens` counts kept pairs that turn out to be longer than the
    model's limit when they are encoded; the encoder also lowers `kept`. So does whoever finds pairs
    of this corpus in the held-out text of any.
    """

    total: int = 0
    kept: int = 0
    empty: int = 0
    too_long: int = 0
    length_ratio: int = 0
    duplicate: int = 0
    held_out: int = 0
    too_many_tokens: int = 0

    def count(self, fault: str) -> None:
        """Counts a pair by its fault; '' is kept."""
        self.total += 1
        name = fault or "kept"
        setattr(self, name, getattr(self, name) + 1)

    def without(self, **dropped: int) -> "CleaningReport":
        """Returns the report after more of the kept pairs were dropped, by field."""
        return dataclasses.replace(self, **dropped, kept=self.kept - sum(dropped.values()))

    def add(self, other: "CleaningReport") -> "CleaningReport":
        """Returns the counts of both."""
        fields = dataclasses.fields(self)
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields)
        return CleaningReport(*sums)

    @property
    def dropped(self) -> dict[str, int]:
        """How many pairs were dropped, by reason, without reasons that did not occur."""
        reasons = {
            "with an empty side": self.empty,
            "over --config.data.max_characters": self.too_long,
            "over --config.data.max_length_ratio": self.length_ratio,
            "repeated": self.duplicate,
            "in held-out text": self.held_out,
            "over --config.data.max_tokens": self.too_many_tokens,
        }
        return {reason: count for reason, count in reasons.items() if count}

    def __str__(self) -> str:
        dropped = [f"{count:,} {reason}" for reason, count in self.dropped.items()]
        line = f"kept {self.kept:,} of {self.total:,} sentence pairs"
        return f"{line}; dropped {', '.join(dropped)}" if dropped else line


def strip(pair: Pair) -> Pair:
    """Returns a pair without white space around its sides."""
    return Pair(pair.source.strip(), pair.target.strip(), pair.alignment)


def clean(
    pairs: Iterable[Pair],
    rules: CleaningRules,
    report: CleaningReport,
    kept: bytearray | None = None,
) -> Iterator[Pair]:
    """Yields the pairs that satisfy the rules, without white space around them, in their order.

    If duplicates are removed, eight bytes of hash are stored for each kept pair; otherwise nothing
    is. Among five million pairs, the probability that two different ones have the same hash is
    below one in a million.

    Args:
      report: updated as pairs are read, so it is complete after the last one.
      kept: gets a byte for each pair that is read, 1 if it is kept and 0 if not.
    """
    kept = bytearray() if kept is None else kept
    seen: set[int] = set()
    for pair in map(strip, pairs):
        source, target, _ = pair
        fault = rules.fault(source, target)
        if not fault and rules.remove_duplicates:
            if (key := _hash(source, target)) in seen:
                fault = "duplicate"
            else:
                seen.add(key)
        report.count(fault)
        kept.append(not fault)
        if not fault:
            yield pair


def _hash(source: str, target: str) -> int:
    # The length marks the end of the source, whatever characters both sides have.
    text = f"{len(source)} {source}{target}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def check_kept(report: CleaningReport) -> None:
    """Raises UserError, with all counts, if cleaning left nothing to train on."""
    if not report.kept:
        raise UserError(
            f"no training text is left: {report}; raise the limits named here, or see whether "
            "--config.data.source names the right text"
        )
