"""Text sampling with temperature, top-k and top-p."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.decoding.search import Prompts, Step

NOT_FINITE = -1  # token id that is returned if the logits are not finite


class Sample(NamedTuple):
    """The state of sampling: texts that are being generated.

    Attributes:
      index: number of tokens that the model has read; `tokens` contains at least one more token.
      tokens: the prompt and the generated tokens, padded with 0 after the end of a text.
      ended: whether end-of-sentence has been generated.
    """

    index: Int[Array, ""]
    cache: Any
    tokens: Int[Array, "B steps"]
    ended: Bool[Array, "B"]


class SamplingRule(NamedTuple):
    """The sampling parameters, which are traced; see `keep_probable`."""

    temperature: float | Float[Array, ""]
    top_k: int | Int[Array, ""]
    top_p: float | Float[Array, ""]


def start_sample(cache: Any, prompts: Prompts) -> Sample:
    """Returns the state before the first step, in which the texts contain only the prompts."""
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
    """Samples tokens until `until` tokens have been read or all texts have ended.

    The random numbers for a text depend only on the text's key and the position, not on the number
    of calls or on the other texts.

    Args:
      lengths: number of tokens in each prompt.
      until: must be less than the number of steps in `tokens`.
      keys: a random key for each text.
      eos_id: id of end-of-sentence; negative if texts do not end.
      forbidden: ids that are never sampled; the other probabilities are renormalised.
    """

    def unfinished(state):
        return (state.index < until) & ~state.ended.all()

    def advance(state):
        read = jax.lax.dynamic_slice_in_dim(state.tokens, state.index, 1, 1)
        logits, cache = step(read, state.cache)
        place = state.index + 1
        place_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
        possible = logits[:, 0].at[:, jnp.asarray(forbidden, jnp.int32)].set(-jnp.inf)
        drawn = draw_tokens(possible, place_keys, rule)
        there = jax.lax.dynamic_index_in_dim(state.tokens, place, 1, keepdims=False)
        is_new = place >= lengths
        token = jnp.where(is_new, jnp.where(state.ended, 0, drawn), there)
        tokens = jax.lax.dynamic_update_slice_in_dim(state.tokens, token[:, None], place, 1)
        return Sample(place, cache, tokens, state.ended | (is_new & (drawn == eos_id)))

    return jax.lax.while_loop(unfinished, advance, state)


def draw_tokens(logits: Float[Array, "B V"], keys: Array, rule: SamplingRule) -> Int[Array, "B"]:
    """Samples a token for each row, or returns the most probable token at temperature 0.

    The token is NOT_FINITE if the row's logits are not finite.
    """

    def draw() -> Int[Array, "B"]:
        return jax.vmap(jax.random.categorical)(keys, keep_probable(logits, rule))

    positive = jnp.asarray(rule.temperature) > 0
    token = jax.lax.cond(positive, draw, lambda: jnp.argmax(logits, axis=-1).astype(jnp.int32))
    return jnp.where(jnp.isfinite(logits.max(axis=-1)), token, NOT_FINITE)


def keep_probable(logits: Float[Array, "B V"], rule: SamplingRule) -> Float[Array, "B V"]:
    """Returns logits divided by the temperature, with -inf for tokens that must not be sampled.

    First, the `top_k` most probable tokens are kept (Fan et al. 2018, section 5.4; 0 keeps all).
    Then probabilities are renormalised, and the smallest set of tokens with a total of at least
    `top_p` is kept (Holtzman et al. 2020, section 3.1). The most probable token is always kept.
    """
    scaled = logits.astype(jnp.float32) / jnp.maximum(rule.temperature, 1e-6)
    # Sorting the vocabulary takes longer than a decoding step of a small model.
    everything = (jnp.asarray(rule.top_k) <= 0) & (jnp.asarray(rule.top_p) >= 1)
    return jax.lax.cond(everything, lambda x: x, lambda x: _sort_and_keep(x, rule), scaled)


def _sort_and_keep(scaled: Float[Array, "B V"], rule: SamplingRule) -> Float[Array, "B V"]:
    """Returns the result of `keep_probable`, given logits divided by the temperature."""
    vocab_size = scaled.shape[-1]
    order = jnp.argsort(-scaled, axis=-1)
    ranked = jnp.take_along_axis(scaled, order, axis=-1)
    rank = jnp.arange(vocab_size)
    ranked = jnp.where(rank < jnp.where(rule.top_k > 0, rule.top_k, vocab_size), ranked, -jnp.inf)
    probabilities = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    ranked = jnp.where((before < rule.top_p) | (rank == 0), ranked, -jnp.inf)
    return jnp.take_along_axis(ranked, jnp.argsort(order, axis=-1), axis=-1)
