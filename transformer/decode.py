"""Beam search [6.1] and sampling with any step function, independent of the model.

A step takes the last token of each of P hypotheses of each of B sentences, and a cache, and
returns the logits of the next token, and the cache. The cache is any state of the model; it needs
one method, `reorder(parents)`, after which hypothesis p continues hypothesis parents[p].
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.errors import UserError

NOT_FINITE = -1  # drawn if the logits are not finite
GROUP = 100  # tokens of which the most probable is found first, see `best_continuations`
NEVER = -1.0e9  # log-probability of impossible tokens; finite, so that sums stay finite


@runtime_checkable
class Cache(Protocol):
    """The state of a model between steps."""

    def reorder(self, parents: Int[Array, "B P"]) -> "Cache": ...


Step = Callable[[Int[Array, "B P"], Any], tuple[Float[Array, "B P V"], Any]]


class Hypotheses(NamedTuple):
    """The translations found for each sentence, best first.

    `tokens` end with end-of-sentence and are padded with it; `lengths` count it; `scores` are
    log-probabilities over the length penalty. An empty slot has length zero.
    """

    tokens: Int[Array, "B P steps"]
    lengths: Int[Array, "B P"]
    scores: Float[Array, "B P"]


def gnmt_penalty(length, alpha):
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14) [6.1]."""
    return ((5.0 + length) / 6.0) ** alpha


def average_penalty(length, alpha):
    """length^alpha: with alpha 1, scores are mean log-probabilities of a token."""
    return jnp.asarray(length, jnp.float32) ** alpha


def no_penalty(length, alpha):
    """1: scores are log-probabilities."""
    return jnp.ones_like(length, jnp.float32)


PENALTIES = {"gnmt": gnmt_penalty, "average": average_penalty, "none": no_penalty}


class _State(NamedTuple):
    """`live` hypotheses are unfinished; `done` ones are finished, sorted best first.

    `finished` is stored, so that a sentence does not depend on the length of its neighbours.
    """

    index: Int[Array, ""]
    cache: Any
    live_tokens: Int[Array, "B P steps"]
    live_log_probs: Float[Array, "B P"]
    done: Hypotheses
    done_count: Int[Array, "B"]
    finished: Bool[Array, "B"]


def beam_search(
    step: Step,
    cache: Cache,
    max_lengths: Int[Array, "B"],
    *,
    beam_size: int,
    steps: int,
    bos_id: int,
    eos_id: int,
    penalty: str,
    alpha: float,
    forbidden: Sequence[int] = (),
    prompts: "Prompts | None" = None,
) -> Hypotheses:
    """Returns up to `beam_size` translations of each sentence.

    At each step the `beam_size` best continuations are taken; those that end a sentence leave the
    beam, and the best that do not end one fill it again. A sentence is finished when `beam_size`
    translations are complete and the best of them has a higher score than the current score of any
    unfinished hypothesis: otherwise improbable hypotheses, which end early, would end the search
    before the most probable one is complete. With a beam of one this is greedy search; with a beam
    as wide as there are prefixes it is exhaustive.

    Args:
      max_lengths: longest translation of each sentence in tokens, its end included, from 1 to
        `steps`; at the limit a hypothesis must end.
      beam_size: hypotheses per sentence.
      steps: static bound of the loop.
      bos_id, eos_id: ids of begin-of-sentence and end-of-sentence.
      penalty: a key of PENALTIES.
      alpha: its exponent.
      forbidden: ids that are never generated, except as part of a prompt; the other scores are not
        renormalised.
      prompts: the prefix of every hypothesis, in place of `bos_id`. `max_lengths` count it; scores
        and their penalty do not.

    Raises:
      UserError: the penalty is unknown.
    """
    if penalty not in PENALTIES:
        raise UserError(
            f"decode.length_penalty='{penalty}' is unknown: choose one of {', '.join(PENALTIES)}"
        )
    batch = max_lengths.shape[0]
    tokens = jnp.full((batch, beam_size, steps), eos_id, jnp.int32)
    # All hypotheses start equal, so all except the first are excluded.
    log_probs = jnp.full((batch, beam_size), NEVER).at[:, 0].set(0.0)
    nothing = Hypotheses(
        tokens, jnp.zeros((batch, beam_size), jnp.int32), jnp.full((batch, beam_size), NEVER)
    )
    count = jnp.zeros(batch, jnp.int32)
    state = _State(jnp.int32(0), cache, tokens, log_probs, nothing, count, max_lengths <= 0)

    def unfinished(state):
        return (state.index < steps) & ~state.finished.all()

    def advance(state):
        rule = PENALTIES[penalty], alpha
        return _advance(state, step, max_lengths, bos_id, eos_id, *rule, forbidden, prompts)

    return jax.lax.while_loop(unfinished, advance, state).done


def _advance(
    state: _State, step, max_lengths, bos_id, eos_id, penalty, alpha, forbidden, prompts
) -> _State:
    """Extends every unfinished sentence by one token."""
    beam_size = state.live_tokens.shape[1]
    previous = jnp.take(state.live_tokens, jnp.maximum(state.index - 1, 0), axis=2)
    first = bos_id if prompts is None else prompts.tokens[:, :1]
    logits, cache = step(jnp.where(state.index == 0, first, previous), state.cache)
    logits, length = logits.astype(jnp.float32), state.index + 1
    maxima = group_maxima(logits)
    # What is taken off a logit for the log-probability of the hypothesis that it continues.
    shift = _log_sum_exp(logits, maxima.max(axis=2)) - state.live_log_probs
    # At most one continuation of each hypothesis ends: of 2 * beam_size at least beam_size go on.
    count = min(2 * beam_size, beam_size * logits.shape[-1])
    found = best_continuations(logits, maxima, shift, count, forbidden)
    found = _force(found, length >= max_lengths, eos_id, logits[:, :, eos_id] - shift)
    if prompts is not None:
        prompted = jnp.take(prompts.tokens, length, axis=1, mode="clip")
        found = _force(found, length < prompts.lengths, prompted, state.live_log_probs)
        length = jnp.maximum(length - prompts.lengths + 1, 1)[:, None]
    best, parents, tokens = found
    ends = tokens == eos_id
    written = jnp.take_along_axis(state.live_tokens, parents[:, :, None], axis=1)
    written = jax.lax.dynamic_update_slice_in_dim(written, tokens[..., None], state.index, 2)

    in_beam = jnp.arange(count) < beam_size
    completed = ends & (best > NEVER / 2) & ~state.finished[:, None] & in_beam
    ended = Hypotheses(
        written,
        jnp.where(completed, state.index + 1, 0),
        jnp.where(completed, best / penalty(length, alpha), NEVER),
    )
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), state.done, ended)
    done = _best(both, beam_size)

    going_on, slots = jax.lax.top_k(jnp.where(ends, NEVER, best), beam_size)

    def select(x):
        return jnp.take_along_axis(x, slots.reshape(slots.shape + (1,) * (x.ndim - 2)), axis=1)

    done_count = state.done_count + completed.sum(axis=1, dtype=jnp.int32)
    decided = done.scores[:, 0] >= (going_on / penalty(length, alpha))[:, 0]
    return _State(
        state.index + 1,
        cache.reorder(select(parents)),
        select(written),
        going_on,
        done,
        done_count,
        state.finished | (state.index + 1 >= max_lengths) | ((done_count >= beam_size) & decided),
    )


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


def _log_sum_exp(logits: Float[Array, "B P V"], most: Float[Array, "B P"]) -> Float[Array, "B P"]:
    """The logarithm of the sum of exponentials, given the largest logit."""
    return most + jnp.log(jnp.exp(logits - most[..., None]).sum(axis=2))


def _force(
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


def among(ids: Sequence[int], vocab_size: int) -> Bool[Array, "V"]:
    """Returns a mask over the vocabulary, True at these ids."""
    return jnp.zeros(vocab_size, bool).at[jnp.asarray(ids, jnp.int32)].set(True)


def _best(hypotheses: Hypotheses, count: int) -> Hypotheses:
    """Returns the `count` hypotheses with the highest scores, best first."""
    scores, order = jax.lax.top_k(hypotheses.scores, count)
    return Hypotheses(
        jnp.take_along_axis(hypotheses.tokens, order[:, :, None], axis=1),
        jnp.take_along_axis(hypotheses.lengths, order, axis=1),
        scores,
    )


class Prompts(NamedTuple):
    """The prompts of texts: the first `lengths` of `tokens`, at least one; the rest is generated.

    The first token is read and never predicted, like begin-of-sentence.
    """

    tokens: Int[Array, "B steps"]
    lengths: Int[Array, "B"]


class Sample(NamedTuple):
    """Texts that are being generated.

    Attributes:
      index: how many tokens the model has read; `tokens` has one more.
      tokens: the generated tokens; 0 after the end of a text.
      ended: whether end-of-sentence was generated.
    """

    index: Int[Array, ""]
    cache: Any
    tokens: Int[Array, "B steps"]
    ended: Bool[Array, "B"]


class SamplingRule(NamedTuple):
    """The parameters of sampling, traced numbers; see `keep_probable`."""

    temperature: float | Float[Array, ""]
    top_k: int | Int[Array, ""]
    top_p: float | Float[Array, ""]


def start_sample(cache: Any, prompts: Prompts) -> Sample:
    """Returns texts that consist of the prompts, none of which is read yet."""
    written = jnp.arange(prompts.tokens.shape[1]) < prompts.lengths[:, None]
    tokens = jnp.where(written, prompts.tokens, 0)
    return Sample(jnp.int32(0), cache, tokens, jnp.zeros(len(tokens), bool))


def sample(
    step: Step,
    state: Sample,
    lengths: Int[Array, "B"],
    until: Int[Array, ""] | int,
    keys: Array,
    rule: SamplingRule,
    eos_id: int,
    forbidden: Sequence[int] = (),
) -> Sample:
    """Samples until `until` tokens are read or all texts have ended, and returns the texts.

    The tokens drawn for a text depend only on its key and the position, not on the number of calls
    or the other texts.

    Args:
      lengths: tokens of each prompt.
      until: less than the number of steps in `tokens`.
      keys: of each text.
      eos_id: id of end-of-sentence; negative if texts do not end.
      forbidden: ids that are never drawn; the others' probabilities are made to sum to one.
    """

    def unfinished(state):
        return (state.index < until) & ~state.ended.all()

    def advance(state):
        read = jax.lax.dynamic_slice_in_dim(state.tokens, state.index, 1, 1)
        logits, cache = step(read, state.cache)
        place = state.index + 1
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
        possible = jnp.where(among(forbidden, logits.shape[-1]), -jnp.inf, logits[:, 0])
        drawn = draw_tokens(possible, own, rule)
        there = jax.lax.dynamic_index_in_dim(state.tokens, place, 1, keepdims=False)
        is_new = place >= lengths
        token = jnp.where(is_new, jnp.where(state.ended, 0, drawn), there)
        tokens = jax.lax.dynamic_update_slice_in_dim(state.tokens, token[:, None], place, 1)
        return Sample(place, cache, tokens, state.ended | (is_new & (drawn == eos_id)))

    return jax.lax.while_loop(unfinished, advance, state)


def draw_tokens(logits: Float[Array, "B V"], keys: Array, rule: SamplingRule) -> Int[Array, "B"]:
    """Returns a token for each row, drawn by the rule; the most probable one at temperature 0.

    The token is NOT_FINITE if the logits of its row are not finite.
    """
    drawn = jax.vmap(jax.random.categorical)(keys, keep_probable(logits, rule))
    best = jnp.argmax(logits, axis=-1)
    token = jnp.where(rule.temperature > 0, drawn, best).astype(jnp.int32)
    return jnp.where(jnp.isfinite(logits.max(axis=-1)), token, NOT_FINITE)


def keep_probable(logits: Float[Array, "B V"], rule: SamplingRule) -> Float[Array, "B V"]:
    """Returns logits over the temperature, with minus infinity for tokens that must not be drawn.

    First the `top_k` most probable tokens are kept (Fan et al. 2018, section 5.4; 0 keeps all).
    Then the rest is renormalised, and the smallest set with a probability of at least `top_p` is
    kept (Holtzman et al. 2020, section 3.1). The most probable token is always kept.
    """
    vocab_size = logits.shape[-1]
    scaled = logits.astype(jnp.float32) / jnp.maximum(rule.temperature, 1e-6)
    order = jnp.argsort(-scaled, axis=-1)
    ranked = jnp.take_along_axis(scaled, order, axis=-1)
    rank = jnp.arange(vocab_size)
    ranked = jnp.where(rank < jnp.where(rule.top_k > 0, rule.top_k, vocab_size), ranked, -jnp.inf)
    probabilities = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    ranked = jnp.where((before < rule.top_p) | (rank == 0), ranked, -jnp.inf)
    return jnp.take_along_axis(ranked, jnp.argsort(order, axis=-1), axis=-1)
