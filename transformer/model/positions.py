"""Positional encodings [3.5], one class each, behind one registry.

An encoding has three places to act, and overrides those it needs: `add` changes the embeddings,
`rotate` turns queries and keys, `bias` is added to the attention scores.
"""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig

LONGEST_WAVELENGTH = 10_000.0  # over 2 pi [3.5]


class NoPositions(nn.Module):
    """The identity in all three places: a model that sees a bag of words, up to its masks."""

    config: ModelConfig

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "L"]):
        """Returns the embeddings with their positions, counted from zero, written in."""
        return embeddings

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        """Returns queries or keys turned by their positions."""
        return heads

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        """Returns what is added to the scores, [H, L, M], or None for nothing."""
        return None


class SinusoidalPositions(NoPositions):
    """Sines and cosines in turn: dimension 2i is a sine, 2i + 1 the cosine of the same angle.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + pairs.reshape(len(positions), -1).astype(embeddings.dtype)


class SplitPositions(NoPositions):
    """The same numbers in another order: all sines, then all cosines.

    The order of tensor2tensor, fairseq and many tutorials. Those two also divide the exponent by
    d_model/2 - 1 instead of d_model/2, which stretches the wavelengths a little; here they are
    the paper's, so that the encoding is exactly a permutation of `sinusoidal`. A projection
    follows every use of the embeddings, so a model can learn the same function with either.
    """

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        halves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + halves.astype(embeddings.dtype)


class LearnedPositions(NoPositions):
    """One trained vector for each position below `max_length`.

    Source: Gehring et al. 2017; compared with sinusoids in Vaswani et al. 2017, Table 3 (E).

    Raises:
      UserError: more positions are asked for than the table has rows.
    """

    def setup(self):
        self.table = self.param(
            "table",
            nn.initializers.normal(self.config.d_model**-0.5),
            (self.config.max_length, self.config.d_model),
        )

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "L"]):
        return embeddings + self.table[positions].astype(embeddings.dtype)


REGISTRY: dict[str, type[NoPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "split": SplitPositions,
    "learned": LearnedPositions,
    "none": NoPositions,
}


def sinusoid_angles(positions: Int[Array, "L"], d_model: int) -> Float[Array, "L half"]:
    """Returns pos / 10000^(2i / d_model) in radians for i below d_model / 2 [3.5]."""
    frequencies = LONGEST_WAVELENGTH ** (-jnp.arange(0, d_model, 2) / d_model)
    return positions[:, None].astype(jnp.float32) * frequencies


def check_length(length: int, config: ModelConfig) -> None:
    """Raises UserError where a sequence of `length` tokens runs past a learned table."""
    if config.positions == "learned" and length > config.max_length:
        raise UserError(
            f"{length} tokens are more than the learned positions go: raise "
            f"model.max_length={config.max_length} and train anew, or cut the sentence"
        )
