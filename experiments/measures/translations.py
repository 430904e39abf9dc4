"""The translations of a run's test set, and their counts for BLEU and chrF."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Bool, Float, Int64, Real

from experiments.measures.texts import Texts, UnreadableError, count_words, digest, read_lines
from transformer.errors import UserError

TRANSLATIONS, SOURCES, REFERENCES = (
    f"translations/test{part}.txt" for part in ("", ".source", ".reference")
)
FURTHER_REFERENCES = "translations/test.reference.{}.txt"  # from 1
CHRF_BETA = 2  # how much more recall counts than precision, as in sacreBLEU


class Translated(NamedTuple):
    """The files of a translated test set by name, and their lines.

    `references` has the lines of each file of references.
    """

    sources: list[str]
    references: list[list[str]]
    translations: list[str]
    given: dict[str, list[str]]

    @property
    def exact(self) -> Bool[np.ndarray, "N"]:
        """Which translations equal a reference, letter by letter but for outer blanks."""
        files = ([text.strip() for text in own] for own in (self.translations, *self.references))
        sentences = zip(*files, strict=True)
        return np.array([own in references for own, *references in sentences])


def read_files(folder: Path) -> Translated:
    """Returns the sources, references and translations of a test set.

    Raises:
      UnreadableError: a file is missing or damaged, or has another number of lines.
    """
    names = [SOURCES, REFERENCES]
    further = (FURTHER_REFERENCES.format(number) for number in itertools.count(1))
    names += itertools.takewhile(lambda name: (folder / name).exists(), further)
    translations = read_lines(folder / TRANSLATIONS)
    given = {name: read_lines(folder / name) for name in names}
    for name, lines in given.items():
        if len(lines) != len(translations):
            reason = f"{len(lines)} lines, where test.txt has {len(translations)}"
            raise UnreadableError(folder / name, reason)
    sources, *references = given.values()
    return Translated(sources, references, translations, given)


def read_translations(folder: Path, scores: dict[str, Any]) -> Texts:
    """The translations of a run for its test set; `counts` are those of `count_ngrams`.

    Args:
      folder: the run's.
      scores: of its test set, whose `bleu_signature` names the tokenizer.

    Raises:
      UnreadableError: a file is missing or damaged, or has another number of lines.
      UserError: the signature names no tokenizer.
    """
    files = read_files(folder)
    tokenizer = tokenizer_of(scores["bleu_signature"])
    return Texts(
        counts=count_ngrams(files.translations, files.references, tokenizer),
        exact=files.exact,
        lengths=count_words(files.sources),
        given={name: digest(lines) for name, lines in files.given.items()},
    )


def tokenizer_of(signature: str) -> str:
    """The name of sacreBLEU's tokenizer in a signature.

    Raises:
      UserError: it names none.
    """
    named = dict(part.split(":", 1) for part in signature.split("|") if ":" in part).get("tok", "")
    # Some are followed by a version: ja-mecab-0.996-IPA.
    fitting = [name for name in sacrebleu.BLEU.TOKENIZERS if named.startswith(name)]
    if not fitting:
        raise UserError(f"the signature {signature!r} names no tokenizer of sacreBLEU's")
    return max(fitting, key=len)


def count_ngrams(
    translations: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str = "13a"
) -> Int64[np.ndarray, "N 10"]:
    """All that BLEU counts, by sentence: sums of rows make the BLEU of any corpus of them.

    Args:
      references: those of each file of references.
      tokenizer: sacreBLEU's.

    Returns:
      Words of the translation and of the reference; n-grams, n = 1 to 4,
      that the reference has too; n-grams of the translation.
    """
    metric = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
    scores = map(metric.sentence_score, translations, map(list, zip(*references, strict=True)))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64)


def bleu_of_sums(sums: Real[np.ndarray, "corpora 10"]) -> Float[np.ndarray, "corpora"]:
    """BLEU, 0 to 100, of each corpus with these sums of counts.

    As sacreBLEU's with its smoothing "exp", which halves the precision of each order without a
    match once more; of one without n-grams it is 0.
    """
    words, reference_words = sums[:, 0], sums[:, 1]
    matches, totals = sums[:, 2:6], sums[:, 6:10]
    halved = 0.5 ** np.cumsum(matches == 0, 1)
    precisions = np.where(matches > 0, matches, halved) / np.maximum(totals, 1)
    brevity = np.exp(np.minimum(0.0, 1 - reference_words / np.maximum(words, 1)))
    scores = 100 * brevity * np.exp(np.log(precisions).mean(1))
    return np.where((totals > 0).all(1) & (matches > 0).any(1), scores, 0.0)


def count_characters(
    translations: Sequence[str], references: Sequence[Sequence[str]]
) -> Int64[np.ndarray, "N 18"]:
    """All that chrF counts, by sentence; of several references it is the most similar one.

    Args:
      references: those of each file of references.

    Returns:
      For n = 1 to 6 the n-grams of characters of the translation, of the reference, and of both.
    """
    metric = sacrebleu.CHRF()
    counts = metric._extract_corpus_statistics(translations, references)
    return np.array(counts, np.int64)


def chrf_of_sums(sums: Real[np.ndarray, "corpora 18"]) -> Float[np.ndarray, "corpora"]:
    """chrF, 0 to 100, of each corpus with these sums of counts; of one without text it is 0.

    As sacreBLEU's: precision and recall are means over the orders that both sides have.
    """
    ours, theirs, both = (sums[:, i::3] for i in range(3))
    used = (ours > 0) & (theirs > 0)
    orders = np.maximum(used.sum(1), 1)
    precision, recall = (
        np.where(used, both / np.maximum(totals, 1), 0.0).sum(1) / orders
        for totals in (ours, theirs)
    )
    weight = CHRF_BETA**2
    total = weight * precision + recall
    return 100 * (1 + weight) * precision * recall / np.where(total > 0, total, 1.0)
