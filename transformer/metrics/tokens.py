"""Means over tokens, accumulated as sums and counts."""

# clu's dataclasses are made by a decorator without types: their fields are known at runtime alone.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false

import functools
import math
from collections.abc import Iterable, Sequence

import flax.struct
import jax
import numpy as np
from clu import metrics as clu_metrics
from jaxtyping import Float, Int

from transformer.metrics.registry import MIN_TEXTS
from transformer.model.losses import TokenSums


@flax.struct.dataclass
class TokenMetrics(clu_metrics.Collection):
    """Means over tokens: smoothed loss, negative log-likelihood, accuracy."""

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

    @classmethod
    def from_batches(cls, sums: Iterable[TokenSums]) -> "TokenMetrics":
        """Returns the metrics of all batches together, at least one."""
        return functools.reduce(cls.merge, map(cls.from_sums, sums))

    def to_list(self) -> list[float]:
        """Returns the sums and counts of one run, with all bits of a float32."""
        return [float(x) for x in jax.tree.leaves(self)]

    @classmethod
    def from_list(cls, numbers: Sequence[float]) -> "TokenMetrics":
        """Returns the inverse of `to_list`, bit for bit, on the host."""
        # The counts of an empty one are integers, which would change the rounding of sums.
        return jax.tree.structure(cls.empty()).unflatten(map(np.float32, numbers))


def summarize(metrics: TokenMetrics) -> dict[str, float]:
    """Returns loss and nll in nats per token, perplexity = exp(nll) and accuracy, as floats."""
    with np.errstate(invalid="ignore"):  # of a run that diverges, or of no token
        values = {name: float(value) for name, value in metrics.compute().items()}
    # A float64 holds exp(700) and not exp(710).
    return {**values, "perplexity": math.exp(min(values["nll"], 700.0))}


def loss_intervals(
    nll: Float[np.ndarray, "rows"],
    tokens: Int[np.ndarray, "rows"],
    resamples: int,
    texts: Sequence[int] | None = None,
) -> dict[str, float]:
    """Returns half the widths of the 95% intervals of the means over tokens, by name.

    Without smoothing, `loss_ci` is `nll_ci`; `perplexity_ci` is that of exp(nll). Rows, such as
    sentences, are resampled with replacement.

    Args:
      nll: of all tokens of each row, in nats.
      tokens: of each row.
      resamples: below two there are no intervals; nor of fewer than `MIN_TEXTS` texts.
      texts: the text of each row, from zero; rows of one text are drawn together.

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
