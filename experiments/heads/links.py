"""Alignment links from cross-attention heads, their scores, and link files in Pharaoh format.

Each line of a link file has the links of one sentence pair, separated by blanks. A link i-j joins
source word i and target word j, counted from zero. A possible (not sure) link is ipj or i?j. Words
are the blank-separated parts of the unnormalised text.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer.analysis import alignment
from transformer.analysis.alignment import ALIGNMENT_ROWS, GoldLinks, most_attended
from transformer.data.files.text import read_lines
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.files import whole_file
from transformer.inference.explanations import METHODS, attribute
from transformer.inference.inspection import Inspector, attended_words
from transformer.runs.run import TrainedRun

LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
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


def read_links(path: Path, sizes: Sequence[tuple[int, int]], pairs: str) -> list[GoldLinks]:
    """Returns the gold links of each sentence pair in a Pharaoh-format file.

    Args:
      sizes: the numbers of source and target words of each pair.
      pairs: the name of the sentence pairs, for error messages.
    """
    lines = list(read_lines(path))
    if len(lines) != len(sizes):
        raise UserError(
            f"--links {path} has {len(lines):,} lines, and {pairs} {len(sizes):,} pairs: each pair "
            "needs its line, a blank one if it has no link"
        )
    gold = []
    for number, (line, size) in enumerate(zip(lines, sizes, strict=True), 1):
        place, sure, possible = f"--links {path}, line {number}", [], []
        for text in line.split():
            link = LINK.fullmatch(text)
            if link is None:
                raise UserError(
                    f"{place}: {text[:40]!r} is not a link: write source-target, two word numbers "
                    "from zero such as 0-0, or 0p0 for a link that is only possible"
                )
            i, j = int(link[1]), int(link[3])
            if i >= size[0] or j >= size[1]:
                raise UserError(
                    f"{place}: link {text} points past the sentence, which has {size[0]} source "
                    f"words and {size[1]} target words between blanks: count them from zero"
                )
            (sure if link[2] == "-" else possible).append((i, j))
        gold.append(GoldLinks(sure, possible))
    return gold


def format_links(links: Iterable[tuple[int, int]], words: int = 0) -> str:
    """Returns a pair's links as a line of a link file, without those of the first source words."""
    return " ".join(f"{i - words}-{j}" for i, j in sorted(links) if i >= words)
