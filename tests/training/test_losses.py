"""The chunked loss is a loop over tokens in float64, and its gradient that of one-hot targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from transformer import losses
from transformer.losses import cross_entropy

B, L, D, V = 3, 7, 5, 11
# Positions a chunk: one, even where that is too many; two, of seven: the last is half padding; all.
CHUNKS = {1: 1, 2: 2 * B * V + 5, 7: 2**22}


@pytest.fixture(params=CHUNKS)
def chunk(request, monkeypatch):
    monkeypatch.setitem(losses.CHUNK_LOGITS, "cpu", CHUNKS[request.param])
    return request.param


def make_inputs(seed=0):
    rng = np.random.default_rng(seed)
    features = jnp.asarray(rng.normal(size=(B, L, D)), jnp.float32)
    table = jnp.asarray(rng.normal(size=(V, D)), jnp.float32)
    labels = rng.integers(V, size=(B, L))
    # Every second label is the most probable token, so that some are correct.
    labels[:, ::2] = np.argmax(np.asarray(features) @ np.asarray(table).T, -1)[:, ::2]
    weights = np.arange(L) < np.array([7, 4, 0])[:, None]
    return features, table, jnp.asarray(labels), jnp.asarray(weights, jnp.float32)


def by_loop(features, table, labels, weights, smoothing):
    features, table = np.float64(features), np.float64(table)
    loss = nll = correct = 0.0
    for b, l in np.ndindex(labels.shape):  # noqa: E741
        probabilities = np.exp(table @ features[b, l])
        probabilities /= probabilities.sum()
        wanted = [smoothing / V + (1 - smoothing) * (v == labels[b, l]) for v in range(V)]
        loss += weights[b, l] * sum(
            -q * np.log(p) for q, p in zip(wanted, probabilities, strict=True)
        )
        nll += weights[b, l] * -np.log(probabilities[labels[b, l]])
        correct += weights[b, l] * (np.argmax(probabilities) == labels[b, l])
    return loss, nll, correct, np.sum(weights)


def naive_loss(features, table, labels, weights, smoothing):
    """With all logits and a one-hot array at once."""
    log_probs = jax.nn.log_softmax(jnp.einsum("BLD,VD->BLV", features, table))
    wanted = (1 - smoothing) * jax.nn.one_hot(labels, len(table)) + smoothing / len(table)
    return -jnp.sum(weights[..., None] * wanted * log_probs)


def test_the_loss_of_one_token_by_hand():
    # Logits ln 6, ln 3, ln 1: probabilities .6, .3, .1. Smoothing .3 asks for .8, .1, .1.
    features, table = jnp.ones((1, 1, 1)), jnp.log(jnp.array([[6.0], [3.0], [1.0]]))
    sums = cross_entropy(features, table, jnp.array([[0]]), jnp.ones((1, 1)), 0.3)
    by_hand = -(0.8 * np.log(0.6) + 0.1 * np.log(0.3) + 0.1 * np.log(0.1))
    np.testing.assert_allclose(sums.loss, by_hand, rtol=1e-6)
    np.testing.assert_allclose(sums.nll, -np.log(0.6), rtol=1e-6)
    assert (sums.correct, sums.weight) == (1, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_are_those_of_a_loop_over_tokens(chunk, smoothing):
    inputs = make_inputs()
    sums = cross_entropy(*inputs, smoothing)
    expected = by_loop(*inputs, smoothing)
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    assert 0 < sums.correct < sums.weight == 11
    # Controls: another smoothing is another loss, and only that.
    other = cross_entropy(*inputs, 0.2)
    assert abs(other.loss - expected[0]) > 0.1
    np.testing.assert_allclose(other[1:], expected[1:], rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_those_of_one_hot_targets(chunk, smoothing):
    features, table, *others = make_inputs()

    def scaled(loss):
        return lambda f, t, s: 3.7 * loss(f, t, *others, s)

    def ours(*arguments):
        return cross_entropy(*arguments).loss

    expected = jax.grad(scaled(naive_loss), (0, 1))(features, table, smoothing)
    eager = jax.grad(scaled(ours), (0, 1))(features, table, smoothing)
    # Under jit the smoothing is traced.
    jitted = jax.jit(jax.grad(scaled(ours), (0, 1)))(features, table, smoothing)
    for gradients in (eager, jitted):
        for gradient, wanted in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)
    different = jax.grad(scaled(naive_loss), (0, 1))(features, table, 0.2)  # control
    assert np.abs(different[1] - eager[1]).max() > 0.01


def test_tokens_of_weight_zero_do_not_matter(chunk):
    features, table, labels, weights = make_inputs()
    off = weights == 0

    @jax.jit
    def run(features, labels):
        def loss(features, table):
            sums = cross_entropy(features, table, labels, weights, 0.1)
            return sums.loss, sums

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(features, table)

    (_, sums), (d_features, d_table) = run(features, labels)
    other_features = jnp.where(off[..., None], 9.0, features)
    other_labels = jnp.where(off, 10, labels)
    (_, other_sums), (_, other_d_table) = run(other_features, other_labels)
    np.testing.assert_array_equal(sums, other_sums)
    np.testing.assert_array_equal(d_table, other_d_table)
    np.testing.assert_array_equal(d_features[off], 0.0)
    # Control: features of tokens that count do matter.
    (_, moved), _ = run(jnp.where(off[..., None], features, 9.0), labels)
    assert abs(moved.loss - sums.loss) > 0.1


def test_only_the_loss_has_a_gradient():
    features, *others = make_inputs()
    gradient = jax.grad(lambda f: cross_entropy(f, *others, 0.1).nll)(features)
    np.testing.assert_array_equal(gradient, 0.0)


def test_bfloat16_features_give_float32_sums_and_gradients_of_their_own_types():
    features, table, *others = make_inputs()
    half = features.astype(jnp.bfloat16)

    def loss(features, table):
        sums = cross_entropy(features, table, *others, 0.1)
        return sums.loss, sums

    (_, sums), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(half, table)
    assert {x.dtype for x in sums} == {jnp.dtype("float32")}
    assert [g.dtype for g in gradients] == [jnp.bfloat16, jnp.float32]
    expected = jax.grad(naive_loss, (0, 1))(features, table, *others, 0.1)
    np.testing.assert_allclose(sums.loss, by_loop(features, table, *others, 0.1)[0], rtol=0.02)
    for gradient, wanted in zip(gradients, expected, strict=True):
        assert np.abs(np.float32(gradient) - wanted).max() < 0.05 * np.abs(wanted).max()


def largest_array(jaxpr) -> int:
    """Elements of the largest array that a program computes, its loops' bodies included."""
    size = 0
    for equation in jaxpr.eqns:
        size = max([size, *(v.aval.size for v in equation.outvars)])
        for inner in jaxprs_in_params(equation.params):
            size = max(size, largest_array(inner))
    return size


def test_no_array_holds_the_logits_of_a_whole_batch(monkeypatch):
    batch, length, width, vocab = 3, 17, 5, 101
    monkeypatch.setitem(losses.CHUNK_LOGITS, "cpu", 2 * batch * vocab)
    arguments = (
        jnp.ones((batch, length, width)),
        jnp.ones((vocab, width)),
        jnp.ones((batch, length), int),
        jnp.ones((batch, length)),
        0.1,
    )

    def gradient(loss):
        return jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(*arguments).jaxpr

    assert largest_array(gradient(lambda *a: cross_entropy(*a).loss)) == 2 * batch * vocab
    assert largest_array(gradient(naive_loss)) == batch * length * vocab  # control
