"""BLEU, chrF and exact matches of translations, with their signatures."""

from collections.abc import Sequence
from typing import Any

import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenizer: str = "13a",
    moses: str = "",
    bootstrap: int = 0,
) -> dict[str, Any]:
    """Returns BLEU and chrF of detokenised text with their signatures, and exact matches.

    The signature is part of a score: scores of unlike signatures do not compare. Each `*_ci` is
    the half width of the 95% confidence interval (Koehn 2004).

    Args:
      tokenizer: sacreBLEU's, for BLEU.
      moses: language code; adds `bleu_moses_lowercase`, the score that papers on Multi30k print:
        both sides lowercased, punctuation-normalised and tokenised as Moses does. It is not
        comparable with `bleu`.
      bootstrap: resamples; 0 for no interval.

    Source: Papineni et al. 2002; Popović 2015; Post 2018.
    """
    n_bootstrap = {"n_bootstrap": bootstrap} if bootstrap else {}
    scores: dict[str, Any] = {
        "exact_match": 100.0
        * sum(map(str.__eq__, hypotheses, references))
        / max(1, len(references))
    }

    def add(name, metric, hypotheses, references, prefix=""):
        score = metric.corpus_score(hypotheses, [references], **n_bootstrap)
        scores[name] = score.score
        if bootstrap:
            scores[f"{name}_ci"] = float(score._ci)
        scores[f"{name}_signature"] = f"{prefix}{metric.get_signature()}"

    add("bleu", _Bleu(tokenize=tokenizer), hypotheses, references)
    add("chrf", _Chrf(), hypotheses, references)
    if moses:
        prepare = moses_lowercase(moses)
        add(
            "bleu_moses_lowercase",
            _Bleu(tokenize="none", force=True),
            [prepare(text) for text in hypotheses],
            [prepare(text) for text in references],
            prefix=f"moses-lowercase:{moses}|",
        )
    return scores


class _PlainFloats:
    """Makes a metric's resampled scores all Python's floats.

    sacreBLEU has zeros among them as such and others as NumPy's float32, of which it then cannot
    take the mean: a bad translator would end in a traceback.
    """

    def _compute_score_from_stats(self, stats):
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


class _Bleu(_PlainFloats, sacrebleu.BLEU):
    pass


class _Chrf(_PlainFloats, sacrebleu.CHRF):
    pass


def moses_lowercase(language: str):
    """Returns the function that lowercases, normalises and tokenises a sentence as Moses does.

    On Multi30k's raw test set it reproduces the published `lc.norm.tok` files line for line.
    """
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
