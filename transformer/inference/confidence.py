"""How probable it is that a translation is right: as a whole, and word by word.

Logistic regressions turn the model's log-probabilities into these probabilities. The mode
`confidence` fits them to the translations of held-out text, and stores them in the run's folder.
"""

import collections
import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from jaxtyping import Bool, Float
from scipy.special import expit

from transformer.data.characters import UNSPACED, canonicalize
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.translator import Translator

FILE = "confidence.json"  # in a run's folder, with the weights of words and of lines
SHAPE = {"words": [float], "lines": [float]}
# Letters and digits with inner punctuation, as in "don't" and "3.5", or any other character alone.
INNER = rf"(?:(?!{UNSPACED.pattern})[\p{{L}}\p{{M}}\p{{N}}])+"
WORD = regex.compile(rf"{INNER}(?:['’.,-]{INNER})*|\S")
BINS = 10  # of the calibration error
RIDGE = 0.05  # weight of the squared norm in the fit
Groups = Sequence[Sequence[float]]  # the log-probabilities of the tokens of each word or line
# The words of a text, the log-probabilities of each word's tokens, and those of all tokens.
TokenScores = tuple[list[str], list[list[float]], list[float]]


class Confidence(NamedTuple):
    """A translation, the probability that it is right, and that of each word, in order."""

    text: str
    probability: float
    words: list[tuple[str, float]]


def features(groups: Groups) -> Float[np.ndarray, "N 6"]:
    """Returns p and p^8 of the mean and of the least probable token, log of the count, and 1."""
    columns: Any = [(np.mean(group), np.min(group), np.log(len(group)), 1.0) for group in groups]
    mean, least, length, one = np.reshape(columns, (-1, 4)).T
    p = np.exp([mean, least])
    return np.stack([*p, *p**8, length, one], axis=1)  # the power tells 0.99 from 0.9


def fit(groups: Groups, right: Sequence[bool], what: str) -> list[float]:
    """Returns the weights of `features`; raises UserError if all groups are right or all wrong."""
    from scipy.optimize import minimize  # the import takes a third of a second

    if len({*right}) < 2:
        state = "right" if all(right) else "wrong"
        raise UserError(f"all {len(right):,} validation {what} are {state}: hold out more text")
    signed = features(groups) * np.where(right, 1.0, -1.0)[:, None]

    def loss(weights: Float[np.ndarray, "6"]) -> tuple[Any, Any]:
        value = np.logaddexp(0, -signed @ weights).sum() + RIDGE * weights @ weights
        return value, 2 * RIDGE * weights - expit(-signed @ weights) @ signed

    # Without bounds, a token of lower probability could make a translation more sure.
    bounds = [(0, None)] * 4 + [(None, None)] * 2
    return minimize(loss, np.zeros(6), jac=True, bounds=bounds).x.tolist()


def predict(weights: Sequence[float], groups: Groups) -> Float[np.ndarray, "N"]:
    """Returns the probability that each group is right."""
    return expit(features(groups) @ np.array(weights))


def estimate(text: str, parts: Sequence[TokenScores], weights: Mapping[str, Any]) -> Confidence:
    """Returns the confidence in a translation, given the token scores of its segments."""
    names, *scores = (list(itertools.chain(*each)) for each in zip(*parts, strict=True))
    words = zip(names, predict(weights["words"], scores[0]).tolist(), strict=True)
    return Confidence(text, float(predict(weights["lines"], scores[1:])[0]), list(words))


def match_words(text: str, reference: str) -> list[bool]:
    """Returns whether each word of a text is right: each word of the reference matches once."""
    counts, right = collections.Counter(WORD.findall(reference)), []
    for word in WORD.findall(text):
        right.append(counts[word] > 0)
        counts[word] -= 1
    return right


def calibration_error(probabilities: Float[np.ndarray, "N"], right: Bool[np.ndarray, "N"]) -> float:
    """Returns the expected calibration error, from 0 to 1, in bins of equal size.

    Source: Nguyen and O'Connor 2015, "Posterior calibration and exploratory analysis for NLP".
    """
    parts = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    return float(sum(abs((probabilities - right)[part].sum()) for part in parts) / len(right))


def score_copy(text: str) -> TokenScores:
    """Returns the token scores of a text that is copied: all of it is certain."""
    words = WORD.findall(text)
    return words, [[0.0]] * len(words), [0.0]


def score_tokens(
    model: Translator, variables: Variables, sources: Sequence[str], targets: Sequence[str]
) -> list[TokenScores]:
    """Returns the token scores of each target, given its source."""
    cased = [model.without_case(variables, *pair) for pair in zip(sources, targets, strict=True)]
    pairs = model.read_pairs(itertools.starmap(Pair, cased))
    encoded = model.encode_texts([p.source for p in pairs], [p.target for p in pairs], 1)
    lengths = [len(ids) + 1 for ids in encoded[1]]
    rows = model.distributions(variables, model.batches(*encoded), lengths, 1)
    results, written = [], [canonicalize(pair.target) for pair in pairs]
    starts = model.target_tokenizer.starts(written)
    for target, text, of_text, tokens in zip(targets, written, starts, rows, strict=True):
        scores = [token.log_prob for token in tokens]
        places = token_places(target, text, of_text[: len(scores) - 1])
        # A word of invisible characters has no tokens.
        of_words = [[scores[i] for i in place] or scores for place in places]
        results.append((WORD.findall(target), of_words, scores))
    return results


def token_places(text: str, written: str, starts: Sequence[int]) -> list[list[int]]:
    """Returns the zero-based indices of the tokens of each word of a translation.

    Args:
      written: the translation before case and copied strings are restored.
      starts: the character offset of each token in `written`; see `Tokenizer.starts`.
    """
    spans: list[tuple[int, int]] = []  # of each character of `text` in `written`
    sides = [[*map(str.lower, side)] for side in (text, written)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        same = kind == "equal"
        spans += ((c + i, c + i + 1) if same else (c, max(d, c + 1)) for i in range(b - a))
    tokens, places = list(enumerate(itertools.pairwise([*starts, len(written)]))), []
    for match in WORD.finditer(text):
        first, last = spans[match.start()][0], spans[match.end() - 1][1]
        first -= written[first - 1 : first] == " "  # a token may be the space before a word
        places.append([i for i, (a, b) in tokens if a < last and (a >= first or b > first)])
    return places
