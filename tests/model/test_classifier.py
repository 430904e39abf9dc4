"""Classifiers read tokens and no padding; each pooling is its equation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import float64
from tiny_models import tiny_config
from transformer.model.classifier import (
    POOLINGS,
    BagOfEmbeddings,
    Classifier,
    bigram_hash,
)
from transformer.model.layers import NO_DROPOUT, DropoutRates

B, M, D, C, E = 3, 7, 22, 5, 11
LENGTHS = np.array([7, 4, 2])
MASK = jnp.arange(M) < LENGTHS[:, None]
TOKENS = jnp.where(MASK, 1 + jnp.arange(B * M).reshape(B, M) % 16, 0)
ENCODER = tiny_config(num_encoder_layers=1, num_decoder_layers=0)
MODELS = {
    **{pooling: Classifier(ENCODER, C, pooling) for pooling in POOLINGS},
    "recurrent": Classifier(dataclasses.replace(ENCODER, architecture="recurrent"), C, "mean"),
    "bag_of_embeddings": BagOfEmbeddings(17, C, width=E, hidden=13),
    "bag_of_embeddings with bigrams": BagOfEmbeddings(17, C, width=E, hidden=13, bigram_buckets=29),
}

RUN = {name: jax.jit(model.apply) for name, model in MODELS.items()}


@pytest.fixture(scope="module")
def variables():
    def init(name):
        params = jax.jit(MODELS[name].init)(jax.random.key(0), TOKENS, MASK)["params"]
        # Biases start at zero and would not be seen.
        waves = (
            0.1 * jnp.cos(jnp.arange(x.size)).reshape(x.shape) for x in jax.tree.leaves(params)
        )
        tree = jax.tree.unflatten(jax.tree.structure(params), waves)
        return {"params": jax.tree.map(jnp.add, params, tree)}

    made = {
        name: init(name)
        for name in (
            "attention",
            "recurrent",
            "bag_of_embeddings",
            "bag_of_embeddings with bigrams",
        )
    }
    shared = {"params": {**made["attention"]["params"]}}
    del shared["params"]["attention_pooling"]
    return {**made, "mean": shared, "first": shared}


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing_and_a_token_does(variables, name):
    def run(tokens, mask):
        return np.asarray(RUN[name](variables[name], tokens, mask).logits)

    expected = run(TOKENS, MASK)
    np.testing.assert_allclose(run(jnp.where(MASK, TOKENS, 3), MASK), expected, atol=1e-6)
    longer = (jnp.pad(TOKENS, ((0, 0), (0, 4))), jnp.pad(MASK, ((0, 0), (0, 4))))
    np.testing.assert_allclose(run(*longer), expected, atol=1e-5)
    changed = run(TOKENS.at[:, 1].set(12), MASK)  # control: a token of every text
    assert (np.abs(changed - expected).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_text_without_tokens_gets_finite_scores(variables, name):
    result = RUN[name](variables[name], TOKENS, jnp.zeros_like(MASK))
    assert all(np.isfinite(x).all() for x in result)
    if name != "first":
        np.testing.assert_array_equal(result.embedding, 0)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_logits_are_a_linear_map_of_what_is_pooled_of_the_encoder(variables, pooling):
    model, params = MODELS[pooling], variables[pooling]["params"]
    encode = lambda model: model.encoder.encode(TOKENS, MASK)  # noqa: E731
    memory = np.float64(model.apply({"params": params}, method=encode))
    logits, embedding = model.apply({"params": params}, TOKENS, MASK)
    p = float64(params)
    for row, length in enumerate(LENGTHS):
        x = memory[row, :length]
        if pooling == "mean":
            expected = x.mean(axis=0)
        elif pooling == "first":
            expected = x[0]
        else:
            hidden = p["attention_pooling"]["hidden"]
            u = np.tanh(x @ hidden["kernel"] + hidden["bias"])
            weights = np.exp(u @ p["attention_pooling"]["query"])
            expected = (weights / weights.sum()) @ x
        np.testing.assert_allclose(embedding[row], expected, rtol=1e-4, atol=1e-5)
        scores = expected @ p["output"]["kernel"] + p["output"]["bias"]
        np.testing.assert_allclose(logits[row], scores, rtol=1e-4, atol=1e-5)
        # The control: a mean over padding too would be another.
        assert not np.allclose(embedding[row], memory[row].mean(axis=0), atol=0.01) or length == M


@pytest.mark.full
@pytest.mark.parametrize("name", ["attention", "recurrent", "bag_of_embeddings with bigrams"])
@pytest.mark.parametrize("word", [False, True])
def test_dropout_acts_only_if_rates_are_given(variables, name, word):
    rates = (
        DropoutRates(embedding=0.5) if "bag_of_embeddings" in name else DropoutRates(residual=0.5)
    )
    rates = DropoutRates(word=0.5) if word else rates

    def run(rates, seed):
        rngs = {"dropout": jax.random.key(seed)}
        return np.asarray(
            MODELS[name].apply(variables[name], TOKENS, MASK, rates, rngs=rngs).logits
        )

    np.testing.assert_array_equal(run(NO_DROPOUT, 0), run(NO_DROPOUT, 1))
    assert np.abs(run(rates, 0) - run(rates, 1)).max() > 1e-3


def test_a_bag_of_embeddings_is_its_equation(variables):
    p = float64(variables["bag_of_embeddings"]["params"])
    logits, embedding = MODELS["bag_of_embeddings"].apply(
        variables["bag_of_embeddings"], TOKENS, MASK
    )
    for row, length in enumerate(LENGTHS):
        mean = p["table"][np.asarray(TOKENS[row, :length])].mean(axis=0)
        inner = np.maximum(0, mean @ p["inner"]["kernel"] + p["inner"]["bias"])
        expected = inner @ p["output"]["kernel"] + p["output"]["bias"]
        np.testing.assert_allclose(embedding[row], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(logits[row], expected, rtol=1e-5, atol=1e-6)


def test_bigrams_are_averaged_with_the_tokens_in_rows_of_their_own(variables):
    name = "bag_of_embeddings with bigrams"
    table = float64(variables[name]["params"])["table"]
    assert table.shape == (17 + 29, E)
    embedding = MODELS[name].apply(variables[name], TOKENS, MASK).embedding
    buckets = np.asarray(bigram_hash(TOKENS, 29))
    for row, length in enumerate(LENGTHS):
        rows = [*np.asarray(TOKENS[row, :length]), *(17 + buckets[row, : length - 1])]
        np.testing.assert_allclose(embedding[row], table[rows].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_bigrams_fall_into_all_buckets_equally_and_their_order_counts():
    first, second = jnp.meshgrid(jnp.arange(200), jnp.arange(200))
    pairs = jnp.stack([first.ravel(), second.ravel()], axis=1)
    buckets = np.asarray(bigram_hash(pairs, 101)).ravel()
    counts = np.bincount(buckets, minlength=101)
    assert len(counts) == 101
    expected = 200**2 / 101  # a random bucket each would give a chi-squared of 100 ± 14
    assert ((counts - expected) ** 2 / expected).sum() < 160
    turned = np.asarray(bigram_hash(pairs[:, ::-1], 101)).ravel()
    assert (buckets == turned).mean() < 0.03


def test_the_cost_of_a_token_counts_the_pooling_that_each_token_meets(variables):
    costs = {name: MODELS[name].weights_per_token(variables[name]["params"]) for name in POOLINGS}
    assert costs["attention"] - costs["mean"] == D * D  # the hidden layer; the query is no kernel
    assert costs["first"] == costs["mean"] > 0
