"""Language model inference: text generation and log-probabilities of texts."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from transformer.analysis.attention import Attention, BatchAttention
from transformer.data.batches import stack_rows
from transformer.data.documents import Documents, TextBatch, cut_chunks, read_rows
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Ids, Tokenizer
from transformer.errors import UserError
from transformer.inference.base import (
    Params,
    TokenPredictor,
    TokenTable,
    Variables,
    length_groups,
    static_length,
    static_rows,
    tied_tables,
)
from transformer.inference.hypotheses import distinct, not_finite
from transformer.inference.search import Writer
from transformer.model.layers import NO_DROPOUT, DropoutRates
from transformer.model.masks import look_ahead_mask, padding_mask, segment_mask


class Continuation(NamedTuple):
    """A prompt followed by a continuation.

    `score` is the beam search score, or None for sampled text.
    """

    text: str
    score: float | None


class Generator(TokenPredictor):
    """A language model, which generates, scores and explains text; see `Predictor`.

    Args:
      model: a decoder-only model.
      decode: `config.decode`.
      context: context length in tokens.
      whole: whether the model was trained on running text, which has no begin or end tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        decode: ConfigDict,
        context: int,
        whole: bool,
    ):
        self.model, self.tokenizer, self.decode = model, tokenizer, decode
        self.context, self.whole = context, whole
        self._writer = Writer(model, decode, context, ends=not whole)

    def init_params(self, key: jax.Array) -> Params:
        token = jnp.zeros((1, 1), jnp.int32)

        def run(model):
            return model.logits(model.decode(token, None, None, token == PAD_ID))

        return self.model.init(key, method=run)["params"]

    def empty_batch(self, rows: int, length: int) -> TextBatch:
        return _make_batch([], [], rows, length)

    def fingerprint(self) -> str:
        return self.tokenizer.digest

    def token_tables(self, variables: Variables) -> dict[str, TokenTable]:
        """Returns the embedding tables "input" and "output", or "input_output" if they are tied."""
        tokenizers = {"input": self.tokenizer, "output": self.tokenizer}
        return tied_tables(variables["params"], tokenizers)

    # -- likelihood

    def inputs(self, batch: TextBatch, rates: DropoutRates = NO_DROPOUT) -> tuple:
        segments = jnp.asarray(batch.segments)
        return None, jnp.asarray(batch.tokens), None, segments > 0, rates, segments

    def text_batches(
        self, lines: Sequence[str], *, first_line: int = 1
    ) -> Iterator[tuple[list[int], TextBatch]]:
        encoded = [self.read(line, f"line {first_line + i}") for i, line in enumerate(lines)]
        read = encoded if self.whole else [[*ids, EOS_ID] for ids in encoded]
        size = static_rows(len(lines), self.decode.batch_size)
        lengths = [len(ids) - 1 for ids in read]
        for rows, length in length_groups(range(len(lines)), lengths, size, self.context):
            texts = [read[i][:-1] for i in rows], [read[i][1:] for i in rows]
            yield rows, _make_batch(*texts, size, length)

    def score_chunks(
        self, variables: Variables, text: Documents, context: int, count: int
    ) -> Iterator[tuple[float, int, int, str]]:
        """Yields the log-probability, token count, byte count and text of each scored chunk.

        Chunks are cut by `cut_chunks`. The end of a document counts as one byte of the last chunk.

        Args:
          context: maximum number of tokens per chunk.
          count: maximum number of chunks, which are spread evenly over the text.
        """
        pieces, starts = list(cut_chunks(text, context)), {*text.store.offsets.tolist()}
        pieces = pieces[:: -(-len(pieces) // count)]
        rows = static_rows(len(pieces), self.decode.batch_size)
        for start in range(0, len(pieces), rows):
            chosen = pieces[start : start + rows]
            batch = read_rows(text, chosen, rows, context)
            nll = self._row_nll(variables, batch)
            for row, (first, end) in enumerate(chosen):
                ids = text.store.tokens[first:end].tolist()
                # Decoding would drop a leading space, unless a token precedes it.
                before = [] if first in starts else [UNK_ID]
                shown = self.tokenizer.decode(before + ids)
                shown = shown.removeprefix(self.tokenizer.decode(before))
                size = len(shown.encode()) + (ids[-1] == EOS_ID)
                yield -float(nll[row]), end - first, size, shown

    # -- generation

    def write(
        self,
        variables: Variables,
        prompts: Sequence[str],
        num_best: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Continuation]]:
        """Returns continuations of each prompt, generated by the search method `decode.search`.

        Args:
          num_best: number of continuations per prompt; by default `decode.num_best`.
          numbers: prompt numbers, by default from one. They appear in error messages, and random
            keys are derived from `decode.seed` and the prompt number.
        """
        numbers = numbers or range(1, 1 + len(prompts))
        prefixes = list(map(self.read_prompt, prompts, map("line {}".format, numbers)))
        results: list[list[Continuation]] = []
        size, best = self.decode.batch_size, num_best or self.decode.num_best
        if self.decode.search == "beam":
            if self.whole and prefixes:
                raise UserError(
                    "config.decode.search=beam looks for texts that end, and this model learned "
                    "running text: use config.decode.search=sample"
                )
            for first in range(0, len(prefixes), size):
                batch = prefixes[first : first + size]
                hypotheses = self._writer.beam_search(variables, batch)
                for row in range(len(batch)):
                    best_first = zip(*(x[row] for x in hypotheses), strict=True)
                    continuations = (
                        Continuation(self.tokenizer.decode(tokens[:length]), float(score))
                        for tokens, length, score, _ in best_first
                        if length
                    )
                    results.append(distinct(continuations)[:best])
            if [] in results:
                raise not_finite(numbers[results.index([])], "text")
            return results
        copies = [
            (ids, (number, n))
            for ids, number in zip(prefixes, numbers, strict=True)
            for n in range(best)
        ]
        texts: list[str] = []
        for first in range(0, len(copies), size):
            rows = copies[first : first + size]
            *_, written = self._writer.sample(variables, rows, self.context)
            texts += map(self.tokenizer.decode, written)
        samples = iter(texts)
        return [[Continuation(next(samples), None) for _ in range(best)] for _ in prefixes]

    def prepare(self, variables: Variables, rows: int) -> None:
        """Compiles `write` for a static batch size."""
        self._writer.prepare(variables, rows)

    def stream(self, variables: Variables, prompt: str) -> Iterator[str]:
        """Yields the prompt, then its continuation piece by piece as tokens are sampled."""
        ids = self.read(prompt, "line 1")
        text = shown = self.tokenizer.decode(ids)
        yield shown
        for [written] in self._writer.sample(variables, [(ids, (1, 0))], 1):
            text = self.tokenizer.decode(written)
            # Byte tokens of the last character may still be missing.
            if text.startswith(shown) and not text.endswith("\ufffd"):
                yield text[len(shown) :]
                shown = text
        if text.startswith(shown) and text != shown:
            yield text[len(shown) :]

    def attention(self, variables: Variables, text: str) -> Attention:
        """Returns the attention weights for a text; the only kind of attention is `decoder_self`.

        The target tokens start with begin-of-sentence, unless the model was trained on running
        text.
        """
        ids = self.read(text, "the text")
        batch = _make_batch([ids], [], 1, static_length(len(ids), self.context))
        return Attention.of_first_text(self._attend(variables, batch), [], self.pieces(ids))

    def pieces(self, ids: Ids) -> list[str]:
        """Returns the tokens of a model input as strings, with ⏎ for line breaks."""
        return [piece.replace("\n", "⏎") for piece in self.tokenizer.pieces(ids)]

    def batch_attention(self, variables: Variables, batch: TextBatch) -> dict[str, BatchAttention]:
        *_, mask, _, segments = self.inputs(batch)
        places = jnp.arange(mask.shape[1])
        past = look_ahead_mask(places, places) & segment_mask(segments, segments)
        past &= padding_mask(mask)
        masks = {"decoder_self": (past[:, 0] & mask[:, :, None], None)}
        return BatchAttention.by_kind(self.model, self.sown(variables, batch), masks)

    def read(self, text: str, place: str, new: int = 0) -> list[int]:
        """Returns the token ids (at least one) of a text, as the model reads it.

        Args:
          place: location of the text for error messages, such as 'line 1'.
          new: number of tokens in the context to reserve for the continuation.
        """
        text = (text or "\n") if self.whole else text
        [ids] = self.tokenizer.encode([text])
        if UNK_ID in ids:
            words = dict.fromkeys(text.split())
            strange = [word for word in words if UNK_ID in self.tokenizer.encode([word])[0]]
            raise UserError(
                f"{place} has {' '.join(strange) or repr(text)}: the vocabulary lacks words "
                "or characters of it, which the training text does not have: leave them out"
            )
        ids = (ids or [BOS_ID]) if self.whole else [BOS_ID, *ids]
        if len(ids) > self.context - new:
            raise UserError(
                f"{place} has {len(ids)} tokens, more than the {self.context - new} that this "
                f"model reads at once (data.context={self.context}): shorten it"
            )
        return ids

    def read_prompt(self, text: str, place: str) -> list[int]:
        """Returns the token ids of a prompt for `write`."""
        # Sampling can continue beyond the context length, but beam search cannot.
        return self.read(text, place, new=int(self.decode.search == "beam"))


def _make_batch(texts: Sequence[Ids], labels: Sequence[Ids], rows: int, length: int) -> TextBatch:
    """Returns a batch of up to `rows` texts padded to `length` tokens; `labels` may be empty."""
    segments = stack_rows([[1] * len(ids) for ids in texts], rows, length)
    return TextBatch(stack_rows(texts, rows, length), stack_rows(labels, rows, length), segments)
