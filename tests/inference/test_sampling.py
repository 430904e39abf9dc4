"""What is drawn follows the rule, and depends on a text's own key and place alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from trie_search import (
    BOS_ID,
    EOS_ID,
    VOCAB,
    Trie,
    all_translations,
    log_probability,
    log_softmax,
    table_step,
    trie_size,
)
from trie_search import STEPS as LIMIT

from transformer.decoding.sampling import SamplingRule, draw_tokens, keep_probable
from transformer.decoding.search import Prompts, Rule, continue_search, start_search

pytestmark = pytest.mark.device

V, STEPS, END = 5, 11, 2
PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = jnp.asarray(np.log(PROBABILITIES))[None]


def kept(**rule):
    return np.asarray(jax.nn.softmax(keep_probable(LOGITS, SamplingRule(**rule))))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, PROBABILITIES),
        ({"top_k": 2}, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        # 0.4 and 0.25 are less than 0.7, with 0.2 they are more.
        ({"top_p": 0.7}, [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        ({"top_p": 1e-6}, [0, 1, 0, 0, 0]),
        # Of the two that are left, the first has 0.4 / 0.65 = 0.62.
        ({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0, 0]),
        ({"temperature": 0.5}, PROBABILITIES**2 / (PROBABILITIES**2).sum()),
        ({"epsilon": 0.15}, [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        # At this temperature, the second token has 0.0625 / 0.275 = 0.23.
        ({"temperature": 0.5, "epsilon": 0.24}, [0, 1, 0, 0, 0]),
        # Epsilon comes first: top-p sees 0.4 / 0.85 = 0.47.
        ({"epsilon": 0.15, "top_p": 0.45}, [0, 1, 0, 0, 0]),
    ],
    ids=str,
)
def test_what_may_be_drawn_is_what_the_rule_keeps(rule, expected):
    np.testing.assert_allclose(kept(**rule)[0], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("temperature", "is_right"), [(1.0, True), (1.15, False)])
def test_tokens_of_several_groups_are_drawn_with_their_probabilities(temperature, is_right):
    logits = np.random.default_rng(3).normal(size=211)
    logits[[0, 110]] = -np.inf
    expected = 10_007 * np.exp(logits) / np.exp(logits).sum()
    keys, rows = jax.random.split(jax.random.key(2), 10_007), jnp.tile(logits, (10_007, 1))
    tokens = draw_tokens(rows, keys, SamplingRule(temperature))
    counts = np.bincount(tokens, minlength=211)
    assert counts[[0, 110]].sum() == 0
    common = expected > 20
    pooled = [np.r_[x[common], x[~common].sum()] for x in (counts, expected)]
    assert (stats.chisquare(*pooled).pvalue > 0.01) == is_right
    np.testing.assert_array_equal(
        tokens[:3], draw_tokens(rows[:3], keys[:3], SamplingRule(temperature))
    )


@pytest.mark.parametrize("rule", [{"top_k": 13}, {"top_p": 0.7}], ids=str)
def test_the_best_tokens_are_those_of_a_sort(rule):
    logits = np.float32(3 * np.random.default_rng(4).normal(size=(7, 211)))
    probabilities = -np.sort(-np.asarray(jax.nn.softmax(logits)))
    expected = [rule.get("top_k")] * 7
    if "top_p" in rule:
        expected = 1 + (np.cumsum(probabilities, axis=1) < 0.7).sum(axis=1)
    probable = np.isfinite(keep_probable(jnp.asarray(logits), SamplingRule(**rule)))
    np.testing.assert_array_equal(probable.sum(axis=1), expected)
    assert (np.where(probable, logits, 99).min(1) > np.where(probable, -99, logits).max(1)).all()


def draw_texts(table, count, temperature):
    """Samples of the texts of `trie_search`, as tuples, and their scores."""
    rule = Rule(1, BOS_ID, EOS_ID, "none", 0.0, sampling=SamplingRule(temperature))
    cache = Trie(jnp.int32(0), jnp.zeros((count, 1), jnp.int32))
    search = start_search(cache, jnp.full(count, LIMIT), rule, LIMIT)
    search = search._replace(keys=jax.random.split(jax.random.key(5), count))
    step = functools.partial(table_step, jnp.broadcast_to(table, (count, *table.shape)))
    done = jax.device_get(jax.jit(lambda x: continue_search(step, x, rule).done)(search))
    tokens = zip(done.tokens[:, 0].tolist(), done.lengths[:, 0], strict=True)
    return [tuple(ids[:n]) for ids, n in tokens], done.scores[:, 0]


@pytest.mark.parametrize(("temperature", "is_right"), [(1.0, True), (1.15, False)])
def test_ten_thousand_texts_are_drawn_with_the_probabilities_of_a_model(temperature, is_right):
    table = np.random.default_rng(1).normal(size=(trie_size(VOCAB, LIMIT), VOCAB))
    log_probs, texts = log_softmax(table), [*all_translations(VOCAB, LIMIT)]
    drawn, scores = draw_texts(jnp.asarray(table, jnp.float32), 10_000, temperature)
    # At the limit, a text is forced to end.
    free = [text if len(text) < LIMIT else text[:-1] for text in texts]
    expected = 10_000 * np.exp([log_probability(log_probs, text) for text in free])
    np.testing.assert_allclose(expected.sum(), 10_000)
    counts = np.array([drawn.count(text) for text in texts])
    common = expected > 50
    pooled = [np.r_[x[common], x[~common].sum()] for x in (counts, expected)]
    assert (stats.chisquare(*pooled).pvalue > 0.01) == is_right
    right = [log_probability(log_probs, text) for text in drawn[:100]]
    np.testing.assert_allclose(scores[:100], right, rtol=1e-4)  # those of the model, untempered


class Nothing:
    """A cache of a model that remembers nothing."""

    def reorder(self, parents):
        return self


jax.tree_util.register_static(Nothing)


def chain(tokens, cache):
    """A model that writes the number after the last one, most of the time."""
    return 3.0 * jax.nn.one_hot((tokens + 1) % V, V), cache


def write(prompts, temperature, numbers, untils=(STEPS - 1,), forbidden=()):
    """The texts [B, STEPS], of rows with these numbers, stopping on the way at `untils`."""
    tokens = np.zeros((len(prompts), STEPS), int)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    lengths = jnp.array([len(prompt) for prompt in prompts])
    prompts = Prompts(jnp.asarray(tokens), lengths)
    rule = Rule(1, 0, END, "none", 0.0, forbidden, sampling=SamplingRule(temperature))
    search = start_search(Nothing(), jnp.full(len(lengths), STEPS + 1), rule, STEPS)
    keys = jnp.stack([jax.random.fold_in(jax.random.key(0), n) for n in numbers])
    search = search._replace(keys=keys)
    for until in untils:
        search = continue_search(chain, search, rule, 0, prompts, until)
    texts = np.c_[tokens[:, :1], np.asarray(search.live_tokens[:, 0, :-1])]
    for text, length in zip(texts, np.asarray(search.done.lengths[:, 0]), strict=True):
        if length:
            text[length + 1 :] = 0
    return texts


def test_greedy_writing_follows_the_prompt_and_stops_at_the_end():
    texts = write([[3], [0, 4, 3, 4]], 0.0, [1, 2])
    np.testing.assert_array_equal(texts[0], [3, 4, 0, 1, 2, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(texts[1], [0, 4, 3, 4, 0, 1, 2, 0, 0, 0, 0])


@pytest.mark.full
def test_a_text_does_not_depend_on_its_neighbours_nor_on_stops_on_the_way():
    prompts = [[3], [0, 4, 3], [4, 4]]
    together = write(prompts, 1.5, [1, 2, 3])
    for row, prompt in enumerate(prompts):
        np.testing.assert_array_equal(write([prompt], 1.5, [row + 1])[0], together[row])
    np.testing.assert_array_equal(write(prompts, 1.5, [1, 2, 3], [2, 3, 7, 10]), together)
    # The control: another number draws another text.
    assert (write([prompts[0]], 1.5, [9])[0] != together[0]).any()


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_a_forbidden_token_is_never_drawn(temperature):
    # After 3 comes 4, nearly always; a prompt may hold it.
    prompts, numbers = [[3], [4, 3], [0], [1]], [1, 2, 3, 4]
    texts = write(prompts, temperature, numbers, forbidden=(4,))
    assert (texts == 4).sum() == 1
    assert (write(prompts, temperature, numbers) == 4).sum() > 1
