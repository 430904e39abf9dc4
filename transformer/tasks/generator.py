"""A trained language model in use: a prompt in, text out."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.packing import Text, TextBatch, pack_rows
from transformer.data.tokenizer import BEGIN, END, PAD, UNKNOWN, Tokenizer
from transformer.decode import (
    Prompts,
    Sample,
    SamplingRule,
    beam_search,
    sample,
    start_sample,
)
from transformer.errors import UserError
from transformer.losses import TokenSums, cross_entropy
from transformer.model.layers import DropoutRates

NO_TOKEN = -1


class Continuation(NamedTuple):
    """A prompt with what a model wrote after it.

    `score` is that of a search, and None of what was drawn at random.
    """

    text: str
    score: float | None


class Generator:
    """Writes, scores and explains text with given variables.

    Args:
      model: a decoder alone.
      tokenizer: what its ids mean.
      decode: `config.decode`.
      context: tokens that the model reads at once.
      whole: whether it learned running text, in which nothing starts or ends.
      warn: called with a line for what the user should know.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        decode: Any,
        context: int,
        whole: bool,
        warn: Callable[[str], None],
    ):
        self.model, self.tokenizer, self.decode = model, tokenizer, decode
        self.context, self.whole, self.warn = context, whole, warn
        self._sums = jax.jit(self._batch_sums)
        self._sums_members = jax.jit(jax.vmap(self._batch_sums, in_axes=(0, None)))
        self._start = jax.jit(self._start_rows)
        self._sample = jax.jit(self._sample_rows)
        self._search = jax.jit(self._search_rows)

    def param_shapes(self) -> Any:
        """Returns the parameters' shapes and dtypes, without their values."""
        return jax.eval_shape(self.init_params, jax.random.key(0))

    def init_params(self, key: jax.Array) -> Any:
        """Returns fresh float32 parameters; they do not depend on any text."""
        token = jnp.zeros((1, 1), jnp.int32)

        def run(model):
            return model.logits(model.decode(token, None, None, token == PAD))

        return self.model.init(key, method=run)["params"]

    def fingerprint(self) -> str:
        """Returns what a checkpoint must agree with."""
        return self.tokenizer.digest

    # -- likelihood

    def token_sums(
        self,
        variables: Any,
        batch: TextBatch,
        smoothing: Any,
        rates: DropoutRates | None,
        key: jax.Array | None = None,
    ) -> TokenSums:
        """Returns the loss of a batch; padding counts for nothing."""
        segments = jnp.asarray(batch.segments)

        def run(model):
            mask = segments > 0
            features = model.decode(batch.tokens, None, None, mask, rates, segments)
            return features, model.output_table()

        rngs = {} if key is None else {"dropout": key}
        features, table = self.model.apply(variables, method=run, rngs=rngs)
        weights = (batch.labels != PAD).astype(jnp.float32)
        return cross_entropy(features, table, batch.labels, weights, smoothing)

    def evaluate_sums(
        self, variables: Any, text: Text, rows: int, context: int, members: bool = False
    ) -> Iterator[TokenSums]:
        """Yields the unsmoothed loss of a text, batch by batch.

        Args:
          rows, context: of a batch.
          members: whether the variables, and so the sums, are those of a population.
        """
        sums = self._sums_members if members else self._sums
        for batch in pack_rows(text, rows, context):
            yield sums(variables, batch)

    def score(
        self, variables: Any, lines: Sequence[str], first_line: int = 1
    ) -> Iterator[tuple[float, int]]:
        """Yields each line's log-probability in nats and how many tokens that is of.

        They are all tokens of the line, and its end where the model learned ends.

        Args:
          first_line: number of the first line, for errors.

        Raises:
          UserError: a line has more tokens than the model reads at once.
        """
        rows = self.decode.batch_size
        for first in range(0, len(lines), rows):
            encoded = [
                self._read(line, first_line + first + i)
                for i, line in enumerate(lines[first : first + rows])
            ]
            yield from self._score_rows(variables, encoded, rows)

    def _score_rows(
        self, variables: Any, encoded: list[list[int]], rows: int
    ) -> Iterator[tuple[float, int]]:
        batch = TextBatch(*(np.zeros((rows, self.context + 1), np.int32) for _ in range(3)))
        for row, ids in enumerate(encoded):
            read = ids if self.whole else [*ids, END]
            batch.tokens[row, : len(read) - 1] = read[:-1]
            batch.labels[row, : len(read) - 1] = read[1:]
            batch.segments[row, : len(read) - 1] = 1
        nll = self._row_nll(variables, batch)
        for row in range(len(encoded)):
            yield -float(nll[row]), int((batch.labels[row] != PAD).sum())

    @functools.cached_property
    def _row_nll(self):
        def one(variables, row: TextBatch):
            return self._batch_sums(variables, TextBatch(*(x[None] for x in row))).nll

        return jax.jit(jax.vmap(one, in_axes=(None, 0)))

    def _batch_sums(self, variables: Any, batch: TextBatch) -> TokenSums:
        return self.token_sums(variables, batch, 0.0, None)

    # -- writing

    def write(
        self, variables: Any, prompts: Sequence[str], first_line: int = 1
    ) -> list[list[Continuation]]:
        """Returns `decode.num_best` continuations of each prompt, as `decode.search` says.

        Args:
          first_line: number of the first prompt, for errors and for what is drawn: a prompt's
            samples depend on `decode.seed` and its number alone.

        Raises:
          UserError: see `stream`; a search needs texts that end.
        """
        given = [self._read(text, first_line + i) for i, text in enumerate(prompts)]
        results: list[list[Continuation]] = []
        size, best = self.decode.batch_size, self.decode.num_best
        if self.decode.search == "beam":
            for first in range(0, len(given), size):
                results += self._find(variables, given[first : first + size])
            return results
        copies = [(ids, (first_line + i, n)) for i, ids in enumerate(given) for n in range(best)]
        texts: list[str] = []
        for first in range(0, len(copies), size):
            rows = copies[first : first + size]
            written = [list(ids) for ids, _ in rows]
            for new in self._draw(variables, rows, self.context):
                for ids, more in zip(written, new, strict=True):
                    ids += more
            texts += map(self.tokenizer.decode, written)
        drawn = iter(texts)
        return [[Continuation(next(drawn), None) for _ in range(best)] for _ in given]

    def stream(self, variables: Any, prompt: str) -> Iterator[str]:
        """Yields a prompt's text piece by piece while it is drawn, the prompt itself first.

        Raises:
          UserError: the prompt has characters that are not in the vocabulary, or more tokens than
            the model reads at once.
        """
        ids = self._read(prompt, 1)
        shown = self.tokenizer.decode(ids)
        yield shown
        for new in self._draw(variables, [(ids, (1, 0))], 1):
            ids += new[0]
            text = self.tokenizer.decode(ids)
            # The bytes or pieces of a character may still be on their way.
            if text.startswith(shown) and not text.endswith("\ufffd"):
                yield text[len(shown) :]
                shown = text

    def attention(self, variables: Any, text: str) -> tuple[dict[str, np.ndarray], list[str]]:
        """Returns all attention weights while reading a text, and its tokens as they are read.

        Returns:
          weights: `decoder_self` [layers, H, L, L], float32, queries in rows, of models that
            have such.
          L tokens; the first is begin-of-sentence where the model learned such.
        """
        ids = self._read(text, 1)
        tokens = jnp.asarray([ids])
        _, sown = self.model.apply(
            variables,
            *(tokens, None, None, jnp.ones_like(tokens, bool)),
            method="decode",
            mutable=["intermediates"],
        )
        layers = self.model.attention_weights(sown.get("intermediates", {}))
        weights = {
            kind: np.stack([np.asarray(of_layer[0]) for of_layer in own])
            for kind, own in layers.items()
        }
        pieces = [
            piece.replace("\n", "⏎")
            for piece in self.tokenizer.pieces(ids if self.whole else ids[1:])
        ]
        return weights, pieces if self.whole else ["<s>", *pieces]

    # -- inside

    def _read(self, text: str, line: int) -> list[int]:
        """The tokens that the model reads before it writes: at least one."""
        text = (text or "\n") if self.whole else text
        [ids] = self.tokenizer.encode([text])
        if UNKNOWN in ids:
            strange = [c for c in dict.fromkeys(text) if UNKNOWN in self.tokenizer.encode([c])[0]]
            what = f"the characters {' '.join(strange)}" if strange else "words"
            raise UserError(
                f"line {line} has {what} that the training text does not have: leave them out"
            )
        ids = ids if self.whole else [BEGIN, *ids]
        if len(ids) > self.context:
            raise UserError(
                f"line {line} has {len(ids)} tokens, more than the data.context={self.context} "
                "that this model reads at once: shorten it"
            )
        return ids

    def _draw(
        self, variables: Any, rows: list[tuple[list[int], tuple[int, int]]], at_once: int
    ) -> Iterator[list[list[int]]]:
        """Yields the new tokens of each row, up to `at_once` places at a time.

        Where the model has read all it can at once, it reads the latter half of that anew and
        writes on.

        Args:
          rows: the given tokens, and the numbers that tell its random key from others.
        """
        settings = self.decode
        rule = SamplingRule(settings.temperature, settings.top_k, settings.top_p)
        count = 1 if len(rows) == 1 else settings.batch_size
        key = jax.random.key(settings.seed)
        numbers = [number for _, number in rows] + [(0, 0)] * (count - len(rows))
        keys = jnp.stack([jax.random.fold_in(jax.random.fold_in(key, a), b) for a, b in numbers])
        half = max(1, self.context // 2)
        written = [list(ids) for ids, _ in rows]
        left = [settings.max_new] * len(rows)
        window = 0
        while any(left):
            # A row that has ended may hold up nobody.
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
                new = [self._take(ids, left, i) for i, ids in enumerate(new)]
                for ids, more in zip(written, new, strict=True):
                    ids += more
                yield new
            window += 1

    def _take(self, ids: list[int], left: list[int], row: int) -> list[int]:
        """What of a row's new tokens counts; lowers how many are `left` to it."""
        if not self.whole and END in ids[: left[row]]:
            kept = ids[: ids.index(END)]
            left[row] = 0
            return kept
        kept = ids[: left[row]]
        left[row] -= len(kept)
        return kept

    def _prompts(self, given: list[list[int]], count: int) -> Prompts:
        tokens = np.full((count, self.context), PAD, np.int32)
        for row, ids in enumerate(given):
            tokens[row, : len(ids)] = ids
        lengths = [len(ids) for ids in given] + [1] * (count - len(given))
        return Prompts(jnp.asarray(tokens), jnp.asarray(lengths))

    def _start_rows(self, variables: Any, prompts: Prompts) -> tuple[Sample, jax.Array]:
        return start_sample(
            self._cache(variables, len(prompts.lengths), 1), prompts
        ), prompts.lengths

    def _cache(self, variables: Any, rows: int, beam: int) -> Any:
        nothing = jnp.zeros((rows, 0), jnp.int32)
        return self.model.apply(
            variables, nothing, nothing == PAD, beam, self.context, method="start"
        )

    def _step(self, variables: Any, tokens: Any, cache: Any) -> tuple[Any, Any]:
        """The next token's logits; what no text holds is never written."""
        logits, cache = self.model.apply(variables, tokens, cache, method="step")
        never = jnp.asarray([PAD, UNKNOWN, BEGIN, *([END] if self.whole else [])])
        return logits.at[..., never].set(jnp.finfo(logits.dtype).min), cache

    def _sample_rows(self, variables, state, lengths, until, keys, rule) -> Sample:
        step = functools.partial(self._step, variables)
        return sample(step, state, lengths, until, keys, rule, NO_TOKEN if self.whole else END)

    def _find(self, variables: Any, given: list[list[int]]) -> list[list[Continuation]]:
        """The best continuations by beam search."""
        if self.whole:
            raise UserError(
                "config.decode.search=beam looks for texts that end, and this model learned "
                "running text: use --config.decode.search=sample"
            )
        found = jax.device_get(
            self._search(variables, self._prompts(given, self.decode.batch_size))
        )
        return [
            [
                Continuation(self.tokenizer.decode(tokens[:length]), float(score))
                for tokens, length, score in zip(*(x[row] for x in found), strict=True)
                if length
            ][: self.decode.num_best]
            for row in range(len(given))
        ]

    def _search_rows(self, variables: Any, prompts: Prompts):
        beam = self.decode.beam_size
        limits = jnp.minimum(prompts.lengths - 1 + self.decode.max_new, self.context)
        return beam_search(
            functools.partial(self._step, variables),
            self._cache(variables, len(prompts.lengths), beam),
            limits,
            beam=beam,
            steps=self.context,
            begin=BEGIN,
            end=END,
            penalty=self.decode.length_penalty,
            alpha=self.decode.alpha,
            prompts=prompts,
        )
