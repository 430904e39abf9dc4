"""Generation with a language model, by sampling or beam search."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.decoding.sampling import NOT_FINITE, Sample, SamplingRule, sample, start_sample
from transformer.decoding.search import Hypotheses, Rule, beam_search
from transformer.decoding.steps import Prompts
from transformer.inference.base import Variables
from transformer.inference.groups import static_rows
from transformer.inference.hypotheses import not_finite
from transformer.inference.memory import check_search

NO_TOKEN = -1


class Writer:
    """Continues sequences of token ids, at most `decode.batch_size` at a time.

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
        self._search = jax.jit(self._search_rows)

    def draw(
        self, variables: Variables, rows: list[tuple[list[int], tuple[int, int]]], at_once: int
    ) -> Iterator[list[list[int]]]:
        """Yields the new tokens of each row, up to `at_once` places at a time.

        If the context is full, the model reads its second half again and continues.

        Args:
          rows: the prompt tokens, at least one, and two numbers for the row's random key: that of
            the line and that of the sample.

        Raises:
          RunError: logits are not finite.
        """
        settings = self.decode
        rule = SamplingRule(settings.temperature, settings.top_k, settings.top_p)
        count = static_rows(len(rows), settings.batch_size)
        key = jax.random.key(settings.seed)
        numbers = [number for _, number in rows] + [(0, 0)] * (count - len(rows))
        keys = jnp.stack([jax.random.fold_in(jax.random.fold_in(key, a), b) for a, b in numbers])
        half = max(1, self.context // 2)
        written = [list(ids) for ids, _ in rows]
        left = [settings.max_new_tokens] * len(rows)
        window = 0
        while any(left):
            # Rows that have ended must not delay the others.
            given = [ids if n else ids[:1] for ids, n in zip(written, left, strict=True)]
            given = [ids if len(ids) < self.context else ids[-half:] for ids in given]
            state, lengths = self._start(variables, self._prompts(given, count))
            state = state._replace(
                ended=jnp.asarray([not n for n in left] + [True] * (count - len(rows)))
            )
            at = min(map(len, given)) - 1
            own = jax.vmap(jax.random.fold_in, (0, None))(keys, window)
            while at < self.context - 1 and any(left):
                until = min(at + at_once, self.context - 1)
                state = self._sample(variables, state, lengths, until, own, rule)
                tokens = np.asarray(state.tokens)
                new = [
                    tokens[i, max(at + 1, len(ids)) : until + 1].tolist()
                    for i, ids in enumerate(given)
                ]
                at = until
                for ids, (_, (line, _)) in zip(new, rows, strict=True):
                    if NOT_FINITE in ids:
                        raise not_finite(line, "text")
                new = [self._take(ids, left, i) for i, ids in enumerate(new)]
                for ids, more in zip(written, new, strict=True):
                    ids += more
                yield new
            window += 1

    def _take(self, ids: list[int], left: list[int], row: int) -> list[int]:
        """The new tokens of a row that count; lowers how many are `left`."""
        if self.ends and EOS_ID in ids[: left[row]]:
            kept = ids[: ids.index(EOS_ID)]
            left[row] = 0
            return kept
        kept = ids[: left[row]]
        left[row] -= len(kept)
        return kept

    def _prompts(self, given: list[list[int]], count: int) -> Prompts:
        tokens = np.full((count, self.context), PAD_ID, np.int32)
        for row, ids in enumerate(given):
            tokens[row, : len(ids)] = ids
        lengths = [len(ids) for ids in given] + [1] * (count - len(given))
        return Prompts(jnp.asarray(tokens), jnp.asarray(lengths))

    def _start_rows(self, variables: Variables, prompts: Prompts) -> tuple[Sample, jax.Array]:
        return start_sample(
            self._cache(variables, len(prompts.lengths), 1), prompts
        ), prompts.lengths

    def _cache(self, variables: Variables, rows: int, beam: int) -> Any:
        nothing = jnp.zeros((rows, 0), jnp.int32)
        cache = self.model.apply(
            variables, nothing, nothing == PAD_ID, beam, self.context, method="init_cache"
        )
        check_search(cache, rows, beam, self.context, self.model.config.target_vocab_size)
        return cache

    def _step(self, variables: Variables, tokens: Any, cache: Any) -> tuple[Any, Any]:
        return self.model.apply(variables, tokens, cache, method="decode_step")

    def _sample_rows(self, variables, state, lengths, until, keys, rule) -> Sample:
        step = functools.partial(self._step, variables)
        end, never = (EOS_ID, NEVER_WRITTEN) if self.ends else (NO_TOKEN, (*NEVER_WRITTEN, EOS_ID))
        return sample(step, state, lengths, until, keys, rule, end, never)

    def find(self, variables: Variables, given: list[list[int]]) -> Hypotheses:
        """Returns the most probable texts with these prompts, without the first token of each."""
        rows = static_rows(len(given), self.decode.batch_size)
        return jax.device_get(self._search(variables, self._prompts(given, rows)))

    def _search_rows(self, variables: Variables, prompts: Prompts):
        beam = self.decode.beam_size
        limits = jnp.minimum(prompts.lengths - 1 + self.decode.max_new_tokens, self.context)
        return beam_search(
            functools.partial(self._step, variables),
            self._cache(variables, len(prompts.lengths), beam),
            limits,
            Rule(
                beam,
                BOS_ID,
                EOS_ID,
                self.decode.length_penalty,
                self.decode.alpha,
                NEVER_WRITTEN,
            ),
            self.context,
            prompts,
        )
