"""The interface of all trained models, and utilities for static batch shapes and devices."""

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
from transformer.data.tokenizer import NEVER_WRITTEN, PAD_ID, Ids, Tokenizer
from transformer.inference.hypotheses import Candidate, NextToken, not_finite
from transformer.model.architecture import Source
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.losses import TokenSums, cross_entropy, row_nll
from transformer.model.vision.inputs import PictureText

Variables = Mapping[str, Any]  # Flax variables: {"params": ...} and other collections
Params = Mapping[str, Any]  # a tree of parameters: variables["params"]

MIN_LENGTH = 16  # tokens; static lengths are MIN_LENGTH times a power of two, or the maximum
MAX_NUMBERS = 2**26  # maximum float32 values in the output of a batch: 256 MiB
MIN_ROWS, MAX_ROWS = 4, 32  # CPU batch sizes; outside this range, decoding a sentence takes longer


class Embeddings(NamedTuple):
    """An embedding table: row i of the float32 array `vectors` is the embedding of `tokens[i]`."""

    tokens: list[str]
    vectors: Float[np.ndarray, "V D"]

    def __repr__(self) -> str:
        return f"Embeddings({self.vectors.dtype} {list(self.vectors.shape)})"


class TokenTable(NamedTuple):
    """A token embedding table: row i of `vectors` is the embedding of token i."""

    vectors: Float[np.ndarray, "V D"]
    tokenizer: Tokenizer


class Predictor(abc.ABC):
    """A model for inference. Its methods take the Flax variables as an argument.

    Attributes:
      model: the Flax module of the network.
    """

    model: Any

    @functools.cached_property
    def _attend(self) -> Callable:
        return jax.jit(self.batch_attention)

    @functools.cached_property
    def _traced_init(self) -> jax.stages.Traced:
        return jax.jit(self.init_params).trace(jax.random.key(0))

    def prepare_attention(self, variables: Variables, length: int) -> None:
        """Compiles `attention` for texts of a static length."""
        self._attend(variables, self.empty_batch(1, length))

    def param_shapes(self) -> Any:
        """Returns the shapes and dtypes of the parameters, without computing their values."""
        return self._traced_init.out_info

    def draw_params(self, key: Array) -> Params:
        """Returns the result of a compiled `init_params`; cannot be called under `jax.jit`."""
        # The executable takes 100 MB and is used only once, so it is not kept.
        return self._traced_init.lower().compile()(key)

    @abc.abstractmethod
    def init_params(self, key: Array) -> Params:
        """Returns newly initialised float32 parameters, which do not depend on the data."""

    @abc.abstractmethod
    def empty_batch(self, rows: int, length: int) -> Any:
        """Returns a batch of this shape that contains only padding."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Returns a digest of the tokenizers and class names, which a checkpoint must match."""

    @abc.abstractmethod
    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the token embedding tables, keyed by use.

        A tied table has one key, which joins its uses: "source_target_output" if all are tied.
        """

    @abc.abstractmethod
    def sown(self, variables: Variables, batch: Any) -> dict[str, Any]:
        """Returns the values that the model sows for a batch: the collection `intermediates`."""

    @abc.abstractmethod
    def batch_attention(self, variables: Variables, batch: Any) -> dict[str, BatchAttention]:
        """Returns the attention of all heads for a batch, keyed by kind; can be jitted.

        All other methods that return attention call this one. The mapping is empty if the model has
        no attention.
        """


class TokenPredictor(Predictor):
    """An autoregressive model, which predicts each token from the preceding tokens."""

    decode: ConfigDict  # `config.decode`

    @abc.abstractmethod
    def inputs(self, batch: Any, rates: DropoutRates = NO_DROPOUT) -> tuple:
        """Returns the model's arguments (see `Architecture`) for a batch; can be jitted."""

    def factors(
        self, variables: Variables, batch: Any
    ) -> tuple[Float[Array, "B L E"], Float[Array, "V E"]]:
        """Returns the factors of the logits (hidden states and output matrix) without dropout."""
        return self.model.apply(variables, *self.inputs(batch), method="factors")

    def sown(self, variables: Variables, batch: Any) -> dict[str, Any]:
        options: Any = {"method": "features", "mutable": ["intermediates"]}
        _, sown = self.model.apply(variables, *self.inputs(batch), **options)
        return sown.get("intermediates", {})

    def token_sums(self, variables: Variables, batch: Any) -> TokenSums:
        """Returns the loss of a batch without dropout or label smoothing; padding is ignored."""
        return cross_entropy(*self.factors(variables, batch), *labels_of(batch), 0.0)

    def row_sums(
        self, variables: Variables, batches: Iterable[Any]
    ) -> Iterator[tuple[Float[np.ndarray, "rows"], Int[np.ndarray, "rows"]]]:
        """Yields the negative log-likelihoods (nats) and lengths of each batch's sequences."""
        for batch in batches:
            nll = np.asarray(self._row_nll(variables, batch))
            yield nll, (batch.labels != PAD_ID).sum(axis=1)

    def prepare_scores(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles `score` for a batch size of up to `rows` and a static length."""
        self._row_nll(variables, self.empty_batch(min(rows, self.decode.batch_size), length))

    @abc.abstractmethod
    def text_batches(
        self, *texts: Sequence[str], first_line: int = 1
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields (zero-based indices of the texts, batch); see `score` for the arguments."""

    def score(
        self,
        variables: Variables,
        *texts: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[float, int]]:
        """Returns the log-probability in nats and the number of tokens of each text, in order.

        All tokens of a text and its end-of-sentence token are scored. Models of running text have
        neither begin- nor end-of-sentence tokens, so the first token of a text is only an input.

        Args:
          texts: the texts, or for a translation model the sources and the targets to score.
          first_line: number of the first text, for messages.
          done: called with the number of texts completed since the last call.
        """
        results: dict[int, tuple[float, int]] = {}
        for rows, batch in self.text_batches(*texts, first_line=first_line):
            [(nll, lengths)] = self.row_sums(variables, [batch])
            for i, value, length in zip(rows, nll.tolist(), lengths.tolist(), strict=False):
                results[i] = -value, length
                if not math.isfinite(value):
                    raise not_finite(first_line + i, "score")
            done(len(rows))
        return (results[i] for i in range(len(results)))

    @abc.abstractmethod
    def pieces(self, ids: Ids) -> list[str]:
        """Returns tokens that the model predicts as strings."""

    def distributions(
        self,
        variables: Variables,
        batches: Iterable[tuple[list[int], Any]],
        count: int,
        temperature: float = 1.0,
    ) -> list[list[NextToken]]:
        """Returns the distribution of each token of each text, in the order of the texts.

        Args:
          count: number of most probable tokens.
          temperature: divides the logits.
        """
        results: dict[int, list[NextToken]] = {}
        for rows, batch in batches:
            numbers = jax.device_get(self.distribution(variables, batch, temperature, count))
            for row, i in enumerate(rows):
                names = self.pieces(batch.labels[row][batch.labels[row] != PAD_ID])
                tokens = zip(names, *(x[row] for x in numbers), strict=False)
                results[i] = [
                    NextToken(name, float(log_prob), float(entropy), self.candidates(*best))
                    for name, log_prob, entropy, *best in tokens
                ]
                if not all(math.isfinite(token.log_prob) for token in results[i]):
                    raise not_finite(i + 1, "score")
        return [results[i] for i in range(len(results))]

    def candidates(self, log_probs: Float[np.ndarray, "K"], tokens: Ids) -> list[Candidate]:
        return list(map(Candidate, self.pieces(tokens), log_probs.tolist()))

    @functools.cached_property
    def distribution(self) -> Callable:
        """A compiled function for `distributions`.

        It returns the log-probability of each label, the entropy of its distribution, and the
        log-probabilities and ids of the most probable tokens.
        """

        @functools.partial(jax.jit, static_argnums=3)
        def distribution(variables, batch, temperature, count):
            logits = self.model.apply(variables, *self.inputs(batch))
            log_probs = jax.nn.log_softmax(logits / temperature)
            labels = labels_of(batch)[0][..., None]
            entropy = jax.scipy.special.entr(jnp.exp(log_probs)).sum(axis=-1)
            possible = log_probs.at[..., jnp.array(NEVER_WRITTEN)].set(-jnp.inf)
            of_labels = jnp.take_along_axis(log_probs, labels, axis=-1)[..., 0]
            return of_labels, entropy, *jax.lax.top_k(possible, count)

        return distribution

    @functools.cached_property
    def sums(self) -> Callable:
        """The compiled `token_sums`."""
        return by_rows(jax.jit(self.token_sums))

    @functools.cached_property
    def stacked_sums(self) -> Callable:
        """The compiled `token_sums`, vmapped over the stacked variables of several runs."""
        return jax.jit(jax.vmap(self.token_sums, in_axes=(0, None)))

    @functools.cached_property
    def _row_nll(self) -> Callable:
        """A compiled function that returns each sequence's negative log-likelihood in nats."""

        def row_losses(variables, batch):
            return row_nll(*self.factors(variables, batch), *labels_of(batch))

        return by_rows(jax.jit(row_losses))


def tied_tables(params: Params, tokenizers: Mapping[str, Tokenizer]) -> dict[str, TokenTable]:
    """Returns the embedding tables of a model with a decoder; see `Predictor.token_tables`.

    Args:
      tokenizers: the tokenizer for each use; uses without parameters share the decoder's table.
    """
    decoder = "target_embedding"
    modules = {use: f"{use}_embedding" for use in tokenizers}
    modules = {use: name if name in params else decoder for use, name in modules.items()}
    joined = "_".join(use for use, name in modules.items() if name == decoder)
    return {
        joined if name == decoder else use: TokenTable(np.asarray(params[name]["table"]), tokenizer)
        for (use, name), tokenizer in zip(modules.items(), tokenizers.values(), strict=True)
        if "table" in params[name]  # images have no source embeddings
    }


def source_mask(source: Source) -> Bool[Array, "B M"]:
    """Returns the padding mask: True for tokens, the class token and image patches."""
    if not isinstance(source, PictureText):
        return jnp.asarray(source) != PAD_ID
    picture = jnp.ones((len(source.patches), 1 + source.patches.shape[1]), bool)
    return jnp.concatenate([picture, jnp.asarray(source.tokens) != PAD_ID], axis=1)


def labels_of(batch: Any) -> tuple[Int[Array, "B L"], Float[Array, "B L"]]:
    """Returns the labels of a batch and their weights, which are 0 for padding and 1 otherwise."""
    labels = jnp.asarray(batch.labels)
    return labels, (labels != PAD_ID).astype(jnp.float32)


# -- batches with a small set of static shapes


def length_groups(
    indices: Sequence[int], lengths: Sequence[int], size: int, longest: int
) -> Iterator[tuple[list[int], int]]:
    """Yields (indices of at most `size` texts, static length to which the texts are padded).

    Args:
      indices: zero-based indices of the texts to group.
      lengths: number of tokens in each text, including texts that are not in `indices`.
      longest: the maximum static length; longer texts are not padded.
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
    """Returns the smallest static length that fits `length` tokens; see `static_lengths`."""
    return next(static for static in static_lengths(max(longest, length)) if static >= length)


def static_rows(count: int, most: int) -> int:
    """Returns the batch size for `count` texts: the next power of two, but at most `most`.

    A single text thus has a batch size of one, and only a few shapes are compiled.
    """
    return min(1 << max(0, count - 1).bit_length(), most)


# -- devices


def on_all_devices(tree: Any) -> Any:
    """Returns the arrays, replicated on all local devices if there are several."""
    devices = jax.local_devices()
    return tree if len(devices) == 1 else jax.device_put(tree, _over(devices, PartitionSpec()))


def divide(variables: Mapping[str, Any], batch: Any) -> Any:
    """Returns a batch that is sharded over the devices on which the variables are replicated.

    The batch is not sharded if there is only one device, or if the number of devices does not
    divide the batch size. In the latter case, every device computes the whole batch.
    """
    shardings = {x.sharding for x in jax.tree.leaves(variables) if isinstance(x, jax.Array)}
    if len(shardings) != 1 or not (sharding := shardings.pop()).is_fully_replicated:
        return batch
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    if len(devices) == 1 or len(jax.tree.leaves(batch)[0]) % len(devices):
        return batch
    return jax.device_put(batch, _over(devices, PartitionSpec("data")))


def _over(devices: Sequence[Any], spec: PartitionSpec) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("data",)), spec)


def by_rows(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wraps a function of (variables, batch) so that the batch is sharded over the devices."""
    return lambda variables, batch: program(variables, divide(variables, batch))


def share(most: int) -> tuple[int, int]:
    """Returns the best number of concurrent searches and the batch size of each search.

    On a CPU, a decoding step has a small batch and many operations that XLA does not parallelise,
    so two searches on two cores take little longer than one. Small KV caches also fit into the CPU
    cache. On accelerators, a single search is best: a device has one queue, and several devices
    must start their programs in the same order.

    Args:
      most: maximum number of sentences in all concurrent searches.
    """
    if len(jax.local_devices()) > 1 or jax.default_backend() != "cpu":
        return 1, most
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, min(cores or 1, most // MIN_ROWS))  # macOS lacks sched_getaffinity
    return workers, max(1, min(most // workers, MAX_ROWS))
