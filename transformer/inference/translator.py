"""Translation model inference: translations, log-probabilities and attention."""

import functools
import logging
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    length_groups,
    share,
    source_mask,
    static_length,
    static_rows,
    tied_tables,
)
from transformer.inference.hypotheses import (
    BLANK,
    Lines,
    Translation,
    not_finite,
    read_hypotheses,
)
from transformer.inference.prefixes import Prefix, PrefixReader, too_long
from transformer.inference.search import BeamSearch
from transformer.model.architecture import Architecture
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.masks import look_ahead_mask
from transformer.model.vision.inputs import PictureText

logger = logging.getLogger(__name__)


class Translator(TokenPredictor):
    """A translation model, which translates, scores and explains sentences; see `Predictor`.

    Args:
      source_tokenizer: a `Tokenizer`, or an object with the same methods for other inputs.
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
        self.search = BeamSearch(model, decode)
        # The weights of cross-attention for a batch.
        self.cross_weights = jax.jit(lambda *batch: self.batch_attention(*batch)["cross"].weights)

    def init_params(self, key: jax.Array) -> Params:
        return self.model.init(key, *self.inputs(self.empty_batch(1, 1)))["params"]

    def empty_batch(self, rows: int, length: int) -> Batch:
        return self.make_batch([], [[]], rows, length)

    def fingerprint(self) -> str:
        return f"{self.source_tokenizer.digest}-{self.target_tokenizer.digest}"

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the embedding tables "source", "target" and "output"; tied keys are joined."""
        source, target = self.source_tokenizer, self.target_tokenizer
        tokenizers = {"source": source, "target": target, "output": target}
        return tied_tables(variables["params"], tokenizers)

    # -- texts and pairs

    def is_blank(self, line: str) -> bool:
        """Returns whether a line is empty, except for characters such as zero-width spaces."""
        return not len(self.source_tokenizer.encode([line])[0])

    def translate(
        self,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None = None,
        numbers: Sequence[int] | None = None,
        done: Callable[[int], None] = lambda count: None,
        num_best: int | None = None,
        rows: int | None = None,
        limits: Sequence[int] | None = None,
        prefixes: Sequence[Prefix] = (),
    ) -> list[list[Translation]]:
        """Returns the translations of each line, best first, or [('', 0, 0)] for a blank line.

        The translations of a line are distinct, and degenerate ones (see `Translation`) come last.
        A beam may contain fewer than `num_best` translations. Samples are neither sorted nor
        distinct. Lines of similar length are decoded together, but a translation does not depend on
        the other lines, and samples depend on the line's text and `decode.seed`.

        Args:
          beam_size: if given, a beam of this size is searched, whatever `decode.search` is.
          numbers: line numbers for warnings; from one by default.
          done: called with the number of lines completed since the last call.
          rows: batch size, as compiled by `prepare_rows`; by default, it depends on the number of
            lines.
          limits: maximum tokens per translation with end-of-sentence; `decode` has limits, too.
          prefixes: how the translations of each line begin; by default, not restricted.
        """
        results = [[self.lines.copy(line)] for line in lines]
        blank, most = len(lines), num_best or self.decode.num_best
        numbers = numbers or range(1, len(lines) + 1)
        kind, size, groups = ("beam", beam_size, 1) if beam_size else self.sizes(most)
        search = functools.partial(self.search.search, adapts=rows is None, groups=groups)
        settings = size, numbers, rows, limits, prefixes, groups * (kind != "beam")
        for members, hypotheses in self.decode_lines(search, variables, lines, *settings):
            for row, i in enumerate(members):
                results[i] = self.read_best(hypotheses[row], lines[i], most, kind)
                if not results[i]:
                    if prefixes and any(prefixes[i]):
                        raise too_long(prefixes[i])  # its end comes after the length limit
                    raise not_finite(numbers[i], "translation")
            blank -= len(members)
            done(len(members))
        done(blank)
        return results

    def prepare_rows(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles `translate` for batches of a static shape; see `BeamSearch`."""
        source, limits = self.make_batch([], [], rows, length).source, np.zeros(rows, np.int32)
        kind, size, groups = self.sizes(1)
        seeds = None if kind == "beam" else np.zeros((rows, 2), np.int32)
        settings = size, self._max_target_length(length), False, True, None, groups
        self.search.search(variables, source, limits, *settings, seeds)

    def translate_stacked(
        self,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None = None,
        shared: Mapping[str, Any] | None = None,
        limits: Sequence[int] | None = None,
    ) -> list[list[list[Translation]]]:
        """Returns the results of `translate` for several runs.

        Args:
          variables: the variables that differ between runs, stacked on a leading axis.
          shared: the variables that all runs share.
        """
        count = len(jax.tree.leaves(variables)[0])
        results = [[[self.lines.copy(line)] for line in lines] for _ in range(count)]
        search = functools.partial(self.search.search_stacked, shared or {})
        for rows, hypotheses in self.decode_lines(
            search, variables, lines, beam_size, range(1, len(lines) + 1), limits=limits
        ):
            for row, i in enumerate(rows):
                for number, of_run in enumerate(results):
                    best = jax.tree.map(lambda x, at=(number, row): x[at], hypotheses)
                    # An error would stop all runs. The loss shows that this run has diverged.
                    of_run[i] = self.read_best(best, lines[i], 1) or [BLANK]
        return results

    def text_batches(
        self, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1
    ) -> Iterator[tuple[list[int], Batch]]:
        return self.batches(*self.encode_texts(sources, targets, first_line))

    def pieces(self, ids: Ids) -> list[str]:
        return self.target_tokenizer.pieces(ids)

    def attention(self, variables: Variables, source: str, target: str | None = None) -> Attention:
        """Returns the attention for a source and a target, which defaults to the translation."""
        source, target = self.with_target(variables, source, target)
        encoded = self.encode_pairs([Pair(source, target)])
        unread = [max(0, len(ids) + 1 - self.max_length) for [ids] in encoded]
        [sources], [targets] = self.encode_texts([source], [target], 1)
        length = static_length(max(len(sources), len(targets)) + 1, self.max_length)
        return Attention.of_first_text(
            self._attend(variables, self.make_batch([sources], [targets], 1, length)),
            self.source_names(sources),
            ["<s>", *self.target_tokenizer.pieces(targets)],
            (unread[0], unread[1]),
        )

    def with_target(
        self, variables: Variables, source: str, target: str | None = None
    ) -> tuple[str, str]:
        """Returns a pair in the model's case; the target is by default the translation."""
        if target is not None:
            return self.without_case(variables, source, target)
        # Uses a batch size that a server has already compiled.
        source = self.lines.without_case(source)
        [[best]] = self.translate(variables, [source], num_best=1, rows=1)
        return source, best.text

    # -- token ids

    def make_batch(
        self, sources: Sequence[Any], targets: Sequence[Ids], rows: int, length: int
    ) -> Batch:
        """Returns a batch of up to `rows` encoded pairs; `length` includes a begin or end token.

        Each source is the output of `source_tokenizer` for one line.
        """
        return make_batch(sources, targets, rows, length)

    def source_names(self, ids: Any) -> list[str]:
        """Returns a display name for each encoder position of a source."""
        return [*self.source_tokenizer.pieces(ids), "</s>"]

    def batches(
        self,
        sources: Sequence[Any],
        targets: Sequence[Ids],
        size: Callable[[int, int], int] = lambda rows, length: rows,
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yields (pair indices, batch); batches have static shapes and pairs of similar length.

        Args:
          size: (maximum batch size, length) -> batch size; by default, the maximum.
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

    def inputs(self, batch: Any, rates: DropoutRates = NO_DROPOUT) -> tuple:
        source, target = jax.tree.map(jnp.asarray, (batch.source, batch.target))
        return source, target, source_mask(source), target != PAD_ID, rates

    def batch_attention(self, variables: Variables, batch: Batch) -> dict[str, BatchAttention]:
        tokens, _, source, target, _ = self.inputs(batch)
        places = jnp.arange(target.shape[1])
        past = look_ahead_mask(places, places)[0]
        ends = jnp.zeros_like(source) if isinstance(tokens, PictureText) else tokens == EOS_ID
        masks = {
            "encoder_self": (source[:, :, None] & source[:, None], ends),
            "decoder_self": (target[:, :, None] & target[:, None] & past, None),
            "cross": (target[:, :, None] & source[:, None], ends),
        }
        return BatchAttention.by_kind(self.model, self.sown(variables, batch), masks)

    # -- private methods

    @functools.cached_property
    def lines(self) -> Lines:
        """Reads lines and writes translations."""
        return Lines(self.source_tokenizer.words, self.decode)

    @functools.cached_property
    def _prefix_reader(self) -> PrefixReader:
        return PrefixReader(self.target_tokenizer)

    def read_pairs(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Replaces copied strings by placeholders if the model uses them; see `read_pair`."""
        return [read_pair(pair, self.source_tokenizer.words) for pair in pairs]

    def encode_pairs(self, pairs: Iterable[Pair]) -> tuple[list[Any], list[list[int]]]:
        """Returns the token ids of all sources, and the token ids of all targets."""
        pairs = self.read_pairs(pairs)
        sources, targets = ([pair[:2][side] for pair in pairs] for side in (0, 1))
        return self.source_tokenizer.encode(sources), self.target_tokenizer.encode(targets)

    def encode_texts(
        self, sources: Sequence[str], targets: Sequence[str], first_line: int
    ) -> tuple[list[Any], list[Any]]:
        numbers = range(first_line, first_line + len(sources))
        read, written = self.encode_pairs(map(Pair, sources, targets))
        return self._cut(read, numbers, "source "), self._cut(written, numbers, "target ")

    def _cut(self, encoded: list[Any], numbers: Sequence[int], side: str = "") -> list[Any]:
        """Truncates token sequences that are too long, and logs a warning for each."""
        limit = self.max_length - 1
        for i, ids in enumerate(encoded):
            if len(ids) > limit:
                logger.warning(
                    f"line {numbers[i]} has {len(ids)} {side}tokens: only the first "
                    f"{limit} are read (model.max_length={self.max_length})"
                )
        return [ids[:limit] for ids in encoded]

    def read_best(self, hypotheses: Any, line: str, most: int, kind="beam") -> list[Translation]:
        """Returns translations of a line, with the line's case restored; see `read_hypotheses`."""
        write = functools.partial(self.lines.write, line=line, strings=self.lines.read(line)[1])
        write = functools.cache(write)  # samples repeat
        return read_hypotheses(hypotheses, self.target_tokenizer, line, most, write, kind)

    def without_case(self, variables: Variables, line: str, target: str) -> tuple[str, str]:
        """Returns a pair before the case of the line was transferred to the translation."""
        if (source := self.lines.without_case(line)) == line:
            return line, target
        size = self.decode.beam_size
        [best] = self.translate(variables, [source], size, num_best=size, rows=1)
        texts = [each.text for each in reversed(best)]
        originals = {self.lines.write(text, line, {})[0]: text for text in texts}
        return source, originals.get(target, target)

    def decode_lines(
        self,
        search: Callable,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None,
        numbers: Sequence[int],
        rows: int | None = None,
        limits: Sequence[int] | None = None,
        prefixes: Sequence[Prefix] = (),
        samples: int = 0,
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the indices of the non-blank lines in each batch, and the lines' hypotheses."""
        begun = {i: self.lines.read_prefix(lines[i], p) for i, p in enumerate(prefixes) if any(p)}
        copied = {i for i, line in enumerate(lines) if self.lines.copy(line).text} - begun.keys()
        lines = ["" if i in copied else self.lines.read(x)[0] for i, x in enumerate(lines)]
        encoded = self._cut(self.source_tokenizer.encode(lines), numbers)
        todo = [i for i, ids in enumerate(encoded) if len(ids)]
        lengths = [len(ids) + 1 for ids in encoded]
        beam_size = beam_size or self.decode.beam_size
        workers, most = share(self.decode.batch_size)
        most = max(1, most // max(1, samples))
        size = rows or static_rows(math.ceil(len(todo) / workers), most)
        parts = [[i for i in todo if (i in begun) == is_begun] for is_begun in (False, True)]
        batches = [b for part in parts for b in length_groups(part, lengths, size, self.max_length)]
        # The first batch of each length comes first, so that all lengths compile concurrently.
        firsts = {length: rows[0] for rows, length in reversed(batches)}
        batches.sort(key=lambda batch: batch[0][0] != firsts[batch[1]])

        def run(batch: tuple[list[int], int]) -> tuple[list[int], Any]:
            rows, length = batch
            source = self.make_batch([encoded[i] for i in rows], [], size, length).source
            most, steps = self._max_target_length(length), np.zeros(size, np.int32)
            for row, i in enumerate(rows):
                limit = self._max_target_length(lengths[i])
                steps[row] = min(limit, limits[i]) if limits else limit
            options: Any = {}
            if rows[0] in begun:
                options["moves"] = self._prefix_reader.moves([begun[i] for i in rows], size)
            if samples:
                seeds = options["seeds"] = np.full((size, 2), self.decode.seed, np.int32)
                seeds[: len(rows), 1] = [zlib.crc32(lines[i].encode()) >> 1 for i in rows]
            return rows, search(variables, source, steps, beam_size, most, **options)

        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(run, batches)

    def sizes(self, most: int) -> tuple[str, int, int]:
        """Returns "beam", "sample" or "mbr", the beam size of a group, and the number of groups."""
        decode, search = self.decode, self.decode.search
        if search in ("sample", "mbr"):
            return search, 1, (most if search == "sample" else decode.mbr_samples)
        return "beam", decode.beam_size // decode.beam_groups, decode.beam_groups

    def _max_target_length(self, length: int) -> int:
        longest = int(self.decode.max_ratio * length + self.decode.max_extra)
        return max(1, min(longest, self.max_length))
