"""Perturbed copies of a test set: their scores tell how a translator reads other writing."""

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from transformer.data.held_out import COPY
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import MODIFIERS, copied, draw_name, modify, typos

logger = logging.getLogger(__name__)

TYPO_RATE = 0.05  # of the words of a source
NEW_CASE = (f"{COPY}capitals", f"{COPY}title")  # whose ratio is of text in lower case


def _few_typos(pairs: Sequence[Pair], random: Random) -> Pair:
    """The pair with typing errors in `TYPO_RATE` of its words on average, often with none."""
    pair = pairs[0]
    for _ in range(int(TYPO_RATE * len(pair.source.split()) + random.random())):
        pair = typos([pair], random, 0.0, 0.0)
    return pair


NEW_NAME = functools.partial(copied, make=draw_name)
PERTURBATIONS = {**MODIFIERS, "typos": _few_typos, "copied": NEW_NAME}


def perturb(pairs: Sequence[Pair], symbols: Sequence[str]) -> dict[str, list[Pair]]:
    """Returns perturbed copies of a test set by the name of their split.

    They are a function of the arguments alone. Two joined pairs are one. A pair that a modifier
    cannot change stays as it is; there is no copy without a source that changed.
    """
    copies = {}
    for name, modifier in PERTURBATIONS.items():
        size = 2 if name == "joined" else 1
        groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        copy = [modify(modifier, g, Random(f"{name} {i}"), symbols) for i, g in enumerate(groups)]
        if any(new.source != old[0].source for new, old in zip(copy, groups, strict=True)):
            copies[f"{COPY}{name}"] = copy
    return copies


def score_copies(
    copies: Mapping[str, list[Pair]],
    pairs: Sequence[Pair],
    translations: Sequence[str],
    score: Callable[[str, list[Pair]], dict[str, Any]],
    text_scores: Callable[[list[str], list[Pair], bool], dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Returns what `score` does of each split and copy, with its seconds and `clean_ratio`.

    The ratio is that of its BLEU to the BLEU of the same pairs as they were, if that is not 0.

    Args:
      translations: of the pairs as they were.
      text_scores: that of the task.
    """

    def bleu(texts: Sequence[str], pairs: Sequence[Pair], case: Callable[[str], str]) -> float:
        cased = [pair._replace(target=case(pair.target)) for pair in pairs]
        return text_scores([*map(case, texts)], cased, False)["bleu"]

    scores = {}
    for split, copy in copies.items():
        start, row = time.monotonic(), score(split, copy)
        case = str.lower if split in NEW_CASE else str
        if clean := bleu(translations, pairs, case):
            row["clean_ratio"] = bleu(row["texts"][f"translations/{split}.txt"], copy, case) / clean
        scores[split] = row | {"seconds": round(time.monotonic() - start, 3)}
    seconds = f"{sum(row['seconds'] for row in scores.values()):,.0f} s"
    logger.info(f"{seconds} for perturbed copies of {len(pairs):,} pairs of the test set")
    return scores
