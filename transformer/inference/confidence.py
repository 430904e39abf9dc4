"""How probable it is that a translation is right: as a whole, and word by word.

Logistic regressions turn the model's log-probabilities into these probabilities. The mode
`confidence` fits them to the translations of held-out text, and stores them in the run's folder.
"""

import collections
import difflib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex
from jaxtyping import Bool, Float
from scipy.special import expit

from transformer.data.characters import UNSPACED
from transformer.errors import UserError
from transformer.files import read_json
from transformer.inference.hypotheses import NextToken
from transformer.inference.prefixes import SPACE

FILE = "confidence.json"  # in a run's folder, with the weights of words and of lines
# Letters and digits with inner punctuation, as in "don't" and "3.5", or any other character alone.
INNER = rf"(?:(?!{UNSPACED.pattern})[\p{{L}}\p{{M}}\p{{N}}])+"
WORD = regex.compile(rf"{INNER}(?:['’.,-]{INNER})*|\S")
BINS = 10  # of the calibration error
RIDGE = 0.05  # weight of the squared norm in the fit
Groups = Sequence[Sequence[float]]  # the log-probabilities of the tokens of each word or line


class Confidence(NamedTuple):
    """A translation, the probability that it is right, and that of each word, in order."""

    text: str
    probability: float
    words: list[tuple[str, float]]


def features(groups: Groups) -> Float[np.ndarray, "N 6"]:
    """Returns p and p^8 of the mean and of the least probable token, log of the count, and 1."""
    p = np.exp([[f(group) for group in groups] for f in (np.mean, np.min)])
    length = np.log([len(group) for group in groups])
    return np.stack([*p, *p**8, length, length**0], axis=1)  # the power tells 0.99 from 0.9


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


def read_weights(folder: Path) -> dict[str, Any]:
    """Returns the weights of a run, which the mode `confidence` has fitted to held-out text."""
    fix = "the mode confidence writes it, if the run has held-out text"
    return read_json(folder / FILE, {"words": [float], "lines": [float]}, fix)


def estimate(
    weights: Mapping[str, Sequence[float]], text: str, tokens: Sequence[NextToken]
) -> Confidence:
    """Returns the confidence in a translation, given the tokens of its segments."""
    of_words, of_line = group_tokens(text, tokens)
    words = zip(WORD.findall(text), predict(weights["words"], of_words).tolist(), strict=True)
    return Confidence(text, float(predict(weights["lines"], [of_line])[0]), list(words))


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


def group_tokens(text: str, tokens: Sequence[NextToken]) -> tuple[list[list[float]], list[float]]:
    """Returns the log-probabilities of the tokens of each word of a text, and of all tokens."""
    names = [each.token.replace(SPACE, " ").replace("</s>", "\n") for each in tokens]
    starts = list(itertools.accumulate(map(len, names), initial=0))
    scores = [each.log_prob for each in tokens]
    places = token_places(text, "".join(names), starts[:-1])
    # A word of invisible characters has no tokens.
    return [[scores[i] for i in place] or scores for place in places], scores


def token_places(text: str, written: str, starts: Sequence[int]) -> list[list[int]]:
    """Returns the zero-based indices of the tokens of each word of a translation.

    Args:
      written: the translation before case and copied strings are restored.
      starts: the character offset of each token in `written`; a token may begin with a space.
    """
    matches, places = list(regex.finditer(rf" ?({WORD.pattern})", written)), []
    of_written = [
        [*range(bisect_right(starts, match.start()) - 1, bisect_left(starts, match.end()))]
        for match in matches
    ]
    sides = WORD.findall(text.lower()), [match[1].lower() for match in matches]
    for _, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        # The words of a copied string share the tokens of its placeholder.
        shared = sorted({*itertools.chain(*of_written[c:d])})
        places += of_written[c:d] if b - a == d - c else [shared] * (b - a)
    return places
