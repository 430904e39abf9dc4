"""Beam search finds what trying everything finds, and at one what taking the best token finds."""

import functools
import itertools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny_models import tiny_model
from transformer.decoding.continuations import NEVER, best_continuations, group_maxima, log_sum_exp
from transformer.decoding.search import PENALTIES, Rule, beam_search
from transformer.decoding.steps import Prompts
from transformer.errors import UserError

BEGIN, END = 1, 2
VOCAB, STEPS, LIMITS = 4, 4, [4, 2, 1, 0, 3]
# There are 1 + 3 + 9 + 27 translations of at most four tokens; of each length at most 36
# continuations are possible, as at the limit only ends are.
WIDE, HOW_MANY = 41, [0, 1, 4, 13, 40]


def trie_size(vocab, steps):
    return sum(vocab**t for t in range(steps))


@flax.struct.dataclass
class Trie:
    """A cache that knows each hypothesis' whole prefix, as a number of a node."""

    count: jax.Array
    node: jax.Array

    def reorder(self, parents):
        return self.replace(node=jnp.take_along_axis(self.node, parents, axis=1))


def next_node(node, token, vocab):
    return node * vocab + token + 1  # in order of breadth; the root is 0


@functools.partial(jax.jit, static_argnames=("beam", "steps", "penalty", "alpha", "forbidden"))
def compiled_trie_search(table, limits, beam, steps, penalty, alpha, prompts, forbidden):
    def step(tokens, cache):
        child = next_node(cache.node, tokens, table.shape[-1])
        node = jnp.where(cache.count == 0, 0, child)  # the begin token leads to the root
        logits = jax.vmap(lambda rows, nodes: rows[nodes])(table, node)
        return logits, Trie(cache.count + 1, node)

    cache = Trie(jnp.int32(0), jnp.zeros((len(table), beam), jnp.int32))
    rule = Rule(beam, BEGIN, END, penalty, alpha, forbidden)
    return beam_search(step, cache, limits, rule, steps, prompts)


def trie_search(
    table, limits, beam, penalty="none", alpha=0.6, steps=STEPS, prompts=None, forbidden=()
):
    """Beam search where the logits after every prefix are a table, [B, nodes, V]."""
    table, limits = jnp.asarray(table, jnp.float32), jnp.asarray(limits, jnp.int32)
    rest = beam, steps, penalty, alpha, prompts, forbidden
    return jax.tree.map(np.asarray, compiled_trie_search(table, limits, *rest))


def found(hypotheses, sentence):
    """[(score, tokens)] of one sentence, empty places left out."""
    tokens, lengths, scores = (x[sentence] for x in hypotheses)
    return [
        (float(s), tuple(t[:n].tolist()))
        for t, n, s in zip(tokens, lengths, scores, strict=True)
        if n
    ]


def by_hand_penalty(name, length, alpha):
    return {"gnmt": ((5 + length) / 6) ** alpha, "average": length**alpha, "none": 1.0}[name]


def all_translations(vocab, limit):
    """Every sequence of at most `limit` tokens whose only end is its last token."""
    others = [token for token in range(vocab) if token != END]
    for length in range(1, limit + 1):
        for tokens in itertools.product(others, repeat=length - 1):
            yield (*tokens, END)


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_probability(table, tokens):
    total, node = 0.0, 0
    for token in tokens:
        total += table[node, token]
        node = next_node(node, token, table.shape[-1])
    return total


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return rng.normal(scale=1.5, size=(len(LIMITS), trie_size(VOCAB, STEPS), VOCAB))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_finds_every_continuation_of_a_prompt_and_scores_nothing_else(table, penalty):
    prompts, limit, alpha = [(), (0,), (3, 1), (1, 0, 3), (3,)], STEPS, 1.7
    tokens = np.zeros((len(prompts), STEPS), int)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt) + 1] = (BEGIN, *prompt)
    lengths = jnp.array([len(prompt) + 1 for prompt in prompts])
    given = Prompts(jnp.asarray(tokens), lengths)
    limits = [limit] * len(prompts)
    hypotheses = trie_search(table, limits, WIDE, penalty, alpha, prompts=given)
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


@pytest.mark.parametrize("penalty", PENALTIES)
def test_improbable_translations_that_end_early_do_not_close_the_search(penalty):
    # The most probable first token goes on for certain; each step another one ends, all the others
    # together with a probability of two in a thousand.
    table = np.full((1, trie_size(VOCAB, STEPS), VOCAB), -1e3)
    table[:, :, END] = 0.0
    node = 0
    for _ in range(STEPS - 1):
        table[0, node] = np.log([1e-3, 1e-3, 1e-3, 0.997])
        node = next_node(node, 3, VOCAB)
    [(score, tokens), *_] = found(trie_search(table, [STEPS], 2, penalty, 0.6), 0)
    assert tokens == (3, 3, 3, END)
    expected = 3 * np.log(0.997) / by_hand_penalty(penalty, STEPS, 0.6)
    np.testing.assert_allclose(score, expected, rtol=1e-3)


@pytest.mark.parametrize("alpha", [-1.5, 0.0, 1.7])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_finds_every_translation_in_order(table, penalty, alpha):
    hypotheses = trie_search(table, LIMITS, WIDE, penalty, alpha)
    for b, limit in enumerate(LIMITS):
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


def test_a_penalty_that_multiplies_scores_loses_no_translation(table):
    # An end is improbable, and at the limit of four tokens its score is multiplied by 4 ** 10.
    table = np.where(np.arange(VOCAB) == END, -2e3, table)
    [(score, tokens), *_] = found(trie_search(table, [STEPS] * 5, 1, "average", -10.0), 0)
    log_probs = log_softmax(table[0])
    np.testing.assert_allclose(score, log_probability(log_probs, tokens) * 4**10, rtol=1e-5)
    assert score < NEVER


@pytest.mark.parametrize("forbidden", [(0,), (BEGIN, 3)])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_forbidden_tokens_are_in_no_translation_and_the_others_keep_their_scores(
    table, penalty, forbidden
):
    hypotheses = trie_search(table, LIMITS, WIDE, penalty, forbidden=forbidden)
    every = trie_search(table, LIMITS, WIDE, penalty)
    for b, limit in enumerate(LIMITS):
        expected = [(s, t) for s, t in found(every, b) if not set(t) & set(forbidden)]
        assert len(expected) < len(found(every, b)) or limit < 2
        ours = found(hypotheses, b)
        assert [t for _, t in ours] == [t for _, t in expected]
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-5)


def test_a_forbidden_token_is_not_written_however_probable_it_is(table):
    certain = np.zeros_like(table)
    certain[:, :, 0] = 50.0
    for beam in (1, 2):
        ours = found(trie_search(certain, [STEPS] * len(table), beam, forbidden=(0, BEGIN)), 0)
        assert ours
        assert all(set(tokens) <= {3, END} for _, tokens in ours)
        # The control: it would be.
        assert 0 in found(trie_search(certain, [STEPS] * len(table), beam), 0)[0][1]


def test_a_prompt_may_hold_what_is_forbidden(table):
    given = Prompts(jnp.array([[BEGIN, 0, 0, 0]]), jnp.array([3]))
    ours = found(trie_search(table[:1], [STEPS], WIDE, prompts=given, forbidden=(0,)), 0)
    assert ours
    assert all(t[:2] == (0, 0) and 0 not in t[2:] for _, t in ours)


def test_the_penalties_order_translations_differently(table):
    firsts = {
        penalty: [t for _, t in found(trie_search(table, LIMITS, WIDE, penalty, 1.7), 0)]
        for penalty in PENALTIES
    }
    assert firsts["none"] != firsts["gnmt"] != firsts["average"]


def test_penalties_by_hand():
    length = jnp.array([1, 7, 13])
    np.testing.assert_allclose(PENALTIES["gnmt"](length, 0.6), [1, 2**0.6, 3**0.6], rtol=1e-6)
    np.testing.assert_allclose(PENALTIES["average"](length, 2.0), [1, 49, 169], rtol=1e-6)
    np.testing.assert_allclose(PENALTIES["none"](length, 0.6), [1, 1, 1])
    with pytest.raises(UserError, match=r"'quux' is unknown: choose one of gnmt, average, none"):
        trie_search(np.zeros((1, 1, 3)), [1], 1, "quux", steps=1)


def test_a_garden_path_by_hand():
    # Tokens 0 and 1, and 2 for the end. First .5, .4, .1; after 0: .3, .3, .4; after 1: .05, .05,
    # .9. Of two tokens: "0 end" has .20, "1 end" .36 and "end" .10. Greedy goes astray.
    logits = np.log([[[0.5, 0.4, 0.1], [0.3, 0.3, 0.4], [0.05, 0.05, 0.9], [1 / 3] * 3]])
    greedy, wide = (trie_search(logits, [2], beam, steps=2) for beam in (1, 3))
    assert found(greedy, 0) == [(pytest.approx(np.log(0.2)), (0, 2))]
    assert found(wide, 0) == [
        (pytest.approx(np.log(0.36)), (1, 2)),
        (pytest.approx(np.log(0.2)), (0, 2)),
        (pytest.approx(np.log(0.1)), (2,)),
    ]


def test_an_end_outside_the_beam_ends_nothing():
    # First 0 with .6, the end with .4; after 0 the end with .5: greedy is "0 end", with .3.
    logits = np.log([[[0.6, 1e-9, 0.4], [0.25, 0.25, 0.5], [1 / 3] * 3, [1 / 3] * 3]])
    greedy = trie_search(logits, [2], 1, steps=2)
    assert found(greedy, 0) == [(pytest.approx(np.log(0.3), rel=1e-5), (0, 2))]


def test_a_sentence_goes_on_while_what_is_written_scores_better_than_what_is_complete():
    # "0 0 end" has the best mean: log(.39 * .98 * .98) / 3. But a beam of one takes "end" at once.
    # One of two has "end" and then, second of the second step, "0 end"; yet "0 0" scores better.
    logits = np.full((1, 13, 3), np.log(1 / 3))
    logits[0, 0] = np.log([0.39, 0.01, 0.60])
    logits[0, 1] = np.log([0.98, 0.005, 0.015])
    logits[0, 4] = np.log([0.01, 0.01, 0.98])  # after "0 0": 0 * 3 + 1, then 1 * 3 + 1
    one, two, wide = (
        found(trie_search(logits, [3], beam, "average", 1.0, steps=3), 0) for beam in (1, 2, 13)
    )
    end, best = np.log(0.6), np.log(0.39 * 0.98 * 0.98) / 3
    assert one == [(pytest.approx(end, rel=1e-5), (2,))]
    assert two == [(pytest.approx(best, rel=1e-5), (0, 0, 2)), *one]
    assert wide[:2] == two
    # The control: where "0 0" scores worse than "end", two complete translations are enough.
    logits[0, 0] = np.log([0.30, 0.01, 0.69])
    two = found(trie_search(logits, [3], 2, "average", 1.0, steps=3), 0)
    assert [tokens for _, tokens in two] == [(2,), (0, 2)]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_whatever_the_beam_results_are_sorted_distinct_ended_and_within_the_limit(table, beam):
    hypotheses = trie_search(table, LIMITS, beam, "gnmt")
    for b, limit in enumerate(LIMITS):
        ours = found(hypotheses, b)
        scores = [s for s, _ in ours]
        assert scores == sorted(scores, reverse=True)
        assert len({t for _, t in ours}) == len(ours)
        assert len(ours) == min(beam, HOW_MANY[limit])
        log_probs = log_softmax(table[b])
        for score, tokens in ours:
            assert len(tokens) <= limit
            assert tokens.index(END) == len(tokens) - 1
            penalty = by_hand_penalty("gnmt", len(tokens), 0.6)
            np.testing.assert_allclose(
                score, log_probability(log_probs, tokens) / penalty, rtol=1e-5
            )
        # Places after the last, and tokens after the end, hold nothing.
        assert (hypotheses.scores[b, len(ours) :] == -np.inf).all()
        for tokens, length in zip(hypotheses.tokens[b], hypotheses.lengths[b], strict=True):
            assert (tokens[length:] == END).all()


@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_is_translated_the_same_in_any_company(table, beam):
    together = trie_search(table, LIMITS, beam, "gnmt")
    for b, limit in enumerate(LIMITS):
        alone = trie_search(table[b : b + 1], [limit], beam, "gnmt")
        assert found(alone, 0) == found(together, b)
    backwards = trie_search(table[::-1], LIMITS[::-1], beam, "gnmt")
    for ours, other in zip(together, backwards, strict=True):
        np.testing.assert_array_equal(ours, other[::-1])


def test_greedy_search_is_not_always_the_best():
    tables = np.random.default_rng(1).normal(scale=1.5, size=(31, trie_size(VOCAB, STEPS), VOCAB))
    limits = [STEPS] * len(tables)
    greedy, wide = (trie_search(tables, limits, beam).scores[:, 0] for beam in (1, WIDE))
    assert (greedy <= wide + 1e-5).all()
    assert 3 < (greedy < wide - 1e-3).sum() < 28


# --- without sorting the vocabulary


@pytest.mark.parametrize("vocab", [7, 600, 731])
@pytest.mark.parametrize("forbidden", [(), (0, 3), (5, 1)])
def test_the_best_continuations_are_those_of_a_sort_of_all(vocab, forbidden):
    rng = np.random.default_rng(vocab)
    # Whole numbers, of which many are equal; subtractions of halves are exact.
    logits = jnp.asarray(rng.integers(-9, 9, (3, 5, vocab)), jnp.float32)
    logits = logits.at[:, 2, jnp.array(forbidden, int)].set(20.0)
    shift = jnp.asarray(rng.integers(0, 4, (3, 5)) / 2, jnp.float32)
    found = best_continuations(logits, group_maxima(logits), shift, 10, forbidden)
    table = (logits - shift[..., None]).at[:, :, jnp.array(forbidden, int)].set(NEVER)
    best, places = jax.lax.top_k(table.reshape(3, -1), 10)
    np.testing.assert_array_equal(found.log_probs, best)
    np.testing.assert_array_equal(found.parents * vocab + found.tokens, places)


def test_the_logarithm_of_the_sum_of_exponentials_does_not_overflow():
    logits = jnp.asarray(np.random.default_rng(0).normal(1e4, 5, (2, 3, 11)), jnp.float32)
    np.testing.assert_allclose(
        log_sum_exp(logits, logits.max(axis=2)), jax.nn.logsumexp(logits, axis=2), rtol=1e-6
    )


# --- with a real Transformer


SMALL = {"source_vocab_size": 11, "target_vocab_size": 5, "num_decoder_layers": 1, "seed": 1}
SOURCE = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [5, 3, 5, 8, 0]])
SOURCE_MASK = SOURCE > 0


@pytest.fixture(scope="module")
def translator():
    """A tiny model: its beam search, and its full pass, on the three sentences."""
    model, variables = tiny_model(num_encoder_layers=1, **SMALL)

    def search(limits, beam, penalty="gnmt", alpha=0.6):
        steps = max(limits)

        @jax.jit
        def run(limits):
            cache = model.apply(variables, SOURCE, SOURCE_MASK, beam, steps, method="init_cache")

            def step(tokens, cache):
                return model.apply(variables, tokens, cache, method="decode_step")

            return beam_search(step, cache, limits, Rule(beam, BEGIN, END, penalty, alpha), steps)

        return jax.tree.map(np.asarray, run(jnp.asarray(limits, jnp.int32)))

    full = jax.jit(model.apply)

    def log_probs(sentence, targets):
        """[N, length, V] for translations of one sentence, each padded to one length."""
        inputs = np.array([[BEGIN, *t[:-1]] for t in targets])
        source, mask = (jnp.tile(x[sentence], (len(inputs), 1)) for x in (SOURCE, SOURCE_MASK))
        ones = jnp.ones(inputs.shape, bool)
        return log_softmax(full(variables, source, jnp.asarray(inputs), mask, ones))

    return search, log_probs


def score_all(log_probs, sentence, translations, length, penalty="gnmt"):
    """Scores from full passes of [(tokens)], in the same order."""
    padded = [[*t, *[END] * (length - len(t))] for t in translations]
    table = log_probs(sentence, padded)
    return [
        sum(table[n, i, token] for i, token in enumerate(t)) / by_hand_penalty(penalty, len(t), 0.6)
        for n, t in enumerate(translations)
    ]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_wide_beam_over_the_transformer_finds_the_best_of_all_translations(translator, penalty):
    search, log_probs = translator
    limits = [4, 3, 2]
    hypotheses = search(limits, 89, penalty)  # more than 1 + 4 + 16 + 64 translations
    every = list(all_translations(5, 4))
    for b, limit in enumerate(limits):
        scored = zip(score_all(log_probs, b, every, 4, penalty), every, strict=True)
        expected = sorted(((s, t) for s, t in scored if len(t) <= limit), reverse=True)
        ours = found(hypotheses, b)
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in expected], rtol=1e-4)
        assert [t for _, t in ours[:10]] == [t for _, t in expected[:10]]


def test_a_beam_of_one_is_greedy_search_through_full_passes(translator):
    search, log_probs = translator
    limits = [7, 6, 3]
    hypotheses = search(limits, 1)
    lengths = []
    for b, limit in enumerate(limits):
        tokens = []
        while not tokens or tokens[-1] != END:
            padded = (tokens + [END] * 7)[:7]
            best = int(np.argmax(log_probs(b, [padded] * 3)[0, len(tokens)]))
            tokens.append(END if len(tokens) + 1 == limit else best)
        ((_, ours),) = found(hypotheses, b)
        assert ours == tuple(tokens)
        lengths.append(len(tokens))
    # Both ways to end are here: by the model's will, and by the limit.
    assert any(n < limit for n, limit in zip(lengths, limits, strict=True))
    assert any(n == limit for n, limit in zip(lengths, limits, strict=True))


def test_scores_of_a_narrow_beam_are_log_probabilities_of_full_passes(translator):
    search, log_probs = translator
    hypotheses = search([7, 6, 3], 3)
    for b in range(3):
        ours = found(hypotheses, b)
        assert len(ours) == 3
        scores = score_all(log_probs, b, [t for _, t in ours], 7)
        np.testing.assert_allclose([s for s, _ in ours], scores, rtol=1e-4)
        # Control: they are not those of another sentence.
        others = score_all(log_probs, (b + 1) % 3, [t for _, t in ours], 7)
        assert np.abs(np.subtract(scores, others)).max() > 1e-3
