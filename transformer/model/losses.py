"""Cross-entropy with label smoothing [5.4], computed without storing all logits at once."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Shaped

from transformer.model.matmul import product, product_nt, product_tn

# Maximum number of float32 logits that a device holds at a time for each run, keyed by platform. On
# a CPU, they take 8 MiB: larger chunks do not fit in the CPU cache, and smaller chunks more often
# read and write the gradient of the whole table, which each chunk updates. On an accelerator, they
# take 256 MiB, which splits a batch of 25,000 tokens and 32,000 subwords into 12 chunks.
CHUNK_LOGITS = {"cpu": 2**21, "gpu": 2**26, "tpu": 2**26}
ROWS_AXES = ("data", "fsdp")  # mesh axes over which a batch is sharded


class TokenSums(NamedTuple):
    """Weighted float32 sums over the tokens of a batch; divide by `weight` for means.

    `loss` is the training loss; `nll` is the negative log-likelihood in nats, without smoothing;
    `correct` is the number of labels with the highest predicted probability (the first of ties).
    """

    loss: Float[Array, ""]
    nll: Float[Array, ""]
    correct: Float[Array, ""]
    weight: Float[Array, ""]


def r_drop(log_probs: Float[Array, "2 *N V"], _: Array) -> tuple[Array, Array]:
    """Returns half of KL(p || q) and half of KL(q || p) for passes p and q, and logit gradients.

    For the logits of each pass, the gradient is half the gradient of KL(p || q) + KL(q || p). The
    loss is the mean over both passes, which is half the loss of Liang et al.:

        (loss(p) + loss(q)) / 2 + weight / 4 * (KL(p || q) + KL(q || p))

    Source: Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", equation 4.
    """
    probs = jnp.exp(log_probs)
    log_ratio = log_probs[0] - log_probs[1]
    log_ratio = jnp.stack([log_ratio, -log_ratio])
    # Computed as a product, since XLA sums rows of intermediate values slowly on a CPU. The terms
    # nearly cancel, so accelerators must not round the operands.
    divergence = jnp.einsum("...V,...V->...", probs, log_ratio, precision="highest")
    gradient = probs * (log_ratio - divergence[..., None] + 1.0) - probs[::-1]
    return 0.5 * divergence, 0.5 * gradient


# Auxiliary losses, keyed by the name of their weight in `config.train`: (function, minimum P). The
# function maps log-probabilities and logsumexp of the logits [P, ..., V], for P passes over a
# batch, to values to average over the passes, and to the gradient of the values for the logits.
TERMS: dict[str, tuple[Callable[..., tuple[Array, Array]], int]] = {"r_drop": (r_drop, 2)}
CROSS_ENTROPY: Mapping[str, Any] = {}  # no auxiliary losses


def cross_entropy(
    features: Float[Array, "B L D"],
    table: Float[Array, "V D"],
    labels: Int[Array, "B L"],
    weights: Float[Array, "B L"],
    smoothing: float | Float[Array, ""],
    terms: Mapping[str, Any] = CROSS_ENTROPY,
) -> TokenSums:
    """Returns the sums of the label-smoothed loss, where logits = features table^T.

    The target distribution gives the label a probability of 1 - smoothing, and distributes
    smoothing uniformly over all V tokens, including the label (Szegedy et al. 2016, section 7). The
    loss is then

        loss = (1 - smoothing) * (logsumexp(logits) - logits[label])
             + smoothing * (logsumexp(logits) - mean(logits)).

    This formula needs no one-hot array. Only `loss` is differentiable.

    The logits are by far the largest array of a batch. Therefore, the logits and their gradient are
    computed for a few target positions at a time. On a CPU, padding is skipped.

    If the mesh of the traced program has the axes `ROWS_AXES`, each device processes its own shard
    of the batch, and the sums and the gradient of the table are reduced once, after the last chunk.
    XLA's automatic partitioning would add a reduction to every iteration of the loop.

    Args:
      weights: 1 for tokens in the loss, 0 for padding.
      smoothing: the label smoothing factor, in [0, 1).
      terms: the weights of auxiliary losses, keyed as in TERMS. The sums are averaged over the
        passes that these losses need; see `repeat_rows`.
    """
    weights = weights / count_passes(terms)
    loss, (nll, correct) = _chunked_loss(features, table, labels, weights, smoothing, terms)
    return TokenSums(loss, nll, correct, weights.sum())


def guided_alignment(
    weights: Float[Array, "B L M"],
    links: Bool[Array, "B L M"],
    terms: Mapping[str, Any] = CROSS_ENTROPY,
) -> Float[Array, ""]:
    """Returns the sum over linked rows of the mean of -log(weight) over the links of the row.

    Args:
      weights: the weights of cross-attention in the rows that predict the labels.
      links: True where a label is linked to a source token.
      terms: see `cross_entropy`; the sum is averaged over passes.

    Source: Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine
    Translation".
    """
    logs = jnp.log(jnp.where(links, jnp.maximum(weights, jnp.finfo(jnp.float32).tiny), 1.0))
    means = logs.sum(axis=-1) / jnp.maximum(links.sum(axis=-1), 1)
    return -means.sum(dtype=jnp.float32) / count_passes(terms)


def row_nll(
    features: Float[Array, "B L D"],
    table: Float[Array, "V D"],
    labels: Int[Array, "B L"],
    weights: Float[Array, "B L"],
) -> Float[Array, "B"]:
    """Returns the negative log-likelihood of each sequence in nats; see `cross_entropy`."""
    return _on_own_rows(_row_nll)(features, table, labels, weights, 0.0, CROSS_ENTROPY)[1]


def count_passes(terms: Mapping[str, Any]) -> int:
    """Returns the number of passes over a batch that the auxiliary losses need."""
    return max((TERMS[name][1] for name in terms), default=1)


def repeat_rows(batch: Any, terms: Mapping[str, Any]) -> Any:
    """Repeats each sequence of a batch once per pass; dropout differs between passes."""
    passes = count_passes(terms)
    return jax.tree.map(lambda x: jnp.repeat(x, passes, axis=0), batch) if passes > 1 else batch


def class_cross_entropy(
    logits: Float[Array, "B C"],
    labels: Int[Array, "B"],
    class_weights: Float[Array, "C"],
    smoothing: float | Float[Array, ""],
    terms: Mapping[str, Any] = CROSS_ENTROPY,
) -> TokenSums:
    """Returns the sums of the label-smoothed classification loss; see `cross_entropy`.

    The loss of each text is multiplied by its class weight. The other sums are unweighted, and
    `weight` is the number of texts.

    Args:
      labels: class ids, counted from zero; negative for padding rows.
    """
    there, own = labels >= 0, jnp.maximum(labels, 0)
    log_probs = jax.nn.log_softmax(logits)
    nll = -jnp.take_along_axis(log_probs, own[:, None], axis=1)[:, 0]
    loss = (1.0 - smoothing) * nll - smoothing * log_probs.mean(axis=1)
    correct, passes = logits.argmax(axis=1) == labels, count_passes(terms)
    by_pass = [_by_pass(x, passes) for x in (log_probs, jax.nn.logsumexp(logits, axis=1))]
    for name, weight in terms.items():
        values, _ = TERMS[name][0](*by_pass)
        loss += weight * values.T.ravel()

    def total(values):
        return jnp.where(there, values, 0).sum(dtype=jnp.float32)

    sums = TokenSums(total(loss * class_weights[own]), total(nll), total(correct), total(there))
    return jax.tree.map(lambda total: total / passes, sums)


def _by_pass(x: Shaped[Array, "B ..."], passes: int) -> Shaped[Array, "P b ..."]:
    """Moves the passes, which are adjacent rows of a batch, to a first axis; see `repeat_rows`."""
    return jnp.moveaxis(x.reshape(-1, passes, *x.shape[1:]), 1, 0)


@jax.custom_vjp
def _chunked_loss(features, table, labels, weights, smoothing, terms):
    arguments = features, table, labels, weights, smoothing, terms
    (loss, *others), _ = _on_own_rows(_sums)(*arguments)
    return loss, tuple(others)


def _forward(*arguments):
    (sums, d_table), d_features = _on_own_rows(_sums_and_gradients)(*arguments)
    table = arguments[1]
    loss, *others = sums
    return (loss, tuple(others)), (d_features, d_table.astype(table.dtype))


def _on_own_rows(work: Callable) -> Callable:
    """Applies `work` to each device's batch shard, and sums the first result over all devices."""
    if not set(ROWS_AXES) <= set(jax.sharding.get_abstract_mesh().axis_names):
        return work

    def on_device(*arguments):
        sums, by_row = work(*arguments)
        return jax.lax.psum(sums, ROWS_AXES), by_row

    rows, whole = PartitionSpec(ROWS_AXES), PartitionSpec()
    return jax.shard_map(
        on_device,
        in_specs=(rows, whole, rows, rows, whole, whole),
        out_specs=(whole, rows),
        axis_names=set(ROWS_AXES),  # XLA partitions the table over the other axes
        check_vma=False,  # the initial zeros of the loop are the same on all devices
    )


def _row_nll(features, table, labels, weights, smoothing, terms):
    """Returns ((), the negative log-likelihood of each sequence); there are no sums."""
    chunks = _cut(features, table, labels, weights, terms)

    def body(i, nll):
        logits, label_logits = _logits(*chunks.take(i)[:2], table)
        return nll.at[i].set(jax.nn.logsumexp(logits, axis=-1) - label_logits)

    nll = jax.lax.fori_loop(0, chunks.turns, body, jnp.zeros(chunks.labels.shape, jnp.float32))
    return (), (chunks.restore(nll, labels.shape) * weights).sum(axis=1)


def _sums(features, table, labels, weights, smoothing, terms):
    """Returns ((loss, nll, correct), None); there are no values per sequence."""
    chunks = _cut(features, table, labels, weights, terms)

    def body(i, sums):
        new, _ = _chunk_sums(chunks.take(i), table, smoothing, terms)
        return jax.tree.map(jnp.add, sums, new)

    zero = jnp.zeros((), jnp.float32)
    return jax.lax.fori_loop(0, chunks.turns, body, (zero, zero, zero)), None


def _sums_and_gradients(features, table, labels, weights, smoothing, terms):
    """Returns ((loss, nll, correct), gradient of the table), and the gradient of the features."""
    chunks = _cut(features, table, labels, weights, terms)

    def body(i, carry):
        (sums, d_table), d_features = carry
        chunk = chunks.take(i)
        new, d_logits = _chunk_sums(chunk, table, smoothing, terms)
        d_logits = d_logits.astype(features.dtype)
        d_logits, own = (x.reshape(-1, x.shape[-1]) for x in (d_logits, chunk[0]))
        by_own = product(d_logits, table.astype(features.dtype)).reshape(chunk[0].shape)
        d_table += product_tn(own, d_logits)
        d_features = d_features.at[i].set(by_own.astype(features.dtype))
        return (jax.tree.map(jnp.add, sums, new), d_table), d_features

    zero = jnp.zeros((), jnp.float32)
    # Transposed, since a CPU would otherwise transpose the logits' gradient, not the features.
    start = (zero, zero, zero), jnp.zeros(table.shape[::-1], jnp.float32)
    zeros = jnp.zeros_like(chunks.features)
    (sums, d_table), d_features = jax.lax.fori_loop(0, chunks.turns, body, (start, zeros))
    return (sums, d_table.T), chunks.restore(d_features, features.shape)


def _backward(residuals, cotangents):
    (d_loss, _), (d_features, d_table) = cotangents, residuals
    by_features = (d_loss * d_features).astype(d_features.dtype)
    return by_features, d_loss * d_table, None, None, None, None


_chunked_loss.defvjp(_forward, _backward)


class _Chunks(NamedTuple):
    """The positions of a batch, split into chunks; P is the number of passes over each sequence.

    Attributes:
      turns: the number of chunks to compute.
      places: each batch position's index in the flattened chunks; None if the order is unchanged.
    """

    features: Float[Array, "chunks P N D"]
    labels: Int[Array, "chunks P N"]
    weights: Float[Array, "chunks P N"]
    turns: int | Int[Array, ""]
    places: Int[Array, "positions"] | None

    def take(self, i):
        """Returns the features, labels and weights of one chunk."""
        return self.features[i], self.labels[i], self.weights[i]

    def restore(self, x, shape):
        """Returns a chunked array, [chunks, P, N, ...], in the order and shape of the batch."""
        passes = x.shape[1]
        x = jnp.moveaxis(x, 0, 1).reshape(passes, -1, *x.shape[3:])
        x = x[:, : math.prod(shape[:2]) // passes] if self.places is None else x[:, self.places]
        return jnp.moveaxis(x.reshape(passes, -1, *shape[1:]), 0, 1).reshape(shape)


def _cut(features, table, labels, weights, terms):
    """Splits the positions of a batch into chunks.

    On a CPU, padding is moved to the end, and chunks with only padding are skipped. On an
    accelerator, all chunks are computed: counting them first would make the host wait.
    """
    passes, backend = count_passes(terms), jax.default_backend()
    total = labels.size // passes
    held = CHUNK_LOGITS.get(backend, CHUNK_LOGITS["gpu"]) // (passes * table.shape[0])
    count = -(-total // max(1, held))
    size = -(-total // count)  # equal sizes minimise padding
    turns, order, places = count, None, None
    if backend == "cpu":
        padding = _by_pass(weights, passes)[0].ravel() == 0
        order = jnp.argsort(padding, stable=True)
        places = jnp.argsort(order)
        turns = -(-jnp.sum(~padding) // size)

    def cut(x):
        x = _by_pass(x, passes).reshape(passes, total, *x.shape[2:])
        x = x if order is None else x[:, order]
        x = jnp.pad(x, [(0, 0), (0, count * size - total)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(passes, count, size, *x.shape[2:]), 1, 0)

    return _Chunks(cut(features), cut(labels), cut(weights), turns, places)


def _logits(features, labels, table):
    """Returns the float32 logits of one chunk, and the logits of its labels."""
    flat = features.reshape(-1, features.shape[-1])
    logits = product_nt(flat, table.astype(features.dtype))
    logits = logits.reshape(*features.shape[:-1], -1)
    return logits, jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]


def _chunk_sums(chunk, table, smoothing, terms):
    """Returns (loss, nll, correct) for one chunk, and the gradient of its logits."""
    features, labels, weights = chunk
    logits, label_logits = _logits(features, labels, table)
    largest = logits.max(axis=-1)
    # The logsumexp is written out, because the gradient uses the same exponentials.
    exponentials = jnp.exp(logits - largest[..., None])
    normalizer = exponentials.sum(axis=-1)
    log_normalizer = largest + jnp.log(normalizer)
    nll = log_normalizer - label_logits
    uniform = log_normalizer - logits.mean(axis=-1)
    loss = (1.0 - smoothing) * nll + smoothing * uniform
    tokens = jnp.arange(table.shape[0])
    # Only the first token counts among ties, as in argmax, which XLA does not vectorise on a CPU.
    before = jnp.where(tokens < labels[..., None], logits, -jnp.inf).max(axis=-1)
    correct = (label_logits >= largest) & (before < largest)
    target = jnp.where(tokens == labels[..., None], 1.0 - smoothing, 0.0)
    target += smoothing / table.shape[0]
    d_logits = exponentials * (1.0 / normalizer)[..., None] - target
    for name, weight in terms.items():
        values, gradient = TERMS[name][0](logits - log_normalizer[..., None], log_normalizer)
        loss += weight * values
        d_logits += weight * gradient
    d_logits *= weights[..., None]
    total = functools.partial(jnp.sum, dtype=jnp.float32)
    return (total(loss * weights), total(nll * weights), total(correct * weights)), d_logits
