"""Optimizers [5.3]: clipping, update directions, weight decay and gradient accumulation.

Learning rate and weight decay are traced arguments of every update, so that runs that differ only
in these values share one compiled step.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from transformer.optim import OptimizerConfig

MUON_RMS = 0.2  # about the RMS of Adam's updates (Liu et al. 2025, "Muon is Scalable", 2.2)
# Name components of two-axis parameters that are not decayed: attention score biases, peephole
# weights (one per unit), and talking-heads mixtures, which are initialised to the identity.
NOT_DECAYED = frozenset({"relative_bias", "grid_bias", "peepholes", "talk_scores", "talk_weights"})


def make_optimizer(
    config: OptimizerConfig,
    stacked: Collection[str] = (),
    factor: Callable[[str], float] = lambda name: 1.0,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer with `learning_rate` and `weight_decay` as arguments of `update`.

    Args:
      config: all optimizers except "adam" use weight decay. With gradient accumulation, `update`
        also takes `weight` and `due`; see `_gathering`.
      stacked: names of modules whose parameters have a leading layer axis.
      factor: returns the learning rate factor for a parameter name such as
        "encoder_layers_0/norm/scale".

    Source: Kingma and Ba 2015, algorithm 1, of which "adam" and "adamw" share the direction;
    Loshchilov and Hutter 2019, algorithm 2; "lion" is algorithm 2 of Chen et al. 2023, "Symbolic
    Discovery of Optimization Algorithms".
    """
    clip = [by_shape(optax.clip_by_global_norm(config.clip_norm))] if config.clip_norm else []
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    if config.name == "adafactor":
        direct = _adafactor(stacked)
    elif config.name == "lion":
        direct = by_shape(optax.scale_by_lion(config.beta1, config.beta2))
    elif config.name == "muon":
        direct = _muon(adam, config.muon_momentum, stacked)
    else:
        direct = by_shape(adam)
    optimizer = optax.chain(*clip, direct, _descend(config.name != "adam", stacked, factor))
    return _gathering(optimizer) if config.gradient_accumulation_steps > 1 else optimizer


class Gathered(NamedTuple):
    """State of an optimizer with gradient accumulation.

    Attributes:
      inner: state of the wrapped optimizer.
      gradient: sum of the gradients of all tokens since the last update.
      weight: number of tokens since the last update.
      number: number of the last update, counted from one; 0 before the first.
    """

    inner: Any
    gradient: Any
    weight: Float[Array, ""]
    number: Int[Array, ""]


def _gathering(
    optimizer: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """Accumulates gradients, and averages them over the tokens since the last update.

    Several batches then result in the same update as one batch with all of the sequences, even if
    the batch sizes in tokens differ. `update` takes the mean gradient of a batch, and also:

      weight: number of tokens in the batch; 0 ignores the batch and its gradient.
      due: number of the update to apply now, unless there are no tokens or an earlier call has
        applied it; 0 applies no update.
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

    # Optax's type of `update` does not have these keywords.
    return optax.GradientTransformationExtraArgs(init, cast(Any, update))


def update_count(state: Any) -> Int[Array, ""]:
    """Returns the number of updates so far, given the state of a `make_optimizer` optimizer."""
    # Muon has one count for matrices and an equal one for other parameters; Adafactor has one for
    # each layer of stacked modules, after the count of all other parameters.
    [(_, count), *_] = optax.tree.get_all_with_path(state, "count")
    return count


def _descend(
    decay: bool, stacked: Collection[str], factor: Callable[[str], float]
) -> optax.GradientTransformationExtraArgs:
    """Turns a direction into an update: -learning_rate * (direction + weight_decay * parameter)."""

    def decays(path, param):
        # Vectors (biases, norms) have no weight decay: it would not regularise them.
        is_matrix = count_own_axes(path, param, stacked) > 1
        return is_matrix and NOT_DECAYED.isdisjoint(key.key for key in path)

    def update(directions, state, params=None, *, learning_rate, weight_decay=0.0, **_):
        def step(path, direction, param):
            decayed = weight_decay * param if decay and decays(path, param) else 0.0
            of_param = factor(jax.tree_util.keystr(path, simple=True, separator="/"))
            rate = learning_rate if of_param == 1.0 else of_param * learning_rate
            return -rate * (direction + decayed)

        return jax.tree.map_with_path(step, directions, params), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, cast(Any, update))


# -- update directions, without learning rate and weight decay


def count_own_axes(path: Any, param: Any, stacked: Collection[str]) -> int:
    """Returns the number of axes of a parameter, not counting the layer axis of stacked modules."""
    return param.ndim - any(key.key in stacked for key in path)


def _muon(
    others: optax.GradientTransformation, momentum: float, stacked: Collection[str]
) -> optax.GradientTransformation:
    """Orthogonalises the momentum of hidden matrices; `others` is used for all other parameters.

    The matrices are kernels of shape [inputs, outputs]; heads, or the gates of a recurrent cell,
    are concatenated along the outputs. Other parameters are vectors, embedding and position tables,
    and classifier outputs. The update for a matrix is the orthogonalised Nesterov momentum (about
    U V^T if the momentum is U S V^T), times 0.2 sqrt(max(inputs, outputs)). The RMS of updates then
    matches Adam, so the same learning rates and decay apply. Unlike in Jordan et al., the momentum
    has the bias correction of Dozat 2016: at first, the newest gradient counts more.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et
    al. 2025, "Muon is Scalable for LLM Training", equation 4.
    """

    def axes(tree):
        # Other axes enumerate layers: each layer has its own matrix.
        return jax.tree.map(lambda _: MuonDimensionNumbers(-2, -1), tree)

    def label(path, param):
        names = [key.key for key in path]
        inner = names[-1].endswith("kernel") and names[0] != "output"
        return "matrix" if inner and count_own_axes(path, param, stacked) == 2 else "other"

    matrices = optax.chain(
        by_shape(scale_by_muon(beta=momentum, weight_dimension_numbers=axes)),
        optax.stateless_with_tree_map(lambda x, _: MUON_RMS * max(jnp.shape(x)[-2:]) ** 0.5 * x),
    )
    return optax.partition(
        {"matrix": matrices, "other": by_shape(others)},
        lambda params: jax.tree.map_with_path(label, params),
    )


def by_shape(direct: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `direct` to one stacked array for each parameter shape; see `stack_by_shape`."""

    def update(gradient, state, params=None):
        groups, state = direct.update(stack_by_shape(gradient), state)
        members = {name: iter(group) for name, group in cast(Any, groups).items()}
        return jax.tree.map(lambda x: next(members[_shape(x)]), gradient), state

    return optax.GradientTransformation(
        lambda params: direct.init(stack_by_shape(params)), cast(Any, update)
    )


def stack_by_shape(tree: Any) -> dict[str, Array]:
    """Stacks all arrays of the same shape along a new first axis, in tree order.

    A model has few parameter shapes, and XLA compiles an optimizer's operations once per array. If
    parameters were one vector, they could not be sharded along the axes of matrix products.
    """
    groups: dict[str, list[Array]] = {}
    for x in jax.tree.leaves(tree):
        groups.setdefault(_shape(x), []).append(x)
    return {name: jnp.stack(group) for name, group in groups.items()}


def _shape(x: Any) -> str:
    return "x".join(map(str, x.shape))


def _adafactor(stacked: Collection[str]) -> optax.GradientTransformation:
    """Adafactor without momentum, with factored second moments and relative step sizes.

    An update is clipped to an RMS of 1, and multiplied by the RMS of the parameter. Both are of one
    layer, also in stacked modules.

    Source: Shazeer and Stern 2018, "Adafactor", algorithms 4 and 5 with the constants of algorithm
    6.
    """
    alone = optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=1),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(1e-3),
    )
    if not stacked:
        return alone
    layers = optax.GradientTransformation(jax.vmap(alone.init), jax.vmap(cast(Any, alone.update)))

    def label(path, _):
        return "layers" if any(key.key in stacked for key in path) else "alone"

    return optax.partition(
        {"alone": alone, "layers": layers},
        lambda params: jax.tree.map_with_path(label, params),
    )
