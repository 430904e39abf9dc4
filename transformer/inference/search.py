"""Beam search for batches of sentences, as programs that are compiled for few static shapes."""

import collections
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict

from transformer.data.tokenizer import BOS_ID, EOS_ID, NEVER_WRITTEN, PAD_ID
from transformer.decoding.search import Hypotheses, Rule, Search, go_on, start_search
from transformer.inference.devices import divide
from transformer.inference.memory import check_search
from transformer.model.architecture import Architecture

ROOM = 16  # tokens that a translation may be longer than its source before the cache grows
FIRST_ROOM = 16  # tokens for which it has room at first if there were many sentences
SHRINK = 4  # once few sentences are unfinished, they go on in a batch so many times smaller
MIN_ROWS = 8  # of such a batch
MANY = 5_000  # sentences, after which more programs are worth compiling

Variables = Mapping[str, Any]


class BeamSearch:
    """The search of a translator.

    Attention takes the time of all tokens that the cache has room for, so these are few at first
    and are doubled if they do not suffice. After many sentences of a length they are fewer still,
    and the last quarter of a batch goes on alone. Neither changes a translation.

    Args:
      decode: `config.decode`.
    """

    def __init__(self, model: Architecture, decode: ConfigDict):
        self._model, self._decode = model, decode
        self._before: collections.Counter[int] = collections.Counter()  # sentences by length
        self._start = jax.jit(self._first, static_argnums=(2, 3, 4, 5))
        self._go_on = jax.jit(self._rest, static_argnums=2)
        self._grow = jax.jit(lambda search, steps: search.grow(steps, EOS_ID), static_argnums=1)
        self._take = jax.jit(Search.take)
        # Of several runs, as one program.
        self._stacked = jax.jit(
            lambda shared, stacked, source, beam, limit: jax.vmap(
                lambda own: self._whole({**shared, **own}, source, beam, limit)
            )(stacked),
            static_argnums=(3, 4),
        )

    def find(
        self,
        variables: Variables,
        source: Int[np.ndarray, "B M"],
        beam: int,
        limit: int,
        searches: int = 1,
        adapts: bool = True,
    ) -> list[Hypotheses]:
        """Returns the hypotheses of each sentence, as arrays [P, steps], [P] and [P].

        Args:
          limit: maximum tokens of a translation, see `max_lengths`.
          searches: how many run at the same time.
          adapts: whether more programs are worth compiling after many sentences.

        Raises:
          RunError: the search is too large for the device.
        """
        many = adapts and self._before[source.shape[1]] >= MANY
        self._before[source.shape[1]] += len(source)
        steps = min(FIRST_ROOM if many else source.shape[1] + ROOM, limit)
        source = divide(variables, source)
        search = self._start(variables, source, beam, steps, limit, searches)
        rows, found = np.arange(len(source)), {}
        while True:
            shrinks = many and len(rows) >= SHRINK * MIN_ROWS
            keep = len(rows) // SHRINK if shrinks else 0
            search = self._go_on(variables, search, beam, keep)
            finished = np.asarray(search.finished)
            left = len(rows) - int(finished.sum())
            if left <= keep:
                done = jax.device_get(search.done)
                found |= {
                    row: jax.tree.map(lambda x, i=i: x[i], done) for i, row in enumerate(rows)
                }
            if not left:
                return [found[row] for row in range(len(source))]
            if left <= keep:
                chosen = np.argsort(finished, kind="stable")[:keep]  # the unfinished ones first
                rows, search = rows[chosen], self._take(search, chosen)
            elif steps < limit:
                steps = min(2 * steps, limit)
                self._check(search.cache, len(rows), beam, steps, searches)
                search = self._grow(search, steps)

    def prepare(
        self, variables: Variables, rows: int, length: int, beam: int, limit: int, searches: int
    ) -> None:
        """Compiles what `find` needs, unless it adapts, for translations of any length.

        Args:
          rows: sentences of a search.
          length: of the sources, a static one.
        """
        source = divide(variables, np.full((rows, length), PAD_ID, np.int32))
        steps = min(length + ROOM, limit)
        search = self._start(variables, source, beam, steps, limit, searches)
        self._go_on(variables, search, beam, 0)  # blank sentences take no step
        while steps < limit:
            steps = min(2 * steps, limit)
            search = self._grow(search, steps)
            self._go_on(variables, search, beam, 0)

    def find_stacked(
        self,
        shared: Variables,
        stacked: Variables,
        source: Int[np.ndarray, "B M"],
        beam: int,
        limit: int,
    ) -> Hypotheses:
        """Returns the hypotheses of all sentences, of each of several runs.

        Args:
          shared: variables that all runs share.
          stacked: the others, with a leading axis of runs.
        """
        return jax.device_get(self._stacked(shared, stacked, source, beam, limit))

    def _first(
        self, variables, source, beam: int, steps: int, limit: int, searches: int = 1
    ) -> Search:
        mask = source != PAD_ID
        cache = self._model.apply(variables, source, mask, beam, steps, method="init_cache")
        self._check(cache, len(source), beam, steps, searches)
        return start_search(
            cache, self.max_lengths(mask.sum(axis=1), limit), self._rule(beam), steps
        )

    def _rest(self, variables, search: Search, beam: int, keep) -> Search:
        def step(tokens, cache):
            return self._model.apply(variables, tokens, cache, method="decode_step")

        return go_on(step, search, self._rule(beam), keep)

    def _whole(self, variables, source, beam: int, limit: int) -> Hypotheses:
        search = self._first(variables, source, beam, limit, limit)
        return self._rest(variables, search, beam, 0).done

    def max_lengths(self, lengths: Int[jax.Array, "B"], limit: int) -> Int[jax.Array, "B"]:
        """Returns the maximum tokens of a translation for sources of so many; 0 for none."""
        limits = self._decode.max_ratio * lengths + self._decode.max_extra
        return jnp.where(lengths > 0, jnp.clip(limits.astype(jnp.int32), 1, limit), 0)

    def _rule(self, beam: int) -> Rule:
        penalty = self._decode.length_penalty, self._decode.alpha
        return Rule(beam, BOS_ID, EOS_ID, *penalty, NEVER_WRITTEN)

    def _check(self, cache: Any, rows: int, beam: int, steps: int, searches: int) -> None:
        vocab_size = self._model.config.target_vocab_size
        check_search(cache, rows, beam, steps, vocab_size, searches=searches)
