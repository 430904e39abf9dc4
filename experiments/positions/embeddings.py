"""The `embeddings` mode: maps and nearest neighbours of token embeddings, and words in contexts."""

import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Float, UInt8
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from sklearn.preprocessing import normalize

from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from transformer.errors import UserError, shorten
from transformer.files import write_arrays
from transformer.inference.base import TokenTable
from transformer.inference.translator import Translator
from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from ..display import plotting
from ..display.labels import LINE_HEIGHT, labels_of, text_widths, visible
from ..display.vector_space import neighbours, pca, perplexity, tsne
from ..display.web_page import encode_array, write_page
from ..process.modes import Options
from ..process.text_io import Lines, input_file, print_table

logger = logging.getLogger(__name__)

NEIGHBOURS = 10  # number of nearest neighbours that are printed and shown
MAX_TOKENS = 12_000  # maximum number of tokens for t-SNE, which takes about a minute
MAP_STEPS = 2**16 - 1  # largest integer coordinate in the page's maps
TOKEN_GROUPS = "begins a word", "within a word", "digits and signs", "special"
WORD, WITHIN, SIGNS, SPECIAL = range(len(TOKEN_GROUPS))
WIDTH, MIN_HEIGHT, MAX_HEIGHT = 7.0, 2.5, 7.5  # inches
FONT = 5.5  # points: font size of token names
OFFSET, GAP = 2.5, 1.0  # points: from a marker to its name, and between names
LAYER = re.compile("(encoder|decoder)_layers")  # names of the modules
CANDIDATES, MAX_NAMES = 3000, 350  # tokens considered for names; maximum number of names


class Map(NamedTuple):
    """A two-dimensional map of the first tokens in an embedding table."""

    method: str  # "tsne" or "pca"
    points: Float[np.ndarray, "N 2"]  # indexed by token id
    title: str


def embeddings(run: Run, options: Options) -> Iterator[Path]:
    """Draws t-SNE and PCA maps of a model's token embeddings; yields each file once it is written.

    The files are figures, a page with search and zoom, and the arrays that they show. If
    `options.token` is a token or a sum of tokens, its nearest neighbours are printed instead, or,
    if `options.input` has lines with that word, its states in each of them are compared.
    """
    if path := input_file(options.input):
        with path.open("rb") as stream:
            lines = [line for _, chunk in Lines(stream, path).chunks() for line in chunk]
        cosines = compare_contexts(LoadedRun(run), options.token or "", lines)
        place = run.folder / "figures" / "embeddings" / f"contexts_{options.token}.png"
        yield plotting.save_figure(contexts_figure(cosines, lines), place)
        return
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
            "pieces": list(map(visible, pieces)),
            "kinds": encode_array(token_kinds(pieces)),
        }
        maps = []
        for drawn in make_maps(name, vectors):
            arrays[f"{name}_{drawn.method}"] = drawn.points
            # The longer side is MAP_STEPS steps long, and y points upwards.
            points = drawn.points - drawn.points.min(axis=0)
            steps = np.rint(points * (MAP_STEPS / points.max())).astype(np.uint16)
            method = {"tsne": "t-SNE", "pca": "PCA"}[drawn.method]
            maps.append({"method": method, "title": drawn.title, "points": encode_array(steps)})
            figure = map_figure(drawn, pieces)
            yield plotting.save_figure(figure, place / f"{name}_{drawn.method}.png")
        page = {
            "name": spoken(name),
            "vocabulary": list(vocabularies).index(tokenizer.digest),
            "neighbours": encode_array(closest.astype(np.uint32)),
            "cosines": encode_array(np.rint(100 * cosines).astype(np.int8)),  # in percent
            "maps": maps,
        }
        pages.append(page)
    write_arrays(place / "embeddings.npz", arrays)
    yield place / "embeddings.npz"
    data = {"tables": pages, "vocabularies": list(vocabularies.values()), "kinds": TOKEN_GROUPS}
    title = f"Token embeddings of {run.config.name}"
    yield write_page(place / "embeddings.html", "embeddings.html", title=title, data=data)


def make_maps(name: str, vectors: Float[np.ndarray, "V D"]) -> Iterator[Map]:
    """Yields the maps of a table: t-SNE of up to MAX_TOKENS tokens, and PCA of all tokens.

    t-SNE uses unit-norm vectors, so tokens with a high cosine similarity are close together.
    """
    count, table = len(vectors), spoken(name)
    some = f"{count:,}" if count <= MAX_TOKENS else f"the first {MAX_TOKENS:,} of {count:,}"
    first = vectors[:MAX_TOKENS]
    title = f"{table}: t-SNE of {some} tokens, perplexity {perplexity(len(first)):.3g}"
    logger.info(title)
    yield Map("tsne", tsne(np.asarray(normalize(first))), title)
    points, (first, second) = pca(vectors)
    title = f"{table}: PCA of {count:,} tokens, {first:.1%} and {second:.1%} of the variance"
    yield Map("pca", points, title)


def spoken(name: str) -> str:
    """Returns a table's display name, such as "Source, target and output embeddings"."""
    *others, last = name.split("_")
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{listed.capitalize()} embeddings"


# -- neighbours of a token or of a sum


def neighbour_tables(tables: Mapping[str, TokenTable], question: str) -> list[Table]:
    """Returns the nearest neighbours of a token, or of a sum of tokens, in each embedding table.

    The sum is over unit-norm vectors. The tokens of the sum are excluded, since one of them is
    nearly always the nearest. Raises UserError if no embedding table has all tokens of the sum.

    Args:
      question: a token, or several joined by " + " and " - ", such as "king - man + woman".

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
        unit = np.asarray(normalize(vectors))
        point = factors @ unit[ids]
        cosines = unit @ normalize(point[None])[0]
        nearest = [i for i in np.argsort(-cosines, kind="stable") if i not in ids]
        pieces = tokenizer.pieces(range(len(vectors)))
        spelt = list(parts)
        spelt[::2] = (visible(pieces[token]) for token in ids)
        title = f"{spoken(name)}: nearest to {' '.join(spelt)}"
        table = Table(title=title, min_width=len(title))
        for column in ("rank", "token", "cosine"):
            table.add_column(column, justify="left" if column == "token" else "right")
        for rank, other in enumerate(nearest[:NEIGHBOURS], 1):
            table.add_row(str(rank), visible(pieces[other]), f"{cosines[other]:.3f}")
        shown.append(table)
    if refusal and not shown:
        raise refusal
    return shown


def find_token(tokenizer: Tokenizer, token: str) -> int:
    """Returns the id of a token or one-token word: for `house`, it is `▁house` if it exists.

    Raises UserError, with a list of the word's subwords, if there is no such token.
    """
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    for spelling in (f"▁{token}", token):
        if token and spelling in ids:
            return ids[spelling]
    parts = tokenizer.encode([token])[0]  # encoding may lowercase the token
    if len(parts) == 1 and parts != [UNK_ID]:
        return parts[0]
    names = [visible(pieces[part]) for part in parts if pieces[part] not in ("▁", "<unk>")]
    fix = f"name one of its pieces: {', '.join(names)}" if names else "name another"
    raise UserError(f"--token={token} is not a token of this model: {fix}")


# -- a word in contexts


def compare_contexts(
    run: LoadedRun, word: str, lines: Sequence[str]
) -> Float[np.ndarray, "layers lines"]:
    """Returns cosines of a word's hidden states in each line with those in the first line.

    Row 0 is the input of the first layer, and row n the output of layer n (from 1), of the encoder,
    or of the decoder of a language model. A word of several tokens has their mean.
    """
    states = []
    for number, line in enumerate(lines, 1):
        layers: dict[str, list] = {"encoder": [], "decoder": []}

        def record(call, args, kwargs, context, layers=layers):
            result, match = call(*args, **kwargs), LAYER.match(context.module.name or "")
            if match and context.method_name == "__call__":
                stack = layers[match[1]]
                stack += [args[0][0]] * (not stack) + [result[0]]
            return result

        target = [line] if isinstance(run.trained.predictor, Translator) else []
        with jax.disable_jit(), nn.intercept_methods(record):
            attention = run.attention(line, *target)
        tokens = attention.source_tokens or attention.target_tokens
        pairs = itertools.combinations(range(len(tokens) + 1), 2)
        spans = [slice(*p) for p in pairs if "".join(tokens[slice(*p)]).strip("▁ ") == word]
        if not spans:
            raise UserError(f"line {number} has no word {word!r}: its tokens are {tokens}")
        x = np.stack(layers["encoder"] or layers["decoder"])
        states.append(x[:, spans[-1]].mean(axis=1))
    unit = [normalize(np.stack(each)) for each in zip(*states, strict=True)]
    return np.stack([vectors @ vectors[0] for vectors in unit])


def contexts_figure(cosines: Float[np.ndarray, "layers lines"], lines: Sequence[str]) -> Figure:
    """Returns a heat map of `compare_contexts`: a row per layer, and a column per line."""
    depth, count = cosines.shape
    figure = plotting.new_figure(0.6 * count + 2, 0.3 * depth + 2.2)
    axes = figure.subplots()
    plotting.heat_map(axes, cosines, np.vectorize("{:.2f}".format)(cosines), 7, aspect="auto")
    _, fonts = labels_of(lines, 7)
    texts = [shorten(line, 40) for line in lines]
    axes.set_xticks(range(count), texts, rotation=35, ha="right", **fonts)
    axes.set_yticks(range(depth), ["embedding", *map(str, range(1, depth))], fontsize=7)
    axes.set_ylabel("layer")
    return figure


# -- figures


def token_kinds(pieces: Sequence[str]) -> UInt8[np.ndarray, "V"]:
    """Returns each token's index in TOKEN_GROUPS, from its text or, for special tokens, its id."""
    kinds = [
        SIGNS if not any(map(str.isalpha, piece)) else WORD if piece[0] == "▁" else WITHIN
        for piece in pieces
    ]
    for token in (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        kinds[token] = SPECIAL
    return np.array(kinds, np.uint8)


def map_figure(drawn: Map, pieces: Sequence[str]) -> Figure:
    """Returns a scatter plot of tokens, styled by group, with names that do not overlap.

    Tokens with low ids are named first: the most frequent tokens, or the earliest merges. Byte
    tokens have even lower ids, but are not named because they are rare.
    """
    points, pieces = drawn.points, pieces[: len(drawn.points)]
    across, upwards = np.ptp(points, axis=0)
    height = np.clip(WIDTH * upwards / across, MIN_HEIGHT, MAX_HEIGHT)
    figure = plotting.new_figure(WIDTH, float(height + 0.5))
    size = 4.0 if len(points) < 500 else 2.2 if len(points) < 3000 else 1.5
    styles = {
        name: {**plotting.look(kind), "markersize": size, "alpha": 0.55}
        for kind, name in enumerate(TOKEN_GROUPS)
    }
    styles[TOKEN_GROUPS[SPECIAL]]["color"] = "black"
    axes = figure.subplots()
    plotting.point_map(axes, points, token_kinds(pieces), styles, "lower")
    axes.margins(0.04)
    axes.set_title(drawn.title, fontsize=9)
    figure.draw_without_rendering()  # the layout moves the axes
    spelt = [i for i, piece in enumerate(pieces) if not piece.startswith("<0x")][:CANDIDATES]
    _name_tokens(axes, points[spelt], [pieces[i] for i in spelt])
    return figure


def _name_tokens(axes: Axes, points: np.ndarray, pieces: Sequence[str]) -> None:
    """Writes token names next to their markers, in order, wherever there is enough space."""
    names, style = labels_of(pieces, FONT)
    # All lengths are in inches.
    offset, gap, height = (size / 72 for size in (OFFSET, GAP, FONT * LINE_HEIGHT))
    places = axes.transData.transform(points) / plotting.DOTS_PER_INCH
    left, bottom, right, top = np.divide(axes.bbox.extents, plotting.DOTS_PER_INCH)
    boxes = np.empty((0, 4))
    halo = patheffects.withStroke(linewidth=1.2, foreground="white", alpha=0.8)
    for name, width, point, (x, y) in zip(
        names, text_widths(names, style), points, places, strict=True
    ):
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
