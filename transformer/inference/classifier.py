"""Classifier inference: predicts classes for texts, or for images with optional questions."""

import abc
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.batches import stack_rows
from transformer.data.labelled import LabelledBatch, read_texts, stack_labels
from transformer.data.tokenizer import Ids, Tokenizer
from transformer.inference.base import (
    Params,
    Predictor,
    TokenTable,
    Variables,
    by_rows,
    length_groups,
    source_mask,
    static_rows,
)
from transformer.inference.hypotheses import not_finite
from transformer.model.architecture import Network
from transformer.model.classifier import Classified
from transformer.model.layers import NO_DROPOUT, DropoutRates

logger = logging.getLogger(__name__)


class Prediction(NamedTuple):
    """A predicted class and its probability."""

    label: str
    probability: float


class ClassPredictor(Predictor):
    """A classifier, which also explains its predictions; see `Predictor`.

    A subclass converts input lines to items, and stacks items into batches.

    Args:
      tokenizer: tokenizer for texts or questions; None for images without questions.
      labels: class names, indexed by class id.
      max_tokens: maximum tokens per text, including begin-of-sentence; longer texts are truncated.
      batch_size: maximum batch size.

    Attributes:
      before: number of positions before the tokens: an image's class token and patches.
    """

    before = 0

    def __init__(
        self,
        model: Network,
        tokenizer: Tokenizer | None,
        labels: Sequence[str],
        max_tokens: int,
        batch_size: int,
    ):
        self.model, self.tokenizer, self.labels = model, tokenizer, tuple(labels)
        self.max_tokens, self.batch_size = max_tokens, batch_size
        self._classify = by_rows(jax.jit(self.classify))
        self._classify_stacked = jax.jit(jax.vmap(self.classify, in_axes=(0, None)))
        self._pool = jax.jit(lambda *batch: self.sown(*batch)["attention_pooling"]["weights"][0])

    @abc.abstractmethod
    def read(self, lines: Sequence[str], first_line: int | None = None) -> list[Any]:
        """Returns an item for each line, truncated to the maximum number of tokens.

        Args:
          first_line: number of the first line, for warnings; None disables warnings.
        """

    @abc.abstractmethod
    def stack(self, items: Sequence[Any], rows: int, length: int) -> Any:
        """Stacks up to `rows` items into a batch, padded to `rows` items of `length` tokens."""

    def tokens_of(self, item: Any) -> Ids:
        """Returns the tokens of an item, by default itself; their number determines the batch."""
        return item

    @abc.abstractmethod
    def names(self, item: Any) -> list[str]:
        """Returns a display name for each position of an item in the model input."""

    @abc.abstractmethod
    def is_blank(self, line: str, item: Any = None) -> bool:
        """Returns whether a line is blank; `item` is the line's item if it has been read."""

    def init_params(self, key: jax.Array) -> Params:
        source = jax.tree.map(jnp.asarray, self.empty_batch(1, 1))
        return self.model.init(key, source, source_mask(source))["params"]

    def empty_batch(self, rows: int, length: int) -> Any:
        return self.stack([], rows, length)

    def fingerprint(self) -> str:
        names = hashlib.sha256(json.dumps(self.labels).encode()).hexdigest()[:16]
        return f"{self.tokenizer.digest}-{names}" if self.tokenizer else names

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the token embedding table, with the key "input" and without bigram embeddings."""
        if self.tokenizer is None:
            return {}
        table = self.model.source_table(variables["params"])[: self.tokenizer.vocab_size]
        return {"input": TokenTable(np.asarray(table), self.tokenizer)}

    # -- classification of items

    def classify(
        self,
        variables: Variables,
        source: Any,
        rates: DropoutRates = NO_DROPOUT,
        key: jax.Array | None = None,
    ) -> Classified:
        """Returns the class logits and the pooled embeddings of stacked items."""
        source = jax.tree.map(jnp.asarray, source)
        rngs = {} if key is None else {"dropout": key}
        return self.model.apply(variables, source, source_mask(source), rates, rngs=rngs)

    def probabilities(
        self, variables: Variables, items: Sequence[Any], stacked: bool = False
    ) -> Float[np.ndarray, "... N C"]:
        """Returns the class probabilities of each item in float64.

        Args:
          stacked: whether variables and results have a leading axis for several runs.
        """
        run = self._classify_stacked if stacked else self._classify
        runs = jax.tree.leaves(variables)[0].shape[:1] if stacked else ()
        logits = np.zeros((*runs, len(items), len(self.labels)))
        for rows, batch in self.batches(items):
            of_batch = np.asarray(run(variables, batch.source).logits)
            logits[..., rows, :] = of_batch[..., : len(rows), :]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def batches(
        self, items: Sequence[Any], labels: Sequence[int] = ()
    ) -> Iterator[tuple[list[int], LabelledBatch]]:
        """Yields (item indices, batch); batches have static shapes and items of similar length.

        Args:
          labels: class ids of the items; empty if they are unknown.
        """
        lengths = [len(self.tokens_of(item)) for item in items]
        size = static_rows(len(items), self.batch_size)
        for rows, length in length_groups(range(len(items)), lengths, size, self.max_tokens):
            source = self.stack([items[i] for i in rows], size, length)
            classes = stack_labels([labels[i] for i in rows if labels], size)
            yield rows, LabelledBatch(source, classes)

    # -- classification of lines

    def predict(
        self, variables: Variables, lines: Sequence[str], first_line: int | None = None
    ) -> list[list[Prediction]]:
        """Returns all classes for each line, most probable first, or [] for a blank line.

        Args:
          first_line: see `read`.
        """
        items = self.read(lines, first_line)
        ranked = self.rank(variables, items, first_line or 1)
        return [
            [] if self.is_blank(line, item) else best
            for line, item, best in zip(lines, items, ranked, strict=True)
        ]

    def rank(
        self, variables: Variables, items: Sequence[Any], first_line: int = 1
    ) -> list[list[Prediction]]:
        """Returns all classes for each item, most probable first.

        Args:
          first_line: line number of the first item, for error messages.
        """
        results = []
        for number, row in enumerate(self.probabilities(variables, items), first_line):
            if not np.isfinite(row).all():
                raise not_finite(number, "class")
            order = np.argsort(-row, kind="stable")
            results.append([Prediction(self.labels[i], float(row[i])) for i in order])
        return results

    def prepare_rows(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles `predict` for a batch size of up to `rows` and a static length."""
        self._classify(variables, self.empty_batch(min(rows, self.batch_size), length))

    def embeddings(self, variables: Variables, items: Sequence[Any]) -> Float[np.ndarray, "N E"]:
        """Returns the pooled embedding of each item."""
        vectors: list[Any] = [None] * len(items)
        for rows, batch in self.batches(items):
            of_batch = np.asarray(self._classify(variables, batch.source).embedding)
            for i, vector in zip(rows, of_batch, strict=False):
                vectors[i] = vector
        return np.stack(vectors)

    # -- explanations

    def reading(
        self, variables: Variables, lines: Sequence[str]
    ) -> list[tuple[list[str], Float[np.ndarray, "M"]]]:
        """Returns the tokens of each line and their attention pooling weights.

        The list is empty if the model does not use attention pooling.
        """
        if getattr(self.model, "pooling", "") != "attention":
            return []
        readings = []
        for item in self.read(lines):
            weights, names = self._pool(variables, self._one(item)), self.names(item)
            readings.append((names, np.asarray(weights[0, : len(names)])))
        return readings

    def attention(self, variables: Variables, line: str) -> Attention:
        """Returns the attention weights for a line; the only kind of attention is `encoder_self`.

        The source tokens start with begin-of-sentence, or with the class token of an image. A text
        that is too long is truncated with a warning.
        """
        [item] = self.read([line], first_line=1)
        return self.attention_of(variables, item, self.unread(line))

    def attention_of(self, variables: Variables, item: Any, unread: int = 0) -> Attention:
        """Returns the attention weights for an item, of which `unread` tokens were truncated."""
        attention = self._attend(variables, self._one(item))
        return Attention.of_first_text(attention, self.names(item), [], (unread, 0))

    @abc.abstractmethod
    def unread(self, line: str) -> int:
        """Returns the number of tokens that are truncated from a line."""

    def sown(self, variables: Variables, source: Any) -> dict[str, Any]:
        options: Any = {"mutable": ["intermediates"]}
        _, sown = self.model.apply(variables, source, source_mask(source), **options)
        return sown.get("intermediates", {})

    def batch_attention(self, variables: Variables, source: Any) -> dict[str, BatchAttention]:
        mask = source_mask(source)
        masks = {"encoder_self": (mask[:, :, None] & mask[:, None], None)}
        return BatchAttention.by_kind(self.model, self.sown(variables, source), masks)

    # -- private methods

    def _one(self, item: Any) -> Any:
        """Returns a batch of a static length that contains only this item."""
        [(_, batch)] = self.batches([item])
        return batch.source


class TextClassifier(ClassPredictor):
    """A text classifier, whose items are the token ids of lines."""

    tokenizer: Tokenizer

    def stack(self, items: Sequence[Ids], rows: int, length: int) -> Int[np.ndarray, "rows length"]:
        return stack_rows(items, rows, length)

    def names(self, item: Ids) -> list[str]:
        return ["<s>", *self.tokenizer.pieces(item[1:])]

    def is_blank(self, line: str, item: Ids | None = None) -> bool:
        """Returns whether a text is empty, except for characters such as zero-width spaces."""
        ids = read_texts([line], self.tokenizer)[0] if item is None else item
        return len(ids) == 1

    def unread(self, line: str) -> int:
        [ids] = read_texts([line], self.tokenizer)
        return max(0, len(ids) - self.max_tokens)

    def read(self, lines: Sequence[str], first_line: int | None = None) -> list[list[int]]:
        encoded = read_texts(lines, self.tokenizer)
        for number, ids in enumerate(encoded, first_line or 1):
            if first_line is not None and len(ids) > self.max_tokens:
                logger.warning(
                    f"line {number} has {len(ids) - 1} tokens: only the first "
                    f"{self.max_tokens - 1} are read (data.max_tokens={self.max_tokens})"
                )
        return [ids[: self.max_tokens] for ids in encoded]
