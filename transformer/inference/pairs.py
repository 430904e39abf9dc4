"""Scores and attention of a translator on given pairs of source and translation."""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.batches import Batch, make_batch
from transformer.data.pairs import Pair
from transformer.data.placeholders import read_pair
from transformer.data.tokenizer import EOS_ID, PAD_ID, Ids, Tokenizer
from transformer.inference.base import (
    Params,
    TokenPredictor,
    TokenTable,
    Variables,
    source_mask,
)
from transformer.inference.batching import (
    length_groups,
    rows_at_once,
    static_length,
    static_rows,
)
from transformer.model.architecture import Architecture
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.masks import look_ahead_mask
from transformer.model.vision.inputs import PictureText

logger = logging.getLogger(__name__)


class PairPredictor(TokenPredictor):
    """Scores and explains pairs, see `Predictor`.

    Args:
      source_tokenizer: a `Tokenizer`, or a reader of other sources with the same methods.
      decode: `config.decode`.
    """

    def __init__(
        self,
        model: Architecture,
        source_tokenizer: Any,
        target_tokenizer: Tokenizer,
        decode: ConfigDict,
    ):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.decode = decode
        self.max_length = model.config.max_length

    def init_params(self, key: jax.Array) -> Params:
        return self.model.init(key, *self.inputs(self.empty_batch(1, 1)))["params"]

    def empty_batch(self, rows: int, length: int) -> Batch:
        return self.make_batch([], [[]], rows, length)

    def fingerprint(self) -> str:
        return f"{self.source_tokenizer.digest}-{self.target_tokenizer.digest}"

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the tables "source", "target" and "output"; tied tables are one entry."""
        config = self.model.config
        target = "source_target" if config.one_table else "target"
        names = {
            "source_embedding": ("source", self.source_tokenizer),
            "target_embedding": (
                target if config.tied_embeddings == "none" else f"{target}_output",
                self.target_tokenizer,
            ),
            "output_embedding": ("output", self.target_tokenizer),
        }
        return {
            name: TokenTable(np.asarray(variables["params"][module]["table"]), tokenizer)
            for module, (name, tokenizer) in names.items()
            if "table" in variables["params"].get(module, {})  # pictures have none
        }

    # -- text to numbers

    def score(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[float, int]]:
        """Returns each pair's log-probability of the target given the source, and its length.

        Args:
          first_line: number of the first pair, for warnings.
          done: called with the number of pairs completed since the last call.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        lengths = [len(ids) + 1 for ids in encoded[1]]
        return self._log_probs(variables, self.batches(*encoded), lengths, first_line, done)

    def cross_attention(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "layers H L M"]]]:
        """Yields (index, weights) for each pair: the cross-attention of its target to its source.

        Rows are the target tokens and `</s>`; columns are the source tokens and `</s>`. Pairs are
        grouped by similar length and yielded in that order. Arguments are those of `score`.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        heads = self.model.config.num_decoder_layers * self.model.config.num_heads

        def size(rows: int, length: int) -> int:
            return rows_at_once(rows, heads * length**2)

        for rows, batch in self.batches(*encoded, size):
            weights = jax.device_get(self._cross(variables, batch))
            for row, i in enumerate(rows):
                columns, length = (len(side[i]) + 1 for side in encoded)
                yield i, weights[:, row, :, :length, :columns]
            done(len(rows))

    def unread(self, source: str, target: str) -> tuple[int, int]:
        """Returns the number of tokens of each side of a pair beyond the model's maximum."""
        sides = (self.source_tokenizer, source), (self.target_tokenizer, target)
        first, second = (len(tokenizer.encode([text])[0]) for tokenizer, text in sides)
        return max(0, first + 1 - self.max_length), max(0, second + 1 - self.max_length)

    # -- token ids

    def make_batch(
        self, sources: Sequence[Any], targets: Sequence[Ids], rows: int, length: int
    ) -> Batch:
        """Returns the batch of up to `rows` encoded pairs; `length` includes a begin or end token.

        A source is the result of the `source_tokenizer` for a line.
        """
        return make_batch(sources, targets, rows, length)

    def source_names(self, ids: Any) -> list[str]:
        """Returns the names of all encoder positions of a source, in order."""
        return [*self.source_tokenizer.pieces(ids), "</s>"]

    def batches(
        self,
        sources: Sequence[Any],
        targets: Sequence[Ids],
        size: Callable[[int, int], int] = lambda rows, length: rows,
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yields (indices, batch) of encoded pairs, in batches of similar length and static shape.

        Args:
          size: returns the number of rows for a length, given the maximum by `decode.batch_size`.
        """
        whole = static_rows(len(sources), self.decode.batch_size)
        lengths = [
            max(len(source), len(target)) + 1
            for source, target in zip(sources, targets, strict=True)
        ]
        for group, length in length_groups(range(len(sources)), lengths, whole, self.max_length):
            most = size(whole, length)
            for first in range(0, len(group), most):
                rows = group[first : first + most]
                texts = [sources[i] for i in rows], [targets[i] for i in rows]
                yield rows, self.make_batch(*texts, most, length)

    def inputs(self, batch: Batch, rates: DropoutRates = NO_DROPOUT) -> tuple:
        source, target = jax.tree.map(jnp.asarray, (batch.source, batch.target))
        return source, target, source_mask(source), target != PAD_ID, rates

    def batch_attention(self, variables: Variables, batch: Batch) -> dict[str, BatchAttention]:
        inputs = self.inputs(batch)
        _, sown = self.model.apply(variables, *inputs, mutable=["intermediates"])
        tokens, _, source, target, _ = inputs
        places = jnp.arange(target.shape[1])
        past = look_ahead_mask(places, places)[0]
        ends = jnp.zeros_like(source) if isinstance(tokens, PictureText) else tokens == EOS_ID
        masks = {
            "encoder_self": (source[:, :, None] & source[:, None], ends),
            "decoder_self": (target[:, :, None] & target[:, None] & past, None),
            "cross": (target[:, :, None] & source[:, None], ends),
        }
        return BatchAttention.by_kind(self.model, sown.get("intermediates", {}), masks)

    # -- inside

    @functools.cached_property
    def _cross(self):
        return jax.jit(lambda *batch: self.batch_attention(*batch)["cross"].weights)

    def _seen(
        self, variables: Variables, source: str, target: str, first_line: int | None
    ) -> Attention:
        """Returns the attention over a pair; warns of truncation if the pair has a number."""
        [(source, target, *_)] = self.read_pairs([Pair(source, target)])
        [sources], [targets] = self._encode_pairs([source], [target], first_line)
        length = static_length(max(len(sources), len(targets)) + 1, self.max_length)
        return Attention.of_first_text(
            self._attend(variables, self.make_batch([sources], [targets], 1, length)),
            self.source_names(sources),
            ["<s>", *self.target_tokenizer.pieces(targets)],
            self.unread(source, target),
        )

    def read_pairs(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Returns pairs with placeholders, if the model has any, see `read_pair`."""
        return [read_pair(pair, self.source_tokenizer.words) for pair in pairs]

    def encode_pairs(self, pairs: Iterable[Pair]) -> tuple[list[Any], list[list[int]]]:
        """Returns the tokens of the sources and of the targets."""
        pairs = self.read_pairs(pairs)
        sources, targets = ([pair[:2][side] for pair in pairs] for side in (0, 1))
        return self.source_tokenizer.encode(sources), self.target_tokenizer.encode(targets)

    def _encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str], first_line: int | None
    ) -> tuple[list[Any], list[Any]]:
        numbers = None if first_line is None else range(first_line, first_line + len(sources))
        read, written = self.encode_pairs(map(Pair, sources, targets))
        return self._cut(read, numbers, "source "), self._cut(written, numbers, "target ")

    def _cut(self, encoded: list[Any], numbers: Sequence[int] | None, side: str = "") -> list[Any]:
        """Returns truncated token sequences, with a warning for each if lines have numbers."""
        limit = self.max_length - 1
        for i, ids in enumerate(encoded):
            if numbers is not None and len(ids) > limit:
                logger.warning(
                    f"line {numbers[i]} has {len(ids)} {side}tokens: only the first "
                    f"{limit} are read (model.max_length={self.max_length})"
                )
        return [ids[:limit] for ids in encoded]
