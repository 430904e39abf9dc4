"""Small heat maps of attention for a page: numbers that its picture is drawn from, and no file."""

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MOST_TOKENS = 48  # a side
CELL, LETTER, WIDE_LETTER = 14.0, 6.5, 11.0  # sizes in units of the picture
LONGEST_TOKEN = 16  # characters
FAINTEST = 0.01  # weights below are not drawn


class Trained(NamedTuple):
    """A run's model in use."""

    predictor: Any
    variables: Any


class AttentionMap(NamedTuple):
    """A heat map as a picture of its page draws it: places and sizes in the picture's units.

    `rows` and `columns` are (place, token); `cells` are (x, y, share of the full colour), `cell`
    wide and high.
    """

    label: str
    width: float
    height: float
    left: float
    top: float
    rows: list[tuple[float, str]]
    columns: list[tuple[float, str]]
    cells: list[tuple[float, float, float]]
    cell: float


def cross_attention(
    trained: Trained, sources: Sequence[str], translations: Sequence[str]
) -> list[AttentionMap | None]:
    """Returns the mean attention of the last layer's heads while translations are written.

    A row is named by the token that is written, not by the one that is read before it. There is
    None of a model without attention, or where a side has more than `MOST_TOKENS`.
    """
    predictor, maps = trained.predictor, [None] * len(sources)
    settings = predictor.model.config
    if settings.kind == "recurrent" and settings.recurrent_attention == "none":
        return maps
    for i, layers in predictor.cross_attention(trained.variables, sources, translations):
        weights = layers[-1].mean(axis=0)
        if max(weights.shape) <= MOST_TOKENS:
            written = _tokens(predictor.target_tokenizer, translations[i], len(weights))
            read = _tokens(predictor.source_tokenizer, sources[i], len(weights.T))
            maps[i] = attention_map(weights, written, read)
    return maps


def _tokens(tokenizer: Any, text: str, count: int) -> list[str]:
    """The tokens of a text that a model reads so many of, with its end."""
    return [*tokenizer.pieces(tokenizer.encode([text])[0][: count - 1]), "</s>"]


def attention_map(
    weights: np.ndarray, row_tokens: Sequence[str], column_tokens: Sequence[str]
) -> AttentionMap:
    """Returns weights from 0 to 1, queries in rows, as a heat map of named rows and columns."""
    rows, columns = list(map(_visible, row_tokens)), list(map(_visible, column_tokens))
    left, top = (10 + max(map(_width, tokens)) for tokens in (rows, columns))
    cells = [
        (left + CELL * j, top + CELL * i, round(float(weight), 2))
        for (i, j), weight in np.ndenumerate(weights)
        if weight >= FAINTEST
    ]
    return AttentionMap(
        f"Heat map of attention: {len(rows)} tokens written, {len(columns)} tokens read",
        left + CELL * len(columns) + 2,
        top + CELL * len(rows) + 2,
        left,
        top,
        [(top + CELL * (i + 0.5), token) for i, token in enumerate(rows)],
        [(left + CELL * (j + 0.5), token) for j, token in enumerate(columns)],
        cells,
        CELL,
    )


def _visible(token: str) -> str:
    """A token as a label: nothing is invisible, and nothing is long."""
    shown = "".join(c if c.isprintable() and c != " " else "␣" for c in token) or "∅"
    return shown if len(shown) <= LONGEST_TOKEN else shown[: LONGEST_TOKEN - 1] + "…"


def _width(text: str) -> float:
    """What a label takes, at most, in the letters of the picture."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return LETTER * (len(text) - wide) + WIDE_LETTER * wide
