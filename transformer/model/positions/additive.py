"""Positional encodings that are added to the embeddings: sinusoidal [3.5] and learned."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.base import NoPositions

BASE = 10_000.0  # base of the wavelengths, which increase up to 2 pi * 10,000 [3.5]


def sinusoid_angles(
    positions: Int[Array, "*B L"], width: int, base: float = BASE
) -> Float[Array, "*B L half"]:
    """Returns pos / base^(2i / width) in radians, for i from 0 to width / 2 - 1 [3.5]."""
    frequencies = base ** (-jnp.arange(0, width, 2) / width)
    return positions[..., None].astype(jnp.float32) * frequencies


class SinusoidalPositions(NoPositions):
    """Interleaved sinusoids: dimension 2i is the sine of an angle, and 2i + 1 is its cosine.

    The encoding is defined for any position, but may not generalise beyond the training length.

    Source: Vaswani et al. 2017, section 3.5.
    """

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        if config.d_model % 2:
            raise UserError(
                f"{setting} pairs sines with cosines: model.d_model={config.d_model} must be even"
            )

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + pairs.reshape(*positions.shape, -1).astype(embeddings.dtype)


class SplitPositions(SinusoidalPositions):
    """Sinusoidal encoding with all sines first, and then all cosines.

    tensor2tensor, fairseq and many tutorials use this order. The first two also divide the exponent
    by d_model/2 - 1 instead of d_model/2, which stretches the wavelengths a little. Here, they are
    as in the paper, so the encoding is a permutation of `sinusoidal`. A projection always follows
    the embeddings, so a model can learn the same function with either encoding.
    """

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        halves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + halves.astype(embeddings.dtype)


class LearnedPositions(NoPositions):
    """One learned vector for each position below `max_length`.

    Source: Gehring et al. 2017; compared with sinusoids in Vaswani et al. 2017, Table 3 (E).
    """

    @classmethod
    def limit(cls, config: ModelConfig) -> int:
        return config.max_length

    def setup(self):
        self.table = self.param(
            "table",
            nn.initializers.normal(self.config.d_model**-0.5),
            (self.config.max_length, self.config.d_model),
        )

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        return embeddings + self.table[positions].astype(embeddings.dtype)
