"""Search errors and model errors of translations."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sacrebleu
from ml_collections import ConfigDict

from experiments.results.texts import UnreadableError, read_lines
from transformer.data.tokenizer import UNK_ID
from transformer.decoding.search import PENALTIES
from transformer.errors import UserError
from transformer.workdir import TrainedRun

EXACT, SEARCH, MODEL = "exact", "search", "model"
# What a reference must be ahead by, as a fraction of the translation's score and in itself:
# scores are kept with four decimals, and other programs than the search's round otherwise.
LEAD = 1e-3


class Sentence(NamedTuple):
    """A sentence of a scored split."""

    line: int  # its number, from one
    source: str
    reference: str
    translation: str
    chrf: float  # of the translation, from 0 to 100
    log_prob: float  # of the translation, in nats; NaN if the run did not keep it
    tokens: int  # of the translation, its end included; 0 of a blank line, and if unknown


class Reference(NamedTuple):
    """A reference as the model reads it."""

    log_prob: float  # in nats
    tokens: int  # its end included
    is_found: bool  # whether the translation has the same tokens, whatever their texts are


class Judged(NamedTuple):
    """A sentence, the scores by which the search compares, and its kind of error."""

    sentence: Sentence
    found: float  # the score of the translation
    given: float  # that of the reference
    kind: str


@contextlib.contextmanager
def reading(folder: Path, name: str) -> Iterator[Path]:
    """Names the command that writes a run's own file again, if that is missing or damaged."""
    try:
        yield folder / name
    except (UnreadableError, ValueError):
        if not (folder / name).exists():
            raise UserError(f"{name} is missing: --mode=evaluate writes it") from None
        raise UserError(f"{name} is damaged: --mode=evaluate writes it again") from None


def read_sentences(folder: Path, split: str) -> list[Sentence]:
    """Returns the sentences of a split with the translations of a run."""
    texts = []
    for kind in (".source", ".reference", ""):
        with reading(folder, f"translations/{split}{kind}.txt") as path:
            texts.append(read_lines(path))
    numbers = [(math.nan, 0)] * len(texts[0])
    if (folder / f"translations/{split}.scores.tsv").exists():
        with reading(folder, f"translations/{split}.scores.tsv") as path:
            rows = [line.split("\t") for line in read_lines(path)]
            numbers = [(float(log_prob), int(tokens)) for log_prob, tokens in rows]
    if len({len(lines) for lines in (*texts, numbers)}) > 1:
        raise UserError(
            f"the files translations/{split}.* do not belong together: --mode=evaluate writes them "
            "again"
        )
    metric, rows = sacrebleu.CHRF(), zip(*texts, numbers, strict=True)
    return [
        Sentence(n, source, reference, text, metric.sentence_score(text, [reference]).score, *own)
        for n, (source, reference, text, own) in enumerate(rows, 1)
    ]


def score_references(trained: TrainedRun, sentences: Sequence[Sentence]) -> list[Reference | None]:
    """Returns the scores of references, None for those that the search cannot find.

    These, or their sources, are too long for the model to read whole, or they have a token for
    unknown text, which a search never writes: if the model prefers them, it is no error of the
    search.
    """
    predictor = trained.predictor
    _, sources, references, translations, *_ = map(list, zip(*sentences, strict=True))
    encode = predictor.target_tokenizer.encode
    ids, written = encode(references), encode(translations)
    # A longer source was translated in parts, and each part scored.
    usable = [
        max(len(source), len(own)) < predictor.max_length and UNK_ID not in own
        for source, own in zip(predictor.source_tokenizer.encode(sources), ids, strict=True)
    ]
    texts = [text if fits else "" for text, fits in zip(references, usable, strict=True)]
    scores = predictor.score(trained.variables, sources, texts)
    return [
        Reference(*score, is_found=own == found) if fits else None
        for score, own, found, fits in zip(scores, ids, written, usable, strict=True)
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
