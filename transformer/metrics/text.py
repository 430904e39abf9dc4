"""The metrics of translations: one function each, with signatures and intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from jaxtyping import Real

from transformer.metrics.registry import MIN_TEXTS, find, proportion_interval

ROUNDING = 1e-9  # resampled scores that differ by less do not vary


class CorpusScore(NamedTuple):
    """A score of a corpus.

    Attributes:
      interval: half the width of the 95% bootstrap interval (Koehn 2004), or the bounds of that of
        a proportion; None without resamples, of fewer than `MIN_TEXTS`, or if they do not vary.
      signature: how the score was computed: scores with different signatures are not comparable.
      counts: of each text; the score is a function of their sums. For BLEU they are words of the
        hypothesis and of the reference, n-grams, n = 1 to 4, that both have, and those of the
        hypothesis; for chrF, for n = 1 to 6, the n-grams of characters of the hypothesis, of the
        reference that is most similar, and of both; for exact matches, whether it is one, and 1.
    """

    value: float
    interval: float | list[float] | None = None
    signature: str | None = None
    counts: Real[np.ndarray, "texts n"] | None = None


class ScoredCorpus(NamedTuple):
    """Detokenised text and the settings of its scores; see `corpus_scores`.

    Attributes:
      references: lists of a reference for each hypothesis, at least one list.
    """

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str | None]]
    tokenizer: str
    moses: str
    bootstrap: int


# The function of each metric, by its name in the registry; it returns None if it does not apply.
FUNCTIONS: dict[str, Callable[[ScoredCorpus], CorpusScore | None]] = {}


def text_metric(
    compute: Callable[[ScoredCorpus], CorpusScore | None],
) -> Callable[[ScoredCorpus], CorpusScore | None]:
    """Registers a function in `FUNCTIONS` as the metric of its name."""
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
    """Returns the scores of detokenised text by name, each `*_ci` and each `*_signature`.

    If some have no interval, `no_interval` says which, and why. Final scores also have `counts` by
    name, see `CorpusScore`.

    Args:
      references: one for each hypothesis.
      tokenizer: sacreBLEU's, for BLEU.
      moses: language code; adds `bleu_moses_lowercase`.
      bootstrap: resamples; below two there is no interval.
      further: lists of a further reference for each hypothesis, None where it has fewer.
      final: whether to compute the metrics that only final scores have.
    """
    for texts in (references, *further):
        if not hypotheses or len(hypotheses) != len(texts):
            raise ValueError(
                f"{len(hypotheses)} hypotheses and {len(texts)} references cannot be scored: "
                "give one reference for each hypothesis, and at least one"
            )
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
    """The percentage of translations that equal one of their references, without outer blanks."""
    texts = zip(corpus.hypotheses, *corpus.references, strict=True)
    counts = np.array([[h.strip() in [r and r.strip() for r in rs], 1] for h, *rs in texts])
    matches, count = counts.sum(0).tolist()
    interval = proportion_interval(matches, count, 100.0) if corpus.bootstrap > 1 else None
    return CorpusScore(100.0 * matches / count, interval, counts=counts)


@text_metric
def bleu(corpus: ScoredCorpus) -> CorpusScore:
    """BLEU. Source: Papineni et al. 2002; Post 2018."""
    return _score_by_sacrebleu(sacrebleu.BLEU(tokenize=corpus.tokenizer), corpus)


@text_metric
def chrf(corpus: ScoredCorpus) -> CorpusScore:
    """chrF. Source: Popović 2015."""
    return _score_by_sacrebleu(_Chrf(), corpus)


@text_metric
def ter(corpus: ScoredCorpus) -> CorpusScore:
    """Translation edit rate, of BLEU's tokens if words lack blanks. Source: Snover et al. 2006."""
    if corpus.tokenizer not in ("zh", "ja-mecab", "char"):
        return _score_by_sacrebleu(sacrebleu.TER(), corpus)
    prepare = sacrebleu.BLEU(tokenize=corpus.tokenizer).tokenizer
    return _score_prepared(sacrebleu.TER(), corpus, prepare, corpus.tokenizer)


@text_metric
def bleu_moses_lowercase(corpus: ScoredCorpus) -> CorpusScore | None:
    """BLEU as papers on Multi30k report it, which is not comparable with `bleu`.

    Both sides are lowercased, punctuation-normalised and tokenised as Moses does.
    """
    if not corpus.moses:
        return None
    prepare, name = moses_lowercase(corpus.moses), f"moses-lowercase:{corpus.moses}"
    return _score_prepared(sacrebleu.BLEU(tokenize="none", force=True), corpus, prepare, name)


def _score_prepared(metric: Any, corpus: ScoredCorpus, prepare: Callable, name: str) -> CorpusScore:
    """The score of text that a function prepares, with its name in the signature."""
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
    metric._extract_corpus_statistics = lambda *_: counts  # which are not counted again
    score = metric.corpus_score(corpus.hypotheses, corpus.references, **resamples)
    interval = float(score._ci) if resampled and score._ci > ROUNDING else None
    return CorpusScore(score.score, interval, str(metric.get_signature()), np.array(counts))


class _Chrf(sacrebleu.CHRF):
    """chrF whose resampled scores are Python floats.

    sacreBLEU mixes Python zeros with NumPy's float32, and then cannot compute their mean: a bad
    translator would end in a traceback.
    """

    def _compute_score_from_stats(self, stats):
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def moses_lowercase(language: str):
    """Returns the function that lowercases, normalises and tokenises a sentence as Moses does.

    On Multi30k's raw test set it reproduces the published `lc.norm.tok` files line for line.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer  # which take a fifth of a second

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)
