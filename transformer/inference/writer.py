"""Generation with a language model, by sampling or beam search."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.decoding.sampling import NOT_FINITE, Sample, SamplingRule, sample, start_sample
from transformer.decoding.search import Hypotheses, Rule, beam_search
from transformer.decoding.steps import Prompts
from transformer.inference.base import Variables
from transformer.inference.groups import compile_ahead, static_length, static_rows
from transformer.inference.hypotheses import not_finite
from transformer.inference.memory import check_search

NO_TOKEN = -1
FIRST_ROOM = 128  # tokens, the prompt included, for which the cache has room at first


class Writer:
    """Continues sequences of token ids, at most `decode.batch_size` at a time.

    Attention takes the time of all tokens that the cache has room for, so these are few at first
    and are doubled when they do not suffice.

    Args:
      model: a decoder alone.
      decode: `config.decode`.
      context: maximum tokens that the model reads at once.
      ends: whether the model learned texts that end.
    """

    def __init__(self, model: Any, decode: ConfigDict, context: int, ends: bool):
        self.model, self.decode, self.context, self.ends = model, decode, context, ends
        self._start = jax.jit(self._start_rows)
        self._sample = jax.jit(self._sample_rows)
        self._grow = jax.jit(self._grow_rows, static_argnums=1)
        self._search = jax.jit(self._search_rows)

    def sample(
        self, variables: Variables, rows: list[tuple[list[int], tuple[int, int]]], at_once: int
    ) -> Iterator[list[list[int]]]:
        """Yields the new tokens of each row, up to `at_once` places at a time.

        If the context is full, the model reads its second half again and continues.

        Args:
          rows: the prompt tokens, at least one, and two numbers for the row's random key: that of
            the line and that of the sample.
        """
        half = max(1, self.context // 2)
        written = [list(ids) for ids, _ in rows]
        left = [self.decode.max_new_tokens] * len(rows)
        count = static_rows(len(rows), self.decode.batch_size)
        numbers = np.zeros((count, 2), np.int32)
        numbers[: len(rows)] = [number for _, number in rows]
        window = 0
        while any(left):
            # Rows that have ended must not delay the others.
            prefixes = [ids if n else ids[:1] for ids, n in zip(written, left, strict=True)]
            prefixes = [ids if len(ids) < self.context else ids[-half:] for ids in prefixes]
            for new in self._fill(variables, prefixes, left, numbers, window, at_once):
                for ids, more in zip(written, new, strict=True):
                    ids += more
                yield new
            window += 1

    def _fill(
        self,
        variables: Variables,
        prefixes: list[list[int]],
        left: list[int],
        numbers: Int[np.ndarray, "B 2"],
        window: int,
        at_once: int,
    ) -> Iterator[list[list[int]]]:
        """Yields the new tokens until the context is full or none is `left`, which it lowers."""
        at = min(map(len, prefixes)) - 1
        most = max(len(ids) + n for ids, n in zip(prefixes, left, strict=True) if n)
        last = min(most, self.context) - 1
        room = self._first_room(max(map(len, prefixes)), most)
        prompts = self._prompts(prefixes, len(numbers), room)
        ended = np.array([not n for n in left] + [True] * (len(numbers) - len(left)))
        state, keys = self._start(variables, prompts, ended, self._key(), numbers, window)
        while at < last and any(left):
            if at == room - 1:
                room = min(2 * room, self.context)
                state = self._grow(state, room)
            until = min(at + at_once, room - 1, last)
            state = self._sample(variables, state, prompts.lengths, until, keys, self._rule())
            tokens = np.asarray(state.tokens)
            new = [
                tokens[i, max(at + 1, len(ids)) : until + 1].tolist()
                for i, ids in enumerate(prefixes)
            ]
            at = until
            for ids, (line, _) in zip(new, numbers.tolist(), strict=False):
                if NOT_FINITE in ids:
                    raise not_finite(line, "text")
            yield [self._take(ids, left, i) for i, ids in enumerate(new)]

    def prepare(self, variables: Variables, prompts: int, samples: int) -> None:
        """Compiles `beam_search` for this number of prompts, or `sample` for samples of each.

        See `compile_ahead`.
        """
        most = self.decode.max_new_tokens
        rows = static_rows(prompts, self.decode.batch_size)
        copies = static_rows(prompts * samples, self.decode.batch_size)

        def compile_search(room: int) -> None:
            self._search(variables, self._prompts([], rows, room))

        def compile_sampling(room: int) -> None:
            prompts = self._prompts([], copies, room)
            ended, numbers = np.ones(copies, bool), np.zeros((copies, 2), np.int32)
            state, keys = self._start(variables, prompts, ended, self._key(), numbers, 0)
            self._sample(variables, state, prompts.lengths, 0, keys, self._rule())
            if room < self.context:
                self._grow(state, min(2 * room, self.context))

        if self.decode.search == "beam":
            compile_ahead(compile_search, self.context, min(1 + self._new_tokens(), self.context))
        else:
            compile_ahead(compile_sampling, self.context, self._first_room(1, 1 + most))

    def _new_tokens(self) -> int:
        """The new tokens of a beam search: as many as are wanted, if the context has room."""
        return min(self.decode.max_new_tokens, self.context)

    def _key(self) -> jax.Array:
        return jax.random.key(self.decode.seed)

    def _rule(self) -> SamplingRule:
        return SamplingRule(self.decode.temperature, self.decode.top_k, self.decode.top_p)

    def _take(self, ids: list[int], left: list[int], row: int) -> list[int]:
        """The new tokens of a row that count; lowers how many are `left`."""
        if self.ends and EOS_ID in ids[: left[row]]:
            left[row] = 0
            return ids[: ids.index(EOS_ID)]
        new = ids[: left[row]]
        left[row] -= len(new)
        return new

    def _first_room(self, prompt: int, most: int) -> int:
        """The tokens that the cache has room for at first, given those of the prompt and of all."""
        return static_length(max(prompt, min(FIRST_ROOM, most, self.context)), self.context)

    def _prompts(self, prefixes: list[list[int]], count: int, room: int) -> Prompts:
        tokens = np.full((count, room), PAD_ID, np.int32)
        for row, ids in enumerate(prefixes):
            tokens[row, : len(ids)] = ids
        lengths = [len(ids) for ids in prefixes] + [0] * (count - len(prefixes))
        return Prompts(jnp.asarray(tokens), jnp.asarray(lengths))

    def _start_rows(
        self, variables: Variables, prompts: Prompts, ended, key, numbers, window
    ) -> tuple[Sample, jax.Array]:
        def row_key(number):
            return functools.reduce(jax.random.fold_in, (*number, window), key)

        state = start_sample(self._cache(variables, prompts, 1), prompts)
        return state._replace(ended=ended), jax.vmap(row_key)(numbers)

    def _grow_rows(self, state: Sample, room: int) -> Sample:
        grown = state.grow(room)
        self._check(grown.cache, len(grown.tokens), 1, room)
        return grown

    def _cache(self, variables: Variables, prompts: Prompts, beam_size: int) -> Any:
        rows, room = prompts.tokens.shape
        nothing = jnp.zeros((rows, 0), jnp.int32)
        cache = self.model.apply(
            variables, nothing, nothing == PAD_ID, beam_size, room, method="init_cache"
        )
        self._check(cache, rows, beam_size, room)
        return cache

    def _check(self, cache: Any, rows: int, beam_size: int, room: int) -> None:
        check_search(cache, rows, beam_size, room, self.model.config.target_vocab_size)

    def _step(self, variables: Variables, tokens: Any, cache: Any) -> tuple[Any, Any]:
        return self.model.apply(variables, tokens, cache, method="decode_step")

    def _sample_rows(self, variables, state, lengths, until, keys, rule) -> Sample:
        step = functools.partial(self._step, variables)
        end, never = (EOS_ID, NEVER_WRITTEN) if self.ends else (NO_TOKEN, (*NEVER_WRITTEN, EOS_ID))
        return sample(step, state, lengths, until, keys, rule, end, never)

    def beam_search(self, variables: Variables, prefixes: list[list[int]]) -> Hypotheses:
        """Returns the most probable texts with these prompts, without the first token of each."""
        rows = static_rows(len(prefixes), self.decode.batch_size)
        max_length = max(map(len, prefixes)) + self._new_tokens()
        room = static_length(min(max_length, self.context), self.context)
        return jax.device_get(self._search(variables, self._prompts(prefixes, rows, room)))

    def _search_rows(self, variables: Variables, prompts: Prompts):
        beam_size, room = self.decode.beam_size, prompts.tokens.shape[1]
        # Hypotheses have no begin-of-sentence, as prompts do, and an end.
        max_lengths = jnp.minimum(prompts.lengths + self._new_tokens(), self.context)
        # A row without a prompt takes no step.
        max_lengths = jnp.where(prompts.lengths > 0, max_lengths, 0)
        return beam_search(
            functools.partial(self._step, variables),
            self._cache(variables, prompts, beam_size),
            max_lengths,
            Rule(
                beam_size,
                BOS_ID,
                EOS_ID,
                self.decode.length_penalty,
                self.decode.alpha,
                NEVER_WRITTEN,
            ),
            room,
            prompts,
        )
