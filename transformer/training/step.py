"""The training step: one pure function of state, batch and hyperparameters [5.3]."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.model.losses import TokenSums
from transformer.optim import optimizers
from transformer.optim.parameters import ParameterRules, merge
from transformer.optim.schedules import learning_rate


@flax.struct.dataclass
class TrainState:
    """The training state, which each step updates.

    `step` is the number of batches so far, so it is also the zero-based index of the next batch.
    `nonfinite_steps` is the number of steps skipped because the loss or the gradient was not
    finite, and `consecutive_nonfinite` is the number skipped since the last finite step. All three
    are int32 scalars, except in a tree of shapes.
    """

    step: Any
    params: Any
    opt_state: Any
    ema: Any  # moving average of the parameters (see `moved_average`), or {} if it is disabled
    nonfinite_steps: Any
    consecutive_nonfinite: Any


LossFn = Callable[[Any, Any, dict, Array], TokenSums]
ALL_MOVE = ParameterRules()


def init_state(
    params: Any,
    optimizer: optax.GradientTransformationExtraArgs,
    ema: bool,
    rules: ParameterRules = ALL_MOVE,
) -> TrainState:
    """Returns the state before the first step, without optimizer moments for frozen parameters."""
    # The fields must not share memory, because the step donates their buffers.
    step, nonfinite_steps, consecutive_nonfinite = (jnp.zeros((), jnp.int32) for _ in range(3))
    average = jax.tree.map(jnp.copy, params) if ema else {}
    opt_state = optimizer.init(rules.split(params)[0])
    return TrainState(step, params, opt_state, average, nonfinite_steps, consecutive_nonfinite)


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """The training step: a pure function (state, batch, hparams) -> (state, sums), in two parts.

    Attributes:
      gradient: (params, step, batch, hparams) -> (gradient of the batch's mean loss, sums).
      update: (state, gradient, sums, hparams) -> (state, sums). It does not depend on the batch
        shape, so it is compiled only once.
      rules: selects the trained parameters; gradients contain only these parameters.
    """

    gradient: Callable[[Any, Any, Any, dict], tuple[Any, TokenSums]]
    update: Callable[[TrainState, Any, TokenSums, dict], tuple[TrainState, TokenSums]]
    rules: ParameterRules = ALL_MOVE

    def __call__(
        self, state: TrainState, batch: Any, hparams: dict
    ) -> tuple[TrainState, TokenSums]:
        gradient, sums = self.gradient(state.params, state.step, batch, hparams)
        return self.update(state, gradient, sums, hparams)


def make_train_step(
    loss: LossFn,
    optimizer: optax.GradientTransformationExtraArgs,
    schedule: str,
    d_model: int,
    accumulate: int,
    rules: ParameterRules = ALL_MOVE,
) -> TrainStep:
    """Returns the training step for a loss, optimizer and learning rate schedule.

    `hparams` holds traced scalars: seed (uint32), learning_rate, warmup_steps, total_steps (in
    updates), decay_fraction (of total_steps), batches (int32, of the whole run), weight_decay,
    ema_decay and the task's hyperparameters. Each update uses the gradients of `accumulate`
    batches; the last update of a run may use fewer. If the run is then extended, the remaining
    batches of that group join the next update. A batch with a nonfinite loss or gradient is
    skipped: it changes only the counters. Dropout masks depend only on (seed, step), so a run can
    resume from any state. No gradients are computed for frozen parameters.
    """

    def gradient(params: Any, step: Any, batch: Any, hparams: dict) -> tuple[Any, TokenSums]:
        key = jax.random.fold_in(jax.random.key(hparams["seed"]), step)
        moving, frozen = rules.split(params)

        def mean_loss(moving):
            sums = loss(merge(moving, frozen), batch, hparams, key)
            return _mean_loss(sums), sums

        return jax.grad(mean_loss, has_aux=True)(moving)

    def update(
        state: TrainState, gradient: Any, sums: TokenSums, hparams: dict
    ) -> tuple[TrainState, TokenSums]:
        # These forms compile fast: XLA would copy sums, `&` and signed `//` for each parameter.
        norm = optax.tree.norm(optimizers.stack_by_shape(gradient))
        finite = jnp.isfinite(jnp.stack([_mean_loss(sums), norm])).all()
        number = jax.lax.div(state.step, accumulate) + 1
        done = state.step + 1
        moving, frozen = rules.split(state.params)
        updates, opt_state = optimizer.update(
            gradient,
            state.opt_state,
            moving,
            learning_rate=learning_rate(schedule, number, hparams, d_model),
            weight_decay=hparams["weight_decay"],
            weight=jnp.where(finite, sums.weight, 0.0),
            due=jnp.where((done % accumulate == 0) | (done == hparams["batches"]), number, 0),
        )
        moving = optax.apply_updates(moving, updates)
        params, ema = merge(moving, frozen), state.ema
        if ema:
            count, (average, _) = optimizers.update_count(opt_state), rules.split(ema)
            averaged = moved_average(average, moving, count, hparams["ema_decay"])
            moved = count > optimizers.update_count(state.opt_state)
            ema = merge(optax.tree.where(moved, averaged, average), frozen)
        # With accumulation, a skipped batch may still complete the update of earlier batches.
        kept = finite | (accumulate > 1)
        old = state.params, state.opt_state, state.ema
        params, opt_state, ema = optax.tree.where(kept, (params, opt_state, ema), old)
        sums = jax.tree.map(lambda x: jnp.where(finite, x, 0.0), sums)
        bad = (~finite).astype(jnp.int32)
        counts = state.nonfinite_steps + bad, (state.consecutive_nonfinite + bad) * bad
        new = TrainState(done, params, opt_state, ema, *counts)
        return new, sums

    return TrainStep(gradient, update, rules)


def _mean_loss(sums: TokenSums) -> Float[Array, ""]:
    """Returns the mean loss per token of a batch, or 0 if the batch has no tokens."""
    return sums.loss / jnp.maximum(sums.weight, 1.0)


def moved_average(
    average: Any, params: Any, number: Int[Array, ""], decay: float | Float[Array, ""]
) -> Any:
    """Returns the exponential moving average of the parameters over all updates so far.

    The parameters after update i of t have weight decay^(t - i), divided by the sum of all weights.
    So the first average equals the parameters after the first update, and the initial parameters
    have no weight. This is the bias correction of Kingma and Ba 2015, section 3. The new average is
    average + (params - average) * (1 - decay) / (1 - decay^t).

    Args:
      average: the average after the previous update, which is ignored at the first update.
      number: t, the number of updates so far, including this one.
    """
    new = 1.0 - decay
    # For a decay near 1, computing 1 - decay^t directly would lose most digits in float32.
    rate = new / -jnp.expm1(number * jnp.log1p(-new))

    def move(average, param):
        return jnp.where(number == 1, param, average + rate * (param - average))

    return jax.tree.map(move, average, params)
