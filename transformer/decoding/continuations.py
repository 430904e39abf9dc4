"""The most probable continuations of hypotheses, without sorting the vocabulary."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NEVER = -1.0e9  # log-probability of impossible tokens; finite, so that sums stay finite
GROUP = 100  # tokens of which the most probable is found first


class Continuations(NamedTuple):
    """Tokens that continue hypotheses of a sentence, the most probable first.

    `parents` are the hypotheses; `log_probs` are of a hypothesis with its token.
    """

    log_probs: Float[Array, "B C"]
    parents: Int[Array, "B C"]
    tokens: Int[Array, "B C"]


def group_maxima(logits: Float[Array, "B P V"]) -> Float[Array, "B P G"]:
    """Returns the largest logit of every GROUP tokens; the last group may be smaller."""
    missing = -logits.shape[2] % GROUP
    padded = jnp.pad(logits, ((0, 0), (0, 0), (0, missing)), constant_values=-jnp.inf)
    return padded.reshape(*logits.shape[:2], -1, GROUP).max(axis=3)


def best_continuations(
    logits: Float[Array, "B P V"],
    maxima: Float[Array, "B P G"],
    shift: Float[Array, "B P"],
    count: int,
    forbidden: Sequence[int],
) -> Continuations:
    """Returns the `count` continuations with the largest `logits - shift`.

    They are those of `jax.lax.top_k`, equal ones in the same order, which takes several times as
    long: the largest numbers are in the groups with the largest maxima.

    Args:
      maxima: see `group_maxima`.
      forbidden: tokens that have NEVER in place of it.
    """
    batch, beam_size, vocab_size = logits.shape
    groups = maxima.shape[2]
    # The maximum of a group may be a token that is forbidden.
    wanted = count + beam_size * len({token // GROUP for token in forbidden})
    scores = (maxima - shift[..., None]).reshape(batch, -1)
    _, chosen = jax.lax.top_k(scores, min(wanted, beam_size * groups))
    chosen = jnp.sort(chosen, axis=1)  # so that equal ones stay in their order
    parents = jnp.repeat(chosen // groups, GROUP, axis=1)
    tokens = ((chosen % groups)[..., None] * GROUP + jnp.arange(GROUP)).reshape(batch, -1)
    places = parents * vocab_size + jnp.minimum(tokens, vocab_size - 1)
    own = jnp.take_along_axis(logits.reshape(batch, -1), places, axis=1)
    log_probs = own - jnp.take_along_axis(shift, parents, axis=1)
    log_probs = jnp.where(jnp.isin(tokens, jnp.array([*forbidden], jnp.int32)), NEVER, log_probs)
    best, order = jax.lax.top_k(jnp.where(tokens < vocab_size, log_probs, -jnp.inf), count)
    return Continuations(best, *(jnp.take_along_axis(x, order, axis=1) for x in (parents, tokens)))


def log_sum_exp(logits: Float[Array, "B P V"], most: Float[Array, "B P"]) -> Float[Array, "B P"]:
    """Returns the logarithm of the sum of exponentials, given the largest logit."""
    return most + jnp.log(jnp.exp(logits - most[..., None]).sum(axis=2))


def force(
    found: Continuations,
    forced: Bool[Array, "B"],
    token: Int[Array, "B"] | int,
    log_probs: Float[Array, "B P"],
) -> Continuations:
    """Replaces the continuations of some sentences by one of each hypothesis, with a given token.

    Args:
      forced: whether this is such a sentence.
      log_probs: of the hypotheses with the token.
    """
    best, parents = jax.lax.top_k(log_probs, log_probs.shape[1])
    room = ((0, 0), (0, found.tokens.shape[1] - best.shape[1]))
    only = Continuations(
        jnp.pad(best, room, constant_values=NEVER),
        jnp.pad(parents, room),
        jnp.broadcast_to(jnp.reshape(jnp.asarray(token), (-1, 1)), found.tokens.shape),
    )
    return jax.tree.map(lambda a, b: jnp.where(forced[:, None], a, b), only, found)
