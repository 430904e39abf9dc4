"""The mode `embeddings`: maps and nearest neighbours of token embeddings."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from rich.table import Table

from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from transformer.errors import UserError
from transformer.files import write_arrays
from transformer.inference.base import TokenTable
from transformer.runs.run import Run
from ..display.labels import labels_of, visible
from ..display.plotting import COLOURS, DOTS_PER_INCH, finish_scatter, new_figure, save_figure
from ..display.vector_space import neighbours, pca, perplexity, tsne, unit_rows
from ..display.web_page import encode_array, write_page
from ..process.modes import Options
from ..process.text_io import print_table

logger = logging.getLogger(__name__)

NEIGHBOURS = 10  # of a token, printed and shown
MIN_MAPPED = 10  # minimum number of tokens for t-SNE
MAX_TOKENS = 12_000  # maximum number of tokens for t-SNE: it takes about a minute
MAP_STEPS = 2**16 - 1  # steps along the longer side of the page's map
# Name, colour and marker of each kind of token.
TOKEN_GROUPS = (
    ("begins a word", COLOURS[0], "o"),
    ("within a word", COLOURS[1], "^"),
    ("digits and signs", COLOURS[2], "s"),
    ("special", "black", "D"),
)
WORD, WITHIN, SIGNS, SPECIAL = range(len(TOKEN_GROUPS))
WIDTH, MIN_HEIGHT, MAX_HEIGHT = 7.0, 2.5, 7.5  # inches
FONT = 5.5  # points, size of names
OFFSET, GAP = 2.5, 1.0  # points: from a mark to its name, and between names
CANDIDATES, MAX_NAMES = 3000, 350  # tokens that may be named; maximum number of readable names


class Map(NamedTuple):
    """Positions of a table's first tokens in the plane."""

    method: str  # "tsne" or "pca"
    points: Float[np.ndarray, "N 2"]  # by token id
    title: str


def embeddings(run: Run, options: Options) -> Iterator[Path]:
    """Draws maps of a model's token embeddings, by t-SNE and PCA; yields files as they are made.

    These are figures, a page to search and zoom, and the arrays behind both. With `options.token`,
    nothing is drawn: it prints the nearest neighbours of the token, or of a sum of tokens.
    """
    trained = run.load_trained()
    tables = trained.predictor.token_tables(trained.variables)
    if options.token is not None:
        for table in neighbour_tables(tables, options.token):
            print_table(table)
        return
    place = run.folder / "figures" / "embeddings"
    arrays, pages, vocabularies = {}, [], {}
    for name, (vectors, tokenizer) in tables.items():
        pieces = tokenizer.pieces(range(len(vectors)))
        closest, cosines = neighbours(vectors, NEIGHBOURS)
        arrays |= {f"{name}_neighbours": closest, f"{name}_cosines": cosines}
        arrays[f"{name}_tokens"] = np.array(pieces, np.str_)
        vocabularies[tokenizer.digest] = {
            "pieces": list(map(printed, pieces)),
            "kinds": encode_array(token_kinds(pieces)),
        }
        small = np.uint16 if len(vectors) <= MAP_STEPS else np.uint32
        maps: list[dict[str, object]] = []
        page = {
            "name": spoken(name),
            "vocabulary": list(vocabularies).index(tokenizer.digest),
            "neighbours": encode_array(closest.astype(small)),
            "cosines": encode_array(np.rint(100 * cosines).astype(np.int8)),  # in percent
            "maps": maps,
        }
        pages.append(page)
        for drawn in make_maps(name, vectors):
            arrays[f"{name}_{drawn.method}"] = drawn.points
            # The longer side is MAP_STEPS steps long, and y points upwards.
            points = drawn.points - drawn.points.min(axis=0)
            steps = np.rint(points * (MAP_STEPS / points.max())).astype(np.uint16)
            method = {"tsne": "t-SNE", "pca": "PCA"}[drawn.method]
            maps.append({"method": method, "title": drawn.title, "points": encode_array(steps)})
            yield save_figure(map_figure(drawn, pieces), place / f"{name}_{drawn.method}.png")
    write_arrays(place / "embeddings.npz", arrays)
    yield place / "embeddings.npz"
    kinds = [name for name, *_ in TOKEN_GROUPS]
    data = {"tables": pages, "vocabularies": list(vocabularies.values()), "kinds": kinds}
    title = f"Token embeddings of {run.config.name}"
    yield write_page(place / "embeddings.html", "embeddings.html", title=title, data=data)


def make_maps(name: str, vectors: Float[np.ndarray, "V D"]) -> Iterator[Map]:
    """Yields the maps of a table: t-SNE for MIN_MAPPED to MAX_TOKENS tokens, and PCA of all.

    t-SNE uses unit vectors, so that tokens with a high cosine are near each other.
    """
    count, table = len(vectors), spoken(name)
    if count >= MIN_MAPPED:
        some = f"{count:,}" if count <= MAX_TOKENS else f"the first {MAX_TOKENS:,} of {count:,}"
        first = vectors[:MAX_TOKENS]
        title = f"{table}: t-SNE of {some} tokens, perplexity {perplexity(len(first)):.3g}"
        logger.info(title)
        yield Map("tsne", tsne(unit_rows(first)), title)
    points, (first, second) = pca(vectors)
    title = f"{table}: PCA of {count:,} tokens, {first:.1%} and {second:.1%} of the variance"
    yield Map("pca", points, title)


def spoken(name: str) -> str:
    """Returns a table's name as text: "Source, target and output embeddings"."""
    *others, last = name.split("_")
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{listed.capitalize()} embeddings"


def printed(piece: str) -> str:
    """Returns a token with all characters visible."""
    return visible(piece, frozenset(piece))


# -- one token, or a sum


def neighbour_tables(tables: Mapping[str, TokenTable], question: str) -> list[Table]:
    """Returns the nearest tokens to a sum in each table; UserError if no table has all its tokens.

    The sum is of unit vectors. Its own tokens are left out, since one of them is nearly always
    nearest.

    Args:
      question: a token, or several joined by " + " and " - ": "king - man + woman".

    Source: Mikolov et al. 2013, "Linguistic Regularities in Continuous Space Word Representations".
    """
    parts = re.split(r" ([+-]) ", question)  # tokens and the signs between them
    factors = np.array([-1 if sign == "-" else 1 for sign in ["+", *parts[1::2]]])
    shown, refusal = [], None
    for name, (vectors, tokenizer) in tables.items():
        try:
            ids = [find_token(tokenizer, token) for token in parts[::2]]
        except UserError as error:
            refusal = refusal or error
            continue
        point = factors @ unit_rows(vectors[ids])
        count, last = NEIGHBOURS + len(ids), range(len(vectors), len(vectors) + 1)
        [closest], [cosines] = neighbours(np.vstack([vectors, point]), count, last)
        others = ~np.isin(closest, ids)
        closest, cosines = closest[others][:NEIGHBOURS], cosines[others][:NEIGHBOURS]
        pieces = tokenizer.pieces(range(len(vectors)))
        spelt = list(parts)
        spelt[::2] = (printed(pieces[token]) for token in ids)
        title = f"{spoken(name)}: nearest to {' '.join(spelt)}"
        table = Table(title=title, min_width=len(title))
        for column in ("rank", "token", "cosine"):
            table.add_column(column, justify="left" if column == "token" else "right")
        for rank, (other, cosine) in enumerate(zip(closest, cosines, strict=True), 1):
            table.add_row(str(rank), printed(pieces[other]), f"{cosine:.3f}")
        shown.append(table)
    if refusal and not shown:
        raise refusal
    return shown


def find_token(tokenizer: Tokenizer, token: str) -> int:
    """Returns the id of a token, or of a one-token word: `house` is `▁house` or else `house`.

    If there is none, a UserError lists the word's subwords.
    """
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    for spelling in (f"▁{token}", token):
        if token and spelling in ids:
            return ids[spelling]
    parts = tokenizer.encode([token])[0]  # encoding may lowercase it
    if len(parts) == 1 and parts != [UNK_ID]:
        return parts[0]
    names = [printed(pieces[part]) for part in parts if pieces[part] not in ("▁", "<unk>")]
    fix = f"name one of its pieces: {', '.join(names)}" if names else "name another"
    raise UserError(f"--token={token} is not a token of this model: {fix}")


# -- figures


def token_kinds(pieces: Sequence[str]) -> UInt8[np.ndarray, "V"]:
    """Returns each token's index in TOKEN_GROUPS, by its text or, for special tokens, its id."""
    kinds = [
        SIGNS if not any(map(str.isalpha, piece)) else WORD if piece[0] == "▁" else WITHIN
        for piece in pieces
    ]
    for token in (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        kinds[token] = SPECIAL
    return np.array(kinds, np.uint8)


def map_figure(drawn: Map, pieces: Sequence[str]) -> Figure:
    """Returns a figure with a mark per token in its group's style, and names without overlap.

    Names go to low ids first: the most frequent tokens, or the earliest merges. Byte tokens, which
    have lower ids but are rare, are not named.
    """
    points, pieces = drawn.points, pieces[: len(drawn.points)]
    across, upwards = np.ptp(points, axis=0)
    height = np.clip(WIDTH * upwards / across, MIN_HEIGHT, MAX_HEIGHT)
    figure = new_figure(WIDTH, float(height + 0.5))
    kinds = token_kinds(pieces)
    size = 4.0 if len(points) < 500 else 2.2 if len(points) < 3000 else 1.5
    axes = figure.subplots()
    for kind, (name, colour, marker) in enumerate(TOKEN_GROUPS):
        style: dict[str, Any] = {"markersize": size, "alpha": 0.55, "zorder": 2}
        if kind == SPECIAL:
            style = {"markersize": 1.6 * size, "alpha": 0.9, "zorder": 3}
        style |= {"color": colour, "marker": marker, "linestyle": "none", "markeredgewidth": 0}
        of_kind = points[kinds == kind]
        axes.plot(*of_kind.T, label=f"{name} ({len(of_kind):,})", **style)
    finish_scatter(axes, "lower")
    axes.margins(0.04)
    axes.set_title(drawn.title, fontsize=9)
    spelt = [i for i, piece in enumerate(pieces) if not piece.startswith("<0x")][:CANDIDATES]
    _name_tokens(axes, points[spelt], [pieces[i] for i in spelt])
    return figure


def _name_tokens(axes: Axes, points: np.ndarray, pieces: Sequence[str]) -> None:
    """Writes names next to their marks, in order, if there is room for them."""
    names, style = labels_of(pieces, FONT)
    font = FontProperties(family=style["fontfamily"], size=FONT)
    canvas = cast(FigureCanvasAgg, axes.figure.canvas)
    canvas.figure.draw_without_rendering()  # the layout moves the axes
    renderer = canvas.get_renderer()
    offset, gap = (size * DOTS_PER_INCH / 72 for size in (OFFSET, GAP))  # pixels
    places = axes.transData.transform(points)
    left, bottom, right, top = axes.bbox.extents
    boxes = np.empty((0, 4))
    halo = patheffects.withStroke(linewidth=1.2, foreground="white", alpha=0.8)
    for name, point, (x, y) in zip(names, points, places, strict=True):
        width, height, _ = renderer.get_text_width_height_descent(name, font, False)
        box = np.array([x + offset, y - height / 2, x + offset + width, y + height / 2])
        inside = box[0] > left and box[1] > bottom and box[2] < right and box[3] < top
        apart = (boxes[:, :2] > box[2:] + gap) | (boxes[:, 2:] < box[:2] - gap)
        if inside and apart.any(axis=1).all():
            boxes = np.vstack([boxes, box])
            place = {"textcoords": "offset points", "va": "center", "zorder": 4}
            text = axes.annotate(name, tuple(point), (OFFSET, 0), **place, **style)
            text.set_path_effects([halo])
        if len(boxes) == MAX_NAMES:
            return
