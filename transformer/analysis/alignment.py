"""Word alignment: extracted from cross-attention, and scored against gold links.

Letters here: S words of a source and T of its target. Links are pairs (i, j) of source word i and
target word j, both from zero. Axes before the last two, such as layers and heads, are kept.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# The row of cross-attention that belongs to a target token: the row of the step that outputs the
# token, as in all figures, or of the next step, which reads it.
ALIGNMENT_ROWS = {"output": slice(None, -1), "input": slice(1, None)}
ROUNDING = 1e-6  # relative difference below which weights, sums of float32, count as equal

Links = Sequence[tuple[int, int]]


class Words(NamedTuple):
    """The words of a text, and the word of each token.

    Attributes:
      of_tokens: word numbers from zero, one for each token except begin- and end-of-sentence.
      count: number of words. Some may have no token: words that were cut off, adjacent unknown
        words, which share one token, and words of invisible characters.
    """

    of_tokens: Int[np.ndarray, "tokens"]
    count: int


class GoldLinks(NamedTuple):
    """The gold links of a sentence pair.

    Attributes:
      sure: links that must be found.
      possible: links that may also be found.
    """

    sure: Links
    possible: Links = ()


class AlignmentScores(NamedTuple):
    """The agreement of links with the gold links, one number for each of the leading axes.

    Scores are from 0 to 1; NaN if the denominator is zero.
    """

    error_rate: Float[np.ndarray, "*heads"]
    precision: Float[np.ndarray, "*heads"]
    recall: Float[np.ndarray, "*heads"]


def words_of_text(ends: Sequence[int], starts: Sequence[int]) -> Words:
    """Returns the words of a text that are separated by blanks.

    A token belongs to the word of its first character that is not a blank: sentencepiece includes
    the blank before a word in the word's first token.

    Args:
      ends: each word's end, as a number of characters, see `word_ends`; an empty word has no token.
      starts: the position in the text of each token's first character, see `Tokenizer.starts`.
    """
    numbers = np.searchsorted(ends, np.array(starts, int), side="right")
    return Words(np.minimum(numbers, max(0, len(ends) - 1)), len(ends))


def word_weights(
    weights: Float[np.ndarray, "*heads L M"], source: Words, target: Words, rows: str = "output"
) -> Float[np.ndarray, "*heads T S"]:
    """Returns the attention weight of each target word on each source word.

    The columns of a source word's tokens are summed. The rows of a target word's tokens are
    averaged, so every target word has the same total attention. The part of a row that is missing
    to one is on `</s>`. A word without tokens has zeros.

    Args:
      weights: cross-attention; rows are the target's tokens and `</s>`, in the order of output,
        columns the source's tokens and `</s>`.
      rows: one of `ALIGNMENT_ROWS`. "output" is also known as naive attention, "input" as shifted.

    Source: Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation",
    sections 2.2 (output) and 3.1 (input).
    """
    without_end = weights[..., ALIGNMENT_ROWS[rows], :-1]
    of_target = target.of_tokens == np.arange(target.count)[:, None]
    mean = of_target / np.maximum(of_target.sum(axis=1, keepdims=True), 1)
    of_source = source.of_tokens[:, None] == np.arange(source.count)
    return mean.astype(weights.dtype) @ without_end @ of_source.astype(weights.dtype)


def most_attended(weights: Float[np.ndarray, "*heads T S"]) -> Float[np.ndarray, "*heads T S"]:
    """Returns the links from each target word to the source word that it attends to most.

    The result has a number for each pair of words: 1 for a link, or 1/n for each of n source words
    with equal weight. So the scores equal the expected scores with random tie-breaking; always
    taking the first word would favour it for its position. A row of zeros has no link.

    Attention to `</s>` is ignored, even if it is the largest: such target words mostly have a gold
    link, often to the word with the next largest weight.
    """
    most = weights.max(axis=-1, keepdims=True, initial=0.0)
    best = (weights >= most * (1 - ROUNDING)) & (most > 0)
    return best / np.maximum(best.sum(axis=-1, keepdims=True), 1)


def alignment_scores(
    aligned: Iterable[Float[np.ndarray, "*heads _ _"]], gold: Iterable[GoldLinks]
) -> AlignmentScores:
    """Returns the scores of a corpus: counts are summed over sentences before the ratios.

    With links A, sure links S, and sure or possible links P, precision is |A & P| / |A|, recall is
    |A & S| / |S|, and the error rate is 1 - (|A & S| + |A & P|) / (|A| + |S|).

    Args:
      aligned: links of each sentence pair, as returned by `most_attended`.

    Source: Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models",
    section 5.
    """
    counts, sure = [], 0
    for links, (certain, possible) in zip(aligned, gold, strict=True):
        of_sure, of_all = _count_hits(links, {*certain}), _count_hits(links, {*certain, *possible})
        counts.append((links.sum(axis=(-2, -1)), of_sure, of_all))
        sure += len({*certain})
    total, of_sure, of_all = (np.sum(each, axis=0) for each in zip(*counts, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = 1 - (of_sure + of_all) / (total + sure), of_all / total, of_sure / np.float64(sure)
    return AlignmentScores(*map(np.asarray, shares))


def _count_hits(
    links: Float[np.ndarray, "*heads T S"], true: set[tuple[int, int]]
) -> Float[np.ndarray, "*heads"]:
    """Returns the number of gold links that were found."""
    i, j = np.array(sorted(true), int).reshape(-1, 2).T
    return np.asarray(links[..., j, i].sum(axis=-1))
