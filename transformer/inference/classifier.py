"""Inference with a classifier: text in, classes out."""

import functools
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.labelled.encode import (
    NO_LABEL,
    LabelledBatch,
    make_labelled_batch,
    read_texts,
)
from transformer.data.tokenizer import BOS_ID, PAD_ID, UNK_ID, Ids, Tokenizer
from transformer.errors import shorten
from transformer.inference.base import Params, Predictor, TokenTable, Variables
from transformer.inference.batching import by_rows, compile_ahead, length_groups, static_rows
from transformer.inference.hypotheses import not_finite
from transformer.model.classifier import BagOfEmbeddings, Classified, Classifier
from transformer.model.layers import NO_DROPOUT, DropoutRates

logger = logging.getLogger(__name__)


class Prediction(NamedTuple):
    """A class and its probability for a text."""

    label: str
    probability: float


class TextClassifier(Predictor):
    """Classifies and explains texts, see `Predictor`.

    Args:
      labels: names of the classes, by number.
      max_tokens: maximum tokens of a text, including begin-of-sentence; the rest is not read.
      batch_size: maximum texts read at once.
    """

    def __init__(
        self,
        model: Classifier | BagOfEmbeddings,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_tokens: int,
        batch_size: int,
    ):
        self.model, self.tokenizer, self.labels = model, tokenizer, tuple(labels)
        self.max_tokens, self.batch_size = max_tokens, batch_size
        self._classify = by_rows(jax.jit(self.classify))
        self._classify_stacked = jax.jit(jax.vmap(self.classify, in_axes=(0, None)))

    def init_params(self, key: jax.Array) -> Params:
        token = jnp.ones((1, 1), jnp.int32)
        return self.model.init(key, token, token != PAD_ID)["params"]

    def fingerprint(self) -> str:
        names = hashlib.sha256(json.dumps(self.labels).encode()).hexdigest()[:16]
        return f"{self.tokenizer.digest}-{names}"

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the table of token embeddings, "input", without a bag's bigrams."""
        vectors = np.asarray(self.model.source_table(variables["params"]))
        return {"input": TokenTable(vectors, self.tokenizer)}

    # -- tokens to classes

    def classify(
        self,
        variables: Variables,
        tokens: Any,
        rates: DropoutRates = NO_DROPOUT,
        key: jax.Array | None = None,
    ) -> Classified:
        """Returns the scores of the texts' classes, and the pooled vectors; tokens are [B, M]."""
        tokens = jnp.asarray(tokens)
        rngs = {} if key is None else {"dropout": key}
        return self.model.apply(variables, tokens, tokens != PAD_ID, rates, rngs=rngs)

    def probabilities(
        self, variables: Variables, texts: Sequence[Ids], stacked: bool = False
    ) -> Float[np.ndarray, "... N C"]:
        """Returns the probabilities of all classes of encoded texts, in float64.

        Args:
          stacked: whether the variables, and so the first axis, are of several runs.
        """
        run = self._classify_stacked if stacked else self._classify
        runs = jax.tree.leaves(variables)[0].shape[:1] if stacked else ()
        logits = np.zeros((*runs, len(texts), len(self.labels)))
        for rows, batch in self.batches(texts):
            of_batch = np.asarray(run(variables, batch.tokens).logits)
            logits[..., rows, :] = of_batch[..., : len(rows), :]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def batches(
        self, texts: Sequence[Ids], labels: Sequence[int] | None = None
    ) -> Iterator[tuple[list[int], LabelledBatch]]:
        """Yields (indices, batch) of encoded texts, in batches of similar length and static shape.

        Args:
          labels: numbers of the texts' classes, if known.
        """
        labels = [NO_LABEL] * len(texts) if labels is None else labels
        lengths = [len(ids) for ids in texts]
        size = static_rows(len(texts), self.batch_size)
        groups = length_groups(range(len(texts)), lengths, size, self.max_tokens)
        for rows, length in groups:
            of_rows = [texts[i] for i in rows], [labels[i] for i in rows]
            yield rows, make_labelled_batch(*of_rows, size, length)

    # -- text to classes

    def is_blank(self, line: str) -> bool:
        """Whether a text is empty, or has only characters such as a zero-width space."""
        return len(read_texts([line], self.tokenizer)[0]) == 1

    def predict(
        self, variables: Variables, lines: Sequence[str], first_line: int | None = None
    ) -> list[list[Prediction]]:
        """Returns all classes of each line, the most probable first; none for a blank line.

        Args:
          first_line: number of the first line, for warnings; None for no warnings.
        """
        encoded, results = self._read(lines, first_line), []
        probabilities = self.probabilities(variables, encoded)
        for number, (ids, row) in enumerate(
            zip(encoded, probabilities, strict=True), first_line or 1
        ):
            if not np.isfinite(row).all():
                raise not_finite(number, "class")
            order = np.argsort(-row, kind="stable") if len(ids) > 1 else ()
            results.append([Prediction(self.labels[i], float(row[i])) for i in order])
        return results

    def prepare(self, variables: Variables) -> None:
        """Compiles what `predict` needs for a single line, see `compile_ahead`."""
        compile_ahead(lambda length: self.prepare_rows(variables, 1, length), self.max_tokens)

    def prepare_rows(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles what `predict` needs for batches of a number of rows of a static length."""
        self._classify(variables, np.full((rows, length), PAD_ID, np.int32))

    def prepare_attention(self, variables: Variables, length: int) -> None:
        """Compiles what `attention` needs for texts of a static length."""
        self._attend(variables, np.full((1, length), PAD_ID, np.int32))

    def embeddings(self, variables: Variables, lines: Sequence[str]) -> Float[np.ndarray, "N E"]:
        """Returns the pooled vector of each line."""
        vectors: list[Any] = [None] * len(lines)
        for rows, batch in self.batches(self._read(lines)):
            of_batch = np.asarray(self._classify(variables, batch.tokens).embedding)
            for i, vector in zip(rows, of_batch, strict=False):
                vectors[i] = vector
        return np.stack(vectors)

    # -- what is read

    def reading(
        self, variables: Variables, lines: Sequence[str]
    ) -> list[tuple[list[str], Float[np.ndarray, "M"]]]:
        """Returns the tokens of each line and the weights with which attention pools them.

        They are empty if the model does not use attention pooling.
        """
        if isinstance(self.model, BagOfEmbeddings) or self.model.pooling != "attention":
            return []
        readings = []
        for ids in self._read(lines):
            weights = self._pooling_weights(variables, self._one(ids))
            readings.append((self._shown(ids), np.asarray(weights[0, : len(ids)])))
        return readings

    def attention(self, variables: Variables, line: str) -> Attention:
        """Returns the attention over a line, only of the kind `encoder_self`.

        Its tokens are source tokens; the first is begin-of-sentence. If a text is too long, it is
        cut with a warning.
        """
        [ids] = self._read([line], first_line=1)
        attention = self._attend(variables, self._one(ids))
        return Attention.of_first_text(attention, self._shown(ids), [], (self.unread(line), 0))

    def unread(self, line: str) -> int:
        """Returns how many tokens of a text are more than the model can read."""
        [ids] = read_texts([line], self.tokenizer)
        return max(0, len(ids) - self.max_tokens)

    def batch_attention(
        self, variables: Variables, tokens: Int[Array, "B M"]
    ) -> dict[str, BatchAttention]:
        mask = tokens != PAD_ID
        masks = {"encoder_self": (mask[:, :, None] & mask[:, None], None)}
        return BatchAttention.by_kind(self.model, self._sown(variables, tokens), masks)

    # -- inside

    @functools.cached_property
    def _pooling_weights(self):
        def weights(variables, tokens):
            return self._sown(variables, tokens)["attention_pooling"]["weights"][0]

        return jax.jit(weights)

    def _sown(self, variables: Variables, tokens: Int[Array, "B M"]) -> dict[str, Any]:
        """The intermediates of the model while it reads texts."""
        _, sown = self.model.apply(variables, tokens, tokens != PAD_ID, mutable=["intermediates"])
        return sown.get("intermediates", {})

    def _one(self, ids: Ids) -> Int[np.ndarray, "1 M"]:
        """A text as a batch of a static length."""
        [(_, batch)] = self.batches([ids])
        return batch.tokens[:1]

    def _shown(self, ids: Ids) -> list[str]:
        return ["<s>", *self.tokenizer.pieces(ids[1:])]

    def _read(self, lines: Sequence[str], first_line: int | None = None) -> list[list[int]]:
        """The tokens of each line, cut to what the model reads; with warnings from a number on."""
        encoded = read_texts(lines, self.tokenizer)
        for i, (line, ids) in enumerate(zip(lines, encoded, strict=True)):
            if first_line is None:
                break
            number = first_line + i
            if UNK_ID in ids and not self._knows_a_word(ids):
                logger.warning(
                    f"line {number} has no word of the vocabulary ({shorten(line.strip())!r}): "
                    "its class is a guess"
                )
            if len(ids) > self.max_tokens:
                logger.warning(
                    f"line {number} has {len(ids) - 1} tokens: only the first "
                    f"{self.max_tokens - 1} are read (data.max_tokens={self.max_tokens})"
                )
        return [ids[: self.max_tokens] for ids in encoded]

    def _knows_a_word(self, ids: Ids) -> bool:
        """Whether any token is known and is more than punctuation or space."""
        pieces = self.tokenizer.pieces([i for i in ids if i not in (BOS_ID, UNK_ID)])
        return any(map(str.isalnum, "".join(pieces)))
