"""Beam search over a Transformer, step by step, scores what its full passes score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trie_search import BOS_ID, EOS_ID, all_translations, by_hand_penalty, found, log_softmax

from tiny_models import tiny_model
from transformer.decoding.search import PENALTIES, Rule, beam_search

pytestmark = pytest.mark.device

SMALL = {"source_vocab_size": 11, "target_vocab_size": 5, "num_decoder_layers": 1, "seed": 1}
SOURCE = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [5, 3, 5, 8, 0]])
SOURCE_MASK = SOURCE > 0


@pytest.fixture(scope="module")
def translator():
    """A tiny model: its beam search, and its full pass, on the three sentences."""
    model, variables = tiny_model(num_encoder_layers=1, **SMALL)

    def search(max_lengths, beam_size, penalty="gnmt", alpha=0.6):
        steps = max(max_lengths)

        @jax.jit
        def run(max_lengths):
            cache = model.apply(
                variables, SOURCE, SOURCE_MASK, beam_size, steps, method="init_cache"
            )

            def step(tokens, cache):
                return model.apply(variables, tokens, cache, method="decode_step")

            return beam_search(
                step, cache, max_lengths, Rule(beam_size, BOS_ID, EOS_ID, penalty, alpha), steps
            )

        return jax.tree.map(np.asarray, run(jnp.asarray(max_lengths, jnp.int32)))

    full = jax.jit(model.apply)

    def log_probs(sentence, targets):
        """[N, length, V] for translations of one sentence, each padded to one length."""
        inputs = np.array([[BOS_ID, *t[:-1]] for t in targets])
        source, mask = (jnp.tile(x[sentence], (len(inputs), 1)) for x in (SOURCE, SOURCE_MASK))
        ones = jnp.ones(inputs.shape, bool)
        return log_softmax(full(variables, source, jnp.asarray(inputs), mask, ones))

    return search, log_probs


def score_all(log_probs, sentence, translations, length, penalty="gnmt"):
    """Scores from full passes of [(tokens)], in the same order."""
    padded = [[*t, *[EOS_ID] * (length - len(t))] for t in translations]
    table = log_probs(sentence, padded)
    return [
        sum(table[n, i, token] for i, token in enumerate(t)) / by_hand_penalty(penalty, len(t), 0.6)
        for n, t in enumerate(translations)
    ]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_over_the_transformer_finds_the_best_of_all_translations(translator, penalty):
    search, log_probs = translator
    max_lengths = [4, 3, 2]
    hypotheses = search(max_lengths, 89, penalty)  # more than 1 + 4 + 16 + 64 translations
    every = list(all_translations(5, 4))
    for b, limit in enumerate(max_lengths):
        scored = zip(score_all(log_probs, b, every, 4, penalty), every, strict=True)
        expected = sorted(((s, t) for s, t in scored if len(t) <= limit), reverse=True)
        ours = found(hypotheses, b)
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-4)
        assert [t for _, t in ours[:10]] == [t for _, t in expected[:10]]


def test_a_beam_of_one_is_greedy_search_through_full_passes(translator):
    search, log_probs = translator
    max_lengths = [7, 6, 3]
    hypotheses = search(max_lengths, 1)
    lengths = []
    for b, limit in enumerate(max_lengths):
        tokens = []
        while not tokens or tokens[-1] != EOS_ID:
            padded = (tokens + [EOS_ID] * 7)[:7]
            best = int(np.argmax(log_probs(b, [padded] * 3)[0, len(tokens)]))
            tokens.append(EOS_ID if len(tokens) + 1 == limit else best)
        ((_, ours),) = found(hypotheses, b)
        assert ours == tuple(tokens)
        lengths.append(len(tokens))
    # Both ways to end are here: by the model's will, and by the limit.
    assert any(n < limit for n, limit in zip(lengths, max_lengths, strict=True))
    assert any(n == limit for n, limit in zip(lengths, max_lengths, strict=True))
