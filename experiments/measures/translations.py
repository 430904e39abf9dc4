"""Translations of a sweep's runs: BLEU counts, and a significance test of two systems."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from jaxtyping import Float, Int, Int64, Real

from experiments.measures.texts import Texts, UnreadableError, count_words, digest, read_lines
from transformer.errors import UserError

TRANSLATIONS, SOURCES, REFERENCES = (
    f"translations/test{part}.txt" for part in ("", ".source", ".reference")
)
EXCHANGES, SEED = 10_000, 12345  # as many, and the seed, that sacreBLEU has
ROUNDING = 1e-9  # BLEU


def read_translations(folder: Path, scores: dict[str, Any]) -> Texts:
    """What a run made of its test set; `counts` are those of `count_ngrams`.

    Args:
      folder: the run's.
      scores: of its test set, whose `bleu_signature` names the tokenizer.

    Raises:
      UnreadableError: a file is missing or damaged, or has another number of lines.
      UserError: the signature names no tokenizer.
    """
    lines = {name: read_lines(folder / name) for name in (TRANSLATIONS, SOURCES, REFERENCES)}
    translations, references = lines[TRANSLATIONS], lines[REFERENCES]
    for name in (SOURCES, REFERENCES):
        if len(lines[name]) != len(translations):
            reason = f"{len(lines[name])} lines, where test.txt has {len(translations)}"
            raise UnreadableError(folder / name, reason)
    return Texts(
        counts=count_ngrams(translations, references, _tokenizer(scores["bleu_signature"])),
        exact=np.array([a == b for a, b in zip(translations, references, strict=True)]),
        lengths=count_words(lines[SOURCES]),
        given={name: digest(lines[name]) for name in (SOURCES, REFERENCES)},
    )


def _tokenizer(signature: str) -> str:
    """The name of sacreBLEU's tokenizer in a signature."""
    named = dict(part.split(":", 1) for part in signature.split("|") if ":" in part).get("tok", "")
    # Some are followed by a version: ja-mecab-0.996-IPA.
    fitting = [name for name in sacrebleu.BLEU.TOKENIZERS if named.startswith(name)]
    if not fitting:
        raise UserError(f"the signature {signature!r} names no tokenizer of sacreBLEU's")
    return max(fitting, key=len)


def count_ngrams(
    translations: Sequence[str], references: Sequence[str], tokenizer: str = "13a"
) -> Int64[np.ndarray, "N 10"]:
    """All that BLEU counts, by sentence: sums of rows make the BLEU of any corpus of them.

    Args:
      tokenizer: sacreBLEU's.

    Returns:
      Words of the translation and of the reference; n-grams, n = 1 to 4,
      that the reference has too; n-grams of the translation.
    """
    metric = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
    scores = map(metric.sentence_score, translations, ([text] for text in references))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64)


def bleu(counts: Int[np.ndarray, "N 10"]) -> float:
    """BLEU, 0 to 100, of the corpus whose sentences have these counts."""
    return float(bleu_of_sums(counts.sum(0, keepdims=True))[0])


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


def randomisation_test(
    counts: Int[np.ndarray, "N 10"],
    baseline: Int[np.ndarray, "N 10"],
    exchanges: int = EXCHANGES,
) -> tuple[float, str]:
    """The two-sided p-value of a difference in BLEU on one test set, and the signature of the test.

    If two systems were equally good, their translations of a sentence could be exchanged. The
    p-value is the fraction of random exchanges in which BLEU differs at least so much, whichever is
    ahead. `sacrebleu --paired-ar` counts only those in which it differs more: two systems that
    differ in one sentence, of which every exchange differs by as much, then have the least p there
    is.

    Args:
      counts: see `count_ngrams`; the baseline's is of the same sentences.
      exchanges: how many are drawn.

    Source: Riezler and Maxwell 2005, "On some pitfalls in automatic evaluation and significance
    testing for MT".
    """
    rng = np.random.default_rng(SEED)
    both, apart = (counts + baseline).sum(0), (counts - baseline).astype(np.float64)
    observed = abs(bleu(counts) - bleu(baseline))
    as_far = 0
    for start in range(0, exchanges, 1000):  # at once, for memory's sake
        shape = min(1000, exchanges - start), len(counts)
        # Sums of whole numbers, and so exact.
        moved = (2.0 * rng.integers(2, size=shape) - 1) @ apart
        ours, theirs = (bleu_of_sums((both + sign * moved) / 2) for sign in (1, -1))
        as_far += int((np.abs(ours - theirs) >= observed - ROUNDING).sum())
    return (as_far + 1) / (exchanges + 1), f"ar:{exchanges}|two-sided|seed:{SEED}"
