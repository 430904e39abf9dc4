"""The texts of a test set, the outputs of a run, and the counts behind its scores."""

import functools
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Float, Int, Int64, Real
from ml_collections import ConfigDict

from transformer.data.corpora import Tagger
from transformer.data.documents import packing
from transformer.errors import UserError
from transformer.files import open_arrays, read_file
from transformer.runs.run import FILE_DIGESTS, SCORES

TRANSLATIONS, SOURCES, REFERENCES = (
    f"translations/test{part}.txt" for part in ("", ".source", ".reference")
)
FURTHER_REFERENCES = "translations/test.reference.{}.txt"  # from 1
PREDICTIONS, LIKELIHOODS = "predictions/test.tsv", "likelihoods/test.tsv"
COLUMNS = 4  # class, predicted class, probability, text; or log-probability, tokens, bytes, text
MAX_BUCKETS = 5
MAX_TEXTS = 2**30  # bytes of the outputs on a test set

Counts = Real[np.ndarray, "texts n"]


def unreadable(path: Path, reason: object) -> UserError:
    """Returns the error for a missing or damaged file of a run."""
    reason = reason.strerror if isinstance(reason, OSError) else reason
    return UserError(f"{path} cannot be read ({reason}): --mode=evaluate writes it again")


class Texts(NamedTuple):
    """The texts of a test set and the outputs of a run for them, in their order."""

    given: dict[str, list[str]]  # lines that must be equal in all runs, by file
    shown: dict[str, list[str]]  # lines of an example, equal in all runs, by name; inputs first
    outputs: list[str]  # as shown to the reader


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file that a run wrote, without line breaks."""
    try:
        # Bytes: a text may hold characters that text mode and `splitlines` take for line ends.
        text = read_file(path, MAX_TEXTS).decode("utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return text.removesuffix("\n").split("\n")


def read_columns(path: Path) -> list[list[str]]:
    """Returns the columns of a table that a run wrote; the last one is text, and may have tabs."""
    rows = [line.split("\t", COLUMNS - 1) for line in read_lines(path)]
    return list(map(list, zip(*rows, strict=True)))


def read_translations(folder: Path, data: ConfigDict | None) -> Texts:
    """Returns the texts of a translator; tags of `config.data` are not part of its test set."""
    names = [SOURCES, REFERENCES]
    further = (FURTHER_REFERENCES.format(number) for number in itertools.count(1))
    names += itertools.takewhile(lambda name: (folder / name).exists(), further)
    given = {name: read_lines(folder / name) for name in names}
    if data is not None:
        split = Tagger(data, None).split
        given[SOURCES] = [split(source)[1].lstrip() for source in given[SOURCES]]
    sources, first, *more = given.values()
    shown = {"source": sources, "reference": first}
    shown |= {f"reference {n}": lines for n, lines in enumerate(more, 2)}
    return Texts(given, shown, read_lines(folder / TRANSLATIONS))


def read_predictions(folder: Path, data: ConfigDict | None) -> Texts:
    """Returns the texts of a classifier."""
    truth, predicted, probabilities, texts = read_columns(folder / PREDICTIONS)
    given = [f"{label}\t{text}" for label, text in zip(truth, texts, strict=True)]
    outputs = [f"{label} ({p})" for label, p in zip(predicted, probabilities, strict=True)]
    return Texts({PREDICTIONS: given}, {"text": texts, "class": truth}, outputs)


def read_likelihoods(folder: Path, data: ConfigDict | None) -> Texts:
    """Returns the segments of a language model, and their scores as text."""
    log_probs, tokens, _, texts = read_columns(folder / LIKELIHOODS)
    outputs = [f"{-float(n):.2f} nats, {t} tokens" for n, t in zip(log_probs, tokens, strict=True)]
    return Texts({LIKELIHOODS: texts}, {"text": texts}, outputs)


def read_counts(folder: Path, results: Mapping[str, Any]) -> dict[str, Counts]:
    """Returns the counts of each text by metric; their sums give the score of the test set."""
    path = folder / SCORES
    if SCORES not in results.get(FILE_DIGESTS, {}):
        raise unreadable(path, "the results are of a version that did not write it")
    try:
        with open_arrays(path) as arrays:
            return dict(arrays)
    except ValueError as error:
        raise unreadable(path, error) from None


def count_words(texts: Iterable[str]) -> Int64[np.ndarray, "texts"]:
    """Returns the number of words of each text."""
    return np.array([*map(packing.count_words, texts)], np.int64)


def bleu_of_sums(sums: Real[np.ndarray, "corpora 10"]) -> Float[np.ndarray, "corpora"]:
    """Returns BLEU, 0 to 100, of each corpus with these sums of counts."""
    bleu = functools.partial(sacrebleu.BLEU.compute_bleu, smooth_method="exp")
    return np.array([bleu(row[2:6], row[6:], *row[:2]).score for row in sums.tolist()])


def chrf_of_sums(sums: Real[np.ndarray, "corpora 18"]) -> Float[np.ndarray, "corpora"]:
    """Returns chrF, 0 to 100, of each corpus with these sums of counts."""
    return np.array([sacrebleu.CHRF()._compute_f_score(row) for row in sums.tolist()])


def length_buckets(lengths: Int[np.ndarray, "texts"]) -> list[Int[np.ndarray, "_"]]:
    """Returns row indices of texts in up to five buckets of equal size, shortest texts first.

    Texts of one length stay together, so there may be fewer buckets; none is empty.
    """
    quantiles = np.quantile(lengths, np.arange(1, MAX_BUCKETS) / MAX_BUCKETS, method="lower")
    longest = np.unique(quantiles[quantiles < lengths.max()])  # the longest of all but the last
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]
