"""Beam search for batches of sentences, as programs that are compiled for few static shapes."""

import collections
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.decoding.search import Hypotheses, Rule, Search, continue_search, start_search
from transformer.inference.devices import divide
from transformer.inference.memory import check_search
from transformer.model.architecture import Architecture

ROOM = 16  # tokens that a translation may be longer than its source before the cache grows
FIRST_ROOM = 16  # tokens for which it has room at first if there were many sentences
# When at most a quarter of the sentences are unfinished, they continue in a batch of a quarter of
# the size.
SHRINK = 4
MIN_ROWS = 8  # sentences of such a batch
MANY = 5_000  # sentences, after which more programs are worth compiling

Variables = Mapping[str, Any]


class BeamSearch:
    """The search of a translator.

    Attention takes the time of all tokens that the cache has room for, so these are few at first
    and are doubled if they do not suffice. After many sentences of a length they are fewer still,
    and the last quarter of a batch continues in a smaller one. Neither changes a translation.

    Args:
      decode: `config.decode`.
    """

    def __init__(self, model: Architecture, decode: ConfigDict):
        self._model, self._decode = model, decode
        self._before: collections.Counter[int] = collections.Counter()  # sentences by length
        self._start = jax.jit(self._start_search, static_argnums=(3, 4, 5))
        self._continue = jax.jit(self._continue_search, static_argnums=2)
        self._grow = jax.jit(lambda search, steps: search.grow(steps, EOS_ID), static_argnums=1)
        self._take = jax.jit(Search.take)
        # Of several runs, as one program.
        self._stacked = jax.jit(
            lambda shared, stacked, source, limits, beam_size, max_length: jax.vmap(
                lambda variables: self._full_search(
                    {**shared, **variables}, source, limits, beam_size, max_length
                )
            )(stacked),
            static_argnums=(4, 5),
        )

    def search(
        self,
        variables: Variables,
        source: Int[np.ndarray, "B M"],
        limits: Int[np.ndarray, "B"],
        beam_size: int,
        max_length: int,
        searches: int = 1,
        adapts: bool = True,
    ) -> list[Hypotheses]:
        """Returns the hypotheses of each sentence, as arrays [P, steps], [P] and [P].

        Args:
          limits: maximum tokens of each translation, its end included; 0 where there is none.
          max_length: at least the largest of these, and a static number.
          searches: how many run at the same time.
          adapts: whether more programs are worth compiling after many sentences.
        """
        many = adapts and self._before[source.shape[1]] >= MANY
        self._before[source.shape[1]] += len(source)
        steps = min(FIRST_ROOM if many else source.shape[1] + ROOM, max_length)
        source, limits = divide(variables, source), divide(variables, limits)
        search = self._start(variables, source, limits, beam_size, steps, searches)
        rows, hypotheses = np.arange(len(source)), {}
        while True:
            shrinks = many and len(rows) >= SHRINK * MIN_ROWS
            keep = len(rows) // SHRINK if shrinks else 0
            search = self._continue(variables, search, beam_size, keep)
            finished = np.asarray(search.finished)
            unfinished = len(rows) - int(finished.sum())
            if unfinished <= keep:
                done = jax.device_get(search.done)
                hypotheses |= {
                    row: jax.tree.map(lambda x, i=i: x[i], done) for i, row in enumerate(rows)
                }
            if not unfinished:
                return [hypotheses[row] for row in range(len(source))]
            if unfinished <= keep:
                indices = np.argsort(finished, kind="stable")[:keep]  # the unfinished ones first
                rows, search = rows[indices], self._take(search, indices)
            elif steps < max_length:
                steps = min(2 * steps, max_length)
                self._check(search.cache, len(rows), beam_size, steps, searches)
                search = self._grow(search, steps)

    def prepare(
        self,
        variables: Variables,
        rows: int,
        length: int,
        beam_size: int,
        max_length: int,
        searches: int,
    ) -> None:
        """Compiles the programs of `search`, unless it adapts, for translations of any length.

        Args:
          rows: sentences of a search.
          length: of the sources, a static one.
        """
        source = divide(variables, np.full((rows, length), PAD_ID, np.int32))
        limits = divide(variables, np.zeros(rows, np.int32))
        steps = min(length + ROOM, max_length)
        search = self._start(variables, source, limits, beam_size, steps, searches)
        self._continue(variables, search, beam_size, 0)  # blank sentences take no step
        while steps < max_length:
            steps = min(2 * steps, max_length)
            search = self._grow(search, steps)
            self._continue(variables, search, beam_size, 0)

    def search_stacked(
        self,
        shared: Variables,
        stacked: Variables,
        source: Int[np.ndarray, "B M"],
        limits: Int[np.ndarray, "B"],
        beam_size: int,
        max_length: int,
    ) -> Hypotheses:
        """Returns the hypotheses of all sentences, of each of several runs.

        Args:
          shared: variables that all runs share.
          stacked: the others, with a leading axis of runs.
        """
        return jax.device_get(self._stacked(shared, stacked, source, limits, beam_size, max_length))

    def _start_search(
        self, variables, source, limits, beam_size: int, steps: int, searches: int = 1
    ) -> Search:
        mask = source != PAD_ID
        cache = self._model.apply(variables, source, mask, beam_size, steps, method="init_cache")
        self._check(cache, len(source), beam_size, steps, searches)
        return start_search(cache, limits, self._rule(beam_size), steps)

    def _continue_search(self, variables, search: Search, beam_size: int, keep) -> Search:
        def step(tokens, cache):
            return self._model.apply(variables, tokens, cache, method="decode_step")

        return continue_search(step, search, self._rule(beam_size), keep)

    def _full_search(self, variables, source, limits, beam_size: int, steps: int) -> Hypotheses:
        search = self._start_search(variables, source, limits, beam_size, steps)
        return self._continue_search(variables, search, beam_size, 0).done

    def _rule(self, beam_size: int) -> Rule:
        penalty = self._decode.length_penalty, self._decode.alpha
        return Rule(beam_size, BOS_ID, EOS_ID, *penalty, NEVER_WRITTEN)

    def _check(self, cache: Any, rows: int, beam_size: int, steps: int, searches: int) -> None:
        vocab_size = self._model.config.target_vocab_size
        check_search(cache, rows, beam_size, steps, vocab_size, searches=searches)
