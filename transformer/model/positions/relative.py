"""Relative positional encodings: score biases, learned vectors, and rotations."""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.additive import sinusoid_angles
from transformer.model.positions.base import NoPositions


class RelativeBias(NoPositions):
    """A learned score bias for each head and distance bucket.

    Each short distance has its own bucket. Longer distances share buckets of logarithmically
    increasing width, and distances above `bias_distance` share the last bucket. If queries attend
    to both sides, each side has half of the buckets. All layers of a stack share the table.

    Source: Raffel et al. 2020, "T5", section 2.1. T5 does not divide scores by sqrt(K), whereas
    here the scaling does not depend on the encoding.
    """

    @classmethod
    def check(cls, config: ModelConfig, setting: str) -> None:
        if config.bias_buckets >= config.bias_distance:
            raise UserError(
                f"model.bias_buckets={config.bias_buckets} must be less than "
                f"model.bias_distance={config.bias_distance}"
            )

    def setup(self):
        self.table = self.param(
            "table",
            nn.initializers.normal(self.config.d_model**-0.5),
            (self.config.bias_buckets, self.config.num_heads),
        )

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        distances = key_positions - query_positions[:, None]
        buckets = distance_buckets(
            distances, self.config.bias_buckets, self.config.bias_distance, self.bidirectional
        )
        return jnp.moveaxis(self.table[buckets], -1, 0)


class RelativeShaw(NoPositions):
    """For each distance, adds a learned vector to the keys, and another vector to the values.

    Distances are clipped at `shaw_distance`, so longer distances on the same side share a vector.
    Each layer has its own tables, which all heads of the layer share.

    Source: Shaw et al. 2018, equations 3, 4 and section 3.2.
    """

    def setup(self):
        shape = (2 * self.config.shaw_distance + 1, self.config.head_width)
        self.keys = self.param("keys", nn.initializers.xavier_uniform(), shape)
        self.values = self.param("values", nn.initializers.xavier_uniform(), shape)

    def score(self, queries, query_positions, key_positions):
        keys = self.keys[self._rows(query_positions, key_positions)].astype(queries.dtype)
        return jnp.einsum("BLHK,LMK->BHLM", queries, keys, preferred_element_type=jnp.float32)

    def value_bias(self, weights, query_positions, key_positions):
        values = self.values[self._rows(query_positions, key_positions)].astype(weights.dtype)
        return jnp.einsum("BHLM,LMK->BLHK", weights, values)

    def _rows(self, query_positions, key_positions) -> Int[Array, "L M"]:
        furthest = self.config.shaw_distance
        distances = key_positions - query_positions[:, None]
        return jnp.clip(distances, -furthest, furthest) + furthest


class Alibi(NoPositions):
    """Subtracts the distance times a fixed slope from each score; each head has its own slope.

    If there are keys on both sides, both sides have the same slope (the symmetric form); a decoder
    has keys on one side only, as in the paper. There are no parameters, and no maximum distance.

    Source: Press et al. 2022, "Train Short, Test Long", section 3.
    """

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        distances = jnp.abs(key_positions - query_positions[:, None])
        return -jnp.asarray(alibi_slopes(self.config.num_heads))[:, None, None] * distances


def distance_buckets(
    distances: Int[Array, "L M"], buckets: int, furthest: int, bidirectional: bool
) -> Int[Array, "L M"]:
    """Returns the zero-based bucket index of each distance (key position minus query position).

    Of the n buckets on each side, the first n // 2 contain one distance each. The other buckets
    widen geometrically; the last starts slightly before `furthest` and has all longer distances.

    Source: Raffel et al. 2020, section 2.1.
    """
    side = buckets // 2 if bidirectional else buckets
    exact = max(1, side // 2)
    near = np.arange(exact)
    far = np.log(np.arange(exact, furthest + 1) / exact) / math.log(furthest / exact)
    wide = np.minimum(exact + (far * (side - exact)).astype(int), side - 1)
    bucket_of = jnp.asarray(np.concatenate([near, wide]), jnp.int32)
    if not bidirectional:
        return bucket_of[jnp.clip(-distances, 0, furthest)]
    after = jnp.where(distances > 0, side, 0)
    return after + bucket_of[jnp.minimum(jnp.abs(distances), furthest)]


def alibi_slopes(num_heads: int) -> Float[np.ndarray, "H"]:
    """Returns the slopes of all heads: 2^(-8 h / H) for h from 1 to H, if H is a power of two.

    Otherwise, returns the slopes for the next smaller power of two, and then every second slope for
    twice that power (Press et al. 2022, section 3 and the authors' code).
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power, 2) / power)
    return np.concatenate([slopes, between])[:num_heads].astype(np.float32)


class RotaryPositions(NoPositions):
    """Rotates dimensions 2i and 2i + 1 of queries and keys by pos * 10000^(-2i / K) radians.

    A score therefore depends on positions only through the distance between query and key. The
    encoding is defined for any distance, but training covers only distances within a text.

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
    """Rotates dimensions 2i and 2i + 1 of the heads by the i-th angle of each position."""
    # XLA's CPU backend would recompute the tables for each element of the heads, which takes 4% of
    # a training step. It does not fuse the (exact) matrix product with the identity, so it computes
    # the products only once for all layers.
    identity = jnp.eye(angles.shape[-1])
    sine, cosine = (
        jnp.matmul(f(angles), identity, precision="highest")[:, None] for f in (jnp.sin, jnp.cos)
    )
    even, odd = heads[..., 0::2], heads[..., 1::2]
    rotated = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
    return rotated.reshape(heads.shape).astype(heads.dtype)
