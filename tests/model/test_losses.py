"""The chunked loss is a loop over tokens in float64, and its gradient that of one-hot targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from transformer.model import losses
from transformer.model.losses import class_cross_entropy, cross_entropy, repeat_rows, row_nll

pytestmark = pytest.mark.device

B, L, D, V = 3, 7, 5, 11
# Positions per chunk: one, even if that is too many; six of 21, of which 11 count; all.
CHUNKS = {1: 1, 6: 6 * V + 5, 21: 2**22}


@pytest.fixture(params=[6, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 21))])
def chunk(request, monkeypatch):
    monkeypatch.setitem(losses.CHUNK_LOGITS, jax.default_backend(), CHUNKS[request.param])
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


@pytest.mark.full
def test_of_equal_logits_only_the_first_is_predicted(chunk):
    labels = jnp.arange(7).reshape(1, 7)
    equal = cross_entropy(jnp.zeros((1, 7, D)), jnp.ones((7, D)), labels, jnp.ones((1, 7)), 0.0)
    assert (equal.correct, equal.weight) == (1, 7)
    # Tokens 2 and 4 are equally probable, and 2 is the first of them.
    table = jnp.array([[0.0], [1], [3], [2], [3], [0], [1]])
    for label, correct in ((2, 7), (4, 0)):
        labels = jnp.full((1, 7), label)
        sums = cross_entropy(jnp.ones((1, 7, 1)), table, labels, jnp.ones((1, 7)), 0.0)
        assert sums.correct == correct


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


@pytest.mark.parametrize("gradient", [False, True])
def test_chunks_of_padding_are_left_out(gradient, chunk, monkeypatch):
    chunks, chunk_sums = [], losses._chunk_sums

    def count(chunk, *others):
        jax.debug.callback(lambda weights: chunks.append(weights.sum()), chunk[2])
        return chunk_sums(chunk, *others)

    monkeypatch.setattr(losses, "_chunk_sums", count)
    features, *others = make_inputs()

    def loss(features):
        return cross_entropy(features, *others, 0.1).loss

    jax.block_until_ready((jax.grad(loss) if gradient else loss)(features))
    jax.effects_barrier()
    left_out = {1: [1] * 11, 6: [6, 5], 21: [11]}
    # An accelerator takes all of them, in their order.
    all_of_them = {1: [1] * 11 + [0] * 10, 6: [6, 5, 0, 0], 21: [11]}
    expected = left_out if jax.default_backend() == "cpu" else all_of_them
    assert [int(count) for count in chunks] == expected[chunk]


@pytest.mark.full
@pytest.mark.parametrize("terms", [{}, {"r_drop": 0.7}])
def test_an_accelerator_takes_all_chunks_in_their_order(chunk, monkeypatch, terms):
    """The other order of positions, traced for a GPU and computed here."""
    features, table, *others = make_pairs() if terms else make_inputs()

    def run():
        def loss(features, table):
            sums = cross_entropy(features, table, *others, 0.1, terms)
            return sums.loss, sums

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(features, table)

    here = run(), row_nll(features, table, *others)
    monkeypatch.setitem(losses.CHUNK_LOGITS, "gpu", CHUNKS[chunk])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    there = run(), row_nll(features, table, *others)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, there, here)


def test_the_likelihoods_of_rows_are_those_of_batches_of_one(chunk):
    inputs = make_inputs()
    rows = [
        by_loop(*(x[i : i + 1] if n != 1 else x for n, x in enumerate(inputs)), 0.0)[1]
        for i in range(B)
    ]
    np.testing.assert_allclose(row_nll(*inputs), rows, rtol=1e-5, atol=1e-6)
    assert rows[2] == 0.0 < min(rows[:2])


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


# -- R-Drop

ALPHA = 0.7
TERMS = {"r_drop": ALPHA}


def make_pairs():
    """Two passes over each of two rows."""
    rng = np.random.default_rng(5)
    features = jnp.asarray(rng.normal(size=(4, L, D)), jnp.float32)
    _, table, labels, weights = make_inputs()
    return features, table, *(repeat_rows(x[:2], TERMS) for x in (labels, weights))


def plain_r_drop(features, table, labels, weights, smoothing, alpha):
    """Liang et al. 2021, equations 2 to 4, halved: all logits at once."""
    log_probs = jax.nn.log_softmax(jnp.einsum("BLD,VD->BLV", features, table))
    p, q = log_probs[::2], log_probs[1::2]
    both = (jnp.exp(p) * (p - q)).sum(-1) + (jnp.exp(q) * (q - p)).sum(-1)
    divergence = jnp.sum(weights[::2] * both) / 2
    return (naive_loss(features, table, labels, weights, smoothing) + alpha * divergence) / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_and_its_gradients_are_those_of_its_equations(chunk, smoothing):
    features, table, *others = make_pairs()

    def ours(f, t, alpha):
        return 3.7 * cross_entropy(f, t, *others, smoothing, {"r_drop": alpha}).loss

    def plain(f, t, alpha):
        return 3.7 * plain_r_drop(f, t, *others, smoothing, alpha)

    compiled = jax.jit(jax.value_and_grad(ours, (0, 1)))
    value, gradients = compiled(features, table, ALPHA)
    expected, wanted = jax.value_and_grad(plain, (0, 1))(features, table, ALPHA)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for own, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours(features, table, ALPHA), expected, rtol=1e-5)  # no gradient
    compiled(features, table, 2 * ALPHA)
    assert compiled._cache_size() == 1
    # Controls: another weight, and pairs that do not belong together.
    for change in ((features, 2 * ALPHA), (features[jnp.array([0, 2, 1, 3])], ALPHA)):
        _, other = jax.value_and_grad(plain, (0, 1))(change[0], table, change[1])
        assert np.abs(other[1] - gradients[1]).max() > 0.01


@pytest.mark.full
@pytest.mark.parametrize("alpha", [ALPHA, 0.0])
def test_r_drop_of_classes_is_that_of_its_equations(alpha):
    rng = np.random.default_rng(3)
    logits = jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)
    labels, class_weights = jnp.array([2, 2, -1, -1, 4, 4]), jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])

    def plain(logits):
        # Rows of length one, whose classes are the vocabulary.
        weights = jnp.where(labels < 0, 0.0, class_weights[labels])[:, None]
        own = jnp.maximum(labels, 0)[:, None]
        return plain_r_drop(logits[:, None], jnp.eye(5), own, weights, 0.1, alpha)

    def ours(logits):
        sums = class_cross_entropy(logits, labels, class_weights, 0.1, {"r_drop": alpha})
        return sums.loss, sums

    (loss, sums), gradient = jax.value_and_grad(ours, has_aux=True)(logits)
    expected, wanted = jax.value_and_grad(plain)(logits)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
    assert sums.weight == 2
    assert not np.any(gradient[2:4])


@pytest.mark.full
@pytest.mark.parametrize("others", [{}, {"r_drop": 0.0}])
def test_a_registered_term_is_added_to_the_loss_of_tokens_and_of_classes(monkeypatch, others):
    def z_loss(log_probs, log_normalizer):  # Chowdhery et al. 2022, "PaLM", section 5
        return log_normalizer**2, 2 * log_normalizer[..., None] * jnp.exp(log_probs)

    monkeypatch.setitem(losses.TERMS, "penalty", (z_loss, 1))
    features, table, labels, weights = make_pairs()
    terms = {"penalty": 0.3, **others}

    def plain(f, t):
        penalty = (weights * jax.nn.logsumexp(f @ t.T, axis=-1) ** 2).sum()
        return (naive_loss(f, t, labels, weights, 0.1) + 0.3 * penalty) / (1 + len(others))

    def of_tokens(f, t):
        return cross_entropy(f, t, labels, weights, 0.1, terms).loss

    def of_classes(f, t):
        logits, classes = (f @ t.T).reshape(-1, V), jnp.where(weights > 0, labels, -1).ravel()
        return class_cross_entropy(logits, classes, jnp.ones(V), 0.1, terms).loss

    expected = jax.value_and_grad(plain, (0, 1))(features, table)
    for ours in (of_tokens, of_classes):
        found = jax.value_and_grad(ours, (0, 1))(features, table)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
        jax.tree.map(close, found, expected)


def largest_array(jaxpr) -> int:
    """Elements of the largest array that a program computes, its loops' bodies included."""
    size = 0
    for equation in jaxpr.eqns:
        size = max([size, *(v.aval.size for v in equation.outvars)])
        for inner in jaxprs_in_params(equation.params):
            size = max(size, largest_array(inner))
    return size


@pytest.mark.parametrize("terms", [{}, {"r_drop": 0.7}])
def test_no_array_holds_the_logits_of_a_whole_batch(monkeypatch, terms):
    batch, length, width, vocab = 4, 17, 5, 101
    monkeypatch.setitem(losses.CHUNK_LOGITS, jax.default_backend(), 2 * batch * vocab)
    arguments = (
        jnp.ones((batch, length, width)),
        jnp.ones((vocab, width)),
        jnp.ones((batch, length), int),
        jnp.ones((batch, length)),
        0.1,
    )

    def gradient(loss):
        return jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(*arguments).jaxpr

    assert largest_array(gradient(lambda *a: cross_entropy(*a, terms).loss)) == 2 * batch * vocab
    rows = jax.make_jaxpr(row_nll)(*arguments[:-1]).jaxpr
    assert largest_array(rows) == 2 * batch * vocab
    assert largest_array(gradient(naive_loss)) == batch * length * vocab  # control
