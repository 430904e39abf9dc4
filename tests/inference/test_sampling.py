"""What is drawn follows the rule, and depends on a text's own key and place alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.decoding.sampling import (
    SamplingRule,
    draw_tokens,
    keep_probable,
    sample,
    start_sample,
)
from transformer.decoding.search import Prompts

pytestmark = pytest.mark.device

V, STEPS, END = 5, 11, 2
PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = jnp.asarray(np.log(PROBABILITIES))[None]


def kept(temperature=1.0, top_k=0, top_p=1.0):
    return np.asarray(
        jax.nn.softmax(keep_probable(LOGITS, SamplingRule(temperature, top_k, top_p)))
    )


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
    ],
    ids=str,
)
def test_what_may_be_drawn_is_what_the_rule_keeps(rule, expected):
    np.testing.assert_allclose(kept(**rule)[0], expected, rtol=1e-5, atol=1e-7)


def test_tokens_are_drawn_as_often_as_their_probability_says():
    count = 20_000
    keys = jax.random.split(jax.random.key(3), count)
    rule = SamplingRule(1.0, 0, 0.7)
    drawn = draw_tokens(jnp.tile(LOGITS, (count, 1)), keys, rule)
    shares = np.bincount(drawn, minlength=V) / count
    np.testing.assert_allclose(shares, kept(top_p=0.7)[0], atol=4 * (0.25 / count) ** 0.5)
    assert (draw_tokens(LOGITS, keys[:1], SamplingRule(0.0, 0, 1.0)) == 1).all()


def chain(tokens, cache):
    """A model that writes the number after the last one, most of the time."""
    return 3.0 * jax.nn.one_hot((tokens + 1) % V, V), cache


def write(prompts, temperature, numbers, untils=(STEPS - 1,), forbidden=()):
    """The texts [B, STEPS], of rows with these numbers, stopping on the way at `untils`."""
    tokens = np.zeros((len(prompts), STEPS), int)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    lengths = jnp.array([len(prompt) for prompt in prompts])
    state = start_sample((), Prompts(jnp.asarray(tokens), lengths))
    keys = jnp.stack([jax.random.fold_in(jax.random.key(0), n) for n in numbers])
    for until in untils:
        rule = SamplingRule(temperature, 0, 1.0)
        state = sample(chain, state, lengths, until, keys, rule, END, forbidden)
    return np.asarray(state.tokens)


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
