"""Word alignment: extraction from cross-attention, and scoring against gold links.

In shapes, S and T are the numbers of source and target words. A link (i, j) aligns source word i
with target word j, counted from zero. Layer, head and other leading axes are kept.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Cross-attention row used for a target token: "output" is the row of the step that outputs the
# token, as in all figures; "input" is the row of the next step, which reads the token.
ALIGNMENT_ROWS = {"output": slice(None, -1), "input": slice(1, None)}
ROUNDING = 1e-6  # relative difference below which float32 weights count as equal

Links = Sequence[tuple[int, int]]


class Words(NamedTuple):
    """The words of a text, and the assignment of tokens to words.

    Attributes:
      of_tokens: zero-based word index of each token except begin- and end-of-sentence.
      count: number of words. Some words may have no token: truncated words, adjacent unknown words
        (which share one token), and words of invisible characters.
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
    """The scores of predicted links against gold links, with an entry for each head.

    Scores are between 0 and 1, or NaN if the denominator is zero.
    """

    error_rate: Float[np.ndarray, "*heads"]
    precision: Float[np.ndarray, "*heads"]
    recall: Float[np.ndarray, "*heads"]


def words_of_text(ends: Sequence[int], starts: Sequence[int]) -> Words:
    """Returns the space-separated words of a text.

    A token belongs to the word that contains its first non-space character: SentencePiece includes
    the space before a word in the word's first token.

    Args:
      ends: the character offset where each word ends (see `word_ends`); empty words have no tokens.
      starts: the character offset at which each token starts; see `Tokenizer.starts`.
    """
    numbers = np.searchsorted(ends, np.array(starts, int), side="right")
    return Words(np.minimum(numbers, max(0, len(ends) - 1)), len(ends))


def word_weights(
    weights: Float[np.ndarray, "*heads L M"], source: Words, target: Words, rows: str = "output"
) -> Float[np.ndarray, "*heads T S"]:
    """Returns the attention weights from target words to source words.

    Weights are summed over the tokens of a source word, and averaged over the tokens of a target
    word. The sum of a row is 1 minus the attention to `</s>` and to a sink. The weights of a word
    without tokens are zero.

    Args:
      weights: cross-attention weights; rows are the target tokens and `</s>` in output order,
        columns are the source tokens and `</s>`.
      rows: one of `ALIGNMENT_ROWS`: "output" (also called naive attention) or "input" (shifted).

    Source: Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation",
    sections 2.2 (output) and 3.1 (input).
    """
    without_end = weights[..., ALIGNMENT_ROWS[rows], :-1]
    of_target = target.of_tokens == np.arange(target.count)[:, None]
    mean = of_target / np.maximum(of_target.sum(axis=1, keepdims=True), 1)
    of_source = source.of_tokens[:, None] == np.arange(source.count)
    return mean.astype(weights.dtype) @ without_end @ of_source.astype(weights.dtype)


def most_attended(weights: Float[np.ndarray, "*heads T S"]) -> Float[np.ndarray, "*heads T S"]:
    """Links each target word to the source word with the highest attention weight.

    The result is 1 for a link, 1/n for each of n tied source words, and otherwise 0. Each score
    is then its expected value under random tie-breaking; always selecting the first word would bias
    the score towards early positions. A row of zeros yields no link.

    Attention to `</s>` is ignored, even if it is the highest: most such target words have a gold
    link, often to the word with the next highest weight.
    """
    most = weights.max(axis=-1, keepdims=True, initial=0.0)
    best = (weights >= most * (1 - ROUNDING)) & (most > 0)
    return best / np.maximum(best.sum(axis=-1, keepdims=True), 1)


def alignment_scores(
    aligned: Iterable[Float[np.ndarray, "*heads _ _"]], gold: Iterable[GoldLinks]
) -> AlignmentScores:
    """Returns corpus-level scores: counts are summed over all sentence pairs before dividing.

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
    """Returns the number of gold links that are among the predicted links."""
    i, j = np.array(sorted(true), int).reshape(-1, 2).T
    return np.asarray(links[..., j, i].sum(axis=-1))
