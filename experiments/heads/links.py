"""The word links of cross-attention heads, and their scores against gold links."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.text_io import LINES_AT_ONCE
from transformer.analysis.alignment import (
    ROWS,
    GoldLinks,
    alignment_scores,
    most_attended,
    word_weights,
    words_of_text,
)
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.translator import Translator
from transformer.storage.files import whole_file

NO_LINK = -1
MEAN = "mean"
SCORES = ("error_rate", "precision", "recall")
PAIRS_AT_ONCE = LINES_AT_ONCE // 4  # pairs whose weights of all heads are in memory


class Head(NamedTuple):
    """A head, or several whose weights are averaged, under one of `alignment.ROWS`.

    `layer` and `number` count from one; None is the mean over all.
    """

    rows: str
    layer: int | None
    number: int | None

    @property
    def alone(self) -> bool:
        """Whether it is one head."""
        return self.number is not None

    @property
    def indices(self) -> tuple[int, int]:
        """Its layer and its number, from zero, if it is one head."""
        if self.layer is None or self.number is None:
            raise ValueError(f"{self} is a mean over heads")
        return self.layer - 1, self.number - 1

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.number}, rows by {self.rows}"


class Score(NamedTuple):
    """Of a head; see `alignment.AlignmentScores`."""

    error_rate: float
    precision: float
    recall: float


class HeadLinks(NamedTuple):
    """The links of all heads in some sentence pairs.

    Attributes:
      scores: of each head, then the mean of its layer, then of all layers.
      chosen: for each pair, which source word each head links each target word to; `NO_LINK` for
        none, and of several with equal weight the first. Heads are in the scores' order.
    """

    scores: dict[Head, Score]
    chosen: list[Int[np.ndarray, "N T"]]

    @property
    def best(self) -> Head:
        """The head with the lowest error rate, averages left out."""
        return best_of(self.scores)

    def links(self, head: Head) -> Iterator[list[tuple[int, int]]]:
        """Yields the links that a head makes of each pair."""
        number = list(self.scores).index(head)
        for chosen in self.chosen:
            yield links_of(chosen[number])


def best_of(scores: dict[Head, Score]) -> Head:
    """Returns the head with the lowest error rate, averages left out."""
    return min((head for head in scores if head.alone), key=lambda head: scores[head].error_rate)


def links_of(chosen: Int[np.ndarray, "T"]) -> list[tuple[int, int]]:
    """Returns the links (i, j) of target words j whose source word is given."""
    return [(int(i), j) for j, i in enumerate(chosen) if i != NO_LINK]


def score_heads(
    translator: Translator,
    variables: Variables,
    pairs: Sequence[Pair],
    gold: Sequence[GoldLinks],
    done: Callable[[int], None],
) -> HeadLinks:
    """Returns the links that all heads make of the pairs, and how well they agree with `gold`.

    Args:
      done: called with the number of pairs that are done since the last call.
    """
    chosen, heads = [], []

    def found() -> Iterator[Float[np.ndarray, "N T S"]]:
        for weights in attended_words(translator, variables, pairs, done):
            if not heads:
                heads.extend(_heads(*weights.shape[1:3]))
            links = most_attended(_with_means(weights))
            chosen.append(first_of(links))
            yield links

    scores = alignment_scores(found(), gold)
    columns = zip(*(getattr(scores, name).tolist() for name in SCORES), strict=True)
    return HeadLinks({h: Score(*each) for h, each in zip(heads, columns, strict=True)}, chosen)


def attended_words(
    translator: Translator,
    variables: Variables,
    pairs: Sequence[Pair],
    done: Callable[[int], None],
) -> Iterator[Float[np.ndarray, "rows layers H T S"]]:
    """Yields how the words of each pair attend to each other, by all of `alignment.ROWS`."""
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        chunk = pairs[first : first + PAIRS_AT_ONCE]
        sources, targets = [pair.source for pair in chunk], [pair.target for pair in chunk]
        starts = (
            translator.source_tokenizer.starts(sources),
            translator.target_tokenizer.starts(targets),
        )
        made: list[Any] = [None] * len(chunk)
        for i, weights in translator.cross_attention(variables, sources, targets, first + 1, done):
            # What was cut off has no weights.
            rows, columns = weights.shape[2] - 1, weights.shape[3] - 1
            source = words_of_text(sources[i], starts[0][i][:columns])
            target = words_of_text(targets[i], starts[1][i][:rows])
            made[i] = np.stack([word_weights(weights, source, target, own) for own in ROWS])
        yield from made


def first_of(links: Float[np.ndarray, "*heads T S"]) -> Int[np.ndarray, "*heads T"]:
    """Returns the first source word that each target word is linked to, or `NO_LINK`."""
    if not links.shape[-1]:
        return np.full(links.shape[:-1], NO_LINK)
    return np.where(links.any(axis=-1), links.argmax(axis=-1), NO_LINK)


def _heads(layers: int, heads: int) -> Iterator[Head]:
    """Yields the heads and means in the order of `_with_means`."""
    for rows in ROWS:
        for layer in range(1, layers + 1):
            yield from (Head(rows, layer, number) for number in [*range(1, heads + 1), None])
        yield Head(rows, None, None)


def _with_means(
    weights: Float[np.ndarray, "rows layers H T S"],
) -> Float[np.ndarray, "N T S"]:
    """The heads of a layer and then their mean, layer after layer; last the mean of all."""
    kinds, layers, heads, *words = weights.shape
    own = np.concatenate([weights, weights.mean(axis=2, keepdims=True)], axis=2)
    every = weights.mean(axis=(1, 2))[:, None]
    flat = np.concatenate([own.reshape(kinds, layers * (heads + 1), *words), every], axis=1)
    return flat.reshape(kinds * (layers * (heads + 1) + 1), *words)


def write_csv(path: Path, scores: dict[Head, Score]) -> None:
    """Writes a line for each head."""
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("rows", "layer", "head", *SCORES))
        for head, score in scores.items():
            writer.writerow((head.rows, head.layer or MEAN, head.number or MEAN, *score))


def read_csv(path: Path) -> dict[Head, Score]:
    """Returns the scores that `write_csv` wrote.

    Raises:
      UserError: the file is damaged.
    """
    with path.open(newline="", encoding="utf-8") as file:
        try:
            _, *lines = csv.reader(file)
            scores = {}
            for rows, layer, number, *own in lines:
                places = (None if text == MEAN else int(text) for text in (layer, number))
                scores[Head(rows, *places)] = Score(*map(float, own))
            best_of(scores)
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} cannot be read ({error}): delete it, and align again"
            ) from None
    return scores
