"""Inference with a translator: text in, text out."""

import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.parallel.batches import Batch, make_batch
from transformer.data.tokenizer import EOS_ID, PAD_ID, Tokenizer
from transformer.inference.base import Params, TokenPredictor, TokenTable, Variables
from transformer.inference.groups import (
    compile_ahead,
    length_groups,
    rows_at_once,
    static_length,
    static_rows,
)
from transformer.inference.hypotheses import BLANK, Translation, not_finite, read_hypotheses
from transformer.inference.search import BeamSearch
from transformer.inference.workers import each, share
from transformer.losses import TokenSums, cross_entropy
from transformer.model.architecture import Architecture
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.masks import look_ahead_mask

logger = logging.getLogger(__name__)


class Translator(TokenPredictor):
    """Translates, scores and explains sentences with given variables.

    Variables are those of Flax: `{"params": ...}` and other collections, see
    `model.transformer.Transformer`.

    Args:
      model: the network.
      source_tokenizer, target_tokenizer: what its ids mean.
      decode: `config.decode`.
    """

    def __init__(
        self,
        model: Architecture,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decode: ConfigDict,
    ):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.decode = decode
        self.max_length = model.config.max_length
        self._search = BeamSearch(model, decode)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh float32 parameters; they do not depend on any text."""
        return self.model.init(key, *_inputs(make_batch([[]], [[]], 1, 1)))["params"]

    def fingerprint(self) -> str:
        """Returns the digests that a checkpoint must match."""
        return f"{self.source_tokenizer.digest}-{self.target_tokenizer.digest}"

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the tables of token embeddings: "source", "target" and "output", tied as one."""
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
            if module in variables["params"]
        }

    # -- text to text

    def is_blank(self, line: str) -> bool:
        """Whether a line is empty, or has only characters such as a zero-width space."""
        return not self.source_tokenizer.encode([line])[0]

    def translate(
        self,
        variables: Variables,
        lines: Sequence[str],
        beam: int | None = None,
        numbers: Sequence[int] | None = None,
        done: Callable[[int], None] = lambda count: None,
        num_best: int | None = None,
        rows: int | None = None,
    ) -> list[list[Translation]]:
        """Returns the translations of each line, best first; for a blank line, [('', 0, 0)].

        Lines of similar length are decoded together to reduce padding. The result is in the order
        of the lines, and a translation does not depend on the other lines.

        Args:
          beam: in place of `decode.beam_size`.
          numbers: of the lines, for warnings; from one by default.
          done: called with the number of lines that are done since the last call.
          num_best: in place of `decode.num_best`.
          rows: of every batch, for which `prepare_rows` has compiled; by default, they depend on
            the number of lines.

        Raises:
          RunError: a line's scores are not finite.
        """
        results = [[BLANK] for _ in lines]
        left, most = len(lines), num_best or self.decode.num_best
        numbers = numbers or range(1, left + 1)
        find = functools.partial(self._search.find, adapts=rows is None)
        for members, found in self._decode(find, variables, lines, beam, numbers, rows):
            for row, i in enumerate(members):
                results[i] = read_hypotheses(found[row], self.target_tokenizer, most)
                if not results[i]:
                    raise not_finite(numbers[i], "translation")
            left -= len(members)
            done(len(members))
        done(left)  # the blank ones
        return results

    def prepare(self, variables: Variables) -> None:
        """Compiles what `translate` needs for a single line, see `compile_ahead`."""
        workers, _ = share(variables, self.decode.batch_size)
        beam = self.decode.beam_size

        def search(length: int) -> None:
            blank = np.full((1, length), PAD_ID, np.int32)  # which takes no step
            self._search.find(variables, blank, beam, self._limit(length), workers)

        compile_ahead(search, self.max_length)

    def prepare_rows(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles what `translate` needs for batches of so many rows of a static length."""
        workers, _ = share(variables, self.decode.batch_size)
        beam, limit = self.decode.beam_size, self._limit(length)
        self._search.prepare(variables, rows, length, beam, limit, workers)

    def translate_stacked(
        self,
        variables: Variables,
        lines: Sequence[str],
        beam: int | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> list[list[list[Translation]]]:
        """Returns the translations of `translate` for each of several runs.

        Args:
          variables: of all runs, stacked on a leading axis.
          shared: variables that all runs share.
        """
        count = len(jax.tree.leaves(variables)[0])
        results = [[[BLANK] for _ in lines] for _ in range(count)]

        def search(variables, source, beam, limit, *_):
            return self._search.find_stacked(shared or {}, variables, source, beam, limit)

        for rows, found in self._decode(search, variables, lines, beam, range(1, len(lines) + 1)):
            for row, i in enumerate(rows):
                for number, of_run in enumerate(results):
                    own = jax.tree.map(lambda x, at=(number, row): x[at], found)
                    # What is wrong lies in this one run, whose loss says so.
                    best = read_hypotheses(own, self.target_tokenizer, self.decode.num_best)
                    of_run[i] = best or [BLANK]
        return results

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
          done: see `translate`.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        results: list[Any] = [None] * len(sources)
        for rows, batch in self.batches(*encoded):
            nll = np.asarray(self._row_nll(variables, batch))
            for row, i in enumerate(rows):
                results[i] = (-float(nll[row]), len(encoded[1][i]) + 1)
                if not math.isfinite(nll[row]):
                    raise not_finite(first_line + i, "score")
            done(len(rows))
        return iter(results)

    def prepare_score(self, variables: Variables) -> None:
        """Compiles what `score` needs for a single pair, see `compile_ahead`."""
        compile_ahead(lambda length: self.prepare_scores(variables, 1, length), self.max_length)

    def prepare_scores(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles what `score` needs for batches of so many rows of a static length."""
        self._row_nll(variables, make_batch([[]], [[]], rows, length))

    def cross_attention(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "layers H L M"]]]:
        """Yields (index, weights) of each pair: the cross-attention of its target to its source.

        Rows are the target tokens and `</s>`; columns are the source tokens and `</s>`. Pairs are
        grouped by similar length and yielded in that order.

        Args: see `score`; the model must have attention.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        heads = self.model.config.num_decoder_layers * self.model.config.num_heads

        def size(length: int) -> int:
            rows = static_rows(len(sources), self.decode.batch_size)
            return rows_at_once(rows, heads * length**2)

        for rows, batch in self.batches(*encoded, size):
            weights = jax.device_get(self._cross(variables, batch))
            for row, i in enumerate(rows):
                columns, length = (len(side[i]) + 1 for side in encoded)
                yield i, weights[:, row, :, :length, :columns]
            done(len(rows))

    # -- token ids

    def batches(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        size: Callable[[int], int] | None = None,
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yields (indices, batch) of encoded pairs, in batches of similar length and static shape.

        Args:
          size: returns the rows of batches of a length, at most `static_rows` of the pairs and
            `decode.batch_size`, which is the default.
        """
        whole = static_rows(len(sources), self.decode.batch_size)
        lengths = [
            max(len(source), len(target)) + 1
            for source, target in zip(sources, targets, strict=True)
        ]
        for group, length in length_groups(range(len(sources)), lengths, whole, self.max_length):
            most = whole if size is None else size(length)
            for first in range(0, len(group), most):
                rows = group[first : first + most]
                own = [sources[i] for i in rows], [targets[i] for i in rows]
                yield rows, make_batch(*own, most, length)

    def token_sums(
        self,
        variables: Variables,
        batch: Batch,
        smoothing: Any,
        rates: DropoutRates = NO_DROPOUT,
        key: jax.Array | None = None,
        r_drop: Any = None,
    ) -> TokenSums:
        features, table = self._features(variables, batch, rates, key)
        weights = (batch.labels != PAD_ID).astype(jnp.float32)
        labels = jnp.asarray(batch.labels)
        return cross_entropy(features, table, labels, weights, smoothing, r_drop)

    def attention(self, variables: Variables, source: str, target: str | None = None) -> Attention:
        """Returns the attention over a sentence and its translation.

        Args:
          target: the translation; by default the model's own.
        """
        if target is None:
            target = self.translate(variables, [source])[0][0].text
        [sources], [targets] = self._encode_pairs([source], [target], 1)
        length = static_length(max(len(sources), len(targets)) + 1, self.max_length)
        return Attention.of_first_text(
            self._attend(variables, make_batch([sources], [targets], 1, length)),
            [*self.source_tokenizer.pieces(sources), "</s>"],
            ["<s>", *self.target_tokenizer.pieces(targets)],
        )

    def prepare_attention(self, variables: Variables, length: int) -> None:
        """Compiles what `attention` needs for texts of a static length."""
        self._attend(variables, make_batch([[]], [[]], 1, length))

    def batch_attention(self, variables: Variables, batch: Batch) -> dict[str, BatchAttention]:
        inputs = _inputs(batch)
        _, sown = self.model.apply(variables, *inputs, mutable=["intermediates"])
        tokens, _, source, target = inputs
        places = jnp.arange(target.shape[1])
        past = look_ahead_mask(places, places)[0]
        ends = tokens == EOS_ID
        seen = {
            "encoder_self": (source[:, :, None] & source[:, None], ends),
            "decoder_self": (target[:, :, None] & target[:, None] & past, None),
            "cross": (target[:, :, None] & source[:, None], ends),
        }
        return BatchAttention.by_kind(self.model, sown.get("intermediates", {}), seen)

    # -- inside

    def _decode(
        self,
        search: Callable,
        variables: Variables,
        lines: Sequence[str],
        beam: int | None,
        numbers: Sequence[int],
        rows: int | None = None,
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the lines that were decoded together, without blank ones, and what is found."""
        encoded = self._encode_lines(self.source_tokenizer, lines, numbers)
        todo = [i for i, ids in enumerate(encoded) if ids]
        lengths = [len(ids) + 1 for ids in encoded]
        workers, most = share(variables, self.decode.batch_size)
        size = rows or static_rows(math.ceil(len(todo) / workers), most)
        batches = list(length_groups(todo, lengths, size, self.max_length))
        # The first of each length come first: their programs are compiled at the same time.
        firsts = {length: rows[0] for rows, length in reversed(batches)}
        batches.sort(key=lambda batch: batch[0][0] != firsts[batch[1]])

        def run(batch: tuple[list[int], int]) -> tuple[list[int], Any]:
            rows, length = batch
            source = make_batch([encoded[i] for i in rows], [], size, length).source
            own = beam or self.decode.beam_size
            return rows, search(variables, source, own, self._limit(length), workers)

        yield from each(run, batches, workers)

    def _features(self, variables, batch, rates, key):
        rngs = {} if key is None else {"dropout": key}

        def run(model):
            return model.features(*_inputs(batch), rates), model.output_table()

        return self.model.apply(variables, method=run, rngs=rngs)

    @functools.cached_property
    def _attend(self):
        return jax.jit(self.batch_attention)

    @functools.cached_property
    def _cross(self):
        return jax.jit(lambda *batch: self.batch_attention(*batch)["cross"].weights)

    def _limit(self, length: int) -> int:
        longest = int(self.decode.max_ratio * length + self.decode.max_extra)
        return max(1, min(longest, self.max_length))

    def _encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str], first_line: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        numbers = range(first_line, first_line + len(sources))
        return (
            self._encode_lines(self.source_tokenizer, sources, numbers),
            self._encode_lines(self.target_tokenizer, targets, numbers),
        )

    def _encode_lines(self, tokenizer: Tokenizer, lines: Sequence[str], numbers: Sequence[int]):
        """The tokens of each line, cut to what the model reads."""
        encoded = tokenizer.encode(lines)
        for i, ids in enumerate(encoded):
            if len(ids) + 1 > self.max_length:
                logger.warning(
                    f"line {numbers[i]} has {len(ids)} tokens: only the first "
                    f"{self.max_length - 1} are read (model.max_length={self.max_length})"
                )
                encoded[i] = ids[: self.max_length - 1]
        return encoded


def _inputs(batch: Batch):
    """The model's inputs for a batch."""
    source, target = jnp.asarray(batch.source), jnp.asarray(batch.target)
    return source, target, source != PAD_ID, target != PAD_ID
