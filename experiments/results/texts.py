"""The outputs of a run for each text of a test set, as counts whose sums scores are made of."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Float, Int, Int64, Real
from ml_collections import ConfigDict

from transformer.data.corpora import Tagger
from transformer.data.documents import packing
from transformer.errors import UserError
from transformer.files import read_file

TRANSLATIONS, SOURCES, REFERENCES = (
    f"translations/test{part}.txt" for part in ("", ".source", ".reference")
)
FURTHER_REFERENCES = "translations/test.reference.{}.txt"  # from 1
PREDICTIONS, LIKELIHOODS = "predictions/test.tsv", "likelihoods/test.tsv"
COLUMNS = 4  # of either: true and predicted label, or log-probability, tokens and bytes; text
MAX_BUCKETS = 5
MAX_TEXTS = 2**30  # bytes of the outputs for a test set

Counts = Real[np.ndarray, "texts n"]


class UnreadableError(Exception):
    """A file is missing or damaged: its path, and why."""

    def __init__(self, path: Path, reason: object):
        super().__init__(path, reason)
        self.path = path
        self.reason = reason.strerror if isinstance(reason, OSError) else reason


class Outputs(NamedTuple):
    """The outputs of a run for the texts of a test set, in their order."""

    given: dict[str, list[str]]  # the lines that all runs must have, by file
    shown: dict[str, list[str]]  # the lines of an example that all runs have, by their name
    texts: list[str]  # the output for each, as people read it
    lengths: Int64[np.ndarray, "texts"]  # in words of the inputs
    counts: Callable[[str], Counts]  # of a metric; sums over texts make the score of a test set


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file that a run wrote, without their ends."""
    try:
        # Bytes, for a text may hold what text files and `splitlines` take for the end of a line.
        text = read_file(path, MAX_TEXTS).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UnreadableError(path, error) from None
    return text.removesuffix("\n").split("\n")


def read_columns(path: Path) -> list[list[str]]:
    """Returns the columns of a table that a run wrote; the last one is text, and may have tabs."""
    rows = [line.split("\t", COLUMNS - 1) for line in read_lines(path)]
    return list(map(list, zip(*rows, strict=True)))


def read_translations(
    folder: Path, scores: dict[str, Any], data: ConfigDict | None = None
) -> Outputs:
    """Returns the outputs of a translator for a test set.

    The signature of BLEU in its scores names the tokenizer. The tags that the run's `config.data`
    puts before sources are no part of the test set.
    """
    names = [SOURCES, REFERENCES]
    further = (FURTHER_REFERENCES.format(number) for number in itertools.count(1))
    names += itertools.takewhile(lambda name: (folder / name).exists(), further)
    texts = read_lines(folder / TRANSLATIONS)
    given = {name: read_lines(folder / name) for name in names}
    if data is not None:
        split = Tagger(data, None).split
        given[SOURCES] = [split(source)[1].lstrip() for source in given[SOURCES]]
    sources, first, *more = given.values()
    # A sentence with fewer references than another has an empty line; sacreBLEU takes None.
    references = [first, *([text or None for text in lines] for lines in more)]
    sentences = zip(texts, *references, strict=True)
    matches = [text.strip() in [o and o.strip() for o in others] for text, *others in sentences]
    tokenizer = tokenizer_of(str(scores.get("bleu_signature")))

    @functools.cache
    def counts(metric: str) -> Counts:
        if metric == "exact_match":
            return _count(matches)
        if metric == "chrf":
            return count_characters(texts, references)
        return count_ngrams(texts, references, tokenizer)

    shown = {"source": sources, "reference": first}
    shown |= {f"reference {n}": lines for n, lines in enumerate(more, 2)}
    return Outputs(given, shown, texts, count_words(sources), counts)


def read_predictions(folder: Path, scores: Any = None, data: Any = None) -> Outputs:
    """Returns the outputs of a classifier for a test set."""
    truth, predicted, probabilities, texts = read_columns(folder / PREDICTIONS)
    counts = {"accuracy": _count([a == b for a, b in zip(truth, predicted, strict=True)])}
    given = [f"{label}\t{text}" for label, text in zip(truth, texts, strict=True)]
    outputs = [f"{label} ({p})" for label, p in zip(predicted, probabilities, strict=True)]
    shown = {"text": texts, "class": truth}
    return Outputs({PREDICTIONS: given}, shown, outputs, count_words(texts), counts.__getitem__)


def read_likelihoods(folder: Path, scores: Any = None, data: Any = None) -> Outputs:
    """Returns the scores of a language model for the segments that it keeps."""
    *numbers, texts = read_columns(folder / LIKELIHOODS)
    nats = -np.array(numbers[0], np.float64)
    tokens, size = np.array(numbers[1:], np.int64).astype(np.float64)
    outputs = [f"{n:.2f} nats, {t:.0f} tokens" for n, t in zip(nats, tokens, strict=True)]
    counts = {
        "bits_per_byte": np.stack([nats / math.log(2), size], 1),
        "nll": np.stack([nats, tokens], 1),
    }
    shown = {"text": texts}
    return Outputs({LIKELIHOODS: texts}, shown, outputs, count_words(texts), counts.__getitem__)


def _count(right: Sequence[bool]) -> Int64[np.ndarray, "texts 2"]:
    """Counts of the texts that are right, and of all."""
    return np.stack([right, np.ones(len(right))], 1).astype(np.int64)


def count_words(texts: Iterable[str]) -> Int64[np.ndarray, "texts"]:
    """Returns the number of words of each text."""
    return np.array([*map(packing.count_words, texts)], np.int64)


def tokenizer_of(signature: str) -> str:
    """Returns the name of sacreBLEU's tokenizer in a signature."""
    named = dict(part.split(":", 1) for part in signature.split("|") if ":" in part).get("tok", "")
    # Some are followed by a version: ja-mecab-0.996-IPA.
    names = [name for name in sacrebleu.BLEU.TOKENIZERS if named.startswith(name)]
    if not names:
        raise UserError(f"the signature {signature!r} names no tokenizer of sacreBLEU's")
    return max(names, key=len)


def count_ngrams(
    translations: Sequence[str], references: Sequence[Sequence[Any]], tokenizer: str = "13a"
) -> Int64[np.ndarray, "texts 10"]:
    """Returns all that BLEU counts, by sentence; `references` are those of each file.

    Words of the translation and of the reference; n-grams, n = 1 to 4, that the reference has too;
    n-grams of the translation.
    """
    metric = sacrebleu.BLEU(tokenize=tokenizer, force=True)
    return np.array(metric._extract_corpus_statistics(translations, references), np.int64)


def bleu_of_sums(sums: Real[np.ndarray, "corpora 10"]) -> Float[np.ndarray, "corpora"]:
    """Returns BLEU, 0 to 100, of each corpus with these sums of `count_ngrams`."""
    bleu = functools.partial(sacrebleu.BLEU.compute_bleu, smooth_method="exp")
    return np.array([bleu(row[2:6], row[6:], *row[:2]).score for row in sums.tolist()])


def count_characters(
    translations: Sequence[str], references: Sequence[Sequence[Any]]
) -> Int64[np.ndarray, "texts 18"]:
    """Returns all that chrF counts, by sentence; of several references it is the most similar one.

    For n = 1 to 6 the n-grams of characters of the translation, of the reference, and of both.
    """
    metric = sacrebleu.CHRF()
    return np.array(metric._extract_corpus_statistics(translations, references), np.int64)


def chrf_of_sums(sums: Real[np.ndarray, "corpora 18"]) -> Float[np.ndarray, "corpora"]:
    """Returns chrF, 0 to 100, of each corpus with these sums of `count_characters`."""
    return np.array([sacrebleu.CHRF()._compute_f_score(row) for row in sums.tolist()])


def length_buckets(lengths: Int[np.ndarray, "texts"]) -> list[Int[np.ndarray, "_"]]:
    """Returns the rows of texts of like length, the shortest first: up to five equal buckets.

    Texts of one length stay together, so fewer lengths make fewer buckets; none is empty.
    """
    quantiles = np.quantile(lengths, np.arange(1, MAX_BUCKETS) / MAX_BUCKETS, method="lower")
    longest = np.unique(quantiles[quantiles < lengths.max()])  # of every bucket but the last
    bucket = np.searchsorted(longest, lengths)
    return [np.flatnonzero(bucket == number) for number in range(len(longest) + 1)]
