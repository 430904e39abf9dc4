"""Translation model inference: translations, log-probabilities and attention."""

import functools
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.batches import Batch, make_batch
from transformer.data.characters import UNSPACED, canonicalize
from transformer.data.pairs import Pair
from transformer.data.placeholders import read_line, read_pair, write_text
from transformer.data.tokenizer import EOS_ID, PAD_ID, Ids, Tokenizer
from transformer.data.words import read_case, write_case
from transformer.decoding.search import IMPOSSIBLE, PENALTIES
from transformer.errors import UserError
from transformer.inference.base import (
    MAX_NUMBERS,
    MAX_ROWS,
    Params,
    TokenPredictor,
    TokenTable,
    Variables,
    length_groups,
    share,
    source_mask,
    static_length,
    static_rows,
)
from transformer.inference.hypotheses import (
    BLANK,
    Alternative,
    Branch,
    NextToken,
    Translation,
    not_finite,
    read_hypotheses,
)
from transformer.inference.prefixes import SPACE, Prefix, PrefixReader, too_long
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

    def init_params(self, key: jax.Array) -> Params:
        return self.model.init(key, *self.inputs(self.empty_batch(1, 1)))["params"]

    def empty_batch(self, rows: int, length: int) -> Batch:
        return self.make_batch([], [[]], rows, length)

    def fingerprint(self) -> str:
        return f"{self.source_tokenizer.digest}-{self.target_tokenizer.digest}"

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the embedding tables "source", "target" and "output"; tied keys are joined."""
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
            if "table" in variables["params"].get(module, {})  # images have no source embeddings
        }

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
        A beam may contain fewer than `num_best` translations. Lines of similar length are decoded
        together, but a translation does not depend on the other lines.

        Args:
          numbers: line numbers for warnings; from one by default.
          done: called with the number of lines completed since the last call.
          rows: batch size, as compiled by `prepare_rows`; by default, it depends on the number of
            lines.
          limits: maximum tokens per translation with end-of-sentence; `decode` has limits, too.
          prefixes: how the translations of each line begin; by default, not restricted.
        """
        results = [[self._copy(line)] for line in lines]
        blank, most = len(lines), num_best or self.decode.num_best
        numbers = numbers or range(1, len(lines) + 1)
        search = functools.partial(self._search.search, adapts=rows is None)
        settings = beam_size, numbers, rows, limits, prefixes
        for members, hypotheses in self._decode(search, variables, lines, *settings):
            for row, i in enumerate(members):
                results[i] = self._read(hypotheses[row], lines[i], most)
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
        settings = self.decode.beam_size, self._max_target_length(length)
        self._search.search(variables, source, limits, *settings, adapts=False, prepares=True)

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
        results = [[[self._copy(line)] for line in lines] for _ in range(count)]
        search = functools.partial(self._search.search_stacked, shared or {})
        for rows, hypotheses in self._decode(
            search, variables, lines, beam_size, range(1, len(lines) + 1), limits=limits
        ):
            for row, i in enumerate(rows):
                for number, of_run in enumerate(results):
                    best = jax.tree.map(lambda x, at=(number, row): x[at], hypotheses)
                    # An error would stop all runs. The loss shows that this run has diverged.
                    of_run[i] = self._read(best, lines[i], 1) or [BLANK]
        return results

    def score(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[float, int]]:
        """Returns the log-probability in nats and the length of each target, given its source.

        Args:
          first_line: number of the first pair, for warnings.
          done: called with the number of pairs completed since the last call.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        lengths = [len(ids) + 1 for ids in encoded[1]]
        return self._log_probs(variables, self.batches(*encoded), lengths, first_line, done)

    def next_tokens(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        count: int,
        temperature: float = 1.0,
    ) -> list[list[NextToken]]:
        """Returns the distribution of each token of each target and of its end; see `NextToken`."""
        encoded = self._encode_as_written(variables, sources, targets)
        lengths = [len(ids) + 1 for ids in encoded[1]]
        return self._next_tokens(variables, self.batches(*encoded), lengths, count, temperature)

    def alternatives(
        self,
        variables: Variables,
        source: str,
        target: str,
        position: int,
        count: int,
        temperature: float = 1.0,
    ) -> list[Alternative]:
        """Returns the most probable tokens at a position of a target, most probable first.

        Each is followed by the greedy translation that begins with the tokens before it.

        Args:
          position: zero-based index of a token of the target, or of the end after the last one.
        """
        encoded = self._encode_as_written(variables, [source], [target])
        [before] = encoded[1]
        if not 0 <= position <= len(before):
            raise UserError(
                f"position={position} is not between 0 and {len(before)}, the end of the target"
            )
        [(_, batch)] = self.batches(*encoded)
        numbers = self._distribution(variables, batch, temperature, count)
        _, _, log_probs, tokens = (np.asarray(x[0, position]) for x in numbers)
        prefixes = [Prefix(tokens=[*before[:position], token]) for token in tokens.tolist()]
        end = Prefix(is_whole=True, tokens=before[:position])
        prefixes = [end if prefix.tokens[-1] == EOS_ID else prefix for prefix in prefixes]
        results: list[Any] = [None] * count
        search = functools.partial(self._search.search, adapts=False)
        settings = 1, [1] * count, static_rows(count, MAX_ROWS), None, prefixes
        for rows, hypotheses in self._decode(search, variables, [source] * count, *settings):
            for row, i in enumerate(rows):
                if not (best := self._read(hypotheses[row], source, 1)):
                    raise too_long(Prefix(target))
                written = hypotheses[row].tokens[0].tolist()
                word, prefix = self._word_at(written, position, source)
                [candidate] = self._candidates(log_probs[i : i + 1], tokens[i : i + 1])
                results[i] = Alternative(*candidate, word, prefix, *best[0][:2])
        return results

    def beam(
        self, variables: Variables, source: str, prefix: Prefix, beam_size: int | None = None
    ) -> list[list[Branch]]:
        """Returns the continuations at each step of a search, most probable first; see `Branch`."""
        search, steps = self._search.trace, []
        decode, size = self.decode, beam_size or self.decode.beam_size
        [(_, trace)] = self._decode(search, variables, [source], size, [1], 1, None, [prefix])
        for length, (_, continuations) in enumerate(trace, 1):
            slots, branches = 0, []
            penalty = float(PENALTIES[decode.length_penalty](jnp.float32(length), decode.alpha))
            options = zip(*(x[0].tolist() for x in jax.device_get(continuations)), strict=True)
            for rank, (log_prob, parent, token) in enumerate(options):
                if log_prob < IMPOSSIBLE / 2:
                    break
                if token == EOS_ID:
                    fate = "finished" if rank < size else "pruned"
                else:
                    fate, slots = ("kept", slots + 1) if slots < size else ("pruned", slots)
                [name] = self.pieces([token])
                branches.append(Branch(parent, name, log_prob, log_prob / penalty, fate))
            steps.append(branches)
        return steps

    def pieces(self, ids: Ids) -> list[str]:
        return self.target_tokenizer.pieces(ids)

    def cross_attention(
        self,
        variables: Variables,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "layers H L M"]]]:
        """Yields (pair index, weights): the cross-attention from the target to the source.

        Rows are the target tokens and `</s>`; columns are the source tokens and `</s>`. Pairs are
        not yielded in order, but grouped by length. The arguments are the same as for `score`.
        """
        encoded = self._encode_pairs(sources, targets, first_line)
        heads = self.model.config.num_decoder_layers * self.model.config.num_heads

        def size(rows: int, length: int) -> int:
            # Splits a batch into equal parts with at most MAX_NUMBERS attention weights each.
            return math.ceil(rows / math.ceil(rows * heads * length**2 / MAX_NUMBERS))

        for rows, batch in self.batches(*encoded, size):
            weights = jax.device_get(self._cross(variables, batch))
            for row, i in enumerate(rows):
                columns, length = (len(side[i]) + 1 for side in encoded)
                yield i, weights[:, row, :, :length, :columns]
            done(len(rows))

    def unread(self, source: str, target: str) -> tuple[int, int]:
        """Returns the number of tokens that are truncated from each side of a pair."""
        sides = (self.source_tokenizer, source), (self.target_tokenizer, target)
        first, second = (len(tokenizer.encode([text])[0]) for tokenizer, text in sides)
        return max(0, first + 1 - self.max_length), max(0, second + 1 - self.max_length)

    def attention(self, variables: Variables, source: str, target: str | None = None) -> Attention:
        """Returns the attention for a source and a target, which defaults to the translation."""
        if target is not None:
            source, target = self._without_case(variables, source, target)
        elif self.decode.transfer_case:
            source = read_case(canonicalize(source), self.source_tokenizer.words)
        if target is None:
            # Uses a batch size that a server has already compiled.
            [[best]] = self.translate(variables, [source], num_best=1, rows=1)
            target = best.text
        [(source, target, *_)] = self.read_pairs([Pair(source, target)])
        [sources], [targets] = self._encode_pairs([source], [target], 1)
        length = static_length(max(len(sources), len(targets)) + 1, self.max_length)
        return Attention.of_first_text(
            self._attend(variables, self.make_batch([sources], [targets], 1, length)),
            self.source_names(sources),
            ["<s>", *self.target_tokenizer.pieces(targets)],
            self.unread(source, target),
        )

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

    # -- private methods

    @functools.cached_property
    def _search(self) -> BeamSearch:
        return BeamSearch(self.model, self.decode)

    @functools.cached_property
    def _prefix_reader(self) -> PrefixReader:
        return PrefixReader(self.target_tokenizer)

    def _read_prefix(self, line: str, prefix: Prefix) -> Prefix:
        """Returns a prefix as the model writes it, before copied strings and case are restored."""
        text, words = prefix.text, self.source_tokenizer.words
        for name, string in self._read_line(line)[1].items():
            text = re.sub(rf"(?<!\w){re.escape(string)}(?!\w)", name, text, count=1)
        canonical = canonicalize(line)
        folds = self.decode.transfer_case and read_case(canonical, words) != canonical
        return prefix._replace(text=text, ignore_case=folds)

    @functools.cached_property
    def _cross(self):
        return jax.jit(lambda *batch: self.batch_attention(*batch)["cross"].weights)

    def read_pairs(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Replaces copied strings by placeholders if the model uses them; see `read_pair`."""
        return [read_pair(pair, self.source_tokenizer.words) for pair in pairs]

    def encode_pairs(self, pairs: Iterable[Pair]) -> tuple[list[Any], list[list[int]]]:
        """Returns the token ids of all sources, and the token ids of all targets."""
        pairs = self.read_pairs(pairs)
        sources, targets = ([pair[:2][side] for pair in pairs] for side in (0, 1))
        return self.source_tokenizer.encode(sources), self.target_tokenizer.encode(targets)

    def _encode_pairs(
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

    def _read(self, hypotheses: Any, line: str, most: int) -> list[Translation]:
        """Returns translations of a line, with the line's case restored; see `read_hypotheses`."""
        write = functools.partial(self._write, line=line, strings=self._read_line(line)[1])
        return read_hypotheses(hypotheses, self.target_tokenizer, line, most, write)

    def _encode_as_written(
        self, variables: Variables, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[Any], list[Any]]:
        """Encodes pairs as `translate` read and wrote them."""
        pairs = zip(sources, targets, strict=True)
        read, written = zip(*(self._without_case(variables, *pair) for pair in pairs), strict=True)
        return self._encode_pairs(read, written, 1)

    def _without_case(self, variables: Variables, line: str, target: str) -> tuple[str, str]:
        """Returns a pair before the case of the line was transferred to the translation."""
        source = read_case(canonicalize(line), self.source_tokenizer.words)
        if not self.decode.transfer_case or source == line:
            return line, target
        [best] = self.translate(variables, [source], num_best=self.decode.beam_size, rows=1)
        texts = [each.text for each in reversed(best)]
        return source, {self._write(text, line, {})[0]: text for text in texts}.get(target, target)

    def _word_at(self, ids: list[int], position: int, line: str) -> tuple[str, str]:
        """Returns the word in which a token stands, and the text up to the end of the word."""
        ids = ids[: ids.index(EOS_ID)]
        pieces = [*self.pieces(ids), SPACE]
        joined = [re.match(r"[\w'’-]|<0x", x) and not UNSPACED.match(x) for x in pieces]
        start, end = position, min(position + 1, len(ids))
        while start and joined[start]:
            start -= 1
        while joined[end]:
            end += 1
        text = self.target_tokenizer.decode(ids[:end])
        written, _ = self._write(text, line, self._read_line(line)[1])
        ends_word = end < len(ids) and pieces[end].startswith(SPACE)
        return self.target_tokenizer.decode(ids[start:end]), written + " " * ends_word

    def _copy(self, line: str) -> Translation:
        """Returns a copy of a line that has no words to translate, or `BLANK`."""
        words, line = self.source_tokenizer.words, canonicalize(line)
        return Translation(words.written(line), 0.0, 0) if words.is_copied(line) else BLANK

    def _read_line(self, line: str) -> tuple[str, dict[str, str]]:
        """Returns a line as model input, and its copied strings, keyed by placeholder."""
        words, transfers = self.source_tokenizer.words, self.decode.transfer_case
        return read_line(read_case(canonicalize(line), words) if transfers else line, words)

    def _write(self, text: str, line: str, strings: Mapping[str, str]) -> tuple[str, int]:
        """Returns a text with a line's case and copied strings, and a count of missing strings."""
        if self.decode.transfer_case:
            text = write_case(text, canonicalize(line), self.source_tokenizer.words)
        return write_text(text, strings)

    def _decode(
        self,
        search: Callable,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None,
        numbers: Sequence[int],
        rows: int | None = None,
        limits: Sequence[int] | None = None,
        prefixes: Sequence[Prefix] = (),
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the indices of the non-blank lines in each batch, and the lines' hypotheses."""
        begun = {i: self._read_prefix(lines[i], p) for i, p in enumerate(prefixes) if any(p)}
        copied = {i for i, line in enumerate(lines) if self._copy(line).text} - begun.keys()
        lines = ["" if i in copied else self._read_line(x)[0] for i, x in enumerate(lines)]
        encoded = self._cut(self.source_tokenizer.encode(lines), numbers)
        todo = [i for i, ids in enumerate(encoded) if len(ids)]
        lengths = [len(ids) + 1 for ids in encoded]
        beam_size = beam_size or self.decode.beam_size
        workers, most = share(self.decode.batch_size)
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
            options = {}
            if rows[0] in begun:
                options = {"moves": self._prefix_reader.moves([begun[i] for i in rows], size)}
            return rows, search(variables, source, steps, beam_size, most, **options)

        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(run, batches)

    def _max_target_length(self, length: int) -> int:
        longest = int(self.decode.max_ratio * length + self.decode.max_extra)
        return max(1, min(longest, self.max_length))
