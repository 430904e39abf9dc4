"""The training pairs, and the result of cleaning them in two readings."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import UInt64

from transformer.data.cleaning.report import CleaningReport
from transformer.data.cleaning.rules import CleaningRules
from transformer.data.cleaning.survey import Survey, count_faults, duplicates, survey
from transformer.data.pairs import Pair, canonical
from transformer.data.parallel.held_out_checks import HeldOutChecker, HeldOutReport


@dataclasses.dataclass(frozen=True)
class TrainingPairs:
    """The training pairs as they are read, and the result of cleaning them.

    Attributes:
      pairs: restartable, as raw text.
      kept: a byte for each of them, 1 if cleaning keeps it.
      report: counts of those that it drops.
      fingerprints: of the sources and the targets that it keeps.
      held_out: the reports on the other splits.
      hashes: of the pairs that it keeps, see `pair_hash`.
    """

    pairs: Iterable[Pair]
    kept: bytes
    report: CleaningReport
    fingerprints: tuple[str, str]
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "kept"]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def cleaned(self) -> Iterator[Pair]:
        """Yields the canonical form of the pairs that cleaning keeps."""
        return map(canonical, itertools.compress(self.pairs, self.kept))


def clean(
    pairs: Iterable[Pair],
    rules: CleaningRules,
    held_out: Mapping[str, Iterable[Pair]],
    found: Survey | None = None,
) -> TrainingPairs:
    """Returns training pairs, cleaned.

    Args:
      pairs: restartable, and never held in memory.
      rules: those that `survey` returned with `found`.
      held_out: the pairs of other splits, to look for in the training text.
      found: the survey of the pairs; None to make one.
    """
    if found is None:
        found, rules = survey(pairs, rules)
    faults = duplicates(found, rules)
    kept = (faults == 0).tobytes()
    checker = HeldOutChecker(held_out, rules)
    fingerprints = fingerprints_of(checker.checked(map(canonical, itertools.compress(pairs, kept))))
    hashes, report = found.either[faults == 0], count_faults(found, faults)
    return TrainingPairs(pairs, kept, report, fingerprints, checker.reports(), hashes)


def fingerprints_of(pairs: Iterable[Pair]) -> tuple[str, str]:
    """Returns a fingerprint of the sources of pairs, and one of their targets."""
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    return digests[0].hexdigest(), digests[1].hexdigest()
