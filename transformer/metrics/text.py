"""Translation metrics, with their signatures and confidence intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Real

from transformer.metrics.registry import MIN_TEXTS, find, proportion_interval

ROUNDING = 1e-9  # resampled scores that differ by less are considered equal


class CorpusScore(NamedTuple):
    """A corpus-level score.

    Attributes:
      interval: half-width of the 95% bootstrap interval (Koehn 2004), or bounds for a proportion.
        It is None without resampling, with < `MIN_TEXTS` texts, or if resampled scores are equal.
      signature: settings of the score; scores with different signatures are not comparable.
      counts: statistics of each text, whose sums determine the score. For BLEU, they count words
        of the hypothesis and the reference, matching n-grams and n-grams of the hypothesis (n = 1
        to 4); for chrF, character n-grams of the hypothesis, of the most similar reference, and
        matches (n = 1 to 6). For exact matches, they are whether the text matches, and 1.
    """

    value: float
    interval: float | list[float] | None = None
    signature: str | None = None
    counts: Real[np.ndarray, "texts n"] | None = None


class ScoredCorpus(NamedTuple):
    """Detokenised hypotheses and references, and the metric settings; see `corpus_scores`.

    Attributes:
      references: one list or more, each with one reference (or None) per hypothesis.
    """

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str | None]]
    tokenizer: str
    moses: str
    bootstrap: int


# Metric functions, keyed by name; a function returns None if the metric does not apply.
FUNCTIONS: dict[str, Callable[[ScoredCorpus], CorpusScore | None]] = {}


def text_metric(
    compute: Callable[[ScoredCorpus], CorpusScore | None],
) -> Callable[[ScoredCorpus], CorpusScore | None]:
    """Registers a metric function in `FUNCTIONS` under the function's name."""
    FUNCTIONS[compute.__name__] = compute
    return compute


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenizer: str = "13a",
    moses: str = "",
    bootstrap: int = 0,
    further: Sequence[Sequence[str | None]] = (),
    final: bool = False,
) -> dict[str, Any]:
    """Returns the scores of detokenised text, keyed by name, with their `*_ci` and `*_signature`.

    If some scores have no interval, `no_interval` names them and the reason. Final scores also
    include the `counts` of each metric; see `CorpusScore`.

    Args:
      references: one reference for each hypothesis.
      tokenizer: sacreBLEU's tokenizer for BLEU.
      moses: language code; if given, `bleu_moses_lowercase` is added.
      bootstrap: number of bootstrap resamples; with fewer than two, there are no intervals.
      further: lists of additional references, padded with None for hypotheses that have fewer.
      final: whether to include the metrics that are only computed for final scores.
    """
    corpus = ScoredCorpus(hypotheses, (references, *further), tokenizer, moses, bootstrap)
    scores: dict[str, Any] = {"counts": {}} if final else {}
    for name, compute in FUNCTIONS.items():
        if (find(name, "translations").final and not final) or (score := compute(corpus)) is None:
            continue
        scores[name] = score.value
        if score.interval is not None:
            scores[f"{name}_ci"] = score.interval
        if score.signature is not None:
            scores[f"{name}_signature"] = score.signature
        if final:
            scores["counts"][name] = score.counts
    names = [name for name in FUNCTIONS if name in scores and f"{name}_ci" not in scores]
    if bootstrap > 1 and names:
        titles = ", ".join(find(name, "translations").title for name in names)
        why = "too few texts" if len(hypotheses) < MIN_TEXTS else "resampled texts score the same"
        scores["no_interval"] = f"no interval of {titles}: {why}"
    return scores


@text_metric
def exact_match(corpus: ScoredCorpus) -> CorpusScore:
    """Returns the percentage of translations that equal a reference, ignoring outer spaces."""
    texts = zip(corpus.hypotheses, *corpus.references, strict=True)
    counts = np.array([[h.strip() in [r and r.strip() for r in rs], 1] for h, *rs in texts])
    matches, count = counts.sum(0).tolist()
    interval = proportion_interval(matches, count, 100.0) if corpus.bootstrap > 1 else None
    return CorpusScore(100.0 * matches / count, interval, counts=counts)


@text_metric
def bleu(corpus: ScoredCorpus) -> CorpusScore:
    """Returns BLEU. Source: Papineni et al. 2002; Post 2018."""
    return _score_by_sacrebleu(sacrebleu.BLEU(tokenize=corpus.tokenizer), corpus)


@text_metric
def chrf(corpus: ScoredCorpus) -> CorpusScore:
    """Returns chrF. Source: Popović 2015."""
    metric: Any = sacrebleu.CHRF()
    # Averaging the resampled scores fails if they mix Python zeros and NumPy float32.
    f_score = metric._compute_f_score
    metric._compute_f_score = lambda statistics: float(f_score(statistics))
    return _score_by_sacrebleu(metric, corpus)


@text_metric
def ter(corpus: ScoredCorpus) -> CorpusScore:
    """Returns TER (Snover et al. 2006); text without spaces is split by BLEU's tokenizer."""
    if corpus.tokenizer not in ("zh", "ja-mecab", "char"):
        return _score_by_sacrebleu(sacrebleu.TER(), corpus)
    prepare = sacrebleu.BLEU(tokenize=corpus.tokenizer).tokenizer
    return _score_prepared(sacrebleu.TER(), corpus, prepare, corpus.tokenizer)


@text_metric
def bleu_moses_lowercase(corpus: ScoredCorpus) -> CorpusScore | None:
    """Returns BLEU as reported in papers on Multi30k, which is not comparable with `bleu`.

    Hypotheses and references are lowercased, punctuation-normalised and tokenised as in Moses.
    """
    if not corpus.moses:
        return None
    prepare, name = moses_lowercase(corpus.moses), f"moses-lowercase:{corpus.moses}"
    return _score_prepared(sacrebleu.BLEU(tokenize="none", force=True), corpus, prepare, name)


def _score_prepared(metric: Any, corpus: ScoredCorpus, prepare: Callable, name: str) -> CorpusScore:
    """Returns the score of text after preprocessing; `name` is added to the signature."""
    hypotheses, *references = (
        [text if text is None else prepare(text) for text in texts]
        for texts in (corpus.hypotheses, *corpus.references)
    )
    score = _score_by_sacrebleu(
        metric, corpus._replace(hypotheses=hypotheses, references=references)
    )
    return score._replace(signature=f"{name}|{score.signature}")


def _score_by_sacrebleu(metric: Any, corpus: ScoredCorpus) -> CorpusScore:
    resampled = corpus.bootstrap > 1 and len(corpus.hypotheses) >= MIN_TEXTS
    resamples = {"n_bootstrap": corpus.bootstrap} if resampled else {}
    counts = metric._extract_corpus_statistics(corpus.hypotheses, corpus.references)
    metric._extract_corpus_statistics = lambda *_: counts  # avoids computing them again
    score = metric.corpus_score(corpus.hypotheses, corpus.references, **resamples)
    interval = float(score._ci) if resampled and score._ci > ROUNDING else None
    return CorpusScore(score.score, interval, str(metric.get_signature()), np.array(counts))


def moses_lowercase(language: str):
    """Returns the function that lowercases, normalises and tokenises a sentence as Moses does.

    On the raw Multi30k test set, the function exactly reproduces the published `lc.norm.tok` files.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer  # the import takes 0.2 s

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
