"""Learning rate schedules [5.3].

A schedule returns factors. The learning rate of an update is the minimum factor times
`learning_rate`, which is traced, so that runs with different rates share one compiled step. For
logging, the rate is computed with NumPy (`xp`), since JAX would compile each operation. This module
does not import Optax, since the import would take longer than validating a config.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.variants import Registry


def noam(xp, step, hparams, d_model):
    """Returns d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, eq. 3)."""
    warmup = xp.maximum(hparams["warmup_steps"], 1.0)
    return d_model**-0.5 * step * warmup**-1.5, d_model**-0.5 * step**-0.5


def inverse_sqrt(xp, step, hparams, d_model):
    """Linear warmup to the peak, then decay with the inverse square root of the step.

    This is `noam`, scaled to the given peak, as in fairseq's `inverse_sqrt`.
    """
    warmup = xp.maximum(hparams["warmup_steps"], 1.0)
    return step / warmup, xp.sqrt(warmup / step)


def cosine(xp, step, hparams, d_model):
    """Linear warmup to the peak, then cosine decay to zero at `total_steps`.

    Source: Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts.
    """
    warmup = xp.maximum(hparams["warmup_steps"], 1.0)
    progress = (step - warmup) / xp.maximum(hparams["total_steps"] - warmup, 1.0)
    decay = 0.5 * (1.0 + xp.cos(xp.pi * xp.clip(progress, 0.0, 1.0)))
    return step / warmup, decay


def linear(xp, step, hparams, d_model):
    """Linear warmup to the peak, then linear decay to zero at `total_steps`.

    Source: Devlin et al. 2019, "BERT", appendix A.2.
    """
    warmup = xp.maximum(hparams["warmup_steps"], 1.0)
    rest = hparams["total_steps"] - step
    decay = xp.maximum(rest, 0.0) / xp.maximum(hparams["total_steps"] - warmup, 1.0)
    return step / warmup, decay, 1.0


def wsd(xp, step, hparams, d_model):
    """Warmup-stable-decay: linear warmup, a constant rate, then decay to zero at `total_steps`.

    Over the last `decay_fraction` of the steps, the factor is 1 - sqrt(x) as x grows from 0 to 1.

    Source: Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations", equation 1 and section 3.
    """
    warmup, total = xp.maximum(hparams["warmup_steps"], 1.0), hparams["total_steps"]
    length = hparams["decay_fraction"] * total
    progress = (step - (total - length)) / xp.maximum(length, 1.0)
    decay = 1.0 - xp.sqrt(xp.clip(progress, 0.0, 1.0))
    return step / warmup, decay


def constant(xp, step, hparams, d_model):
    """Linear warmup to the peak in `warmup_steps`, then a constant learning rate."""
    warmup = xp.maximum(hparams["warmup_steps"], 1.0)
    return step / warmup, 1.0


SCHEDULES: dict[str, Callable[..., Any]] = Registry(
    noam=noam,
    inverse_sqrt=inverse_sqrt,
    cosine=cosine,
    linear=linear,
    wsd=wsd,
    constant=constant,
)


def learning_rate(
    schedule: str, update: Int[Array, ""] | int, hparams: dict[str, Any], d_model: int
) -> Float[Array, ""] | Float[np.ndarray, ""]:
    """Returns the learning rate of an update.

    Args:
      update: number of the update, from one; for a Python number, the result is a NumPy array.
      hparams: "learning_rate" (noam: a factor; other schedules: the peak), "warmup_steps" and
        "total_steps" (for cosine, linear and wsd) in updates, and "decay_fraction" (for wsd).
    """
    xp = jnp if isinstance(update, jax.Array) else np
    step = xp.asarray(update, xp.float32)
    factors = [xp.asarray(x, xp.float32) for x in SCHEDULES[schedule](xp, step, hparams, d_model)]
    peak = xp.asarray(hparams["learning_rate"], xp.float32)
    # XLA would recompute a minimum of scalars in the update of each parameter, but not a reduction.
    return xp.asarray(xp.min(peak * xp.stack(factors)))
