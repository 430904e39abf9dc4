"""Applies the cleaning rules to each pair of a text, in one pass on all cores.

A pair takes thirty bytes, whatever its length. Decisions about more than one pair, such as which
of two duplicates comes first, use these numbers.
"""

import dataclasses
import functools
import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from html import unescape
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import UInt8, UInt64

from transformer.data.cleaning.rules import (
    FAULTS,
    SCRIPTS,
    CleaningReport,
    CleaningRules,
    folded,
    scripts_of,
)
from transformer.data.held_out import rank
from transformer.data.pairs import Pair, canonical
from transformer.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 5_000  # pairs of a chunk
ALONE = 20  # items that are done in this process before starting others, which takes a second
MAX_PROCESSES, GROUP = 16, 8  # items per process that are held at once
NUMBER = {fault: number for number, fault in enumerate(FAULTS)}
SCRIPT_NUMBER = {script: number for number, script in enumerate(SCRIPTS)}


class Survey(NamedTuple):
    """Numbers that describe each pair of a text, in the order of the text.

    Attributes:
      faults: the first fault, as an index into `FAULTS`.
      ranks: a hash of the source, by which pairs are held out.
      exact: `pair_hash` of both sides.
      near: a hash of both sides after `folded`, if it is needed.
      scripts: the two main scripts of source and target, as indices into `SCRIPTS`, if needed.
    """

    faults: UInt8[np.ndarray, "pairs"]
    ranks: UInt64[np.ndarray, "pairs"]
    exact: UInt64[np.ndarray, "pairs"]
    near: UInt64[np.ndarray, "pairs"]
    scripts: UInt8[np.ndarray, "pairs sides 2"]


_NONE = np.zeros(0, np.uint64)
EMPTY = Survey(np.zeros(0, np.uint8), _NONE, _NONE, _NONE, np.zeros((0, 2, 2), np.uint8))


def survey(
    pairs: Iterable[Pair], rules: CleaningRules, seed: int = 0
) -> tuple[Survey, CleaningRules]:
    """Returns the survey of a text, and the rules with the usual scripts of the text.

    Args:
      pairs: read once, and never held in memory.
      seed: seed of `ranks`.
    """
    judge = functools.partial(_survey_chunk, rules, seed)
    items = iter(pairs)
    chunks = iter(lambda: [*itertools.islice(items, AT_ONCE)], [])
    parts = list(ordered_map(judge, chunks))
    facts = Survey(*(np.concatenate(arrays) for arrays in zip(EMPTY, *parts, strict=True)))
    if rules.min_script_fraction:
        usual, unfaulty = [], facts.faults == 0
        for scripts in facts.scripts.transpose(1, 0, 2):
            counts = np.bincount(scripts[unfaulty, 0], minlength=len(SCRIPTS))
            enough = counts >= max(1, rules.min_script_fraction * counts[1:].sum())
            enough[0] = False  # number 0 stands for no script
            usual.append(frozenset(itertools.compress(SCRIPTS, enough)))
            wrong = (scripts[:, 0] > 0) & ~enough[scripts].any(axis=1) & (facts.faults == 0)
            facts.faults[wrong] = NUMBER["script"]
        rules = dataclasses.replace(rules, usual_scripts=tuple(usual))
    return facts, rules


def duplicates(facts: Survey, rules: CleaningRules) -> UInt8[np.ndarray, "pairs"]:
    """Returns the faults, with later pairs that have the same hashes marked as duplicates."""
    faults = facts.faults.copy()
    for wanted, fault, hashes in (
        (rules.remove_duplicates, "duplicate", facts.exact),
        (rules.remove_near_duplicates, "near_duplicate", facts.near),
    ):
        if wanted:
            places = np.flatnonzero(faults == 0)
            again = np.ones(len(places), bool)
            again[np.unique(hashes[places], return_index=True)[1]] = False
            faults[places[again]] = NUMBER[fault]
    return faults


def without_copies(facts: Survey, chosen: Sequence[int], rules: CleaningRules) -> Survey:
    """Returns a survey in which pairs equal to chosen ones, except these, are duplicates."""
    faults, others = facts.faults.copy(), facts.faults == 0
    others[list(chosen)] = False
    for fault, hashes in (("near_duplicate", facts.near), ("duplicate", facts.exact)):
        if fault == "duplicate" or rules.remove_near_duplicates:
            faults[others & np.isin(hashes, hashes[list(chosen)])] = NUMBER[fault]
    return facts._replace(faults=faults)


def count_faults(faults: UInt8[np.ndarray, "pairs"]) -> CleaningReport:
    """Returns the number of pairs with each fault."""
    counts = np.bincount(faults, minlength=len(FAULTS)).tolist()
    return CleaningReport(dict(zip(FAULTS, counts, strict=True)))


def _survey_chunk(rules: CleaningRules, seed: int, pairs: Sequence[Pair]) -> Survey:
    """Returns the survey of a part of a text."""
    facts = Survey(*(np.zeros((len(pairs), *array.shape[1:]), array.dtype) for array in EMPTY))
    for i, (source, target, *_) in enumerate(map(canonical, pairs)):
        facts.faults[i] = number = NUMBER[rules.fault(source, target)]
        if number:
            continue
        facts.ranks[i] = rank(source, seed)
        facts.exact[i] = pair_hash(source, target)
        texts = unescape(source), unescape(target)
        if rules.remove_near_duplicates:
            facts.near[i] = _hash_text(*map(folded, texts))
        if rules.min_script_fraction:
            facts.scripts[i] = [[*map(SCRIPT_NUMBER.get, scripts_of(text))] for text in texts]
    return facts


def pair_hash(source: str, target: str) -> int:
    """Returns a hash of two canonical sides, whose last bit says which side sorts first.

    With five million pairs, the probability that any two share a hash is one in a million.
    """
    swapped = source > target
    return _hash_text(*((target, source) if swapped else (source, target))) & ~1 | swapped


def undirected(hashes: UInt64[np.ndarray, "pairs"]) -> UInt64[np.ndarray, "pairs"]:
    """Returns hashes that do not depend on the direction of a pair."""
    return hashes & ~np.uint64(1)


def _hash_text(source: str, target: str) -> int:
    # The length marks where the source ends, whatever characters both sides hold.
    text = f"{len(source)} {source}{target}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the results of a pure function in order of the items, in parallel if there are many.

    Few items are processed ahead of the yielded one, to save memory.
    """
    items, processes = iter(items), min(os.cpu_count() or 1, MAX_PROCESSES)
    yield from map(function, itertools.islice(items, ALONE))
    # No fork: a jax thread may hold a lock. Processes are started at the first item.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_end_with_parent)
    try:
        while group := [*itertools.islice(items, GROUP * processes)]:
            yield from pool.map(function, group)
    except BrokenProcessPool:
        raise UserError(
            "a process that cleans text was killed, perhaps for lack of memory: start again"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Ignores Ctrl-C, which the parent handles, and ends with the parent, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only started processes call this"

    def follow():
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
