"""What a translation model considers: probabilities, other tokens, the beam, cross-attention."""

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from transformer.analysis.alignment import (
    ALIGNMENT_ROWS,
    most_attended,
    word_weights,
    words_of_text,
)
from transformer.data.characters import UNSPACED, split_words, word_ends
from transformer.data.pairs import Pair, canonical
from transformer.data.tokenizer import EOS_ID
from transformer.decoding.search import IMPOSSIBLE, PENALTIES
from transformer.errors import UserError
from transformer.inference.base import MAX_NUMBERS, MAX_ROWS, Variables, static_rows
from transformer.inference.hypotheses import Alternative, Branch, NextToken
from transformer.inference.prefixes import SPACE, Prefix, too_long
from transformer.inference.translator import Translator

PAIRS_AT_ONCE = 256  # number of pairs whose weights are in memory at once
MAX_CANDIDATES = 100  # maximum number of tokens of which `next_tokens` returns the probability
COLDEST, HOTTEST = 0.05, 20.0  # temperatures
# Minimum weight of a link of guided heads, relative to the highest weight of the target word: of
# 0.2 to 0.5, the one that places most tags well in validation sentences of the grammar.
MIN_LINK = 0.3


def count_and_temperature(num_best: int, temperature: float) -> tuple[int, float]:
    """Returns checked values of the arguments of `LoadedRun.next_tokens`."""
    if not 1 <= num_best <= MAX_CANDIDATES:
        raise UserError(f"num_best={num_best} is not between 1 and {MAX_CANDIDATES}")
    if not COLDEST <= temperature <= HOTTEST:  # or NaN
        raise UserError(f"temperature={temperature} is not between {COLDEST} and {HOTTEST}")
    return num_best, temperature


class Inspector:
    """Answers questions about a translation model and its variables."""

    def __init__(self, translator: Translator, variables: Variables):
        self._model, self._variables = translator, variables

    def next_tokens(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        count: int,
        temperature: float,
    ) -> list[list[NextToken]]:
        """Returns the distribution of each token of each target and of its end; see `NextToken`."""
        batches = self._model.batches(*self._encode(sources, targets))
        return self._model.distributions(self._variables, batches, count, temperature)

    def alternatives(
        self,
        source: str,
        target: str,
        position: int,
        count: int,
        temperature: float,
    ) -> list[Alternative]:
        """Returns the most probable tokens at a position of a target, most probable first.

        Each is followed by the greedy translation that begins with the tokens before it.
        """
        encoded = self._encode([source], [target])
        [before] = encoded[1]
        if not 0 <= position <= len(before):
            raise UserError(
                f"position={position} is not between 0 and {len(before)}, the end of the target"
            )
        [(_, batch)] = self._model.batches(*encoded)
        numbers = self._model.distribution(self._variables, batch, temperature, count)
        _, _, log_probs, tokens = (np.asarray(x[0, position]) for x in numbers)
        prefixes = [Prefix(tokens=[*before[:position], token]) for token in tokens.tolist()]
        end = Prefix(is_whole=True, tokens=before[:position])
        prefixes = [end if prefix.tokens[-1] == EOS_ID else prefix for prefix in prefixes]
        results: list[Any] = [None] * count
        search = functools.partial(self._model.search.search, adapts=False)
        settings = 1, [1] * count, static_rows(count, MAX_ROWS), None, prefixes
        for rows, hypotheses in self._model.decode_lines(
            search, self._variables, [source] * count, *settings
        ):
            for row, i in enumerate(rows):
                if not (best := self._model.read_best(hypotheses[row], source, 1)):
                    raise too_long(Prefix(target))
                written = hypotheses[row].tokens[0].tolist()
                word, prefix = self._word_at(written, position, source)
                [candidate] = self._model.candidates(log_probs[i : i + 1], tokens[i : i + 1])
                results[i] = Alternative(*candidate, word, prefix, *best[0][:2])
        return results

    def beam(
        self,
        source: str,
        prefix: Prefix,
    ) -> list[list[Branch]]:
        """Returns the continuations at each step of a search, most probable first; see `Branch`."""
        search, steps = self._model.search.trace, []
        decode, size = self._model.decode, self._model.decode.beam_size
        [(_, trace)] = self._model.decode_lines(
            search, self._variables, [source], size, [1], 1, None, [prefix]
        )
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
                [name] = self._model.pieces([token])
                branches.append(Branch(parent, name, log_prob, log_prob / penalty, fate))
            steps.append(branches)
        return steps

    def cross_attention(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        first_line: int = 1,
        done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "layers H L M"]]]:
        """Yields (pair index, weights): the cross-attention from the target to the source.

        Rows are the target tokens and `</s>`; columns are the source tokens and `</s>`. Pairs are
        not yielded in order, but grouped by length. The arguments are the same as for `score`.
        """
        encoded = self._model.encode_texts(sources, targets, first_line)
        heads = self._model.model.config.num_decoder_layers * self._model.model.config.num_heads

        def size(rows: int, length: int) -> int:
            # Splits a batch into equal parts with at most MAX_NUMBERS attention weights each.
            return math.ceil(rows / math.ceil(rows * heads * length**2 / MAX_NUMBERS))

        for rows, batch in self._model.batches(*encoded, size):
            weights = jax.device_get(self._model.cross_weights(self._variables, batch))
            for row, i in enumerate(rows):
                columns, length = (len(side[i]) + 1 for side in encoded)
                yield i, weights[:, row, :, :length, :columns]
            done(len(rows))

    def _encode(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[Any], list[Any]]:
        """Encodes pairs as `translate` read and wrote them."""
        pairs = zip(sources, targets, strict=True)
        read = [self._model.without_case(self._variables, *pair) for pair in pairs]
        return self._model.encode_texts([pair[0] for pair in read], [pair[1] for pair in read], 1)

    def _word_at(self, ids: list[int], position: int, line: str) -> tuple[str, str]:
        """Returns the word in which a token stands, and the text up to the end of the word."""
        ids = ids[: ids.index(EOS_ID)]
        pieces = [*self._model.pieces(ids), SPACE]
        joined = [re.match(r"[\w'’-]|<0x", x) and not UNSPACED.match(x) for x in pieces]
        start, end = position, min(position + 1, len(ids))
        while start and joined[start]:
            start -= 1
        while joined[end]:
            end += 1
        text = self._model.target_tokenizer.decode(ids[:end])
        written, _ = self._model.lines.write(text, line, self._model.lines.read(line)[1])
        ends_word = end < len(ids) and pieces[end].startswith(SPACE)
        return self._model.target_tokenizer.decode(ids[start:end]), written + " " * ends_word


# -- word alignment: a link (i, j) joins source word i and target word j, counted from zero between
# blanks in the texts as they are, whatever placeholders and letter case the model reads


def attended_words(
    translator: Translator,
    variables: Variables,
    pairs: Sequence[Pair],
    done: Callable[[int], None] = lambda count: None,
    inspect: type[Inspector] = Inspector,
) -> Iterator[Float[np.ndarray, "rows layers H T S"]]:
    """Yields each pair's attention from target to source words, for each row type."""
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        raw = pairs[first : first + PAIRS_AT_ONCE]
        chunk = translator.read_pairs(raw)
        sources, targets, *_ = zip(*map(canonical, chunk), strict=True)
        read = translator.source_tokenizer.starts(sources)
        written = translator.target_tokenizer.starts(targets)
        results: list[Any] = [None] * len(chunk)
        inspector = inspect(translator, variables)
        for i, weights in inspector.cross_attention(sources, targets, first + 1, done):
            # Truncated tokens have no attention weights.
            rows, columns = weights.shape[2] - 1, weights.shape[3] - 1
            source = words_of_text(word_ends(chunk[i].source), read[i][:columns])
            target = words_of_text(word_ends(chunk[i].target), written[i][:rows])
            stacked = np.stack([word_weights(weights, source, target, by) for by in ALIGNMENT_ROWS])
            of_source = _raw_words(raw[i].source, chunk[i].source)
            of_target = _raw_words(raw[i].target, chunk[i].target)
            results[i] = of_target @ stacked @ of_source.T
        yield from results


def align_words(
    translator: Translator, variables: Variables, train: ConfigDict, pairs: Sequence[Pair]
) -> list[list[tuple[int, int]]]:
    """Returns the links of translations as `translate` writes them; see `trained_links`."""
    read = [Pair(*translator.without_case(variables, *pair[:2])) for pair in pairs]
    words = attended_words(translator, variables, read)
    links = (trained_links(train, weights[0]) for weights in words)
    return [[(int(i), int(j)) for j, i in np.argwhere(of_pair)] for of_pair in links]


def is_guided(train: ConfigDict) -> bool:
    """Returns whether the run was trained with `train.guided_alignment`."""
    return train.guided_alignment > 0


def trained_links(
    train: ConfigDict, weights: Float[np.ndarray, "layers H T S"]
) -> Float[np.ndarray, "T S"]:
    """Returns the links of target words to source words, given the weights of "output" rows.

    With `train.guided_alignment`, a target word is linked to all source words with at least
    MIN_LINK times its highest weight, in the trained heads. Otherwise, it is linked to the one with
    the highest mean weight over the heads of the last layer; see `most_attended`.
    """
    if not is_guided(train):
        return most_attended(weights[-1].mean(axis=0))
    of_layer = weights[train.guided_layer - 1]
    each = of_layer[train.guided_head - 1] if train.guided_head else of_layer.mean(axis=0)
    return 1.0 * ((each > 0) & (each >= MIN_LINK * each.max(axis=-1, keepdims=True, initial=0.0)))


def _raw_words(raw: str, read: str) -> Float[np.ndarray, "W R"]:
    """Returns the share of each word of a text in the words that the model reads for it."""
    sides = split_words(raw), split_words(read)
    shares = np.zeros(tuple(map(len, sides)), np.float32)
    for _, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        # The words of a copied string share its placeholder.
        shares[a:b, c:d] = np.eye(b - a) if b - a == d - c else 1 / max(1, d - c)
    return shares
