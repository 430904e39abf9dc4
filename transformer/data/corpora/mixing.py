"""How often an epoch draws the pairs of each corpus."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Mixture(NamedTuple):
    """The corpora that sentences belong to, which follow one another.

    Attributes:
      sizes: sentences of each corpus, at least one.
      factors: how often an epoch draws a sentence of each corpus, on average.
    """

    sizes: tuple[int, ...]
    factors: tuple[float, ...]


def mix(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> Mixture:
    """Returns the mixture whose epochs have about as many sentences as all corpora together.

    Args:
      sizes: sentences of each corpus, at least one.
      weights: of each corpus, positive.
      temperature: 1 draws every sentence equally often, if the weights are equal; infinity draws
        every corpus equally often.

    Source: Arivazhagan et al. 2019, section 4.
    """
    exact = proportions(sizes, weights, temperature) * sum(sizes) / np.array(sizes)
    # Logarithms may differ in their last bit between machines; numbers of sentences must not.
    return Mixture(tuple(sizes), tuple(float(f"{factor:.9g}") for factor in exact))


def proportions(
    sizes: Sequence[int], weights: Sequence[float], temperature: float
) -> Float[np.ndarray, "corpora"]:
    """Returns the fraction of an epoch's sentences that each corpus has."""
    logits = np.log(np.array(weights)) + np.log(np.array(sizes)) / temperature
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()
