"""Beam search and sampling with a model, compiled for a small set of static shapes."""

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.batches import stack_rows
from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN
from transformer.decoding.sampling import NOT_FINITE, SamplingRule
from transformer.decoding.search import (
    Continuations,
    Hypotheses,
    Prompts,
    Rule,
    Search,
    advance,
    beam_search,
    continue_search,
    start_search,
)
from transformer.inference.base import Variables, divide, source_mask, static_length, static_rows
from transformer.inference.hypotheses import not_finite
from transformer.model.architecture import Source

ROOM = 16  # tokens by which a translation can exceed its source before the cache grows
FIRST_ROOM = 16  # initial cache size in tokens, after many sentences of one length
# When at most a quarter of a batch is unfinished, the batch shrinks to a quarter of its size.
SHRINK = 4
MIN_ROWS = 8  # minimum batch size after shrinking
MANY = 5_000  # sentences of one length after which compiling for more shapes pays off
NO_TOKEN = -1


class _Decoder:
    """Decoding functions that beam search and sampling share.

    Args:
      decode: `config.decode`.
    """

    def __init__(self, model: Any, decode: ConfigDict):
        self._model, self._decode = model, decode

    def _cache(self, variables, source: Source, beam_size: int, steps: int) -> Any:
        mask = source_mask(source)
        return self._model.apply(variables, source, mask, beam_size, steps, method="init_cache")

    def _step(self, variables: Variables) -> Callable[[Any, Any], tuple[Any, Any]]:
        return functools.partial(self._model.apply, variables, method="decode_step")

    def _rule(self, beam_size: int, groups: int = 1) -> Rule:
        decode = self._decode
        settings = decode.length_penalty, decode.alpha, NEVER_WRITTEN, groups, decode.diversity
        return Rule(beam_size, BOS_ID, EOS_ID, *settings)

    def _sampling_rule(self, ends: bool = True) -> Rule:
        end, never = (EOS_ID, NEVER_WRITTEN) if ends else (NO_TOKEN, (*NEVER_WRITTEN, EOS_ID))
        sampling = SamplingRule(*(self._decode[name] for name in SamplingRule._fields))
        return Rule(1, BOS_ID, end, "none", 0.0, never, sampling=sampling)

    def _row_key(self, seed: Any, *numbers: Any) -> jax.Array:
        return functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))


class BeamSearch(_Decoder):
    """Beam search and sampling for a translation model.

    The attention time is proportional to the KV cache size, so the cache starts small and is
    doubled when it is full. After many sentences of one length, the cache starts even smaller, and
    the last quarter of a batch continues as a smaller batch. The translations stay the same.
    """

    def __init__(self, model: Any, decode: ConfigDict):
        super().__init__(model, decode)
        self._before: collections.Counter[int] = collections.Counter()  # sentences per length
        self._start = jax.jit(self._start_search, static_argnums=(3, 4, 7))
        self._continue = jax.jit(self._continue_search, static_argnums=2)
        self._advance = jax.jit(self._advance_search, static_argnums=2)
        self._grow = jax.jit(lambda search, steps: search.grow(steps, EOS_ID), static_argnums=1)
        self._take = jax.jit(Search.take)
        # A single program runs the searches of several runs with stacked variables.
        self._stacked = jax.jit(self._search_stacked, static_argnums=(4, 5))

    def search(
        self,
        variables: Variables,
        source: Source,
        limits: Int[np.ndarray, "B"],
        beam_size: int,
        max_length: int,
        adapts: bool = True,
        prepares: bool = False,
        moves: Int[np.ndarray, "B S V"] | None = None,
        groups: int = 1,
        seeds: Int[np.ndarray, "B 2"] | None = None,
    ) -> list[Hypotheses]:
        """Returns each sentence's hypotheses as arrays of shape [P, steps], [P], [P] and [P].

        Args:
          limits: maximum tokens per translation, including end-of-sentence; 0 for padding rows.
          max_length: a static upper bound of `limits`.
          adapts: whether more shapes may be compiled after many sentences.
          prepares: whether to compile all cache sizes up to `max_length`, even if no translation
            needs them.
          moves: forces how translations begin; see `decoding.search.Prefixes`.
          groups: number of beams of a sentence, which are diverse and follow each other in P.
          seeds: numbers from which random keys are derived, to sample; None to search beams.
        """
        length = source_mask(source).shape[1]
        rule = self._rule(beam_size, groups) if seeds is None else self._sampling_rule()
        # Groups stay together, so their batch cannot shrink.
        many = adapts and groups == 1 and self._before[length] >= MANY
        self._before[length] += len(limits)
        steps = min(FIRST_ROOM if many else length + ROOM, max_length)
        source, limits = divide(variables, source), divide(variables, limits)
        search = self._start(variables, source, limits, rule, steps, moves, seeds, groups)
        rows, hypotheses = np.arange(len(limits)), {}
        while True:
            shrinks = many and len(rows) >= SHRINK * MIN_ROWS
            keep = len(rows) // SHRINK if shrinks else 0
            search = self._continue(variables, search, rule, keep)
            finished = np.asarray(search.finished)
            unfinished = int((~finished).sum())
            if unfinished <= keep:
                join = lambda x: x.reshape(-1, groups * x.shape[1], *x.shape[2:])  # noqa: E731
                done = jax.tree.map(join, jax.device_get(search.done))
                each = (jax.tree.map(lambda x, i=i: x[i], done) for i in range(len(rows)))
                hypotheses |= zip(rows, each, strict=True)
            if not unfinished and (steps == max_length or not prepares):
                return [hypotheses[row] for row in range(len(limits))]
            if 0 < unfinished <= keep:
                indices = np.argsort(finished, kind="stable")[:keep]  # unfinished rows first
                rows, search = rows[indices], self._take(search, indices)
            elif steps < max_length:
                steps = min(2 * steps, max_length)
                search = self._grow(search, steps)

    def trace(
        self,
        variables: Variables,
        source: Source,
        limits: Int[np.ndarray, "B"],
        beam_size: int,
        max_length: int,
        moves: Int[np.ndarray, "B S V"] | None = None,
    ) -> Iterator[tuple[Search, Continuations]]:
        """Yields the state after each step, and the continuations from which it was selected."""
        rule = self._rule(beam_size)
        search = self._start(variables, source, limits, rule, max_length, moves)
        while not search.finished.all():
            search, continuations = self._advance(variables, search, rule)
            yield search, continuations

    def search_stacked(
        self,
        shared: Variables,
        stacked: Variables,
        source: Source,
        limits: Int[np.ndarray, "B"],
        beam_size: int,
        max_length: int,
    ) -> Hypotheses:
        """Returns the hypotheses of several runs, which differ in their `stacked` variables."""
        return jax.device_get(self._stacked(shared, stacked, source, limits, beam_size, max_length))

    def _start_search(
        self, variables, source, limits, rule: Rule, steps, moves=None, seeds=None, groups=1
    ) -> Search:
        cache, keys = self._cache(variables, source, rule.beam_size, steps), None
        if groups > 1:
            rows = jnp.repeat(jnp.arange(len(limits)), groups)
            cache = cache.take(rows)
            limits, moves, seeds = jax.tree.map(
                lambda x: jnp.asarray(x)[rows], (limits, moves, seeds)
            )
        if seeds is not None:
            keys = jax.vmap(self._row_key)(*seeds.T, jnp.arange(len(seeds)) % groups)
        return start_search(cache, limits, rule, steps, moves)._replace(keys=keys)

    def _advance_search(self, variables, search: Search, rule: Rule):
        return advance(search, self._step(variables), rule)

    def _continue_search(self, variables, search: Search, rule: Rule, keep) -> Search:
        return continue_search(self._step(variables), search, rule, keep)

    def _search_stacked(self, shared, stacked, source, limits, beam_size, steps) -> Hypotheses:
        rule = self._rule(beam_size)

        def search(variables):
            variables = {**shared, **variables}
            search = self._start_search(variables, source, limits, rule, steps)
            return self._continue_search(variables, search, rule, 0).done

        return jax.vmap(search)(stacked)


class Writer(_Decoder):
    """Generates continuations of prompts with a batch size of at most `decode.batch_size`.

    Args:
      context: context length in tokens.
      ends: whether the model was trained on texts with end-of-sentence tokens.
    """

    def __init__(self, model: Any, decode: ConfigDict, context: int, ends: bool):
        super().__init__(model, decode)
        self.context, self.ends = context, ends
        self._start = jax.jit(self._start_rows)
        self._sample = jax.jit(self._sample_rows)
        self._search = jax.jit(self._search_rows)

    def sample(
        self, variables: Variables, rows: list[tuple[list[int], tuple[int, int]]], at_once: int
    ) -> Iterator[list[list[int]]]:
        """Yields all sequences after every `at_once` sampled positions, and at the end.

        When the context is full, its second half becomes the prompt. Each row consists of prompt
        tokens (at least one), and the line and sample numbers from which its key is derived.
        """
        half = max(1, self.context // 2)
        written = [ids for ids, _ in rows]
        left = [self._decode.max_new_tokens] * len(rows)
        count = static_rows(len(rows), self._decode.batch_size)
        numbers = np.zeros((count, 3), np.int32)  # seed, line, sample
        numbers[: len(rows)] = [(self._decode.seed, *number) for _, number in rows]
        window = 0
        while any(left):
            # A finished sequence is cut to one token, so that it does not delay other sequences.
            prefixes = [ids if n else ids[:1] for ids, n in zip(written, left, strict=True)]
            prefixes = [ids if len(ids) < self.context else ids[-half:] for ids in prefixes]
            at = min(map(len, prefixes)) - 1
            most = max(len(ids) + n for ids, n in zip(prefixes, left, strict=True) if n)
            last = min(most, self.context) - 1
            prompts = self._prompts(prefixes, count, most)
            ended = np.array([not n for n in left] + [True] * (count - len(left)))
            search = self._start(variables, prompts, ended, numbers, window)
            while at < last and any(left):
                start, at = at + 1, min(at + at_once, last)
                search = self._sample(variables, search, prompts, at)
                tokens = np.asarray(search.live_tokens)[:, 0]  # without the first of the prompt
                for row, ids in enumerate(prefixes):
                    sampled = tokens[row, max(start, len(ids)) - 1 : at].tolist()
                    if NOT_FINITE in sampled:
                        raise not_finite(int(numbers[row, 1]), "text")
                    written[row] = written[row] + self._take(sampled, left, row)
                yield written
            window += 1

    def prepare(self, variables: Variables, rows: int) -> None:
        """Compiles `sample` or `beam_search` for a static batch size."""
        prompts = self._prompts([], rows, 1 + self._decode.max_new_tokens)
        if self._decode.search == "beam":
            self._search(variables, prompts)
            return
        ended, numbers = np.ones(rows, bool), np.zeros((rows, 3), np.int32)
        search = self._start(variables, prompts, ended, numbers, 0)
        self._sample(variables, search, prompts, 0)

    def _take(self, ids: list[int], left: list[int], row: int) -> list[int]:
        """Returns a row's new tokens up to the end or the limit, and updates `left[row]`."""
        if self.ends and EOS_ID in ids[: left[row]]:
            left[row] = 0
            return ids[: ids.index(EOS_ID)]
        new = ids[: left[row]]
        left[row] -= len(new)
        return new

    def _prompts(self, prefixes: list[list[int]], rows: int, most: int) -> Prompts:
        # The attention time is proportional to this static number of steps.
        steps = static_length(min(most, self.context), self.context)
        tokens = stack_rows(prefixes, rows, steps)
        lengths = [len(ids) for ids in prefixes] + [0] * (rows - len(prefixes))
        return Prompts(jnp.asarray(tokens), jnp.asarray(lengths))

    def _start_rows(self, variables: Variables, prompts: Prompts, ended, numbers, window) -> Search:
        (rows, steps), rule = prompts.tokens.shape, self._sampling_rule(self.ends)
        cache, limits = self._prompt_cache(variables, prompts, 1), jnp.full(rows, steps + 1)
        search = start_search(cache, limits, rule, steps)
        keys = jax.vmap(lambda row: self._row_key(*row, window))(numbers)
        return search._replace(finished=ended, keys=keys)

    def _prompt_cache(self, variables: Variables, prompts: Prompts, beam_size: int) -> Any:
        rows, steps = prompts.tokens.shape
        return self._cache(variables, jnp.zeros((rows, 0), jnp.int32), beam_size, steps)

    def _sample_rows(self, variables, search: Search, prompts: Prompts, until) -> Search:
        rule = self._sampling_rule(self.ends)
        return continue_search(self._step(variables), search, rule, 0, prompts, until)

    def beam_search(self, variables: Variables, prefixes: list[list[int]]) -> Hypotheses:
        """Returns the most probable texts that start with a prompt, without begin-of-sentence."""
        rows = static_rows(len(prefixes), self._decode.batch_size)
        most = max(map(len, prefixes)) + self._decode.max_new_tokens
        return jax.device_get(self._search(variables, self._prompts(prefixes, rows, most)))

    def _search_rows(self, variables: Variables, prompts: Prompts):
        beam_size, steps = self._decode.beam_size, prompts.tokens.shape[1]
        # Prompts include begin-of-sentence; hypotheses include end-of-sentence instead.
        max_lengths = jnp.minimum(prompts.lengths + min(self._decode.max_new_tokens, steps), steps)
        # A padding row, which has no prompt, takes no decoding step.
        max_lengths = jnp.where(prompts.lengths > 0, max_lengths, 0)
        return beam_search(
            self._step(variables),
            self._prompt_cache(variables, prompts, beam_size),
            max_lengths,
            self._rule(beam_size),
            steps,
            prompts,
        )
