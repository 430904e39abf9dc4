"""Small heat maps of attention for a page, drawn from numbers without image files."""

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from transformer.data.pairs import Pair
from transformer.model.build import has_cross_attention
from transformer.runs.run import TrainedRun
from ..display.labels import visible

MAX_DRAWN_TOKENS = 48  # a side
CELL, LETTER, WIDE_LETTER = 14.0, 6.5, 11.0  # sizes in units of the picture
FAINTEST = 0.01  # weights below are not drawn
AXES = ("written ↓", "read →")  # what rows and columns are, in the corner between their names


class AttentionMap(NamedTuple):
    """A heat map as a picture of its page draws it: places and sizes in the picture's units."""

    label: str
    width: float
    height: float
    left: float
    top: float
    rows: list[tuple[float, str]]  # place and token
    columns: list[tuple[float, str]]
    cells: list[tuple[float, float, float]]  # x, y, and the fraction of the full colour
    cell: float  # width and height of one
    axes: tuple[str, str] = AXES


def cross_attention(
    trained: TrainedRun, sources: Sequence[str], translations: Sequence[str]
) -> list[AttentionMap | None]:
    """Returns the mean attention of the last layer's heads while translations are written.

    The map is None if the model has no attention, or a side has more than `MAX_DRAWN_TOKENS` or
    than the model reads.
    """
    predictor = trained.predictor
    maps: list[AttentionMap | None] = [None] * len(sources)
    length = min(MAX_DRAWN_TOKENS, predictor.max_length)
    read, written = predictor.encode_pairs(map(Pair, sources, translations))
    # Each includes its end-of-sentence.
    drawn = [i for i in range(len(sources)) if max(len(read[i]), len(written[i])) < length]
    if not drawn or not has_cross_attention(predictor.model.config):
        return maps
    texts = [read[i] for i in drawn], [written[i] for i in drawn]
    batch = predictor.make_batch(*texts, len(drawn), length)

    @jax.jit  # as a whole, so that no other weights leave it
    def mean_of_last_layer(variables: Any, batch: Any) -> jax.Array:
        return predictor.batch_attention(variables, batch)["cross"].weights[-1].mean(axis=1)

    means = jax.device_get(mean_of_last_layer(trained.variables, batch))
    for mean, i in zip(means, drawn, strict=True):
        rows = [*predictor.target_tokenizer.pieces(written[i]), "</s>"]
        columns = predictor.source_names(read[i])
        maps[i] = attention_map(mean[: len(rows), : len(columns)], rows, columns)
    return maps


def attention_map(
    weights: Float[np.ndarray, "L M"], row_tokens: Sequence[str], column_tokens: Sequence[str]
) -> AttentionMap:
    """Returns weights from 0 to 1, queries in rows, as a heat map of named rows and columns."""
    # The page's own fonts are taken to have all characters.
    rows, columns = (
        [visible(token, frozenset(token)) for token in tokens]
        for tokens in (row_tokens, column_tokens)
    )
    left, top = (10 + max(map(_width, [*tokens, AXES[0]])) for tokens in (rows, columns))
    cells = [
        (left + CELL * j, top + CELL * i, round(float(weight), 2))
        for (i, j), weight in np.ndenumerate(weights)
        if weight >= FAINTEST
    ]
    return AttentionMap(
        label=f"Heat map of attention: {len(rows)} tokens written, {len(columns)} tokens read",
        width=left + CELL * len(columns) + 2,
        height=top + CELL * len(rows) + 2,
        left=left,
        top=top,
        rows=[(top + CELL * (i + 0.5), token) for i, token in enumerate(rows)],
        columns=[(left + CELL * (j + 0.5), token) for j, token in enumerate(columns)],
        cells=cells,
        cell=CELL,
    )


def _width(text: str) -> float:
    """The maximum width of a label in the letters of the picture."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return LETTER * (len(text) - wide) + WIDE_LETTER * wide
