"""Parameter names, and patterns that select frozen parameters and learning rates.

A name is a path such as "encoder_layers_0/feed_forward/inner/kernel". A pattern is a regular
expression that may match anywhere in a name: "embedding" matches all embedding tables,
"^encoder_layers_0/" matches one layer, and "^(?!output/)" matches all modules except `output`.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Collection
from typing import Any

import jax

from transformer.errors import UserError, shorten

KINDS_OF_PAIR = ([str, float], [str, int])
EVERYTHING = ".*"  # the default of train.init_pattern


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree, keyed by their path, such as "params/encoder/kernel"."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


@dataclasses.dataclass(frozen=True)
class ParameterRules:
    """Rules that select frozen parameters, and set learning rate factors for parameters.

    Attributes:
      freeze: pattern of frozen parameters; '' freezes none.
      factors: (pattern, learning rate factor) pairs; the first matching pattern applies.

    Source: Howard and Ruder 2018, "Universal Language Model Fine-tuning", section 3.2
    (discriminative rates) and 3.3 (freezing).
    """

    freeze: str = ""
    factors: tuple[tuple[str, float], ...] = ()

    def is_frozen(self, name: str) -> bool:
        """Returns whether a parameter is frozen."""
        return bool(self.freeze) and re.search(self.freeze, name) is not None

    def factor(self, name: str) -> float:
        """Returns the learning rate factor of a parameter."""
        return next((factor for pattern, factor in self.factors if re.search(pattern, name)), 1.0)

    def split(self, tree: Any) -> tuple[Any, Any]:
        """Returns a tree with the trained leaves and a tree with the frozen leaves.

        The other leaves of each tree are None, which is a pytree node without leaves. Gradients and
        optimizer states thus contain nothing for frozen leaves. `merge` is the inverse.
        """
        leaves, structure = jax.tree.flatten(tree)
        frozen = list(map(self.is_frozen, named_leaves(tree)))
        moving = [None if f else x for f, x in zip(frozen, leaves, strict=True)]
        staying = [x if f else None for f, x in zip(frozen, leaves, strict=True)]
        return jax.tree.unflatten(structure, moving), jax.tree.unflatten(structure, staying)


def merge(moving: Any, staying: Any) -> Any:
    """Merges the two trees that `ParameterRules.split` returns."""
    return jax.tree.map(
        lambda x, y: y if x is None else x, moving, staying, is_leaf=lambda x: x is None
    )


def rules_of(train: Any, shapes: Callable[[], Any] | None = None) -> ParameterRules:
    """Returns the validated parameter rules of a training config.

    Args:
      train: config with `freeze` and `learning_rate_factors`; see `ParameterRules`.
      shapes: returns the parameter tree; without it, patterns are not matched with names.

    Raises:
      UserError: a pattern is not a regular expression or matches no parameter, `freeze` matches all
        parameters, or a factor is not a positive number.
    """
    check_pattern("train.freeze", train.freeze)
    key, factors = "train.learning_rate_factors", []
    for pair in train.learning_rate_factors:
        if not isinstance(pair, list | tuple) or list(map(type, pair)) not in KINDS_OF_PAIR:
            raise UserError(
                f"config.{key} has {shorten(pair)!r}: it must be pairs of a pattern and a factor, "
                "such as (('encoder', 0.1),), or config.train.learning_rate_factors=encoder=0.1"
            )
        pattern, factor = pair
        check_pattern(key, pattern)
        if not 0 < factor < math.inf:
            raise UserError(
                f"config.{key} has the factor {factor} of {pattern!r}: it must be above 0; "
                "config.train.freeze keeps parameters as they are"
            )
        factors.append((pattern, float(factor)))
    rules = ParameterRules(train.freeze, tuple(factors))
    if shapes is not None and rules != ParameterRules():
        names = named_leaves(shapes())
        if rules.freeze and len(matching("train.freeze", rules.freeze, names)) == len(names):
            raise UserError(
                f"config.train.freeze={rules.freeze!r} matches all parameters: nothing is left to "
                "train"
            )
        for pattern, _ in rules.factors:
            matching(key, pattern, names)
    return rules


def check_pattern(key: str, pattern: str) -> None:
    """Raises UserError if the value of a key is not a valid regular expression."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(
            f"config.{key}={shorten(pattern)!r} is not a regular expression ({error}): fix it, or "
            "put a backslash before what is meant as it stands"
        ) from None


def matching(key: str, pattern: str, names: Collection[str]) -> list[str]:
    """Returns the names that a pattern matches.

    Raises:
      UserError: the pattern matches no name.
    """
    if matches := [name for name in names if re.search(pattern, name)]:
        return matches
    modules = dict.fromkeys(re.sub(r"\d+$", "N", name.split("/")[0]) for name in names)
    raise UserError(
        f"config.{key} has {shorten(pattern)!r}, which matches no parameter: names begin with "
        f"{', '.join(modules)}"
    )
