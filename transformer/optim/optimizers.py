"""Optimizers [5.3]: clipping, a direction, its rate and decay, and accumulation.

Rates are traced numbers, passed with every update, so that runs which differ only in them share
one compiled step.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.optim.directions import count_own_axes, make_direction

# Parts of the names of parameters that have two axes and are not decayed either: biases of
# attention scores, weights of single units, and mixtures of heads, which start as the identity.
NOT_DECAYED = frozenset({"relative_bias", "peepholes", "talk_scores", "talk_weights"})


def make_optimizer(
    name: str,
    beta1: float,
    beta2: float,
    epsilon: float,
    clip_norm: float,
    accumulate: int,
    stacked: Collection[str] = (),
    factor: Callable[[str], float] = lambda name: 1.0,
    momentum: float = 0.95,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer whose `update` takes `learning_rate` and `weight_decay` as keywords.

    Args:
      name: see `make_direction`. Weights decay with all but "adam".
      clip_norm: maximum global norm of the gradient; 0 disables clipping.
      accumulate: batches per update. If more than one, `update` also takes `weight` and `due`, see
        `_gathering`.
      stacked: names of modules whose parameters have a leading axis of layers.
      factor: the factor of the learning rate of a parameter, by its name, such as
        "encoder_layers_0/norm/scale".
      momentum: of Muon's matrices.

    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2.
    """
    # The gradient as one vector: see `make_direction`.
    clip = [optax.flatten(optax.clip_by_global_norm(clip_norm))] if clip_norm else []
    direct = make_direction(name, beta1, beta2, epsilon, momentum, stacked)
    optimizer = optax.chain(*clip, direct, _descend(name != "adam", stacked, factor))
    return _gathering(optimizer) if accumulate > 1 else optimizer


class Gathered(NamedTuple):
    """State of an optimizer with gradient accumulation.

    Attributes:
      inner: the optimizer's own.
      gradient: the sum over the tokens since the last update.
      weight: the number of these tokens.
      number: of the last update, from one; 0 before it.
    """

    inner: Any
    gradient: Any
    weight: Float[Array, ""]
    number: Int[Array, ""]


def _gathering(
    optimizer: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """Accumulates gradients, and divides their sum by the number of tokens since the last update.

    So several batches give the same update as one batch of all their rows, even if they have
    different numbers of tokens. `update` takes the mean gradient of a batch, and also

      weight: the batch's number of tokens; 0 ignores the batch and its gradient.
      due: the number of the update to make now, if there are any tokens and no earlier update had
        it; 0 for none.
    """

    def init(params):
        zeros = optax.tree.zeros_like(params)
        return Gathered(optimizer.init(params), zeros, jnp.zeros(()), jnp.zeros((), jnp.int32))

    def update(gradient, state, params=None, *, weight=1.0, due=1, **numbers):
        total = jax.tree.map(
            lambda total, mean: total + jnp.where(weight > 0, weight * mean, 0.0),
            state.gradient,
            gradient,
        )
        tokens = state.weight + weight

        def move():
            mean = jax.tree.map(lambda x: x / tokens, total)
            updates, inner = optimizer.update(mean, state.inner, params, **numbers)
            zeros = optax.tree.zeros_like(total)
            return updates, Gathered(
                inner, zeros, jnp.zeros_like(tokens), jnp.full_like(state.number, due)
            )

        def stay():
            return optax.tree.zeros_like(total), Gathered(state.inner, total, tokens, state.number)

        return jax.lax.cond((due > state.number) & (tokens > 0), move, stay)

    # optax's type of `update` has no such keywords.
    return optax.GradientTransformationExtraArgs(init, cast(Any, update))


def update_count(state: Any) -> Int[Array, ""]:
    """Returns the number of updates so far, from the state of an optimizer of `make_optimizer`."""
    # Muon has one count for matrices and an equal one for other parameters.
    [(_, count), *_] = optax.tree.get_all_with_path(state, "count")
    return count


def _descend(
    decay: bool, stacked: Collection[str], factor: Callable[[str], float]
) -> optax.GradientTransformationExtraArgs:
    """Turns a direction into a step: -learning_rate * (direction + weight_decay * parameter)."""

    def decays(path, param):
        # Vectors (biases, norms) are not decayed: pulling them to zero does not regularise.
        is_matrix = count_own_axes(path, param, stacked) > 1
        return is_matrix and NOT_DECAYED.isdisjoint(key.key for key in path)

    def update(directions, state, params=None, *, learning_rate, weight_decay=0.0, **_):
        def step(path, direction, param):
            decayed = weight_decay * param if decay and decays(path, param) else 0.0
            own = factor(jax.tree_util.keystr(path, simple=True, separator="/"))
            rate = learning_rate if own == 1.0 else own * learning_rate
            return -rate * (direction + decayed)

        return jax.tree.map_with_path(step, directions, params), state

    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), cast(Any, update)
    )
