"""The registry of positional encodings, and sums of encodings."""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.errors import UserError
from transformer.model.config import ModelConfig, Size, check_choice
from transformer.model.positions.additive import (
    LearnedPositions,
    SinusoidalPositions,
    SplitPositions,
)
from transformer.model.positions.base import STACK_HOOKS, NoPositions
from transformer.model.positions.relative import (
    Alibi,
    RelativeBias,
    RelativeShaw,
    RotaryPositions,
)
from transformer.variants import Registry

REGISTRY: dict[str, type[NoPositions]] = Registry(
    sinusoidal=SinusoidalPositions,
    split=SplitPositions,
    learned=LearnedPositions,
    rotary=RotaryPositions,
    relative_bias=RelativeBias,
    relative_shaw=RelativeShaw,
    alibi=Alibi,
    none=NoPositions,
)


class SumOfPositions(NoPositions):
    """Applies the encodings in a name such as `sinusoidal+rotary`, one after another.

    Args:
      names: keys of REGISTRY, joined by `+`.
      hooks: the hooks to use, STACK_HOOKS or LAYER_HOOKS; encodings that override none of these
        hooks are left out.
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

    def value_bias(self, weights, query_positions, key_positions):
        return _total(
            [part.value_bias(weights, query_positions, key_positions) for part in self.parts]
        )


def _total(terms: Sequence[Array | None]) -> Array | None:
    terms = [term for term in terms if term is not None]
    return functools.reduce(jnp.add, terms) if terms else None


def split_names(name: str) -> list[str]:
    """Splits a name such as `sinusoidal+rotary` into keys of REGISTRY."""
    return name.split("+")


def acts_in(name: str, hooks: Sequence[str]) -> bool:
    """Returns whether the encoding with this name overrides any of the given hooks."""
    encoding = REGISTRY[name]
    return any(getattr(encoding, hook) is not getattr(NoPositions, hook) for hook in hooks)


def fitting_names(config: ModelConfig) -> list[str]:
    """Returns the keys of REGISTRY that are valid for a model's input, text or images."""
    return [name for name in REGISTRY if config.patch_size or not REGISTRY[name].of_pictures]


def used_encodings(config: ModelConfig) -> dict[str, str]:
    """Returns the encoding names that a model uses, keyed by their config keys."""
    sides = {"encoder_positions": config.has_encoder, "decoder_positions": config.has_decoder}
    keys = [key if getattr(config, key) else "positions" for key, there in sides.items() if there]
    keys += ["cross_positions"] * all(sides.values())
    return {f"model.{key}": getattr(config, key) for key in keys}


def max_positions(config: ModelConfig) -> int | None:
    """Returns the maximum number of positions of a Transformer, or None if there is no limit."""
    names = used_encodings(config).values()
    limits = [REGISTRY[part].limit(config) for name in names for part in split_names(name)]
    return min((limit for limit in limits if limit is not None), default=None)


def check_length(length: Size, config: ModelConfig) -> None:
    """Raises UserError if `length` tokens exceed the size of a learned position table."""
    limit = max_positions(config)
    if limit is not None and length > limit:
        raise UserError(
            f"{length} tokens are more than the {limit} positions that were learned: raise "
            f"model.max_length={config.max_length} and train again, or cut the sentence"
        )


def check_encodings(config: ModelConfig) -> None:
    """Raises UserError if a name is unknown or repeated, or not valid for the model config."""
    used = used_encodings(config)
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
            if f"model.{field}" in used:
                REGISTRY[name].check(config, f"model.{field}='{names}'")
            if field == "cross_positions" and acts_in(name, ["add"]):
                raise UserError(
                    f"model.cross_positions='{names}': {name} acts on embeddings, not between "
                    "two sequences: set it in model.positions"
                )
