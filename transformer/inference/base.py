"""What trained models share: their interface, and batches with static shapes on their devices."""

import abc
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int
from ml_collections import ConfigDict

from transformer.analysis.attention import BatchAttention
from transformer.data.tokenizer import PAD_ID, Tokenizer
from transformer.inference.hypotheses import not_finite
from transformer.model.architecture import Source
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.losses import TokenSums, cross_entropy, row_nll
from transformer.model.vision.inputs import PictureText

Variables = Mapping[str, Any]  # Flax variables: {"params": ...} and other collections
Params = Mapping[str, Any]  # a tree of parameters: variables["params"]

MIN_LENGTH = 16  # tokens; static lengths are this times powers of two
MAX_NUMBERS = 2**26  # float32 outputs of a batch: 256 MiB
MIN_ROWS, MAX_ROWS = 4, 32  # sentences of a batch on a CPU; outside this range, each takes longer


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


# -- batches of few static shapes


def length_groups(
    indices: Sequence[int], lengths: Sequence[int], size: int, longest: int
) -> Iterator[tuple[list[int], int]]:
    """Yields groups of at most `size` texts, and the static length that fits each group.

    Args:
      indices: numbers of the texts to group, from zero.
      lengths: number of tokens of every text.
      longest: the maximum static length, except for longer texts.
    """
    by_length: dict[int, list[int]] = {}
    for i in sorted(indices, key=lambda i: lengths[i]):
        by_length.setdefault(static_length(lengths[i], longest), []).append(i)
    for length, members in by_length.items():
        for start in range(0, len(members), size):
            yield members[start : start + size], length


def static_lengths(longest: int) -> Iterator[int]:
    """Yields the static lengths for texts of up to `longest` tokens, in ascending order."""
    length = MIN_LENGTH
    while length < longest:
        yield length
        length *= 2
    yield longest


def static_length(length: int, longest: int) -> int:
    """Returns the smallest static length of a text of `length` tokens; see `static_lengths`."""
    return next(static for static in static_lengths(max(longest, length)) if static >= length)


def static_rows(count: int, most: int) -> int:
    """Returns the number of rows in batches for `count` texts: a power of two, or `most`.

    So a single text needs one row instead of a whole batch, and there are few shapes.
    """
    return min(1 << max(0, count - 1).bit_length(), most)


# -- devices


def on_all_devices(tree: Any) -> Any:
    """Returns the arrays, replicated on every device if there are several."""
    devices = jax.local_devices()
    return tree if len(devices) == 1 else jax.device_put(tree, _over(devices, PartitionSpec()))


def divide(variables: Mapping[str, Any], batch: Any) -> Any:
    """Returns a batch with its rows divided among the devices that each hold all variables.

    The batch stays undivided if there is one device, or if the number of devices does not divide
    the rows: then every device computes all rows.
    """
    shardings = {x.sharding for x in jax.tree.leaves(variables) if isinstance(x, jax.Array)}
    if len(shardings) != 1:
        return batch
    [sharding] = shardings
    if not isinstance(sharding, NamedSharding) or not sharding.is_fully_replicated:
        return batch
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    if len(devices) == 1 or len(jax.tree.leaves(batch)[0]) % len(devices):
        return batch
    return jax.device_put(batch, _over(devices, PartitionSpec("data")))


def _over(devices: Sequence[Any], spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("data",)), spec)


def by_rows(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a function of (variables, batch) that divides the batch among devices."""
    return lambda variables, batch: program(variables, divide(variables, batch))


def share(most: int) -> tuple[int, int]:
    """Returns the best number of concurrent searches, and the number of sentences in each.

    A step of a search has few rows, and many operations that XLA does not parallelise: on two
    cores, two searches hardly take longer than one; and their caches should fit into that of the
    CPU. An accelerator has a single queue, and programs on several devices must start in the same
    order on each of them, so there it is one batch.

    Args:
      most: number of sentences in all batches together.
    """
    if len(jax.local_devices()) > 1 or jax.default_backend() != "cpu":
        return 1, most
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, min(cores or 1, most // MIN_ROWS))  # macOS reports only all cores
    return workers, max(1, min(most // workers, MAX_ROWS))
