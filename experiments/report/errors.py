"""Search errors and model errors of translations."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sacrebleu
from ml_collections import ConfigDict

from transformer.data.files.text import read_lines
from transformer.data.tokenizer import UNK_ID
from transformer.decoding.search import PENALTIES
from transformer.errors import UserError
from transformer.workdir import TrainedRun

EXACT, SEARCH, MODEL = "exact", "search", "model"
# What a reference must be ahead by, as a fraction of the translation's score and in itself:
# scores are kept with four decimals, and other programs than the search's round otherwise.
LEAD = 1e-3


class Sentence(NamedTuple):
    """A sentence of a scored split.

    Attributes:
      line: its number, from one.
      chrf: of the translation, from 0 to 100.
      log_prob: of the translation, in nats; NaN if the run did not keep it.
      tokens: of the translation, its end included; 0 of a blank line, and if unknown.
    """

    line: int
    source: str
    reference: str
    translation: str
    chrf: float
    log_prob: float
    tokens: int


class Reference(NamedTuple):
    """A reference as the model reads it.

    Attributes:
      log_prob: in nats.
      tokens: its end included.
      is_found: whether the translation has the same tokens, whatever their texts are.
    """

    log_prob: float
    tokens: int
    is_found: bool


class Judged(NamedTuple):
    """A sentence, the scores by which the search compares, and its kind of error.

    `found` and `given` are those of the translation and of the reference.
    """

    sentence: Sentence
    found: float
    given: float
    kind: str


@contextlib.contextmanager
def reading(file: str) -> Iterator[None]:
    """Names the command that writes a run's own file again, if that is damaged."""
    try:
        yield
    except (UserError, ValueError):
        raise UserError(f"{file} is damaged: --mode=evaluate writes it again") from None


def read_sentences(folder: Path, split: str) -> list[Sentence]:
    """Returns the sentences of a split with the translations of a run.

    Raises:
      UserError: the texts are missing or damaged, or have different numbers of lines.
    """
    place = folder / "translations"
    names = [f"{split}{kind}.txt" for kind in (".source", ".reference", "")]
    if missing := [name for name in names if not (place / name).exists()]:
        raise UserError(f"translations/{missing[0]} is missing: --mode=evaluate writes it")
    texts = []
    for name in names:
        with reading(f"translations/{name}"):
            texts.append(list(read_lines(place / name)))
    scores, numbers = place / f"{split}.scores.tsv", [(math.nan, 0)] * len(texts[0])
    if scores.exists():
        with reading(f"translations/{scores.name}"):
            rows = [line.split("\t") for line in read_lines(scores)]
            numbers = [(float(log_prob), int(tokens)) for log_prob, tokens in rows]
    if len({len(lines) for lines in (*texts, numbers)}) > 1:
        raise UserError(
            f"the files translations/{split}.* do not belong together: --mode=evaluate writes them "
            "again"
        )
    chrf = sacrebleu.CHRF()
    sentences = []
    for line, (source, reference, translation, number) in enumerate(
        zip(*texts, numbers, strict=True), 1
    ):
        own = chrf.sentence_score(translation, [reference]).score
        sentences.append(Sentence(line, source, reference, translation, own, *number))
    return sentences


def score_references(trained: TrainedRun, sentences: Sequence[Sentence]) -> list[Reference | None]:
    """Returns the scores of references, None for those that the search cannot find.

    These, or their sources, are too long for the model to read whole, or they have a token for
    unknown text, which a search never writes: if the model prefers them, it is no error of the
    search.
    """
    predictor = trained.predictor
    references, translations = (
        predictor.target_tokenizer.encode(texts)
        for texts in (
            [sentence.reference for sentence in sentences],
            [sentence.translation for sentence in sentences],
        )
    )
    sources = predictor.source_tokenizer.encode([sentence.source for sentence in sentences])
    # A longer source was translated in parts, and each part scored.
    usable = [
        max(len(source), len(ids)) < predictor.max_length and UNK_ID not in ids
        for source, ids in zip(sources, references, strict=True)
    ]
    scored = predictor.score(
        trained.variables,
        [sentence.source for sentence in sentences],
        [own.reference if fits else "" for own, fits in zip(sentences, usable, strict=True)],
    )
    return [
        Reference(*score, is_found=ids == found) if fits else None
        for score, ids, found, fits in zip(scored, references, translations, usable, strict=True)
    ]


def judge(
    sentences: Sequence[Sentence], references: Sequence[Reference | None], decode: ConfigDict
) -> list[Judged]:
    """Returns sentences with their kinds of errors.

    Those are left out of which nothing was decoded or whose reference is not known.

    A translation that equals its reference is `EXACT`. Of the others it is a `SEARCH` error if the
    reference scores higher, by more than rounding may, for the search should have preferred it;
    otherwise a `MODEL` error, for the model prefers a wrong translation. Search errors that the
    reference does not show are not counted: their true number may be higher.

    Args:
      decode: `config.decode` of the search that found the translations.

    Source: Stahlberg and Byrne 2019, "On NMT Search Errors and Model Errors: Cat Got Your
    Tongue?", who find all search errors by exact search.
    """
    judged = []
    for sentence, reference in zip(sentences, references, strict=True):
        if not sentence.tokens or reference is None:
            continue
        found = penalised(sentence.log_prob, sentence.tokens, decode)
        given = penalised(reference.log_prob, reference.tokens, decode)
        kind = SEARCH if given - found > LEAD * max(1.0, abs(found)) else MODEL
        if reference.is_found or sentence.translation == sentence.reference:
            kind = EXACT
        judged.append(Judged(sentence, found, given, kind))
    return judged


def penalised(log_prob: float, tokens: int, decode: ConfigDict) -> float:
    """Returns the score by which a search compares: log-probability over the length penalty."""
    return log_prob / float(PENALTIES[decode.length_penalty](np.float64(tokens), decode.alpha))


def are_scored(sentences: Sequence[Sentence]) -> bool:
    """Whether the run kept the log-probabilities of its translations."""
    return not any(math.isnan(sentence.log_prob) for sentence in sentences)
