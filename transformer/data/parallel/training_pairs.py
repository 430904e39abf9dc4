"""The training pairs of a corpus, cleaned, and the check for held-out pairs among them.

Held-out pairs are looked up by their hashes, see `Survey`, in the training text of a run and in
that of the run that it starts from, which may be gone or have grown since. So each run keeps the
hashes of its training pairs, and of those of the runs before it: `trained_on.npz` has `pairs` and
`earlier`, eight bytes for each pair, ascending.

A separate file for validation or test, such as a published test set, is never filtered, so that
scores are comparable; the pairs that the rules would drop are counted.
"""

import collections
import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning import survey as surveys
from transformer.data.cleaning.rules import CleaningReport, CleaningRules, check_kept, rules_of
from transformer.data.cleaning.survey import Survey, pair_hash, undirected
from transformer.data.encode import Restartable
from transformer.data.pairs import Pair, canonical
from transformer.errors import UserError
from transformer.files import open_arrays, whole_file

EARLIER = "the training text of earlier runs"
TRAINED_ON_FILE = "trained_on.npz"
TRAINED_ON_FIX = (
    "restore the original, or delete it: then a run that starts from this one cannot tell whether "
    "it is scored on pairs that this one was trained on"
)

logger = logging.getLogger(__name__)
Hashes = UInt64[np.ndarray, "_"]
NO_HASHES = np.zeros(0, np.uint64)


class HeldOutReport(NamedTuple):
    """The faults of the pairs of a split, and the number of pairs that also occur in training text.

    Pairs are compared as they are with the training text, and in either direction with that of
    earlier runs; `earlier` is None without such runs.
    """

    size: int
    faults: CleaningReport
    repeated: int
    earlier: int | None = None

    def describe(self, split: str) -> list[str]:
        """Returns the lines to print at the start; none if there are no faults."""
        lines, of_pairs = [], f"of {self.size:,} pairs occur in"
        if dropped := self.faults.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            lines.append(
                f"{split}: all {self.size:,} pairs are scored, though cleaning would drop {reasons}"
            )
        if self.repeated:
            lines.append(f"{split}: {self.repeated:,} {of_pairs} the training text")
        if self.earlier:
            what = f"{self.earlier:,} {of_pairs} {EARLIER}"
            lines.append(f"warning: {split}: {what}: the scores are too good")
        return lines

    def counts(self) -> dict[str, int]:
        """Returns the same counts as table columns."""
        dropped = {f"of them {reason}": n for reason, n in self.faults.dropped.items()}
        repeated = {"of them in the training text": self.repeated} if self.repeated else {}
        earlier = {} if self.earlier is None else {f"of them in {EARLIER}": self.earlier}
        return dropped | repeated | earlier


@dataclasses.dataclass(frozen=True)
class TrainingPairs:
    """The raw training pairs, and the result of cleaning them.

    Attributes:
      cleaned: the canonical form of the pairs that cleaning keeps, restartable.
      fingerprints: digests of the sources and the targets that cleaning keeps.
      held_out: the reports on the other splits.
      hashes: hashes of the pairs that cleaning keeps, see `pair_hash`.
      pairs: all pairs, restartable, as raw text.
      kept: a byte for each of `pairs`, 1 if cleaning keeps it.
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
    """Returns training pairs, read several times, cleaned; those of files are clean already."""
    if not isinstance(pairs, TrainingPairs):
        pairs = clean(pairs, rules_of(data), held_out, earlier)
    check_kept(pairs.report)
    return pairs


def clean(
    pairs: Iterable[Pair],
    rules: CleaningRules,
    held_out: Mapping[str, Iterable[Pair]],
    earlier: Hashes | None = None,
    facts: Survey | None = None,
) -> TrainingPairs:
    """Returns cleaned training pairs, by the rules of their survey if there is one."""
    if facts is None:
        facts, rules = surveys.survey(pairs, rules)
    faults = surveys.duplicates(facts, rules)
    marks, hashes = (faults == 0).tobytes(), facts.exact[faults == 0]
    rest = cleaned(pairs, marks)
    reports = check_held_out(held_out, rules, hashes, earlier)
    report = surveys.count_faults(faults)
    return TrainingPairs(rest, report, fingerprints_of(rest), reports, hashes, pairs, marks)


def cleaned(pairs: Iterable[Pair], marks: bytes) -> Iterable[Pair]:
    """Returns the canonical form of the pairs that cleaning keeps, restartable."""
    return Restartable(lambda: map(canonical, itertools.compress(pairs, marks)))


def fingerprints_of(pairs: Iterable[Pair]) -> tuple[str, str]:
    """Returns a digest of the sources of pairs, and one of their targets."""
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    return digests[0].hexdigest(), digests[1].hexdigest()


# -- held-out pairs in training text


def check_held_out(
    splits: Mapping[str, Iterable[Pair]],
    rules: CleaningRules,
    trained: Hashes,
    earlier: Hashes | None,
) -> dict[str, HeldOutReport]:
    """Returns the report on each split, given hashes of the run's and of earlier pairs."""
    reports = {}
    for split, pairs in splits.items():
        sides = [canonical(pair)[:2] for pair in pairs]
        faults = collections.Counter(rules.fault(*own) for own in sides)
        hashes = np.fromiter(itertools.starmap(pair_hash, sides), np.uint64)
        reports[split] = HeldOutReport(
            len(sides),
            CleaningReport(faults),
            int(np.isin(hashes, trained).sum()),
            None if earlier is None else int(np.isin(undirected(hashes), earlier).sum()),
        )
    return reports


def read_earlier(init_from: str, folder: Path | None) -> Hashes | None:
    """Returns the undirected hashes of the pairs that earlier runs were trained on, ascending.

    Returns None if a run starts from no other run, or, with a warning, from one without hashes.
    After its first start, a run reads them from its own `folder`.
    """
    if not init_from:
        return None
    source, hashes = Path(init_from).expanduser(), NO_HASHES
    if folder and (folder / TRAINED_ON_FILE).exists():
        _, hashes = _hashes(folder / TRAINED_ON_FILE)
    elif (source / TRAINED_ON_FILE).exists():
        hashes = _union(*_hashes(source / TRAINED_ON_FILE))
    if len(hashes):
        return hashes
    logger.warning(
        "warning: not checked whether pairs for validation and test occur in the training text "
        f"of {str(source.absolute())!a}, which has no {TRAINED_ON_FILE}"
    )
    return None


def save_hashes(folder: Path, pairs: Hashes, earlier: Hashes | None) -> None:
    """Adds the hashes of a run's training pairs to those of its earlier trainings, in `folder`."""
    path, before = folder / TRAINED_ON_FILE, NO_HASHES if earlier is None else earlier
    saved = _hashes(path)[0] if path.exists() else NO_HASHES
    pairs = _union(undirected(pairs), saved)
    if not path.exists() or len(saved) < len(pairs):
        with whole_file(path, binary=True) as file:
            np.savez(file, pairs=pairs, earlier=before)


def seen_line(folder: Path, pairs: Sequence[Pair]) -> str | None:
    """Returns a warning with the number of pairs that a run was trained on; None without any."""
    if not (folder / TRAINED_ON_FILE).exists():
        return None
    hashes = np.array([pair_hash(*canonical(pair)[:2]) for pair in pairs], np.uint64)
    known = np.concatenate(_hashes(folder / TRAINED_ON_FILE))
    if not (count := int(np.isin(undirected(hashes), known).sum())):
        return None
    return (
        f"warning: the model was trained on {count:,} of these {len(pairs):,} pairs "
        f"({count / len(pairs):.1%}): scores of pairs that it has not seen are lower"
    )


def _union(*hashes: Hashes) -> Hashes:
    """Returns the distinct hashes, ascending; `np.unique` takes thirty times as long."""
    ascending = np.sort(np.concatenate(hashes))
    return ascending[np.diff(ascending, prepend=ascending[:1] + 1) != 0]


def _hashes(path: Path) -> tuple[Hashes, Hashes]:
    """Returns the hashes of the training pairs of a run, and of the runs before it."""
    try:
        with open_arrays(path) as arrays:
            pairs, earlier = arrays["pairs"], arrays["earlier"]
        if {(a.ndim, a.dtype.kind) for a in (pairs, earlier)} != {(1, "u")}:
            raise ValueError("it has no lists of hashes")
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error}): {TRAINED_ON_FIX}") from None
    return pairs, earlier
