"""The outputs of runs of each task for a test set, as sums that scores are made of."""

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, Real
from ml_collections import ConfigDict

from experiments.measures.predictions import COLUMNS, PREDICTIONS
from experiments.measures.significance import OfSums, ratio_of_sums, score_of
from experiments.measures.texts import UnreadableError, count_words, read_rows
from experiments.measures.translations import (
    SOURCES,
    bleu_of_sums,
    chrf_of_sums,
    count_characters,
    count_ngrams,
    read_files,
    tokenizer_of,
)
from transformer.data.corpora import Tagger

LIKELIHOODS = "likelihoods/test.tsv"
FIELDS = 4  # log-probability, tokens, bytes, text


class Outputs(NamedTuple):
    """The outputs of a run for the texts of a test set, in their order.

    Attributes:
      given: the lines that all runs must have, by file.
      shown: the lines of an example that all runs have, by their name.
      texts: the output for each, as people read it.
      lengths: in words of the inputs.
      counts: of each measure, [N, n]: sums over texts make the score of a test set.
    """

    given: dict[str, list[str]]
    shown: dict[str, list[str]]
    texts: list[str]
    lengths: Int64[np.ndarray, "N"]
    counts: dict[str, Real[np.ndarray, "N n"]]


@dataclasses.dataclass(frozen=True)
class Measure:
    """A score that can be computed of any of the texts.

    Attributes:
      name: of its metric.
      of_sums: the score, in the unit of the results, of sums of counts.
      of_all_texts: whether a run keeps all texts of its test set.
      per_token: whether the second count is of tokens, which two tokenizers count differently.
    """

    name: str
    of_sums: OfSums
    of_all_texts: bool = True
    per_token: bool = False

    def score(self, counts: Real[np.ndarray, "N n"]) -> float:
        """The score of texts with these counts."""
        return score_of(counts, self.of_sums)


class Task(NamedTuple):
    """How runs of a task are compared.

    Attributes:
      noun: a text of the test set.
      made: the outputs for them.
      read: takes the folder of a test set, its scores and the run's config; raises
        `UnreadableError`.
      measures: the main one first.
      changes: the measure by which single texts are compared.
      signatures: that must be the same.
      same: says how to get runs that are comparable.
    """

    noun: str
    made: str
    read: Callable[[Path, dict[str, Any], ConfigDict], Outputs]
    measures: tuple[Measure, ...]
    changes: str
    signatures: tuple[str, ...]
    same: str = "compare runs of one test set, or name a set that all were scored on with --set"


def read_translations(folder: Path, scores: dict[str, Any], config: ConfigDict) -> Outputs:
    """The outputs of a translator for a test set; see `Task.read`.

    The tags before sources are the run's own, and no part of the test set.
    """
    files = read_files(folder)
    tagger = Tagger(config.data, None)
    sources = [tagger.split(source)[1].lstrip() for source in files.sources]
    tokenizer = tokenizer_of(str(scores.get("bleu_signature")))
    exact = files.exact
    names = ["reference", *(f"reference {n + 1}" for n in range(1, len(files.references)))]
    return Outputs(
        given={**files.given, SOURCES: sources},
        shown={"source": sources, **dict(zip(names, files.references, strict=True))},
        texts=files.translations,
        lengths=count_words(sources),
        counts={
            "bleu": count_ngrams(files.translations, files.references, tokenizer),
            "chrf": count_characters(files.translations, files.references),
            "exact_match": np.stack([exact, np.ones_like(exact)], 1).astype(np.int64),
        },
    )


def read_predictions(folder: Path, scores: dict[str, Any], config: ConfigDict) -> Outputs:
    """The outputs of a classifier for a test set; see `Task.read`."""
    rows = read_rows(folder / PREDICTIONS, COLUMNS)
    truth, predicted, probabilities, texts = map(list, zip(*rows, strict=True))
    right = np.array([a == b for a, b in zip(truth, predicted, strict=True)])
    given = [f"{label}\t{text}" for label, text in zip(truth, texts, strict=True)]
    told = [f"{label} ({p})" for label, p in zip(predicted, probabilities, strict=True)]
    counts = np.stack([right, np.ones_like(right)], 1).astype(np.int64)
    shown = {"text": texts, "class": truth}
    return Outputs({PREDICTIONS: given}, shown, told, count_words(texts), {"accuracy": counts})


def read_likelihoods(folder: Path, scores: dict[str, Any], config: ConfigDict) -> Outputs:
    """The scores of a language model for the segments that it keeps; see `Task.read`.

    Its texts are comparable if they are the same, whatever their tokens.
    """
    path = folder / LIKELIHOODS
    rows = read_rows(path, FIELDS)
    try:
        nats = np.array([-float(row[0]) for row in rows])
        tokens, size = np.array([row[1:3] for row in rows], np.int64).T.astype(np.float64)
    except ValueError as error:
        raise UnreadableError(path, error) from None
    if not np.isfinite(nats).all() or (tokens < 1).any():
        raise UnreadableError(path, "a number is not finite, or a segment has no tokens")
    texts = [row[3] for row in rows]
    return Outputs(
        given={LIKELIHOODS: texts},
        shown={"text": texts},
        texts=[f"{n:.2f} nats, {t:.0f} tokens" for n, t in zip(nats, tokens, strict=True)],
        lengths=count_words(texts),
        counts={
            "bits_per_byte": np.stack([nats / math.log(2), size], 1),
            "nll": np.stack([nats, tokens], 1),
        },
    )


PERCENT = functools.partial(ratio_of_sums, scale=100.0)
TASKS = {
    "translation": Task(
        noun="sentence",
        made="translations",
        read=read_translations,
        measures=(
            Measure("bleu", bleu_of_sums),
            Measure("chrf", chrf_of_sums),
            Measure("exact_match", PERCENT),
        ),
        changes="chrf",
        signatures=("bleu_signature", "chrf_signature"),
    ),
    "classification": Task(
        noun="text",
        made="predictions",
        read=read_predictions,
        measures=(Measure("accuracy", ratio_of_sums),),
        changes="accuracy",
        signatures=("accuracy_signature",),
    ),
    "language_model": Task(
        noun="segment",
        made="likelihoods",
        read=read_likelihoods,
        measures=(
            Measure("bits_per_byte", ratio_of_sums, of_all_texts=False),
            Measure("nll", ratio_of_sums, of_all_texts=False, per_token=True),
        ),
        changes="bits_per_byte",
        signatures=("bits_per_byte_signature",),
        same="models are compared on segments of the same text, so train them with the same "
        "tokenizer and data.context",
    ),
}
