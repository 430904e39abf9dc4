"""Token-level means, accumulated as sums and counts."""

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from transformer.metrics.registry import MIN_TEXTS
from transformer.model.losses import TokenSums


def add(sums: Iterable[TokenSums]) -> TokenSums:
    """Returns the total of the sums of one or more batches, added in order."""
    return functools.reduce(lambda total, more: jax.tree.map(operator.add, total, more), sums)


def summarize(sums: TokenSums) -> dict[str, float]:
    """Returns loss and nll in nats per token, perplexity = exp(nll) and accuracy, as floats."""
    totals = {"loss": sums.loss, "nll": sums.nll, "accuracy": sums.correct}
    with np.errstate(invalid="ignore"):  # for a diverging run, or zero tokens
        weight = np.float32(sums.weight)
        values = {name: float(np.float32(total) / weight) for name, total in totals.items()}
    # A float64 can represent exp(700) but not exp(710).
    return {**values, "perplexity": math.exp(min(values["nll"], 700.0))}


def to_list(sums: TokenSums) -> list[float]:
    """Returns the unrounded sums of loss, nll and correct, each followed by the weight."""
    return [float(x) for total in sums[:3] for x in (total, sums.weight)]


def from_list(numbers: Sequence[float]) -> TokenSums:
    """Inverts `to_list`, and returns bitwise identical sums as NumPy scalars on the host."""
    floats: Any = map(np.float32, numbers)
    loss, weight, nll, _, correct, _ = floats
    return TokenSums(loss, nll, correct, weight)


def loss_intervals(
    nll: Float[np.ndarray, "rows"],
    tokens: Int[np.ndarray, "rows"],
    resamples: int,
    texts: Sequence[int] | None = None,
) -> dict[str, float]:
    """Returns half-widths of the 95% bootstrap intervals of token-level means, keyed by name.

    Without label smoothing, `loss_ci` equals `nll_ci`. `perplexity_ci` is the half-width for
    exp(nll). Rows, such as sentences, are resampled with replacement.

    Args:
      nll: negative log-likelihood of each row, in nats.
      tokens: number of tokens in each row.
      resamples: number of resamples. With < 2 resamples or < `MIN_TEXTS` texts, returns {}.
      texts: zero-based text number of each row; rows of the same text are resampled together.

    Source: Efron 1979, "Bootstrap Methods".
    """
    if texts is not None:
        nll, tokens = (np.bincount(texts, values) for values in (nll, tokens))
    if resamples < 2 or len(nll) < MIN_TEXTS:
        return {}
    rng, means = np.random.default_rng(0), np.empty(resamples)
    for i in range(resamples):
        rows = rng.integers(len(nll), size=len(nll))
        means[i] = nll[rows].sum(dtype=np.float64) / tokens[rows].sum()
    low, high = np.percentile(means, [2.5, 97.5]).tolist()
    half = (high - low) / 2
    perplexity = (math.exp(min(high, 700.0)) - math.exp(min(low, 700.0))) / 2
    return {"loss_ci": half, "nll_ci": half, "perplexity_ci": perplexity}
