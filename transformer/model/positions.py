"""Positional encodings [3.5], one class each, behind one registry.

An encoding has five places to act, and overrides those it needs. Two act once for a whole stack:
`add` changes the embeddings, `bias` is added to the attention scores of every layer. Three act
inside each layer, where parameters are that layer's own: `rotate` turns queries and keys, `score`
adds to the scores what depends on a query and a distance, `mix` adds to what attention reads.
"""

import functools
import math
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig, check_choice

LONGEST_WAVELENGTH = 10_000.0  # over 2 pi [3.5]
STACK_HOOKS = ("add", "bias")
LAYER_HOOKS = ("rotate", "score", "mix")


class NoPositions(nn.Module):
    """The identity in all places: a model that sees a bag of words, up to its masks.

    Args:
      config: the model's.
      bidirectional: whether queries read keys on both sides of them; false in a decoder's
        self-attention.
    """

    config: ModelConfig
    bidirectional: bool = True

    @classmethod
    def limit(cls, config: ModelConfig) -> int | None:
        """Returns how many positions there are, or None where there is no last one."""
        return None

    def add(
        self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]
    ) -> Float[Array, "B L D"]:
        """Returns the embeddings with their positions, counted from zero, written in.

        Args:
          positions: alike in all rows, or of each row its own.
        """
        return embeddings

    def bias(
        self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]
    ) -> Float[Array, "H L M"] | None:
        """Returns what is added to the scaled scores, or None for nothing."""
        return None

    def rotate(
        self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]
    ) -> Float[Array, "B L H K"]:
        """Returns queries or keys turned by their positions."""
        return heads

    def score(
        self,
        queries: Float[Array, "B L H K"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
    ) -> Float[Array, "B H L M"] | None:
        """Returns what is added to the scores of scaled queries, or None for nothing."""
        return None

    def mix(
        self,
        weights: Float[Array, "B H L M"],
        query_positions: Int[Array, "L"],
        key_positions: Int[Array, "M"],
    ) -> Float[Array, "B L H K"] | None:
        """Returns what is added to the heads' weighted values, or None for nothing."""
        return None


class SinusoidalPositions(NoPositions):
    """Sines and cosines in turn: dimension 2i is a sine, 2i + 1 the cosine of the same angle.

    Defined for any position; how far beyond the training length it is of use is another matter.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + pairs.reshape(*positions.shape, -1).astype(embeddings.dtype)


class SplitPositions(NoPositions):
    """The same numbers in another order: all sines, then all cosines.

    The order of tensor2tensor, fairseq and many tutorials. Those two also divide the exponent by
    d_model/2 - 1 instead of d_model/2, which stretches the wavelengths a little; here they are
    the paper's, so that the encoding is exactly a permutation of `sinusoidal`. A projection
    follows every use of the embeddings, so a model can learn the same function with either.
    """

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        angles = sinusoid_angles(positions, self.config.d_model)
        halves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return embeddings + halves.astype(embeddings.dtype)


class LearnedPositions(NoPositions):
    """One trained vector for each position below `max_length`; past it there is none.

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


class RotaryPositions(NoPositions):
    """Dimensions 2i and 2i + 1 of each query and key turn by pos * 10000^(-2i / K) radians.

    A score then depends on the distance between its query and key alone. Defined for any
    distance; those longer than the longest seen in training turn by angles that were not learned.

    Source: Su et al. 2021, "RoFormer", equation 34.
    """

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        angles = sinusoid_angles(positions, heads.shape[-1])[:, None]
        sine, cosine = jnp.sin(angles), jnp.cos(angles)
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
        return turned.reshape(heads.shape).astype(heads.dtype)


class RelativeBias(NoPositions):
    """One trained number for each head and bucket of distances, added to the score.

    Short distances have a bucket each; longer ones share buckets that widen with the logarithm
    of the distance, up to `bias_distance`, beyond which all are alike. Where keys stand on both
    sides, each side has half of the buckets. All layers of a stack share the table.

    Source: Raffel et al. 2020, "T5", section 2.1. T5 does not divide scores by the root of K;
    here they are scaled, whatever the encoding.
    """

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
    """A trained vector for each distance is added to the key, and another to the value.

    Distances are clipped at `shaw_distance` either way, so all longer ones are alike. Each layer
    has its own tables, which its heads share.

    Source: Shaw et al. 2018, equations 3, 4 and section 3.2.
    """

    def setup(self):
        shape = (2 * self.config.shaw_distance + 1, self.config.head_width)
        self.keys = self.param("keys", nn.initializers.xavier_uniform(), shape)
        self.values = self.param("values", nn.initializers.xavier_uniform(), shape)

    def score(self, queries, query_positions, key_positions):
        keys = self.keys[self._rows(query_positions, key_positions)].astype(queries.dtype)
        return jnp.einsum("BLHK,LMK->BHLM", queries, keys, preferred_element_type=jnp.float32)

    def mix(self, weights, query_positions, key_positions):
        values = self.values[self._rows(query_positions, key_positions)].astype(weights.dtype)
        return jnp.einsum("BHLM,LMK->BLHK", weights, values)

    def _rows(self, query_positions, key_positions) -> Int[Array, "L M"]:
        furthest = self.config.shaw_distance
        distances = key_positions - query_positions[:, None]
        return jnp.clip(distances, -furthest, furthest) + furthest


class Alibi(NoPositions):
    """Lowers a score by the distance to its key times a slope, fixed and other for each head.

    Where keys stand on both sides, both sides alike (the symmetric form); a decoder's keys stand
    on one side only, as in the paper. Nothing is trained, and no distance is the last.

    Source: Press et al. 2022, "Train Short, Test Long", section 3.
    """

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        distances = jnp.abs(key_positions - query_positions[:, None])
        return -jnp.asarray(alibi_slopes(self.config.num_heads))[:, None, None] * distances


REGISTRY: dict[str, type[NoPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "split": SplitPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "relative_bias": RelativeBias,
    "relative_shaw": RelativeShaw,
    "alibi": Alibi,
    "none": NoPositions,
}


class SumOfPositions(NoPositions):
    """The encodings of a name such as `sinusoidal+rotary`, one after another.

    Args:
      names: keys of REGISTRY, joined by `+`.
      hooks: the places in which this one acts, STACK_HOOKS or LAYER_HOOKS; encodings that act
        in none of them are left out.
    """

    names: str = "none"
    hooks: tuple[str, ...] = STACK_HOOKS

    def setup(self):
        self.parts = [
            REGISTRY[name](self.config, self.bidirectional, name=name)
            for name in split_names(self.names)
            if acts_in(name, self.hooks)
        ]

    def add(self, embeddings: Float[Array, "B L D"], positions: Int[Array, "*B L"]):
        return functools.reduce(lambda x, part: part.add(x, positions), self.parts, embeddings)

    def bias(self, query_positions: Int[Array, "L"], key_positions: Int[Array, "M"]):
        return _total([part.bias(query_positions, key_positions) for part in self.parts])

    def rotate(self, heads: Float[Array, "B L H K"], positions: Int[Array, "L"]):
        return functools.reduce(lambda x, part: part.rotate(x, positions), self.parts, heads)

    def score(self, queries, query_positions, key_positions):
        return _total([part.score(queries, query_positions, key_positions) for part in self.parts])

    def mix(self, weights, query_positions, key_positions):
        return _total([part.mix(weights, query_positions, key_positions) for part in self.parts])


def _total(terms: Sequence[Array | None]) -> Array | None:
    terms = [term for term in terms if term is not None]
    return functools.reduce(jnp.add, terms) if terms else None


def split_names(name: str) -> list[str]:
    """Returns the keys of REGISTRY that a name such as `sinusoidal+rotary` joins."""
    return name.split("+")


def acts_in(name: str, hooks: Sequence[str]) -> bool:
    """Returns whether the encoding of a key of REGISTRY acts in one of these places."""
    encoding = REGISTRY[name]
    return any(getattr(encoding, hook) is not getattr(NoPositions, hook) for hook in hooks)


def use_hooks(encoding: NoPositions, hooks: Sequence[str] = (*STACK_HOOKS, *LAYER_HOOKS)) -> None:
    """Calls these hooks of an encoding, with one query and one key.

    As the method of `init` it draws all parameters, also of a hook that is `nn.compact`.
    """
    config, here = encoding.config, jnp.arange(1)
    heads = jnp.zeros((1, 1, config.num_heads, config.head_width))
    arguments = {
        "add": (jnp.zeros((1, 1, config.d_model)), here),
        "bias": (here, here),
        "rotate": (heads, here),
        "score": (heads, here, here),
        "mix": (jnp.ones((1, config.num_heads, 1, 1)), here, here),
    }
    for hook in hooks:
        getattr(encoding, hook)(*arguments[hook])


def sinusoid_angles(positions: Int[Array, "*B L"], width: int) -> Float[Array, "*B L half"]:
    """Returns pos / 10000^(2i / width) in radians for i below width / 2 [3.5]."""
    frequencies = LONGEST_WAVELENGTH ** (-jnp.arange(0, width, 2) / width)
    return positions[..., None].astype(jnp.float32) * frequencies


def distance_buckets(
    distances: Int[Array, "L M"], buckets: int, furthest: int, bidirectional: bool
) -> Int[Array, "L M"]:
    """Returns the bucket, from zero, of each distance (key position minus query position).

    Of n buckets a side, the first n // 2 hold one distance each; the others grow geometrically,
    and the last holds all from somewhat short of `furthest` on.

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
    """Returns 2^(-8 h / H) for h from 1 to H, where H is a power of two.

    For another number, those of the next smaller power of two, then every other one of twice
    that power (Press et al. 2022, section 3 and the authors' code).
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power, 2) / power)
    return np.concatenate([slopes, between])[:num_heads].astype(np.float32)


def max_positions(config: ModelConfig) -> int | None:
    """Returns how many positions a Transformer has, or None if no encoding has a last one."""
    names = (config.encoder_names, config.decoder_names, config.cross_positions)
    limits = [REGISTRY[part].limit(config) for name in names for part in split_names(name)]
    return min((limit for limit in limits if limit is not None), default=None)


def check_length(length: int, config: ModelConfig) -> None:
    """Raises UserError where a sequence of `length` tokens runs past a learned table."""
    limit = max_positions(config)
    if limit is not None and length > limit:
        raise UserError(
            f"{length} tokens are more than the {limit} positions that were learned: raise "
            f"model.max_length={config.max_length} and train anew, or cut the sentence"
        )


def check_encodings(config: ModelConfig) -> None:
    """Raises UserError where a name is unknown, or an encoding cannot be what it is set to be."""
    fields = {
        "positions": config.positions,
        "encoder_positions": config.encoder_names,
        "decoder_positions": config.decoder_names,
        "cross_positions": config.cross_positions,
    }
    for field, names in fields.items():
        parts = split_names(names)
        if len(set(parts)) < len(parts):
            raise UserError(f"model.{field}='{names}' names an encoding twice: leave one out")
        for name in parts:
            check_choice(f"model.{field}", name, REGISTRY)
            if name == "rotary" and config.head_width % 2:
                raise UserError(
                    f"model.{field}='{names}' turns pairs of numbers, and a head has "
                    f"{config.head_width}: set model.head_size to an even number"
                )
            if field == "cross_positions" and acts_in(name, ["add"]):
                raise UserError(
                    f"model.cross_positions='{names}': {name} acts on embeddings, not between "
                    "two sequences: set it in model.positions"
                )
            if name == "relative_bias" and not 4 <= config.bias_buckets < config.bias_distance:
                raise UserError(
                    f"model.bias_buckets={config.bias_buckets} must be at least 4 and less than "
                    f"model.bias_distance={config.bias_distance}"
                )
