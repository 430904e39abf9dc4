"""The logit lens, and attributions of written tokens to the tokens that are read.

The lens applies the output projection to the residual stream after each layer, from layer 0, the
embedding. If the model has a final norm, it is computed for each stream. Integrated gradients are
means over the straight path between embeddings (with positions): at the baseline, its start, each
token that is read is end-of-sentence.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Sundararajan et al. 2017,
"Axiomatic Attribution for Deep Networks", section 3.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped
from ml_collections import ConfigDict

from transformer.analysis.snapshots import RowSums
from transformer.data.tokenizer import EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.errors import UserError
from transformer.inference.base import Variables, labels_of
from transformer.inference.translator import Translator
from transformer.model.interventions import Change, sown
from transformer.model.interventions import variables as intervening
from transformer.model.losses import cross_entropy

METHODS = "integrated_gradients", "gradient_x_input"
EMBEDDINGS = "encoder_embedding", "decoder_embedding"  # places of interventions
POINTS_AT_ONCE = 8  # points of the path in a batch


class Lens(NamedTuple):
    """The lens of a stack: the most probable tokens after each layer, most probable first.

    `tokens` are those that the encoder reads or the decoder writes. Log-probabilities are in nats.
    """

    tokens: list[str]
    token_log_probs: Float[np.ndarray, "layers L"]
    log_probs: Float[np.ndarray, "layers L K"]
    best: Shaped[np.ndarray, "layers L K"]


class Attribution(NamedTuple):
    """How much each token that is read adds to the log-probability of each token that is written.

    The columns of `values`, in nats, are the source tokens and then the target tokens. `change` is
    the log-probability less that at the baseline: a row of integrated gradients sums to it, in the
    limit of many steps.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    written_tokens: list[str]
    values: Float[np.ndarray, "L T"]
    change: Float[np.ndarray, "L"]

    @property
    def fractions(self) -> Float[np.ndarray, "L T"]:
        """The values, scaled such that the absolute values of each row sum to 1."""
        return self.values / np.abs(self.values).sum(axis=1, keepdims=True)


def _read(predictor: Any, variables: Variables, texts: Sequence[str]) -> tuple[Any, list[Any]]:
    """Returns a batch of one text or pair, and the ids of both sides, if any, and of the labels."""
    if not predictor.model.has_heads:
        architecture = predictor.model.config.architecture
        raise UserError(f"config.model.architecture={architecture} has no residual stream")
    if isinstance(predictor, Translator):
        texts = predictor.with_target(variables, *texts)
    [(_, batch)] = predictor.text_batches(*([text] for text in texts))
    sides = *predictor.inputs(batch)[:2], batch.labels
    return batch, [np.asarray(x[0])[x[0] != PAD_ID] for x in sides if x is not None]


def read_layers(
    predictor: Any, variables: Variables, texts: Sequence[str], num_best: int
) -> dict[str, Lens]:
    """Returns the lens of the "decoder" and, if all embeddings are tied, of the "encoder".

    Args:
      texts: a text, or a source and, unless it is to be translated, its target.
    """
    batch, (source, *_, written) = _read(predictor, variables, texts)
    stacks, lenses = {"decoder": written}, {}
    if predictor.model.config.one_table:
        stacks["encoder"] = source
    for stack, ids in stacks.items():
        arrays = jax.device_get(_read_layers(predictor, stack, num_best, variables, batch))
        of_tokens, log_probs, best = (x[:, : len(ids)] for x in arrays)
        names = np.reshape(predictor.pieces(best.ravel()), best.shape)
        lenses[stack] = Lens(predictor.pieces(ids), of_tokens, log_probs, names)
    return lenses


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _read_layers(predictor, stack, num_best, variables, batch):
    """Returns the arrays of a `Lens`, with token ids in place of the most probable tokens."""
    logits = project_streams(predictor, variables, batch, stack, "logits")
    log_probs = jax.nn.log_softmax(jnp.concatenate(logits))
    ids = (batch.labels if stack == "decoder" else batch.source)[0]
    possible = log_probs.at[..., jnp.array(NEVER_WRITTEN)].set(-jnp.inf)
    return log_probs[:, jnp.arange(len(ids)), ids], *jax.lax.top_k(possible, num_best)


def project_streams(
    predictor: Any, variables: Variables, batch: Any, stack: str, method: str
) -> list[Any]:
    """Returns "logits" or "output_factors" of the stream after each layer of a stack."""
    model, values = predictor.model, predictor.sown(variables, batch)

    def project(module, x):
        has_norm = model.config.normalizes_input
        return getattr(module, method)(getattr(module, f"{stack}_norm")(x) if has_norm else x)

    layers = sown(values, f"{stack}_layers", "feed_forward_residual", "stream")
    streams = [*values[f"{stack}_embedding"], *layers]
    return [model.apply(variables, x, method=project) for x in streams]


def lens_of(predictor: Any, settings: ConfigDict) -> Callable[[Any, Any], RowSums] | None:
    """Returns a function (variables, batch) -> the loss in nats per token after each decoder layer.

    Returns None if it is not wanted by `settings`, which is `config.evaluate`.
    """

    def lens(variables, batch):
        _, *layers = project_streams(predictor, variables, batch, "decoder", "output_factors")
        labels, weights = labels_of(batch)
        sums = [cross_entropy(x, table, labels, weights, 0.0) for x, table in layers]
        return RowSums(jnp.stack([x.nll[None] for x in sums]), jnp.stack([x.weight for x in sums]))

    return lens if settings.snapshot_lens and predictor.model.has_heads else None


def attribute(
    predictor: Any, variables: Variables, texts: Sequence[str], method: str, steps: int
) -> Attribution:
    """Returns the attributions by one of METHODS.

    Args:
      texts: see `read_layers`.
      steps: number of points on the path of integrated gradients.
    """
    if method not in METHODS:
        raise UserError(f"method={method!r} is unknown: choose one of {', '.join(METHODS)}")
    is_path = method == METHODS[0]
    # The midpoint rule: gradients of ReLU jump, so rules of a higher order gain nothing.
    points = np.asarray((np.arange(steps) + 0.5) / steps if is_path else [1], np.float32)
    batch, (*source, target, written) = _read(predictor, variables, texts)
    arrays = jax.device_get(_attribute(predictor, variables, batch, points, float(is_path)))
    values, change = (x[: len(written)] for x in arrays)
    source, start = source[0] if source else [], values.shape[1] - len(batch.labels[0])
    return Attribution(
        predictor.source_tokenizer.pieces(source) if start else [],
        predictor.pieces(target),
        predictor.pieces(written),
        values[:, np.r_[: len(source), start : start + len(target)]],
        change,
    )


@functools.partial(jax.jit, static_argnums=0)
def _attribute(predictor, variables, batch, points, scale):
    """Returns `values` and `change` of an `Attribution`; `scale` multiplies the baseline."""
    model, inputs, [labels] = predictor.model, predictor.inputs(batch), batch.labels
    ends = jax.tree.map(lambda ids: jnp.where(ids == PAD_ID, PAD_ID, EOS_ID), batch)

    def embed(batch):
        values = predictor.sown(variables, batch)
        return jnp.concatenate([values[x][0] for x in EMBEDDINGS if x in values], axis=1)

    def log_probs(vectors):
        sides = jnp.split(vectors, [vectors.shape[1] - len(labels)], axis=1)
        changes = {(x,): Change(0.0, 1.0, y) for x, y in zip(EMBEDDINGS, sides, strict=True)}
        changes = variables.get("interventions", {}) | intervening(changes, model.config)
        [logits] = model.apply({**variables, "interventions": changes}, *inputs)
        return jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels]

    def attribute(point):
        _, pull = jax.vjp(log_probs, vectors - (1 - point) * difference)
        [gradients] = jax.vmap(pull)(jnp.eye(len(labels)))
        return jnp.einsum("LBTD,BTD->LT", gradients, difference)

    vectors, baseline = embed(batch), embed(ends)
    difference = vectors - scale * baseline
    values = jax.lax.map(attribute, points, batch_size=POINTS_AT_ONCE).mean(axis=0)
    return values, log_probs(vectors) - log_probs(baseline)
