"""The training pairs of a corpus: pair statistics, cleaning, and the check for held-out pairs.

The first pass over a corpus computes a record of 29 bytes for each pair. Decisions that involve
several pairs, such as which of two duplicates to keep, are based on these records.

Held-out pairs are looked up by hash in the training data of a run and of the run that it was
initialised from. The earlier data may have been deleted or extended, so each run saves the hashes
of its own training pairs and of earlier runs' training pairs. `trained_on.npz` has these hashes as
the sorted arrays `pairs` and `earlier`, with eight bytes per pair.

A separate validation or test file, such as a published test set, is never filtered, so that scores
are comparable.
"""

import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8, UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning import (
    FAULTS,
    SCRIPTS,
    CleaningReport,
    CleaningRules,
    check_kept,
    folded,
    rules_of,
    scripts_of,
)
from transformer.data.encode import Restartable
from transformer.data.held_out import rank
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
Survey = np.recarray  # one `FACTS` record per pair, in corpus order
FACTS = np.dtype(
    [
        ("faults", np.uint8),  # the first fault, as an index into `FAULTS`
        ("ranks", np.uint64),  # hash of the source, used to choose held-out pairs
        ("exact", np.uint64),  # `pair_hash` of both sides
        ("near", np.uint64),  # hash of both sides after `folded`, or 0 if not needed
        ("scripts", np.uint8, (2, 2)),  # two main scripts of each side, as indices into `SCRIPTS`
    ]
)


# -- pair statistics


def survey(pairs: Iterable[Pair], rules: CleaningRules, seed: int = 0) -> Survey:
    """Returns the `FACTS` record of each pair in a corpus.

    Args:
      pairs: an iterable that is read once and not held in memory.
      seed: random seed of `ranks`.
    """
    rows = (_describe_pair(pair, rules, seed) for pair in map(canonical, pairs))
    facts = np.fromiter(rows, FACTS).view(np.recarray)
    unfaulty = facts.faults == 0
    for scripts in facts.scripts.transpose(1, 0, 2) if rules.min_script_fraction else ():
        counts = np.bincount(scripts[unfaulty, 0], minlength=len(SCRIPTS))
        usual = counts >= max(1, rules.min_script_fraction * counts[1:].sum())
        usual[0] = False  # index 0 means no script
        wrong = (scripts[:, 0] > 0) & ~usual[scripts].any(axis=1) & (facts.faults == 0)
        facts.faults[wrong] = FAULTS.index("script")
    return facts


def _describe_pair(pair: Pair, rules: CleaningRules, seed: int) -> tuple[Any, ...]:
    """Returns the `FACTS` record of a canonical pair, as a tuple."""
    near, scripts = 0, [("", "")] * 2
    if fault := rules.fault(pair.source, pair.target):
        ranks = exact = 0
    else:
        ranks, exact = rank(pair.source, seed), pair_hash(*pair[:2])
        texts = unescape(pair.source), unescape(pair.target)
        if rules.remove_near_duplicates:
            near = _hash_text(*map(folded, texts))
        if rules.min_script_fraction:
            scripts = [*map(scripts_of, texts)]
    numbers = [[*map(SCRIPTS.index, two)] for two in scripts]
    return FAULTS.index(fault), ranks, exact, near, numbers


def duplicates(facts: Survey, rules: CleaningRules) -> UInt8[np.ndarray, "pairs"]:
    """Returns the fault of each pair; all but the first of equal pairs are marked as duplicates."""
    faults = facts.faults.copy()
    for wanted, fault, hashes in (
        (rules.remove_duplicates, "duplicate", facts.exact),
        (rules.remove_near_duplicates, "near_duplicate", facts.near),
    ):
        if wanted:
            places = np.flatnonzero(faults == 0)
            again = np.ones(len(places), bool)
            again[np.unique(hashes[places], return_index=True)[1]] = False
            faults[places[again]] = FAULTS.index(fault)
    return faults


def without_copies(facts: Survey, chosen: Sequence[int], rules: CleaningRules) -> Survey:
    """Returns a copy of `facts` that marks all other pairs equal to a chosen pair as duplicates."""
    facts, others = facts.copy(), facts.faults == 0
    others[list(chosen)] = False
    for fault, hashes in (("near_duplicate", facts.near), ("duplicate", facts.exact)):
        if fault == "duplicate" or rules.remove_near_duplicates:
            facts.faults[others & np.isin(hashes, hashes[list(chosen)])] = FAULTS.index(fault)
    return facts


def count_faults(faults: UInt8[np.ndarray, "pairs"]) -> CleaningReport:
    """Returns the number of pairs with each fault."""
    counts = np.bincount(faults, minlength=len(FAULTS)).tolist()
    return CleaningReport(dict(zip(FAULTS, counts, strict=True)))


def pair_hash(source: str, target: str) -> int:
    """Returns a hash of two canonical sides, whose lowest bit indicates which side sorts first.

    With five million pairs, the probability of any hash collision is one in a million.
    """
    swapped = source > target
    return _hash_text(*((target, source) if swapped else (source, target))) & ~1 | swapped


def undirected(hashes: UInt64[np.ndarray, "pairs"]) -> UInt64[np.ndarray, "pairs"]:
    """Returns hashes that do not depend on the translation direction."""
    return hashes & ~np.uint64(1)


def _hash_text(source: str, target: str) -> int:
    # The length marks where the source ends, since both sides may contain any characters.
    text = f"{len(source)} {source}{target}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


# -- cleaned pairs


class HeldOutReport(NamedTuple):
    """The number of pairs in a split, and how many of them also occur in training data.

    Pairs are compared with the run's training data in the same direction, and with earlier runs'
    data in either direction. `earlier` is None if there are no earlier runs.
    """

    size: int
    repeated: int
    earlier: int | None = None

    def describe(self, split: str) -> list[str]:
        """Returns the lines to log at the start, or [] if no pair occurs in training data."""
        lines, of_pairs = [], f"of {self.size:,} pairs occur in"
        if self.repeated:
            lines.append(f"{split}: {self.repeated:,} {of_pairs} the training text")
        if self.earlier:
            what = f"{self.earlier:,} {of_pairs} {EARLIER}"
            lines.append(f"warning: {split}: {what}: the scores will be too high")
        return lines

    def counts(self) -> dict[str, int]:
        """Returns the counts of repeated pairs as table columns."""
        repeated = {"of them in the training text": self.repeated} if self.repeated else {}
        earlier = {} if self.earlier is None else {f"of them in {EARLIER}": self.earlier}
        return repeated | earlier


@dataclasses.dataclass(frozen=True)
class TrainingPairs:
    """The raw training pairs, and the result of cleaning them.

    Attributes:
      cleaned: a restartable iterable over the canonical form of the kept pairs.
      fingerprints: digests of the sources and the targets of the kept pairs.
      held_out: a report for each held-out split.
      hashes: hashes of the kept pairs; see `pair_hash`.
      pairs: a restartable iterable over all raw pairs.
      kept: one byte for each of `pairs`: 1 if cleaning keeps the pair, and 0 otherwise.
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
    """Cleans training pairs, unless they are already clean; `pairs` is read several times."""
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
    """Cleans training pairs; their `FACTS` records are computed if `facts` is None."""
    facts = survey(pairs, rules) if facts is None else facts
    faults = duplicates(facts, rules)
    marks, hashes = (faults == 0).tobytes(), facts.exact[faults == 0]
    rest = cleaned(pairs, marks)
    reports = check_held_out(held_out, hashes, earlier)
    report = count_faults(faults)
    return TrainingPairs(rest, report, fingerprints_of(rest), reports, hashes, pairs, marks)


def cleaned(pairs: Iterable[Pair], marks: bytes) -> Iterable[Pair]:
    """Returns a restartable iterable over the canonical form of the kept pairs."""
    return Restartable(lambda: map(canonical, itertools.compress(pairs, marks)))


def fingerprints_of(pairs: Iterable[Pair]) -> tuple[str, str]:
    """Returns a digest of all sources and a digest of all targets."""
    digests = hashlib.sha256(), hashlib.sha256()
    for pair in pairs:
        for digest, text in zip(digests, pair[:2], strict=True):
            digest.update(text.encode() + b"\n")
    return digests[0].hexdigest(), digests[1].hexdigest()


# -- held-out pairs in training data


def check_held_out(
    splits: Mapping[str, Iterable[Pair]], trained: Hashes, earlier: Hashes | None
) -> dict[str, HeldOutReport]:
    """Returns a report for each split, given the hashes of this run's and earlier runs' pairs."""
    reports = {}
    for split, pairs in splits.items():
        sides = [canonical(pair)[:2] for pair in pairs]
        hashes = np.fromiter(itertools.starmap(pair_hash, sides), np.uint64)
        reports[split] = HeldOutReport(
            len(sides),
            int(np.isin(hashes, trained).sum()),
            None if earlier is None else int(np.isin(undirected(hashes), earlier).sum()),
        )
    return reports


def read_earlier(init_from: str, folder: Path | None) -> Hashes | None:
    """Returns the sorted hashes (see `undirected`) of the pairs that earlier runs were trained on.

    Returns None if there is no earlier run, or (after a warning) if the earlier run has no hashes.
    After the first start of a run, the hashes are read from the run's own `folder`.
    """
    if not init_from:
        return None
    source, hashes = Path(init_from).expanduser(), NO_HASHES
    if folder and (folder / TRAINED_ON_FILE).exists():
        _, hashes = _hashes(folder / TRAINED_ON_FILE)
    elif (source / TRAINED_ON_FILE).exists():
        hashes = np.union1d(*_hashes(source / TRAINED_ON_FILE))
    if len(hashes):
        return hashes
    logger.warning(
        "warning: not checked whether pairs for validation and test occur in the training text "
        f"of {str(source.absolute())!a}, which has no {TRAINED_ON_FILE}"
    )
    return None


def save_hashes(folder: Path, pairs: Hashes, earlier: Hashes | None) -> None:
    """Adds the hashes of a run's training pairs to the hashes saved in the run's `folder`."""
    path, before = folder / TRAINED_ON_FILE, NO_HASHES if earlier is None else earlier
    saved = _hashes(path)[0] if path.exists() else NO_HASHES
    pairs = np.union1d(undirected(pairs), saved)
    if not path.exists() or len(saved) < len(pairs):
        with whole_file(path, binary=True) as file:
            np.savez(file, pairs=pairs, earlier=before)


def seen_line(folder: Path, pairs: Sequence[Pair]) -> str | None:
    """Returns a warning if a run was trained on any of the given pairs, and None otherwise."""
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


def _hashes(path: Path) -> tuple[Hashes, Hashes]:
    """Reads the hashes of a run's own training pairs, and of earlier runs' training pairs."""
    try:
        with open_arrays(path) as arrays:
            pairs, earlier = arrays["pairs"], arrays["earlier"]
        if {(a.ndim, a.dtype.kind) for a in (pairs, earlier)} != {(1, "u")}:
            raise ValueError("it has no lists of hashes")
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error}): {TRAINED_ON_FIX}") from None
    return pairs, earlier
