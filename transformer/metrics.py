"""What is measured: means over tokens, as (sum, count) until the last line; BLEU and chrF."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.struct
import jax
import numpy as np
import sacrebleu
from clu import metrics as clu_metrics
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from tensorboardX import SummaryWriter

from transformer.files import write_text
from transformer.losses import TokenSums


@flax.struct.dataclass
class TokenMetrics(clu_metrics.Collection):
    """Means over tokens: of the smoothed loss, of the negative log-likelihood, of hits."""

    loss: clu_metrics.Average
    nll: clu_metrics.Average
    accuracy: clu_metrics.Average

    @classmethod
    def from_sums(cls, sums: TokenSums) -> "TokenMetrics":
        """Returns the metrics of one batch."""
        return cls.empty().replace(
            loss=clu_metrics.Average(sums.loss, sums.weight),
            nll=clu_metrics.Average(sums.nll, sums.weight),
            accuracy=clu_metrics.Average(sums.correct, sums.weight),
        )

    def to_list(self) -> list[float]:
        """Returns the sums and counts of one run, which hold all bits of a float32."""
        return [float(x) for x in jax.tree.leaves(self)]

    @classmethod
    def from_list(cls, numbers: Sequence[float]) -> "TokenMetrics":
        """Returns what `to_list` was called on, bit for bit, on the host."""
        # Of an empty one, counts are integers: their sums would round otherwise.
        return jax.tree.structure(cls.empty()).unflatten(map(np.float32, numbers))


def summarize(metrics: TokenMetrics) -> dict[str, float]:
    """Returns loss and nll in nats a token, perplexity = exp(nll) and accuracy, as floats."""
    values = {name: float(value) for name, value in metrics.compute().items()}
    # A float64 holds exp(700) and not exp(710).
    return {**values, "perplexity": math.exp(min(values["nll"], 700.0))}


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


class MetricsWriter:
    """Appends lines to `metrics.jsonl` and the same numbers to TensorBoard.

    Args:
      workdir: the run's folder.
      step: where the run goes on; lines of later steps, written before it was interrupted, go.
      evaluated: whether that step's evaluation counts; otherwise its lines go as well.
    """

    def __init__(self, workdir: Path, step: int, evaluated: bool = True):
        self._path = workdir / "metrics.jsonl"
        self._drop_after(step, evaluated)
        self._board = SummaryWriter(str(workdir), purge_step=step + 1 if step else None)

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Writes the numbers of one step; not-a-number becomes null, as JSON has none."""
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        try:
            with self._path.open("a") as file:
                file.write(json.dumps({"step": step, "split": split, **finite}) + "\n")
        except OSError as error:
            error.filename = str(self._path)  # a full disk names none
            raise
        for name, value in values.items():
            self._board.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        """Flushes what is not yet on disk."""
        self._board.close()

    def _drop_after(self, step: int, evaluated: bool) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = []
        for line in lines:
            place, split = _place_of(line)
            if place < step or (place == step and (evaluated or split == "train")):
                kept.append(line)
        write_text(self._path, "".join(line + "\n" for line in kept))


def _place_of(line: str) -> tuple[int | float, str]:
    """The (step, split) of a line; a line that is cut short or damaged belongs to no step."""
    try:
        parsed = json.loads(line)
        step, split = parsed["step"], parsed["split"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf, ""
    return (step if isinstance(step, int) else math.inf), split
