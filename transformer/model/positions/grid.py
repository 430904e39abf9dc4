"""Encodings of places on a grid: half of the dimensions for the row, half for the column.

Position 0 is the class token, in the row before the first. The patches follow, row by row; words
after them take the places of further rows.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.additive import sinusoid_angles
from transformer.model.positions.base import NoPositions
from transformer.model.positions.rotary import rotate_pairs


def grid_angles(
    positions: Int[Array, "*B L"], width: int, config: ModelConfig
) -> Float[Array, "*B L half"]:
    """Returns the angles, in radians, of the rows and then of the columns, width / 4 of each."""
    row, column = jnp.divmod(positions - 1, config.picture_size // config.patch_size)
    angles = [sinusoid_angles(place, width // 2) for place in (row, column)]
    return jnp.concatenate(angles, axis=-1)


def _check(config: ModelConfig, setting: str, width: int, name: str) -> None:
    if not config.patch_size:
        raise UserError(f"{setting} is for pictures: choose another encoding of a text's positions")
    if width % 4:
        raise UserError(
            f"{setting} halves the dimensions for rows and columns, and pairs them: {name}={width} "
            "must be a multiple of 4"
        )


class GridSinusoids(NoPositions):
    """Interleaved sines and cosines [3.5] of the row, then of the column.

    Source: Dosovitskiy et al. 2021, appendix D.4 ("2-dimensional"), with sinusoids in place of
    learned vectors, as in He et al. 2022, "Masked Autoencoders", appendix A.1.
    """

    of_pictures = True

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        _check(config, setting, config.d_model, "model.d_model")

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = grid_angles(positions, self.config.d_model, self.config)
        pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + pairs.reshape(*positions.shape, -1).astype(embeddings.dtype)


class GridRotary(NoPositions):
    """Queries and keys rotated by their rows in one half of the dimensions, columns in the other.

    So a score depends only on the distances in rows and in columns.

    Source: Su et al. 2021, "RoFormer", equation 34, along two axes as in Heo et al. 2024, "Rotary
    Position Embedding for Vision Transformer", section 3.1 ("axial").
    """

    of_pictures = True

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        _check(config, setting, config.head_width, "the width of a head")

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        return rotate_pairs(heads, grid_angles(positions, heads.shape[-1], self.config))
