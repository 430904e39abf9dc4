"""Whose fault a wrong translation is: the model's, or that of the search that looked for it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu

from experiments.lines import read_lines
from transformer.decode import PENALTIES
from transformer.errors import UserError

EXACT, SEARCH, MODEL = "exact", "search", "model"


class Sentence(NamedTuple):
    """A sentence of a scored split.

    Attributes:
      line: its number, from one.
      chrf: of the translation, from 0 to 100.
      log_prob: of the translation, in nats; NaN where the run did not keep it.
      tokens: of the translation, its end included; 0 of a blank line, and where unknown.
    """

    line: int
    source: str
    reference: str
    translation: str
    chrf: float
    log_prob: float
    tokens: int


class Judged(NamedTuple):
    """A sentence, the scores by which the search compares, and what became of it.

    `found` and `given` are those of the translation and of the reference.
    """

    sentence: Sentence
    found: float
    given: float
    kind: str


def read_sentences(folder: Path, split: str) -> list[Sentence]:
    """Returns the sentences of a split with what a run made of them.

    Raises:
      UserError: the texts are missing, or of unlike numbers of lines.
    """
    place = folder / "translations"
    names = [f"{split}{kind}.txt" for kind in (".source", ".reference", "")]
    if missing := [name for name in names if not (place / name).exists()]:
        raise UserError(f"translations/{missing[0]} is missing: --mode=evaluate writes it")
    texts = [list(read_lines(place / name)) for name in names]
    scores = place / f"{split}.scores.tsv"
    numbers = list(read_lines(scores)) if scores.exists() else ["nan\t0"] * len(texts[0])
    if len({len(lines) for lines in (*texts, numbers)}) > 1:
        raise UserError(
            f"the files translations/{split}.* do not belong together: --mode=evaluate writes them "
            "anew"
        )
    chrf = sacrebleu.CHRF()
    sentences = []
    for line, (source, reference, translation, number) in enumerate(
        zip(*texts, numbers, strict=True), 1
    ):
        log_prob, tokens = number.split("\t")
        own = chrf.sentence_score(translation, [reference]).score
        sentences.append(
            Sentence(line, source, reference, translation, own, float(log_prob), int(tokens))
        )
    return sentences


def judge(sentences: Sequence[Sentence], given: Sequence[float], decode: Any) -> list[Judged]:
    """Returns sentences with what became of them, those left out of which nothing was decoded.

    A translation that equals its reference is `EXACT`. Of the others it is a `SEARCH` error where
    the reference scores higher, for the search should have preferred it; otherwise a `MODEL`
    error, for the model prefers what is wrong. Search errors of which the reference is no witness
    are not seen: their true number may be higher.

    Args:
      given: the score of each reference, see `penalised`.
      decode: `config.decode`, of the search that found the translations.

    Source: Stahlberg and Byrne 2019, "On NMT Search Errors and Model Errors: Cat Got Your
    Tongue?", who find all search errors by exact search.
    """
    judged = []
    for sentence, score in zip(sentences, given, strict=True):
        if not sentence.tokens:
            continue
        found = penalised(sentence.log_prob, sentence.tokens, decode)
        kind = SEARCH if score > found else MODEL
        if sentence.translation == sentence.reference:
            kind = EXACT
        judged.append(Judged(sentence, found, score, kind))
    return judged


def penalised(log_prob: float, tokens: int, decode: Any) -> float:
    """Returns the score by which a search compares: log-probability over the length penalty."""
    return log_prob / float(PENALTIES[decode.length_penalty](np.float64(tokens), decode.alpha))


def are_scored(sentences: Sequence[Sentence]) -> bool:
    """Whether the run kept the log-probabilities of its translations."""
    return not any(math.isnan(sentence.log_prob) for sentence in sentences)
