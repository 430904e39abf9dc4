"""Word alignment of sources and their translations, by cross-attention.

A link (i, j) joins source word i and target word j, counted from zero between white space in the
texts as they are, whatever placeholders and letter case the model reads.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from transformer.analysis.alignment import (
    ALIGNMENT_ROWS,
    most_attended,
    word_weights,
    words_of_text,
)
from transformer.data.characters import split_words, word_ends
from transformer.data.pairs import Pair, canonical
from transformer.inference.base import Variables
from transformer.inference.inspection import Inspector
from transformer.inference.translator import Translator

PAIRS_AT_ONCE = 256  # number of pairs whose weights are in memory at once


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
    """Returns the links of translations as `translate` writes them; see `chosen_weights`.

    A target word is linked to the source word with the highest weight, or to all of these.
    """
    read = [Pair(*translator.without_case(variables, *pair[:2])) for pair in pairs]
    words = attended_words(translator, variables, read)
    links = (most_attended(chosen_weights(train, weights[0])) for weights in words)
    return [[(int(i), int(j)) for j, i in np.argwhere(of_pair)] for of_pair in links]


def is_guided(train: ConfigDict) -> bool:
    """Returns whether the run was trained with `train.guided_alignment`."""
    return bool(train.get("guided_alignment", 0))


def chosen_weights(
    train: ConfigDict, weights: Float[np.ndarray, "layers H T S"]
) -> Float[np.ndarray, "T S"]:
    """Returns the weights of the guided heads, or else the mean over those of the last layer."""
    layer, head = (train.guided_layer, train.guided_head) if is_guided(train) else (0, 0)
    of_layer = weights[layer - 1]
    return of_layer[head - 1] if head else of_layer.mean(axis=0)


def _raw_words(raw: str, read: str) -> Float[np.ndarray, "W R"]:
    """Returns the share of each word of a text in the words that the model reads for it."""
    sides = split_words(raw), split_words(read)
    shares = np.zeros(tuple(map(len, sides)), np.float32)
    for _, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        # The words of a copied string share its placeholder.
        shares[a:b, c:d] = np.eye(b - a) if b - a == d - c else 1 / max(1, d - c)
    return shares
