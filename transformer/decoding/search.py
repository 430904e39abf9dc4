"""Beam search [6.1] and sampling with any step function, independent of the model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.decoding.continuations import (
    IMPOSSIBLE,
    Continuations,
    Rule,
    best_continuations,
    diverse_continuations,
    draw_continuations,
    force,
    log_sum_exp,
)
from transformer.variants import Registry

# Maps the last tokens of P hypotheses for each of B sentences, and a cache, to the logits of the
# next tokens and the updated cache. A cache is a model state with three methods: `reorder(parents)`
# makes hypothesis p continue hypothesis parents[p], `grow(steps)` makes room for a number of steps,
# and `take(rows)` selects sentences.
Step = Callable[[Int[Array, "B P"], Any], tuple[Float[Array, "B P V"], Any]]


class Prompts(NamedTuple):
    """A batch of prompts: prompt i is the first `lengths[i]` tokens (at least one) of row i.

    The model reads the first token, such as begin-of-sentence, but never predicts it.
    """

    tokens: Int[Array, "B steps"]
    lengths: Int[Array, "B"]


class Hypotheses(NamedTuple):
    """The completed hypotheses of each sentence, best first.

    `tokens` end with end-of-sentence, which is also the padding; `lengths` count it once. `scores`
    are log-probabilities divided by length penalties. Empty slots have length 0 and score -inf.
    `forced` is True if the length limit ended a hypothesis that had a more probable next token.
    """

    tokens: Int[Array, "B P steps"]
    lengths: Int[Array, "B P"]
    scores: Float[Array, "B P"]
    forced: Bool[Array, "B P"]


def gnmt_penalty(length, alpha):
    """Returns ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14) [6.1]."""
    return ((5.0 + length) / 6.0) ** alpha


def average_penalty(length, alpha):
    """Returns length^alpha; with alpha = 1, scores are mean log-probabilities per token."""
    return jnp.asarray(length, jnp.float32) ** alpha


def no_penalty(length, alpha):
    """Returns 1, so that scores are log-probabilities."""
    return jnp.ones_like(length, jnp.float32)


PENALTIES = Registry(gnmt=gnmt_penalty, average=average_penalty, none=no_penalty)


class Prefixes(NamedTuple):
    """For each sentence, an automaton that restricts how hypotheses begin.

    A hypothesis starts in state 0. Token v takes it from state s to state `moves[b, s, v]`, and is
    impossible if this is negative. `states` are those of the unfinished hypotheses.
    """

    moves: Int[Array, "B S V"]
    states: Int[Array, "B P"]


class Search(NamedTuple):
    """The state of a beam search between two steps.

    `live` hypotheses are unfinished, and `done` hypotheses are complete, best first. For
    `max_lengths`, see `beam_search`. `finished` makes results independent of the other sentences.
    Sampling has a random key for each sentence.
    """

    index: Int[Array, ""]
    cache: Any
    max_lengths: Int[Array, "B"]
    live_tokens: Int[Array, "B P steps"]
    live_log_probs: Float[Array, "B P"]
    done: Hypotheses
    done_count: Int[Array, "B"]
    finished: Bool[Array, "B"]
    prefixes: Prefixes | None = None
    keys: Array | None = None

    def grow(self, steps: int, eos_id: int) -> "Search":
        """Returns the state with room for `steps` tokens."""
        room = (0, 0), (0, 0), (0, steps - self.live_tokens.shape[-1])

        def grown(tokens):
            return jnp.pad(tokens, room, constant_values=eos_id)

        return self._replace(
            cache=self.cache.grow(steps),
            live_tokens=grown(self.live_tokens),
            done=self.done._replace(tokens=grown(self.done.tokens)),
        )

    def take(self, rows: Int[Array, "n"]) -> "Search":
        """Returns the state for the selected sentences."""
        shared = {"index": self.index, "cache": self.cache.take(rows)}
        by_sentence = self._replace(index=None, cache=None)
        return jax.tree.map(lambda x: x[rows], by_sentence)._replace(**shared)


def beam_search(
    step: Step,
    cache: Any,
    max_lengths: Int[Array, "B"],
    rule: Rule,
    steps: int,
    prompts: Prompts | None = None,
) -> Hypotheses:
    """Returns up to `beam_size` completed hypotheses for each sentence.

    At each step, the `beam_size` best continuations are selected. Continuations that end leave the
    beam, which is refilled with the best unfinished continuations. A sentence is finished when
    `beam_size` hypotheses are complete and the best of them scores at least as high as any
    unfinished hypothesis: otherwise, improbable hypotheses, which end early, would end the search
    before the most probable one is complete. With beam size 1, this is greedy search; with a beam
    that holds all prefixes, it is exhaustive search.

    Args:
      max_lengths: maximum number of output tokens for each sentence, including end-of-sentence,
        from 1 to `steps`, or 0 for no output. A hypothesis of this length is forced to end.
      steps: static maximum number of steps.
      prompts: a prefix for the hypotheses of each sentence, which replaces `bos_id`. `max_lengths`
        include the prefix, but scores and length penalties do not.
    """
    search = start_search(cache, max_lengths, rule, steps)
    return continue_search(step, search, rule, 0, prompts).done


def start_search(
    cache: Any,
    max_lengths: Int[Array, "B"],
    rule: Rule,
    steps: int,
    moves: Int[Array, "B S V"] | None = None,
) -> Search:
    """Returns the initial state of a search with room for `steps` tokens; see `beam_search`.

    Args:
      moves: see `Prefixes`; scores and length penalties include the prefix.
    """
    shape = len(max_lengths), rule.beam_size
    tokens = jnp.full((*shape, steps), rule.eos_id, jnp.int32)
    # All hypotheses are identical at first, so all except the first one are masked out.
    log_probs = jnp.full(shape, IMPOSSIBLE).at[:, 0].set(0.0)
    # -inf is below all scores: with a negative exponent, they may be less than IMPOSSIBLE.
    nothing = Hypotheses(
        tokens, jnp.zeros(shape, jnp.int32), jnp.full(shape, -jnp.inf), jnp.zeros(shape, bool)
    )
    count = jnp.zeros(len(max_lengths), jnp.int32)
    prefixes = None if moves is None else Prefixes(moves, jnp.zeros(shape, jnp.int32))
    over = max_lengths <= 0
    return Search(
        jnp.int32(0), cache, max_lengths, tokens, log_probs, nothing, count, over, prefixes
    )


def continue_search(
    step: Step,
    search: Search,
    rule: Rule,
    keep: Int[Array, ""] | int = 0,
    prompts: Prompts | None = None,
    until: Int[Array, ""] | int | None = None,
) -> Search:
    """Continues a search until there is no room for more steps, or enough sentences are finished.

    Args:
      keep: stop when at most this number of sentences are unfinished.
      until: stop when this number of tokens have been read, if there is room for them.
    """
    end = search.live_tokens.shape[2] if until is None else until

    def unfinished(search):
        return (search.index < end) & ((~search.finished).sum() > keep)

    return jax.lax.while_loop(unfinished, lambda s: advance(s, step, rule, prompts)[0], search)


def advance(
    state: Search, step: Step, rule: Rule, prompts: Prompts | None = None
) -> tuple[Search, Continuations]:
    """Extends the hypotheses of every unfinished sentence by one token.

    Returns the new state, and the continuations from which it was selected.
    """
    beam_size, penalty, length = rule.beam_size, PENALTIES[rule.penalty], state.index + 1
    previous = jnp.take(state.live_tokens, jnp.maximum(state.index - 1, 0), axis=2)
    first = rule.bos_id if prompts is None else prompts.tokens[:, :1]
    logits, cache = step(jnp.where(state.index == 0, first, previous), state.cache)
    options, is_cut, states = _expand(state, logits.astype(jnp.float32), rule, prompts)
    if prompts is not None:
        length = jnp.maximum(length - prompts.lengths + 1, 1)[:, None]
    best, parents, tokens = options
    ends = tokens == rule.eos_id
    written = jnp.take_along_axis(state.live_tokens, parents[:, :, None], axis=1)
    written = jax.lax.dynamic_update_slice_in_dim(written, tokens[..., None], state.index, 2)

    in_beam = jnp.arange(best.shape[1]) < beam_size
    completed = ends & (best > IMPOSSIBLE / 2) & ~state.finished[:, None] & in_beam
    ended = Hypotheses(
        written,
        jnp.where(completed, state.index + 1, 0),
        jnp.where(completed, best / penalty(length, rule.alpha), -jnp.inf),
        jnp.take_along_axis(is_cut, parents, axis=1),
    )
    done = _best(state.done, ended)

    going_on, slots = jax.lax.top_k(jnp.where(ends, IMPOSSIBLE, best), beam_size)

    done_count = state.done_count + completed.sum(axis=1, dtype=jnp.int32)
    decided = done.scores[:, 0] >= (going_on / penalty(length, rule.alpha))[:, 0]
    is_over = (state.index + 1 >= state.max_lengths) | ((done_count >= beam_size) & decided)
    state = Search(
        state.index + 1,
        cache.reorder(_select(parents, slots)),
        state.max_lengths,
        _select(written, slots),
        going_on,
        done,
        done_count,
        state.finished | is_over,
        state.prefixes and state.prefixes._replace(states=_select(states, slots)),
        state.keys,
    )
    return state, options


def _expand(
    state: Search, logits: Float[Array, "B P V"], rule: Rule, prompts: Prompts | None
) -> tuple[Continuations, Bool[Array, "B P"], Int[Array, "B C"] | None]:
    """Returns the most probable continuations of the unfinished hypotheses.

    Also returns whether the length limit ends a hypothesis that had a more probable next token, and
    the states of the continuations; see `Prefixes`.
    """
    most, length = logits.max(axis=2), state.index + 1
    at_limit = length >= state.max_lengths
    # logit - shift is the log-probability of a hypothesis extended by the token.
    shift = log_sum_exp(logits, most) - state.live_log_probs
    if state.prefixes is not None:
        moves, states = state.prefixes
        moves = jnp.take_along_axis(moves, states[:, :, None], axis=1)
        logits = jnp.where(moves >= 0, logits, IMPOSSIBLE)
    end = logits[:, :, rule.eos_id]
    # At most one continuation of each hypothesis ends, so at least half of 2 * beam_size do not.
    count = min(2 * rule.beam_size, rule.beam_size * logits.shape[2])
    if state.keys is not None:
        # The random numbers of a text depend only on its key and the position.
        keys = jax.vmap(jax.random.fold_in, (0, None))(state.keys, length)
        options = draw_continuations(logits, shift, keys, rule)
    elif rule.groups > 1:
        options = diverse_continuations(logits, shift, state.finished, count, rule)
    else:
        options = best_continuations(logits, shift, count, rule.forbidden)
    options = force(options, at_limit, rule.eos_id, end - shift)
    if prompts is not None:
        prompted = jnp.take(prompts.tokens, length, axis=1, mode="clip")
        options = force(options, length < prompts.lengths, prompted, state.live_log_probs)
    is_cut, states = at_limit[:, None] & (end < most), None
    if state.prefixes is not None:
        rows = jnp.arange(len(logits))[:, None]
        states = jnp.maximum(moves[rows, options.parents, options.tokens], 0).astype(jnp.int32)
    return options, is_cut, states


def _best(done: Hypotheses, ended: Hypotheses) -> Hypotheses:
    """Returns the best hypotheses of both arguments, as many as in `done`, best first."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), done, ended)
    _, order = jax.lax.top_k(both.scores, done.scores.shape[1])
    return jax.tree.map(lambda x: _select(x, order), both)


def _select(x: Any, slots: Int[Array, "B P"]) -> Array:
    """Returns the values of P hypotheses of each sentence."""
    return jnp.take_along_axis(x, slots.reshape(slots.shape + (1,) * (x.ndim - 2)), axis=1)
