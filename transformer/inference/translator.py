"""Inference with a translator: from text to text."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from transformer.analysis.attention import Attention
from transformer.data.characters import canonicalize
from transformer.data.placeholders import read_line, write_text
from transformer.data.words import read_case, write_case
from transformer.errors import RunError
from transformer.inference.base import Variables
from transformer.inference.batching import each, length_groups, share, static_rows
from transformer.inference.hypotheses import BLANK, Translation, not_finite, read_hypotheses
from transformer.inference.pairs import PairPredictor
from transformer.inference.search import BeamSearch

WIDENING = 4  # factor on the beam width if there are too few distinct texts


class Translator(PairPredictor):
    """Translates, scores and explains sentences, see `PairPredictor`."""

    @functools.cached_property
    def _search(self) -> BeamSearch:
        return BeamSearch(self.model, self.decode)

    def is_blank(self, line: str) -> bool:
        """Returns whether a line is empty, or has only characters such as a zero-width space."""
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
    ) -> list[list[Translation]]:
        """Returns the translations of each line, best first; for a blank line, [('', 0, 0)].

        They are distinct texts, the degenerate ones of a beam, see `Translation`, last. If the beam
        has too few, one `WIDENING` times as wide adds worse ones, so that a longer list begins with
        a shorter one; the list may still be too short. A translation does not depend on the other
        lines, though lines of similar length are decoded together.

        Args:
          numbers: line numbers for warnings; from one by default.
          done: called with the number of lines completed since the last call.
          rows: rows of every batch, as compiled by `prepare_rows`; by default, they depend on the
            number of lines.
          limits: maximum tokens of each translation, with an end token, if below those of `decode`.
        """
        results = [[self._copy(line)] for line in lines]
        blank, most = len(lines), num_best or self.decode.num_best
        numbers = numbers or range(1, len(lines) + 1)
        search = functools.partial(self._search.search, adapts=rows is None)
        how = beam_size, numbers, rows, limits
        for members, hypotheses in self._decode(search, variables, lines, *how):
            for row, i in enumerate(members):
                results[i] = self._read(hypotheses[row], lines[i], most)
                if not results[i]:
                    raise not_finite(numbers[i], "translation")
            blank -= len(members)
            done(len(members))
        done(blank)
        self._widen(results, variables, lines, beam_size or self.decode.beam_size, most)
        return results

    def prepare_rows(self, variables: Variables, rows: int, length: int) -> None:
        """Compiles the programs of `translate` for batches of a static shape, see `BeamSearch`."""
        source, most = self.make_batch([], [], rows, length).source, self._max_target_length(length)
        self._search.prepare(variables, source, self.decode.beam_size, most)

    def translate_stacked(
        self,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None = None,
        shared: Mapping[str, Any] | None = None,
        limits: Sequence[int] | None = None,
    ) -> list[list[list[Translation]]]:
        """Returns the result of `translate` for each of several runs.

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
                    # The error concerns this run only, and its loss reports it.
                    of_run[i] = self._read(best, lines[i], 1) or [BLANK]
        return results

    def attention(self, variables: Variables, source: str, target: str | None = None) -> Attention:
        """Returns the attention over a sentence and its translation, by default the model's own."""
        first_line: int | None = 1
        if self.decode.transfer_case:
            line, beam = source, self.decode.beam_size
            source = read_case(canonicalize(line), self.source_tokenizer.words)
            if target is not None and source != line:
                # The output of `translate` in the case of the model, not of the line.
                [best] = self.translate(variables, [source], num_best=beam, rows=1)
                texts = [each.text for each in reversed(best)]
                as_written = {self._write(text, line, {})[0]: text for text in texts}
                target = as_written.get(target, target)
        if target is None:
            # Uses the row count for which a server has compiled the programs.
            [[best]] = self.translate(variables, [source], num_best=1, rows=1)
            target, first_line = best.text, None  # no second warning
        return self._seen(variables, source, target, first_line)

    # -- inside

    def _read(
        self, hypotheses: Any, line: str, most: int, better: Sequence[Translation] = ()
    ) -> list[Translation]:
        """Returns the translations of a line, in its case, see `read_hypotheses`."""
        write = functools.partial(self._write, line=line, strings=self._read_line(line)[1])
        return read_hypotheses(hypotheses, self.target_tokenizer, line, most, better, write)

    def _copy(self, line: str) -> Translation:
        """Returns the copy of a line that the model does not read: blank, or without words."""
        words, line = self.source_tokenizer.words, canonicalize(line)
        return Translation(words.written(line), 0.0, 0) if words.is_copied(line) else BLANK

    def _read_line(self, line: str) -> tuple[str, dict[str, str]]:
        """Returns the line as model input, and its strings by placeholder."""
        words, transfers = self.source_tokenizer.words, self.decode.transfer_case
        return read_line(read_case(canonicalize(line), words) if transfers else line, words)

    def _write(self, text: str, line: str, strings: Mapping[str, str]) -> tuple[str, int]:
        """Returns a translation in its line's case with its strings, and how many it lacks."""
        if self.decode.transfer_case:
            text = write_case(text, canonicalize(line), self.source_tokenizer.words)
        return write_text(text, strings)

    def _widen(self, results, variables: Variables, lines, beam_size: int, most: int) -> None:
        """Adds worse texts from a wider beam to the results of lines that have too few."""
        few = [i for i, best in enumerate(results) if best[0].tokens and len(best) < most]
        rest = [lines[i] for i in few]
        search = self._decode(self._search.search, variables, rest, WIDENING * beam_size, None)
        with contextlib.suppress(RunError):  # too large for the device
            for members, of_batch in search:
                for i, hypotheses in zip(members, of_batch, strict=False):
                    best = results[few[i]]
                    best[:] = self._read(hypotheses, rest[i], most, best)

    def _decode(
        self,
        search: Callable,
        variables: Variables,
        lines: Sequence[str],
        beam_size: int | None,
        numbers: Sequence[int] | None,
        rows: int | None = None,
        limits: Sequence[int] | None = None,
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the non-blank lines that were decoded together, and their hypotheses."""
        lines = ["" if self._copy(line).text else self._read_line(line)[0] for line in lines]
        encoded = self._cut(self.source_tokenizer.encode(lines), numbers)
        todo = [i for i, ids in enumerate(encoded) if len(ids)]
        lengths = [len(ids) + 1 for ids in encoded]
        beam_size = beam_size or self.decode.beam_size
        workers, most = share(variables, self.decode.batch_size)
        size = rows or static_rows(math.ceil(len(todo) / workers), most)
        batches = list(length_groups(todo, lengths, size, self.max_length))
        # The first batches of each length come first: their programs are compiled concurrently.
        firsts = {length: rows[0] for rows, length in reversed(batches)}
        batches.sort(key=lambda batch: batch[0][0] != firsts[batch[1]])

        def run(batch: tuple[list[int], int]) -> tuple[list[int], Any]:
            rows, length = batch
            source = self.make_batch([encoded[i] for i in rows], [], size, length).source
            most, steps = self._max_target_length(length), np.zeros(size, np.int32)
            for row, i in enumerate(rows):
                limit = self._max_target_length(lengths[i])
                steps[row] = min(limit, limits[i]) if limits else limit
            return rows, search(variables, source, steps, beam_size, most)

        yield from each(run, batches, workers)

    def _max_target_length(self, length: int) -> int:
        longest = int(self.decode.max_ratio * length + self.decode.max_extra)
        return max(1, min(longest, self.max_length))
