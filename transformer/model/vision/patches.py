"""The embedding of image patches, and positional encodings for patch rows and columns.

Position 0 is the class token, in row -1. The patches follow in row-major order. The question tokens
follow the patches, and occupy further rows.
"""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding, Linear
from transformer.model.positions.additive import BASE, sinusoid_angles
from transformer.model.positions.base import NoPositions
from transformer.model.positions.relative import rotate_pairs
from transformer.model.vision.inputs import PictureText

ROTARY_BASE = 100.0  # instead of 10,000 for tokens, since an image has few patches per side


class PatchEmbedding(nn.Module):
    """Embeds the class token, the patches (with a linear map), and the tokens of a question.

    Pixel values are scaled to [-1, 1]. If there is a question, segment embeddings (of image and
    question) are added, as in BERT (Devlin et al. 2019, figure 2).

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", equation 1, without the
    position embeddings.
    """

    vocab_size: int
    config: ModelConfig

    @nn.compact
    def __call__(self, source: PictureText) -> Float[Array, "B M D"]:
        config, width = self.config, self.config.d_model
        pixels = jnp.asarray(source.patches, jnp.float32) / 127.5 - 1.0
        patches = Linear(width, config.dtypes, True, name="patches")(pixels.astype(config.dtype))
        first = self.param("class_token", nn.initializers.normal(0.02), (width,))
        first = jnp.broadcast_to(first.astype(patches.dtype), (len(patches), 1, width))
        picture = jnp.concatenate([first, patches], axis=1)
        if not source.tokens.shape[1]:
            return picture
        words = Embedding(self.vocab_size, config, name="words")(jnp.asarray(source.tokens))
        segments = self.param("segments", nn.initializers.normal(0.02), (2, width))
        of_picture, of_words = segments.astype(picture.dtype)
        return jnp.concatenate([picture + of_picture, words + of_words], axis=1)


def grid_angles(
    positions: Int[Array, "*B L"], width: int, config: ModelConfig, base: float
) -> Float[Array, "*B L half"]:
    """Returns width / 4 angles for each row, then width / 4 angles for each column, in radians."""
    row, column = jnp.divmod(positions - 1, _side(config))
    angles = [sinusoid_angles(place, width // 2, base) for place in (row, column)]
    return jnp.concatenate(angles, axis=-1)


def _side(config: ModelConfig) -> int:
    """Returns the number of patches per side of an image."""
    return config.picture_size // config.patch_size


class GridPositions(NoPositions):
    """Base class of the encodings of rows and columns; `halved` says which width both share."""

    of_pictures = True
    halved: ClassVar[tuple[str, str] | None] = None  # the name of the width, and its attribute

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        if not config.patch_size:
            raise UserError(
                f"{setting} is for pictures: choose another encoding of a text's positions"
            )
        if cls.halved and (width := getattr(config, cls.halved[1])) % 4:
            raise UserError(
                f"{setting} halves the dimensions for rows and columns, and pairs them: "
                f"{cls.halved[0]}={width} must be a multiple of 4"
            )


class GridSinusoids(GridPositions):
    """Interleaved sines and cosines [3.5] of the row angles, and then of the column angles.

    Source: Dosovitskiy et al. 2021, appendix D.4 ("2-dimensional"), with sinusoids instead of
    learned vectors, as in He et al. 2022, "Masked Autoencoders", appendix A.1.
    """

    halved = "model.d_model", "d_model"

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = grid_angles(positions, self.config.d_model, self.config, BASE)
        pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + pairs.reshape(*positions.shape, -1).astype(embeddings.dtype)


class GridRotary(GridPositions):
    """Rotates half of the query and key dimensions by row, and the other half by column.

    A score therefore depends on positions only through the row and column distances.

    Source: Su et al. 2021, "RoFormer", equation 34, along two axes as in Heo et al. 2024, "Rotary
    Position Embedding for Vision Transformer" ("axial"), with the base of that paper.
    """

    halved = "the width of a head", "head_width"

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        angles = grid_angles(positions, heads.shape[-1], self.config, ROTARY_BASE)
        return rotate_pairs(heads, angles)


class GridBias(GridPositions):
    """A trained score bias for each head, row distance and column distance between two patches.

    Pairs of positions with a token that is not a patch share one bias. All layers share the table.

    Source: Liu et al. 2021, "Swin Transformer", equation 4.
    """

    def setup(self):
        shape = ((2 * _side(self.config) - 1) ** 2 + 1, self.config.num_heads)
        self.table = self.param("table", nn.initializers.normal(self.config.d_model**-0.5), shape)

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        side = _side(self.config)
        query_row, query_column = jnp.divmod(query_positions[:, None] - 1, side)
        key_row, key_column = jnp.divmod(key_positions - 1, side)
        rows, columns = key_row - query_row + side - 1, key_column - query_column + side - 1
        is_patch = [(row >= 0) & (row < side) for row in (query_row, key_row)]
        numbers = jnp.where(is_patch[0] & is_patch[1], rows * (2 * side - 1) + columns, -1)
        return jnp.moveaxis(self.table[numbers], -1, 0)
