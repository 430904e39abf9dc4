"""Beam search finds what trying everything finds, and at one what taking the best token finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trie_search import (
    BOS_ID,
    EOS_ID,
    HOW_MANY,
    MAX_LENGTHS,
    STEPS,
    VOCAB,
    WIDE,
    all_translations,
    by_hand_penalty,
    found,
    log_probability,
    log_softmax,
    trie_search,
    trie_size,
)

from transformer.decoding.search import (
    IMPOSSIBLE,
    PENALTIES,
    Prompts,
    best_continuations,
    log_sum_exp,
)

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def table():
    """The logits after each prefix."""
    rng = np.random.default_rng(0)
    return rng.normal(scale=1.5, size=(len(MAX_LENGTHS), trie_size(VOCAB, STEPS), VOCAB))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_finds_every_continuation_of_a_prompt_and_scores_nothing_else(table, penalty):
    prompts, limit, alpha = [(), (0,), (3, 1), (1, 0, 3), (3,)], STEPS, 1.7
    tokens = np.zeros((len(prompts), STEPS), int)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt) + 1] = (BOS_ID, *prompt)
    lengths = jnp.array([len(prompt) + 1 for prompt in prompts])
    given = Prompts(jnp.asarray(tokens), lengths)
    max_lengths = [limit] * len(prompts)
    hypotheses = trie_search(table, max_lengths, WIDE, penalty, alpha, prompts=given)
    for b, prompt in enumerate(prompts):
        log_probs, n = log_softmax(table[b]), len(prompt)
        expected = sorted(
            (
                (log_probability(log_probs, t) - log_probability(log_probs, prompt))
                / by_hand_penalty(penalty, len(t) - n, alpha),
                t,
            )
            for t in all_translations(VOCAB, limit)
            if t[:n] == prompt and len(t) > n
        )[::-1]
        ours = found(hypotheses, b)
        assert [t for _, t in ours] == [t for _, t in expected]
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-4)


@pytest.mark.parametrize("alpha", [-1.5, 0.0, 1.7])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_finds_every_translation_in_order(table, penalty, alpha):
    hypotheses = trie_search(table, MAX_LENGTHS, WIDE, penalty, alpha)
    for b, limit in enumerate(MAX_LENGTHS):
        log_probs = log_softmax(table[b])
        expected = sorted(
            (
                (log_probability(log_probs, t) / by_hand_penalty(penalty, len(t), alpha), t)
                for t in all_translations(VOCAB, limit)
            ),
            reverse=True,
        )
        ours = found(hypotheses, b)
        assert len(ours) == HOW_MANY[limit]
        assert [t for _, t in ours] == [t for _, t in expected]
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-5)


def test_a_sentence_goes_on_while_what_is_written_scores_better_than_what_is_complete():
    # "0 0 end" has the best mean: log(.39 * .98 * .98) / 3. But a beam of one takes "end" at once.
    # One of two has "end" and then, second of the second step, "0 end"; yet "0 0" scores better.
    logits = np.full((1, 13, 3), np.log(1 / 3))
    logits[0, 0] = np.log([0.39, 0.01, 0.60])
    logits[0, 1] = np.log([0.98, 0.005, 0.015])
    logits[0, 4] = np.log([0.01, 0.01, 0.98])  # after "0 0": 0 * 3 + 1, then 1 * 3 + 1
    one, two, wide = (
        found(trie_search(logits, [3], beam_size, "average", 1.0, steps=3), 0)
        for beam_size in (1, 2, 13)
    )
    end, best = np.log(0.6), np.log(0.39 * 0.98 * 0.98) / 3
    assert one == [(pytest.approx(end, rel=1e-5), (2,))]
    assert two == [(pytest.approx(best, rel=1e-5), (0, 0, 2)), *one]
    assert wide[:2] == two
    # The control: where "0 0" scores worse than "end", two complete translations are enough.
    logits[0, 0] = np.log([0.30, 0.01, 0.69])
    two = found(trie_search(logits, [3], 2, "average", 1.0, steps=3), 0)
    assert [tokens for _, tokens in two] == [(2,), (0, 2)]


def test_an_end_outside_the_beam_completes_no_translation():
    logits = np.log(np.tile([0.05, 0.05, 0.3, 0.6], (1, trie_size(VOCAB, STEPS), 1)))
    one, two = (found(trie_search(logits, [STEPS], beam_size), 0)[0] for beam_size in (1, 2))
    assert one == (pytest.approx(np.log(0.6**3 * 0.3), rel=1e-5), (3, 3, 3, EOS_ID))
    assert two == (pytest.approx(np.log(0.3), rel=1e-5), (EOS_ID,))  # the control


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_whatever_the_beam_results_are_sorted_distinct_ended_and_within_the_limit(table, beam_size):
    hypotheses = trie_search(table, MAX_LENGTHS, beam_size, "gnmt")
    for b, limit in enumerate(MAX_LENGTHS):
        ours = found(hypotheses, b)
        scores = [s for s, _ in ours]
        assert scores == sorted(scores, reverse=True)
        assert len({t for _, t in ours}) == len(ours)
        assert len(ours) == min(beam_size, HOW_MANY[limit])
        log_probs = log_softmax(table[b])
        for score, tokens in ours:
            assert len(tokens) <= limit
            assert tokens.index(EOS_ID) == len(tokens) - 1
            penalty = by_hand_penalty("gnmt", len(tokens), 0.6)
            np.testing.assert_allclose(
                score, log_probability(log_probs, tokens) / penalty, rtol=1e-5
            )
        # Places after the last, and tokens after the end, hold nothing.
        assert (hypotheses.scores[b, len(ours) :] == -np.inf).all()
        for tokens, length in zip(hypotheses.tokens[b], hypotheses.lengths[b], strict=True):
            assert (tokens[length:] == EOS_ID).all()


# -- forbidden tokens


@pytest.mark.parametrize("forbidden", [(0,), (BOS_ID, 3)])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_forbidden_tokens_are_in_no_translation_and_the_others_keep_their_scores(
    table, penalty, forbidden
):
    hypotheses = trie_search(table, MAX_LENGTHS, WIDE, penalty, forbidden=forbidden)
    every = trie_search(table, MAX_LENGTHS, WIDE, penalty)
    for b, limit in enumerate(MAX_LENGTHS):
        expected = [(s, t) for s, t in found(every, b) if not set(t) & set(forbidden)]
        assert len(expected) < len(found(every, b)) or limit < 2
        ours = found(hypotheses, b)
        assert [t for _, t in ours] == [t for _, t in expected]
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-5)


def test_a_prompt_may_hold_what_is_forbidden(table):
    given = Prompts(jnp.array([[BOS_ID, 0, 0, 0]]), jnp.array([3]))
    ours = found(trie_search(table[:1], [STEPS], WIDE, prompts=given, forbidden=(0,)), 0)
    assert ours
    assert all(t[:2] == (0, 0) and 0 not in t[2:] for _, t in ours)


# -- the best continuations


@pytest.mark.parametrize("vocab", [7, 600, 731])
@pytest.mark.parametrize("forbidden", [(), (0, 3), (5, 1)])
def test_the_best_continuations_are_those_of_a_sort_of_all(vocab, forbidden):
    rng = np.random.default_rng(vocab)
    # Whole numbers, of which many are equal; subtractions of halves are exact.
    logits = jnp.asarray(rng.integers(-9, 9, (3, 5, vocab)), jnp.float32)
    logits = logits.at[:, 2, jnp.array(forbidden, int)].set(20.0)
    shift = jnp.asarray(rng.integers(0, 4, (3, 5)) / 2, jnp.float32)
    ours = best_continuations(logits, shift, 10, forbidden)
    table = (logits - shift[..., None]).at[:, :, jnp.array(forbidden, int)].set(IMPOSSIBLE)
    best, places = jax.lax.top_k(table.reshape(3, -1), 10)
    np.testing.assert_array_equal(ours.log_probs, best)
    np.testing.assert_array_equal(ours.parents * vocab + ours.tokens, places)


def test_the_logarithm_of_the_sum_of_exponentials_does_not_overflow():
    logits = jnp.asarray(np.random.default_rng(0).normal(1e4, 5, (2, 3, 11)), jnp.float32)
    np.testing.assert_allclose(
        log_sum_exp(logits, logits.max(axis=2)), jax.nn.logsumexp(logits, axis=2), rtol=1e-6
    )
