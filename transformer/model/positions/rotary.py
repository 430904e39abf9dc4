"""The encoding that rotates queries and keys."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.additive import sinusoid_angles
from transformer.model.positions.base import NoPositions


class RotaryPositions(NoPositions):
    """Dimensions 2i and 2i + 1 of each query and key are rotated by pos * 10000^(-2i / K) radians.

    So a score depends only on the distance between its query and key. The encoding is defined for
    any distance, but distances beyond the training length rotate by angles not seen in training.

    Source: Su et al. 2021, "RoFormer", equation 34.
    """

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        if config.head_width % 2:
            raise UserError(
                f"{setting} rotates pairs of numbers, and a head has {config.head_width}: set "
                "model.head_size to an even number"
            )

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        return rotate_pairs(heads, sinusoid_angles(positions, heads.shape[-1]))


def rotate_pairs(
    heads: Float[Array, "B L H K"], angles: Float[Array, "L pairs"]
) -> Float[Array, "B L H K"]:
    """Returns the heads with dimensions 2i and 2i + 1 rotated by angle i of their position."""
    sine, cosine = (_compute_once(f(angles))[:, None] for f in (jnp.sin, jnp.cos))
    even, odd = heads[..., 0::2], heads[..., 1::2]
    rotated = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
    return rotated.reshape(heads.shape).astype(heads.dtype)


def _compute_once(table: Float[Array, "L pairs"]) -> Float[Array, "L pairs"]:
    """Returns the table as an array that XLA computes once for all layers.

    Otherwise XLA's CPU backend recomputes it for each element of the heads, which takes 4% of a
    training step. It does not fuse products, and the product with the identity is exact.
    """
    return jnp.matmul(table, jnp.eye(table.shape[-1]), precision="highest")
