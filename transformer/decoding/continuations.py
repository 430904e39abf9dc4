"""The one-token continuations of hypotheses from which a step of a search selects."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.decoding.sampling import GROUP, SamplingRule, draw_tokens, in_groups

IMPOSSIBLE = -1.0e9  # log-probability of impossible tokens; finite, so that sums stay finite


class Rule(NamedTuple):
    """The settings of a beam search, which are constants of the compiled program.

    Attributes:
      beam_size: number of hypotheses per sentence.
      bos_id, eos_id: token ids of begin-of-sentence and end-of-sentence.
      penalty: a key of PENALTIES.
      alpha: exponent of the length penalty.
      forbidden: ids that are never generated, except as part of a prompt; the other probabilities
        are not renormalised when a beam is searched.
      groups: number of consecutive rows of a sentence, which differ; see `diverse_continuations`.
      diversity: the strength of their differences.
      sampling: how tokens are sampled if a search has random keys, which needs a beam size of 1.
    """

    beam_size: int
    bos_id: int
    eos_id: int
    penalty: str
    alpha: float
    forbidden: Sequence[int] = ()
    groups: int = 1
    diversity: float = 0.0
    sampling: SamplingRule = SamplingRule()


class Continuations(NamedTuple):
    """One-token continuations of the hypotheses for a sentence, most probable first.

    `parents` are the indices of the hypotheses; `log_probs` include the new token.
    """

    log_probs: Float[Array, "B C"]
    parents: Int[Array, "B C"]
    tokens: Int[Array, "B C"]


def best_continuations(
    logits: Float[Array, "B P V"],
    shift: Float[Array, "B P"],
    count: int,
    forbidden: Sequence[int],
) -> Continuations:
    """Returns the `count` best continuations by `logits - shift`; forbidden tokens get IMPOSSIBLE.

    The result is the same as with `jax.lax.top_k`, even the order of ties, but takes a fraction of
    the time: the largest numbers are in the groups with the largest maxima; see `in_groups`.
    """
    batch, beam_size, vocab_size = logits.shape
    maxima = in_groups(logits).max(axis=3)
    groups = maxima.shape[2]
    # The maximum of a group may be a forbidden token.
    wanted = count + beam_size * len({token // GROUP for token in forbidden})
    scores = (maxima - shift[..., None]).reshape(batch, -1)
    _, best_groups = jax.lax.top_k(scores, min(wanted, beam_size * groups))
    best_groups = jnp.sort(best_groups, axis=1)  # keeps ties in order
    parents = jnp.repeat(best_groups // groups, GROUP, axis=1)
    tokens = ((best_groups % groups)[..., None] * GROUP + jnp.arange(GROUP)).reshape(batch, -1)
    places = parents * vocab_size + jnp.minimum(tokens, vocab_size - 1)
    chosen_logits = jnp.take_along_axis(logits.reshape(batch, -1), places, axis=1)
    log_probs = chosen_logits - jnp.take_along_axis(shift, parents, axis=1)
    log_probs = jnp.where(
        jnp.isin(tokens, jnp.array([*forbidden], jnp.int32)), IMPOSSIBLE, log_probs
    )
    best, order = jax.lax.top_k(jnp.where(tokens < vocab_size, log_probs, -jnp.inf), count)
    return Continuations(best, *(jnp.take_along_axis(x, order, axis=1) for x in (parents, tokens)))


def draw_continuations(
    logits: Float[Array, "B 1 V"], shift: Float[Array, "B 1"], keys: Array, rule: Rule
) -> Continuations:
    """Samples a continuation of each hypothesis; `log_probs` are those of the whole distribution.

    Args:
      keys: a random key for each text and position.
    """
    possible = logits[:, 0].at[:, jnp.asarray(rule.forbidden, jnp.int32)].set(-jnp.inf)
    tokens = draw_tokens(possible, keys, rule.sampling)[:, None]
    log_probs = jnp.take_along_axis(logits[:, 0], tokens, axis=1) - shift
    return Continuations(log_probs, jnp.zeros_like(tokens), tokens)


def diverse_continuations(
    logits: Float[Array, "B P V"],
    shift: Float[Array, "B P"],
    finished: Bool[Array, "B"],
    count: int,
    rule: Rule,
) -> Continuations:
    """Returns the best continuations of each row, after a penalty for tokens of preceding rows.

    A token loses `diversity` for each hypothesis of the preceding rows of its sentence that goes on
    with it at the same step, and `log_probs` include the penalties.

    Source: the Hamming diversity of Vijayakumar et al. 2018, as in fairseq.
    """
    rows = [x.reshape(-1, rule.groups, *x.shape[1:]) for x in (logits, shift, ~finished)]
    counts, of_groups = jnp.zeros(()), []
    for group in range(rule.groups):
        scores, of_group, is_live = (x[:, group] for x in rows)
        scores = scores - rule.diversity * counts
        options = best_continuations(scores, of_group, count, rule.forbidden)
        goes_on = (options.tokens != rule.eos_id) & (options.log_probs > IMPOSSIBLE / 2)
        goes_on &= is_live[:, None]
        goes_on &= jnp.cumsum(goes_on, axis=1) <= rule.beam_size
        increments = jax.nn.one_hot(options.tokens, logits.shape[2]) * goes_on[..., None]
        counts = counts + increments.sum(axis=1, keepdims=True)
        of_groups.append(options)
    return jax.tree.map(lambda *x: jnp.stack(x, 1).reshape(-1, *x[0].shape[1:]), *of_groups)


def log_sum_exp(logits: Float[Array, "B P V"], most: Float[Array, "B P"]) -> Float[Array, "B P"]:
    """Returns the logsumexp over the vocabulary, given the maximum logit."""
    return most + jnp.log(jnp.exp(logits - most[..., None]).sum(axis=2))


def force(
    continuations: Continuations,
    forced: Bool[Array, "B"],
    token: Int[Array, "B"] | int,
    log_probs: Float[Array, "B P"],
) -> Continuations:
    """Replaces the continuations of forced sentences, so that each hypothesis adds `token`.

    Args:
      log_probs: log-probabilities of the hypotheses extended by the token.
    """
    best, parents = jax.lax.top_k(log_probs, log_probs.shape[1])
    room = ((0, 0), (0, continuations.tokens.shape[1] - best.shape[1]))
    only = Continuations(
        jnp.pad(best, room, constant_values=IMPOSSIBLE),
        jnp.pad(parents, room),
        jnp.broadcast_to(jnp.reshape(jnp.asarray(token), (-1, 1)), continuations.tokens.shape),
    )
    return jax.tree.map(lambda a, b: jnp.where(forced[:, None], a, b), only, continuations)
