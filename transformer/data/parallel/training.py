"""The training pairs of one corpus, and the result of cleaning them in two readings."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning.rules import CleaningReport, CleaningRules, check_kept, rules_of
from transformer.data.cleaning.survey import Survey, count_faults, duplicates, survey
from transformer.data.encode import Restartable
from transformer.data.pairs import Pair, canonical
from transformer.data.parallel.leaks import Hashes, HeldOutReport, check_held_out


@dataclasses.dataclass(frozen=True)
class TrainingPairs:
    """The training pairs as they are read, and the result of cleaning them.

    Attributes:
      cleaned: the canonical form of the pairs that cleaning keeps, restartable.
      report: counts of those that it drops.
      fingerprints: of the sources and the targets that it keeps.
      held_out: the reports on the other splits.
      hashes: of the pairs that it keeps, see `pair_hash`.
      pairs: all of them, restartable, as raw text.
      kept: a byte for each of these, 1 if cleaning keeps it.
    """

    cleaned: Iterable[Pair]
    report: CleaningReport
    fingerprints: tuple[str, str]
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "kept"]
    pairs: Iterable[Pair] = ()
    kept: bytes = b""

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)


def read_training_pairs(
    pairs: Iterable[Pair],
    data: ConfigDict,
    held_out: Mapping[str, Iterable[Pair]],
    earlier: Hashes | None = None,
) -> TrainingPairs:
    """Returns the training pairs of one corpus, cleaned, unless they are already.

    Args:
      pairs: restartable, since cleaning, training a tokenizer and encoding read it in turn; never
        held in memory. Those of files are already cleaned.
      held_out: the pairs of other splits, to look for in the training text.
      earlier: see `read_earlier`.
    """
    if not isinstance(pairs, TrainingPairs):
        pairs = clean(pairs, rules_of(data), held_out, earlier)
    check_kept(pairs.report)
    return pairs


def clean(
    pairs: Iterable[Pair],
    rules: CleaningRules,
    held_out: Mapping[str, Iterable[Pair]],
    earlier: Hashes | None = None,
    found: Survey | None = None,
) -> TrainingPairs:
    """Returns training pairs, cleaned.

    Args:
      rules: those that `survey` returned with `found`.
      found: the survey of the pairs; None to make one.
    """
    if found is None:
        found, rules = survey(pairs, rules)
    faults = duplicates(found, rules)
    kept, hashes = (faults == 0).tobytes(), found.exact[faults == 0]
    fingerprints = fingerprints_of(cleaned(pairs, kept))
    reports = check_held_out(held_out, rules, hashes, earlier)
    report = count_faults(found, faults)
    return TrainingPairs(cleaned(pairs, kept), report, fingerprints, reports, hashes, pairs, kept)


def cleaned(pairs: Iterable[Pair], kept: bytes) -> Iterable[Pair]:
    """Returns the canonical form of the pairs that cleaning keeps, restartable."""
    return Restartable(lambda: map(canonical, itertools.compress(pairs, kept)))


def fingerprints_of(pairs: Iterable[Pair]) -> tuple[str, str]:
    """Returns a fingerprint of the sources of pairs, and one of their targets."""
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    return digests[0].hexdigest(), digests[1].hexdigest()
