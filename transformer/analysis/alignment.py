"""Word alignment: read off cross-attention, and scored against links that are known.

Letters here: S words of a source and T of its target. Links are pairs (i, j) of source word i and
target word j, both from zero. Whatever stands before the last two axes, such as layers and heads,
is carried along.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Which row of cross-attention is a target token's: that of the step at which it is the decoder's
# output, which all pictures name by it, or that of the next, at which it is the input.
ROWS = {"output": slice(None, -1), "input": slice(1, None)}
ROUNDING = 1e-6  # weights are equal that differ by no more than this share: they are float32 sums

Links = Sequence[tuple[int, int]]


class Words(NamedTuple):
    """The words of a text, and which of them each token belongs to.

    Attributes:
      of_tokens: word numbers from zero, one for each token without begin and end.
      count: of words; some may have no token: those cut off, and unknown ones beside another,
        since all of them are one token.
    """

    of_tokens: Int[np.ndarray, "tokens"]
    count: int


class GoldLinks(NamedTuple):
    """The true links of a sentence pair.

    Attributes:
      sure: what must be found.
      possible: what may be found besides.
    """

    sure: Links
    possible: Links = ()


class AlignmentScores(NamedTuple):
    """How well links agree with the true ones, one number for each of the leading axes.

    Attributes:
      error_rate, precision, recall: from 0 to 1; NaN where there is nothing to take a fraction of.
      links: how many were found.
    """

    error_rate: Float[np.ndarray, "*heads"]
    precision: Float[np.ndarray, "*heads"]
    recall: Float[np.ndarray, "*heads"]
    links: Float[np.ndarray, "*heads"]


def words_of_text(text: str, starts: Sequence[int]) -> Words:
    """Returns the words of a text, which are what white space parts.

    A token belongs to the word of the first character, from its start on, that is no white space:
    sentencepiece counts the blank before a word to the word's first token.

    Args:
      starts: the character of the text that each token starts at, see `Tokenizer.starts`.
    """
    ends = np.array([word.end() for word in re.finditer(r"\S+", text)], int)
    numbers = np.searchsorted(ends, np.array(starts, int), side="right")
    return Words(np.minimum(numbers, max(0, len(ends) - 1)), len(ends))


def word_weights(
    weights: Float[np.ndarray, "*heads L M"], source: Words, target: Words, rows: str = "output"
) -> Float[np.ndarray, "*heads T S"]:
    """Returns how much each target word attends to each source word.

    A source word is attended to with what all its tokens get: the columns are added up. A target
    word, however many tokens it has, has as much attention to give as any other: the mean of its
    rows is taken. What a row lacks of one has gone to `</s>`. A word without tokens has zeros.

    Args:
      weights: cross-attention; rows are the target's tokens and `</s>`, as they are written,
        columns the source's tokens and `</s>`.
      rows: one of `ROWS`. "output" is also known as naive attention, "input" as shifted.

    Source: Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation",
    sections 2.2 (output) and 3.1 (input).
    """
    own = weights[..., ROWS[rows], :-1]
    of_target = target.of_tokens == np.arange(target.count)[:, None]
    mean = of_target / np.maximum(of_target.sum(axis=1, keepdims=True), 1)
    of_source = source.of_tokens[:, None] == np.arange(source.count)
    return mean.astype(weights.dtype) @ own @ of_source.astype(weights.dtype)


def most_attended(weights: Float[np.ndarray, "*heads T S"]) -> Float[np.ndarray, "*heads T S"]:
    """Returns the links from each target word to the source word that it attends to most.

    They are one number for each pair of words: 1 for a link, and where n words are attended to
    alike, 1/n for each. So scores of such links are what breaking ties at random would give in
    the mean, whereas the first of them would be favoured by its place alone. A row of zeros has no
    link.

    That a target word may attend to `</s>` most counts for nothing: such words mostly have a link
    in truth, and their best other word is often it.
    """
    most = weights.max(axis=-1, keepdims=True, initial=0.0)
    best = (weights >= most * (1 - ROUNDING)) & (most > 0)
    return best / np.maximum(best.sum(axis=-1, keepdims=True), 1)


def alignment_scores(
    found: Iterable[Float[np.ndarray, "*heads _ _"]], gold: Iterable[GoldLinks]
) -> AlignmentScores:
    """Returns the scores of a corpus: counts are added up over its sentences before their ratio.

    With A the links found, S the sure and P the sure or possible ones, precision is |A & P| / |A|,
    recall is |A & S| / |S|, and the error rate is 1 - (|A & S| + |A & P|) / (|A| + |S|).

    Args:
      found: links of each sentence pair, as `most_attended` returns them.

    Source: Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models",
    section 5.
    """
    counts, sure = [], 0
    for links, (certain, possible) in zip(found, gold, strict=True):
        of_sure, of_all = _hits(links, {*certain}), _hits(links, {*certain, *possible})
        counts.append((links.sum(axis=(-2, -1)), of_sure, of_all))
        sure += len({*certain})
    total, of_sure, of_all = (np.sum(each, axis=0) for each in zip(*counts, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = 1 - (of_sure + of_all) / (total + sure), of_all / total, of_sure / np.float64(sure)
    return AlignmentScores(*map(np.asarray, (*shares, total)))


def _hits(
    links: Float[np.ndarray, "*heads T S"], true: set[tuple[int, int]]
) -> Float[np.ndarray, "*heads"]:
    """How many of the true links were found."""
    i, j = np.array(sorted(true), int).reshape(-1, 2).T
    return np.asarray(links[..., j, i].sum(axis=-1))
