"""The mode `embeddings`: maps and nearest neighbours of token embeddings."""

import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from ml_collections import ConfigDict
from rich.table import Table

from experiments.attention.labels import visible
from experiments.display.figure_files import save_figure
from experiments.display.vector_space import neighbours, pca, perplexity, tsne, unit_rows
from experiments.display.web_page import encode_integers, write_page
from experiments.embeddings.figures import KINDS, Map, map_figure, token_kinds
from experiments.options import Options
from experiments.text_io import print_table
from transformer.data.tokenizer import UNK_ID, Tokenizer
from transformer.errors import UserError
from transformer.inference.base import TokenTable
from transformer.storage.files import write_arrays
from transformer.workdir import load_trained

logger = logging.getLogger(__name__)

NEIGHBOURS = 10  # of a token, printed and shown
MIN_TOKENS = 10  # tokens that t-SNE maps
MAX_TOKENS = 12_000  # tokens that t-SNE maps: these take about a minute
MAP_STEPS = 2**16 - 1  # steps along the longer side of the page's map


def embeddings(config: ConfigDict, folder: Path, options: Options) -> Iterator[Path]:
    """Draws maps of a model's token embeddings, t-SNE and PCA; yields the files as they are made.

    They are pictures, a page to search and zoom, and the arrays behind both. With `options.token`
    nothing is drawn: the token's nearest neighbours are printed.

    Raises:
      UserError: the model has no such token.
    """
    run = load_trained(folder, config)
    tables = run.predictor.token_tables(run.variables)
    if options.token is not None:
        for table in neighbour_tables(tables, options.token):
            print_table(table)
        return
    place = folder / "figures" / "embeddings"
    place.mkdir(parents=True, exist_ok=True)
    arrays, pages, vocabularies = {}, [], {}
    for name, (vectors, tokenizer) in tables.items():
        pieces = tokenizer.pieces(range(len(vectors)))
        closest = neighbours(vectors, NEIGHBOURS)
        found: dict[str, np.ndarray] = dict(zip(("neighbours", "cosines"), closest, strict=True))
        arrays |= {f"{name}_{key}": array for key, array in found.items()}
        arrays[f"{name}_tokens"] = np.array(pieces, np.str_)
        vocabularies[tokenizer.digest] = page_vocabulary(pieces)
        pages.append(page_table(name, vectors, list(vocabularies).index(tokenizer.digest), found))
        for made in make_maps(name, vectors):
            arrays[f"{name}_{made.method}"] = made.points
            pages[-1]["maps"].append(page_map(made))
            picture = place / f"{name}_{made.method}.png"
            save_figure(map_figure(made, pieces), picture)
            yield picture
    write_arrays(place / "embeddings.npz", arrays)
    yield place / "embeddings.npz"
    kinds = [name for name, *_ in KINDS]
    data = {"tables": pages, "vocabularies": list(vocabularies.values()), "kinds": kinds}
    title = f"Token embeddings of {config.name}"
    yield write_page(place / "embeddings.html", "embeddings.html", title=title, data=data)


def make_maps(name: str, vectors: Float[np.ndarray, "V D"]) -> Iterator[Map]:
    """Yields the maps of a table: t-SNE of MIN_TOKENS to MAX_TOKENS tokens, and PCA of all.

    t-SNE is of directions, so that tokens of a high cosine are near each other.
    """
    count, title = len(vectors), spoken(name)
    if count >= MIN_TOKENS:
        some = f"{count:,}" if count <= MAX_TOKENS else f"the first {MAX_TOKENS:,} of {count:,}"
        shown = min(count, MAX_TOKENS)
        said = f"{title}: t-SNE of {some} tokens, perplexity {perplexity(shown):.3g}"
        logger.info(said)
        yield Map("tsne", tsne(unit_rows(vectors[:shown])), said)
    points, (first, second) = pca(vectors)
    said = f"{title}: PCA of {count:,} tokens, {first:.1%} and {second:.1%} of the variance"
    yield Map("pca", points, said)


def spoken(name: str) -> str:
    """Returns the name of a table for people: "Source, target and output embeddings"."""
    *others, last = name.split("_")
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{listed.capitalize()} embeddings"


# -- one token


def neighbour_tables(tables: Mapping[str, TokenTable], token: str) -> list[Table]:
    """Returns the nearest neighbours of a token in each table that has it, for the terminal.

    Raises:
      UserError: none has it.
    """
    shown, refusal = [], None
    for name, (vectors, tokenizer) in tables.items():
        try:
            number = find_token(tokenizer, token)
        except UserError as error:
            refusal = refusal or error
            continue
        pieces = tokenizer.pieces(range(len(vectors)))
        [found], [cosines] = neighbours(vectors, NEIGHBOURS, range(number, number + 1))
        distances = np.linalg.norm(vectors[found] - vectors[number], axis=1)
        title = f"{spoken(name)}: nearest to {printed(pieces[number])}"
        table = Table(title=title, min_width=len(title))
        table.add_column("rank", justify="right")
        table.add_column("token")
        for column in ("id", "cosine", "distance"):
            table.add_column(column, justify="right")
        for rank, (other, *numbers) in enumerate(zip(found, cosines, distances, strict=True), 1):
            cells = (f"{value:.3f}" for value in numbers)
            table.add_row(str(rank), printed(pieces[other]), str(other), *cells)
        shown.append(table)
    if refusal and not shown:
        raise refusal
    return shown


def find_token(tokenizer: Tokenizer, token: str) -> int:
    """Returns the id of a token, or of a word that is one: `house` is `▁house` or else `house`.

    Raises:
      UserError: there is none; the message has its pieces and tokens that are spelt nearly so.
    """
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    for spelling in (f"▁{token}", token):
        if token and spelling in ids:
            return ids[spelling]
    parts = tokenizer.encode([token])[0]  # which may write it in small letters
    if len(parts) == 1 and parts != [UNK_ID]:
        return parts[0]
    spelt = {}
    for piece in reversed(pieces):  # the first of those that differ in case or mark
        spelt[piece.removeprefix("▁").lower()] = piece
    near = difflib.get_close_matches(token.removeprefix("▁").lower(), spelt, 5, 0.6)
    remedies = []
    if known := [piece for piece in tokenizer.pieces(parts) if piece not in ("▁", "<unk>")]:
        remedies.append(f"name one of its pieces: {_listed(known)}")
    if near:
        remedies.append(f"close to it: {_listed([spelt[each] for each in near])}")
    advice = "; ".join(remedies) or "name another"
    raise UserError(f"--token={token} is not a token of this model: {advice}")


def printed(piece: str) -> str:
    """Returns a token with each of its characters to be seen."""
    return visible(piece, frozenset(piece))


def _listed(pieces: Sequence[str]) -> str:
    return ", ".join(map(printed, dict.fromkeys(pieces)))


# -- the page's data


def page_vocabulary(pieces: Sequence[str]) -> dict[str, Any]:
    """Returns the tokens of a tokenizer for the page: their texts and kinds."""
    return {
        "pieces": [printed(piece) for piece in pieces],
        "kinds": encode_integers(token_kinds(pieces)),
    }


def page_table(
    name: str,
    vectors: Float[np.ndarray, "V D"],
    vocabulary: int,
    found: Mapping[str, Shaped[np.ndarray, "V k"]],
) -> dict[str, Any]:
    """Returns the page's other data of a table: neighbours, and cosines in percent.

    Args:
      vocabulary: number of its tokenizer's vocabulary, from zero.
      found: "neighbours" and "cosines", see `vector_space.neighbours`.
    """
    count = len(vectors)
    small = np.uint16 if count <= MAP_STEPS else np.uint32
    return {
        "name": spoken(name),
        "vocabulary": vocabulary,
        "neighbours": encode_integers(found["neighbours"].astype(small)),
        "cosines": encode_integers(np.rint(100 * found["cosines"]).astype(np.int8)),
        "maps": [],
    }


def page_map(made: Map) -> dict[str, Any]:
    """Returns a map for the page: its longer side is MAP_STEPS steps long, and y grows upwards."""
    points = made.points - made.points.min(axis=0)
    return {
        "method": {"tsne": "t-SNE", "pca": "PCA"}[made.method],
        "title": made.title,
        "points": encode_integers(np.rint(points * (MAP_STEPS / points.max())).astype(np.uint16)),
    }
