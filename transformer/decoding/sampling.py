"""Text sampling with temperature, epsilon, top-k and top-p."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

GROUP = 100  # size of the token groups in `in_groups`
NOT_FINITE = -1  # token id that is returned if the logits are not finite


class SamplingRule(NamedTuple):
    """The sampling parameters, which are constants of the compiled program; see `keep_probable`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon: float = 0.0


def in_groups(logits: Float[Array, "*rows V"]) -> Float[Array, "*rows G N"]:
    """Divides the vocabulary into groups of GROUP tokens; the last one is filled with -inf."""
    room = [(0, 0)] * (logits.ndim - 1) + [(0, -logits.shape[-1] % GROUP)]
    return jnp.pad(logits, room, constant_values=-jnp.inf).reshape(*logits.shape[:-1], -1, GROUP)


def draw_tokens(logits: Float[Array, "B V"], keys: Array, rule: SamplingRule) -> Int[Array, "B"]:
    """Samples a token for each row, or returns the most probable token at temperature 0.

    A group of tokens is sampled, then one of its tokens, which needs fewer Gumbel numbers than
    tokens. The token is NOT_FINITE if the row's logits are not finite.
    """
    groups = in_groups(keep_probable(logits, rule))
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (GROUP + groups.shape[1],)))(keys)
    noise *= rule.temperature > 0
    group = jnp.argmax(jax.nn.logsumexp(groups, axis=2) + noise[:, GROUP:], axis=1)
    logits_of_group = jnp.take_along_axis(groups, group[:, None, None], axis=1)[:, 0]
    token = GROUP * group + jnp.argmax(logits_of_group + noise[:, :GROUP], axis=1)
    return jnp.where(jnp.isfinite(logits.max(axis=-1)), token, NOT_FINITE)


def keep_probable(logits: Float[Array, "B V"], rule: SamplingRule) -> Float[Array, "B V"]:
    """Returns logits divided by the temperature, with -inf for tokens that must not be sampled.

    First, tokens of a probability of at least `epsilon` are kept (Hewitt et al. 2022, section 3.1).
    Then, the `top_k` most probable tokens are kept (Fan et al. 2018, section 5.4; 0 keeps all).
    Then probabilities are renormalised, and the smallest set of tokens with a total of at least
    `top_p` is kept (Holtzman et al. 2020, section 3.1). Tokens as probable as the last one are kept
    with it, and the most probable token always.
    """
    scaled = logits.astype(jnp.float32) / max(rule.temperature, 1e-6)
    if rule.epsilon > 0:
        probable = jax.nn.softmax(scaled, axis=-1) >= rule.epsilon
        probable |= scaled == scaled.max(axis=-1, keepdims=True)
        scaled = jnp.where(probable, scaled, -jnp.inf)
    if rule.top_k > 0:
        scaled = _keep_best(scaled, rule.top_k, counts=True)
    if rule.top_p < 1:
        scaled = _keep_best(scaled, rule.top_p)
    return scaled


def _keep_best(scaled: Float[Array, "B V"], total: float, counts=False) -> Float[Array, "B V"]:
    """Keeps the fewest tokens, of 1e-9 or more, that have a total probability or count."""
    probabilities = jax.nn.softmax(scaled)
    weights = 1.0 if counts else probabilities

    def halve(_, bounds):
        middle = jnp.sqrt(bounds[0] * bounds[1])
        above = jnp.where(probabilities >= middle, weights, 0).sum(axis=1, keepdims=True)
        is_enough = above >= total
        return jnp.where(is_enough, middle, bounds[0]), jnp.where(is_enough, bounds[1], middle)

    ones = jnp.ones((len(scaled), 1))
    # Sorting is slower than bisection.
    least, _ = jax.lax.fori_loop(0, 20, halve, (ones * 2**-30, ones))
    return jnp.where(probabilities >= least, scaled, -jnp.inf)
