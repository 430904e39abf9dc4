"""The interface of trained models."""

import abc
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from ml_collections import ConfigDict

from transformer.analysis.attention import BatchAttention
from transformer.data.tokenizer import PAD_ID, Tokenizer
from transformer.inference.batching import by_rows
from transformer.inference.hypotheses import not_finite
from transformer.model.architecture import Source
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.losses import TokenSums, cross_entropy, row_nll
from transformer.model.vision.inputs import PictureText

Variables = Mapping[str, Any]  # Flax variables: {"params": ...} and other collections
Params = Mapping[str, Any]  # a tree of parameters: variables["params"]


class TokenTable(NamedTuple):
    """A table of token embeddings: row i of `vectors` belongs to token i of `tokenizer`."""

    vectors: Float[np.ndarray, "V D"]
    tokenizer: Tokenizer


class Predictor(abc.ABC):
    """A model for inference, called with its Flax variables: text in, text or scores out.

    Attributes:
      model: the network, with its `config`.
    """

    model: Any

    @functools.cached_property
    def _attend(self) -> Callable:
        return jax.jit(self.batch_attention)

    @functools.cached_property
    def _traced_init(self) -> jax.stages.Traced:
        return jax.jit(self.init_params).trace(jax.random.key(0))

    def prepare_attention(self, variables: Variables, length: int) -> None:
        """Compiles the programs of `attention` for texts of a static length."""
        self._attend(variables, self.empty_batch(1, length))

    def param_shapes(self) -> Any:
        """Returns shapes and dtypes of the parameters, without their values."""
        return self._traced_init.out_info

    def draw_params(self, key: Array) -> Params:
        """Returns the result of `init_params` from a compiled program; cannot be traced."""
        # The program is needed once, so it is freed with the result of `compile`; it holds 100 MB.
        return self._traced_init.lower().compile()(key)

    @abc.abstractmethod
    def init_params(self, key: Array) -> Params:
        """Returns newly initialised float32 parameters; they do not depend on any text."""

    @abc.abstractmethod
    def empty_batch(self, rows: int, length: int) -> Any:
        """Returns a batch of this shape for `batch_attention`, without text."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Returns the digests of the tokenizers, which a checkpoint must match."""

    @abc.abstractmethod
    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the tables of token embeddings by their uses, joined by `_`.

        Tied tables are one entry: "source_target_output" of a translator that ties all three.
        """

    @abc.abstractmethod
    def batch_attention(self, variables: Variables, batch: Any) -> dict[str, BatchAttention]:
        """Returns the attention of all heads over a batch, by kind; can be traced.

        All other functions that return attention call this one. It returns an empty mapping if the
        model has no attention.
        """


class TokenPredictor(Predictor):
    """A model that predicts each token from the preceding ones."""

    decode: ConfigDict  # `config.decode`

    @abc.abstractmethod
    def inputs(self, batch: Any, rates: DropoutRates = NO_DROPOUT) -> tuple:
        """Returns the arguments of the model for a batch, see `Architecture`; can be traced."""

    def factors(
        self, variables: Variables, batch: Any
    ) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns the factors of the logits for a batch's labels, without dropout."""
        return self.model.apply(variables, *self.inputs(batch), method="factors")

    def token_sums(self, variables: Variables, batch: Any) -> TokenSums:
        """Returns the unsmoothed loss of a batch, without dropout; padding is ignored."""
        return cross_entropy(*self.factors(variables, batch), *labels_of(batch), 0.0)

    def row_sums(
        self, variables: Variables, batches: Iterable[Any]
    ) -> Iterator[tuple[Float[np.ndarray, "rows"], Int[np.ndarray, "rows"]]]:
        """Yields negative log-likelihoods, in nats, and token counts of the rows of each batch."""
        for batch in batches:
            nll = np.asarray(self._row_nll(variables, batch))
            yield nll, (batch.labels != PAD_ID).sum(axis=1)

    def prepare_scores(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles the programs of `score` for batches of up to `rows` rows of a static length."""
        self._row_nll(variables, self.empty_batch(min(rows, self.decode.batch_size), length))

    def _log_probs(
        self,
        variables: Variables,
        batches: Iterable[tuple[list[int], Any]],
        lengths: Sequence[int],
        first_line: int,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[float, int]]:
        """Returns the log-probability of each text, one per row of a batch, and its length."""
        results: list[Any] = [None] * len(lengths)
        for rows, batch in batches:
            nll = np.asarray(self._row_nll(variables, batch))
            for row, i in enumerate(rows):
                results[i] = -float(nll[row]), lengths[i]
                if not math.isfinite(nll[row]):
                    raise not_finite(first_line + i, "score")
            done(len(rows))
        return iter(results)

    @functools.cached_property
    def sums(self) -> Callable:
        """`token_sums`, compiled."""
        return by_rows(jax.jit(self.token_sums))

    @functools.cached_property
    def stacked_sums(self) -> Callable:
        """`token_sums` for several runs with stacked variables; returns stacked sums."""
        return jax.jit(jax.vmap(self.token_sums, in_axes=(0, None)))

    @functools.cached_property
    def _row_nll(self) -> Callable:
        """Compiled function: negative log-likelihood of each row of a batch, in nats."""

        def row_losses(variables, batch):
            return row_nll(*self.factors(variables, batch), *labels_of(batch))

        return by_rows(jax.jit(row_losses))


def source_mask(source: Source) -> Bool[Array, "B M"]:
    """Returns True for inputs that are not padding: tokens, class token, and patches."""
    if not isinstance(source, PictureText):
        return jnp.asarray(source) != PAD_ID
    picture = jnp.ones((len(source.patches), 1 + source.patches.shape[1]), bool)
    return jnp.concatenate([picture, jnp.asarray(source.tokens) != PAD_ID], axis=1)


def labels_of(batch: Any) -> tuple[Int[Array, "B L"], Float[Array, "B L"]]:
    """Returns the labels of a batch, and weights that are 0 for padding."""
    labels = jnp.asarray(batch.labels)
    return labels, (labels != PAD_ID).astype(jnp.float32)
