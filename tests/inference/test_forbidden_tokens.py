"""Forbidden tokens are in no translation but in its prompt, and the others keep their scores."""

import jax.numpy as jnp
import numpy as np
import pytest
from trie_search import BOS_ID, EOS_ID, MAX_LENGTHS, STEPS, WIDE, found, trie_search

from transformer.decoding.search import PENALTIES
from transformer.decoding.steps import Prompts


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


def test_a_forbidden_token_is_not_written_however_probable_it_is(table):
    certain = np.zeros_like(table)
    certain[:, :, 0] = 50.0
    for beam_size in (1, 2):
        ours = found(
            trie_search(certain, [STEPS] * len(table), beam_size, forbidden=(0, BOS_ID)), 0
        )
        assert ours
        assert all(set(tokens) <= {3, EOS_ID} for _, tokens in ours)
        # The control: it would be.
        assert 0 in found(trie_search(certain, [STEPS] * len(table), beam_size), 0)[0][1]


def test_a_prompt_may_hold_what_is_forbidden(table):
    given = Prompts(jnp.array([[BOS_ID, 0, 0, 0]]), jnp.array([3]))
    ours = found(trie_search(table[:1], [STEPS], WIDE, prompts=given, forbidden=(0,)), 0)
    assert ours
    assert all(t[:2] == (0, 0) and 0 not in t[2:] for _, t in ours)
