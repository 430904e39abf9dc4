"""Alignment links from cross-attention heads, and their scores."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from ml_collections import ConfigDict

from transformer.analysis import alignment
from transformer.analysis.alignment import ALIGNMENT_ROWS, GoldLinks, most_attended
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.files import whole_file
from transformer.inference.explanations import METHODS, attribute
from transformer.inference.inspection import Inspector, attended_words, trained_links
from transformer.runs.run import TrainedRun

NO_LINK = -1
MEAN = "mean"
STEPS = 32  # of integrated gradients; more change no error rate by 0.001


class Head(NamedTuple):
    """An attention head or mean over heads, and a row type (a key of `ALIGNMENT_ROWS`)."""

    rows: str
    layer: int | None  # from one; None for the mean over all
    number: int | None  # from one; None for the mean over all

    @property
    def indices(self) -> tuple[int, int]:
        """The zero-based layer and head number, which are -1 for the mean over all."""
        return (self.layer or 0) - 1, (self.number or 0) - 1

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.number}, rows by {self.rows}"


class LinkScore(NamedTuple):
    """The alignment scores of a head; see `alignment.AlignmentScores`."""

    error_rate: float
    precision: float
    recall: float


class HeadLinks(NamedTuple):
    """The alignment links that each head predicts for a list of sentence pairs.

    The order for each row type is: each layer's heads and their mean, then the mean of all layers.
    """

    scores: dict[Head, LinkScore]
    # For each pair, the source word that each head links to each target word, or NO_LINK; of
    # several source words with equal weights, the first one is linked.
    chosen: list[Int[np.ndarray, "N T"]]

    def best_links(self) -> list[list[tuple[int, int]]]:
        """Returns the alignment links of the best head for each pair."""
        number = list(self.scores).index(best_of(self.scores))
        return [links_of(chosen[number]) for chosen in self.chosen]


def best_of(scores: dict[Head, LinkScore]) -> Head:
    """Returns the head with the lowest error rate; means over heads are excluded."""
    return min((head for head in scores if head.number), key=lambda head: scores[head].error_rate)


def links_of(chosen: Int[np.ndarray, "T"]) -> list[tuple[int, int]]:
    """Returns the links (i, j), given the source word i or NO_LINK for each target word j."""
    return [(int(i), j) for j, i in enumerate(chosen) if i != NO_LINK]


def score_heads(
    trained: TrainedRun,
    pairs: Sequence[Pair],
    gold: Sequence[GoldLinks],
    done: Callable[[int], None],
    inspect: type[Inspector] = Inspector,
) -> HeadLinks:
    """Returns each head's alignment links for the pairs, scored against the gold links."""
    chosen, heads = [], []

    def links_by_head() -> Iterator[Float[np.ndarray, "N T S"]]:
        model = trained.predictor, trained.variables
        for weights in attended_words(*model, pairs, done, inspect):
            rows, layers, numbers, *words = weights.shape
            heads[:] = [
                Head(by, layer, number)
                for by in ALIGNMENT_ROWS
                for layer in (*range(1, layers + 1), None)
                for number in (*range(1, numbers + 1), None)
                if layer or number is None
            ]
            each = np.concatenate([weights, weights.mean(axis=2, keepdims=True)], axis=2)
            flat = each.reshape(rows, layers * (numbers + 1), *words)
            every = weights.mean(axis=(1, 2))[:, None]
            links = most_attended(np.concatenate([flat, every], axis=1).reshape(len(heads), *words))
            chosen.append(first_of(links))
            yield links

    columns = (column.tolist() for column in alignment.alignment_scores(links_by_head(), gold))
    scores = [LinkScore(*each) for each in zip(*columns, strict=True)]
    return HeadLinks(dict(zip(heads, scores, strict=True)), chosen)


def score_trained(
    trained: TrainedRun, train: ConfigDict, pairs: Sequence[Pair], gold: Sequence[GoldLinks]
) -> LinkScore:
    """Returns the score of the weights that guided alignment has trained, given `config.train`."""
    words = attended_words(trained.predictor, trained.variables, pairs)
    links = (trained_links(train, weights[0]) for weights in words)
    return LinkScore(*map(float, alignment.alignment_scores(links, gold)))


class Attributor(Inspector):
    """Returns integrated gradients in place of attention weights, as those of a single head."""

    def cross_attention(self, sources, targets, first_line=1, done=lambda count: None):
        for i, pair in enumerate(zip(sources, targets, strict=True)):
            each = attribute(self._model, self._variables, pair, METHODS[0], STEPS)
            yield i, each.values[None, None, :, : len(each.source_tokens)]
            done(1)


def first_of(links: Float[np.ndarray, "*heads T S"]) -> Int[np.ndarray, "*heads T"]:
    """Returns the first source word linked to each target word, or `NO_LINK`."""
    if not links.shape[-1]:
        return np.full(links.shape[:-1], NO_LINK)
    return np.where(links.any(axis=-1), links.argmax(axis=-1), NO_LINK)


# -- files


def write_csv(path: Path, scores: dict[Head, LinkScore]) -> None:
    """Writes the scores as a CSV file with a row for each head."""
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("rows", "layer", "head", *LinkScore._fields))
        for head, score in scores.items():
            writer.writerow((head.rows, head.layer or MEAN, head.number or MEAN, *score))


def read_csv(path: Path) -> dict[Head, LinkScore]:
    """Returns the scores that `write_csv` wrote; raises UserError if the file is damaged."""
    scores = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            _, *lines = csv.reader(file)
            for rows, layer, number, *numbers in lines:
                places = (None if text == MEAN else int(text) for text in (layer, number))
                scores[Head(rows, *places)] = LinkScore(*map(float, numbers))
        best_of(scores)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it, and align again") from None
    return scores


def format_links(links: Iterable[tuple[int, int]], words: int = 0) -> str:
    """Returns a pair's links as a line of a link file, without those of the first source words."""
    return " ".join(f"{i - words}-{j}" for i, j in sorted(links) if i >= words)
