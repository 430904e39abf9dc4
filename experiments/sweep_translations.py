"""Translations of a sweep's runs: what BLEU counts of each, and whether two systems differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from sacrebleu.significance import PairedTest

from experiments.sweep_texts import Texts, UnreadableError, count_words, digest, read_lines
from transformer.errors import UserError

TRANSLATIONS, SOURCES, REFERENCES = (
    f"translations/test{part}.txt" for part in ("", ".source", ".reference")
)
RESAMPLES = 1000


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
) -> np.ndarray:
    """All that BLEU counts, by sentence: sums of rows make the BLEU of any corpus of them.

    Args:
      tokenizer: sacreBLEU's.

    Returns:
      int64 [sentences, 10]: words of the translation and of the reference; n-grams, n = 1 to 4,
      that the reference has too; n-grams of the translation.
    """
    metric = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
    scores = map(metric.sentence_score, translations, ([text] for text in references))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64)


def bleu(counts: np.ndarray) -> float:
    """BLEU, 0 to 100, of the corpus whose sentences have these counts [sentences, 10]."""
    words, reference_words, *ngrams = counts.sum(0).tolist()
    score = sacrebleu.BLEU.compute_bleu(ngrams[:4], ngrams[4:], words, reference_words, "exp")
    return score.score


def paired_bootstrap(counts: np.ndarray, baseline: np.ndarray) -> tuple[float, str]:
    """The p-value of a difference in BLEU on one test set, and the signature of the test.

    It is of the side that is ahead. Equal counts give 1, where sacreBLEU gives its least, 1/1001:
    none of its resampled differences is larger than none at all.

    Args:
      counts: int64 [sentences, 10], see `count_ngrams`; the baseline's is of the same sentences.

    Source: Koehn 2004, as `sacrebleu --paired-bs` has it.
    """
    systems = [("baseline", baseline.tolist()), ("setting", counts.tolist())]
    test = PairedTest(systems, {"BLEU": _Counted()}, None, "bs", RESAMPLES)
    signatures, scores = test()
    p_value = 1.0 if np.array_equal(counts, baseline) else scores["BLEU"][1].p_value
    return p_value, f"bs:{RESAMPLES}|seed:{signatures['BLEU'].info['seed']}"


class _Counted(sacrebleu.BLEU):
    """BLEU that is handed counts in place of sentences, so that each is counted but once."""

    def __init__(self):
        super().__init__(tokenize="none")
        self.num_refs = 1

    def _extract_corpus_statistics(self, hypotheses, references):
        return hypotheses
