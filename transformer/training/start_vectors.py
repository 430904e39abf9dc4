"""Initial embeddings from a file of word vectors, in the format of GloVe or word2vec."""

import hashlib
import itertools
import logging
import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from transformer.data.files.text import read_lines
from transformer.errors import UserError
from transformer.inference.base import Params, Predictor
from transformer.model.classifier import BAG
from transformer.optim.parameters import named_leaves
from transformer.runs import json_files
from transformer.runs.run import Run
from transformer.tasks import REGISTRY, base
from transformer.training.start import named_tables

logger = logging.getLogger(__name__)
FREQUENT = 1000  # first lines: if a file has subwords, some of these lines begin a word


def read_vectors(path: Path, words: Set[str]) -> tuple[dict[str, Float[np.ndarray, "D"]], int]:
    """Returns the vectors of the given words in a file, and the width of its vectors.

    Each line is a word and its numbers, separated by single blanks. word2vec's first line is the
    number of vectors and their width. A word in the file may have blanks; none of ours has.
    """
    vectors, width, count, number = {}, 0, None, 0
    for number, line in enumerate(read_lines(path), 1):
        if number == 1:
            width = line.count(" ")
            if re.fullmatch(r"\d+ \d+ ?", line):
                count, width = map(int, line.split())
                continue
        word, *numbers = line.rstrip(" ").rsplit(" ", width)  # fastText ends lines with a blank
        try:
            vector = np.array(numbers, np.float32) if word in words else None
        except ValueError:
            numbers = []
        if len(numbers) != width or re.search(r" -?\d\S*$", word):
            raise UserError(
                f"{path}, line {number} is not a word and {width} numbers: name a text file of "
                "GloVe or word2vec, or copy it again if it is one"
            )
        if vector is not None:
            vectors[word] = vector
    if count not in (None, number - 1):
        raise UserError(
            f"{path} has {number - 1:,} vectors, and its first line says {count:,}: copy or "
            "download it again"
        )
    return vectors, width


class Vectors(NamedTuple):
    """Vectors from a file for tokens of a table.

    Attributes:
      table: the name of the parameter.
      ids: the tokens that are words in the file.
      tokens: the total number of tokens.
    """

    side: str  # "source" or "target"
    file: Path
    table: str
    ids: Int[np.ndarray, "N"]
    vectors: Float[np.ndarray, "N D"]
    tokens: int


def find_vectors(run: Run, predictor: Predictor, params: Params) -> Iterator[Vectors]:
    """Yields the vectors that the config names; only the shapes of the parameters are read.

    A token gets the vector of its word, or else of the lowercase word. Punctuation is a word at any
    position, other tokens only at the start of a word. In a file of subwords, such as BPEmb's, in
    which `▁` also begins a word, each token is looked up unchanged.
    """
    config, leaves = run.config, named_leaves(params)
    tables = named_tables(predictor, params)
    only = "target" if REGISTRY[config.task].reads == base.DOCUMENTS else "source"  # its only side
    for side in ("source", "target"):
        if not (name := config.train[f"{side}_vectors"]):
            continue
        key, file = f"config.train.{side}_vectors={name}", Path(name).expanduser()
        uses = {table: use.replace("input", only).split("_") for table, (use, _) in tables.items()}
        table = next((table for table, use in uses.items() if side in use), None)
        if table is None:
            raise UserError(f"{key}: the model has no {side} embeddings: leave the key out")
        pieces = tables[table][1]
        words = [
            p.removeprefix("▁") if p[0] == "▁" or not re.search(r"\w", p) else "" for p in pieces
        ]
        if any(line.startswith("▁") for line in itertools.islice(read_lines(file), FREQUENT)):
            words = pieces
        vectors, width = read_vectors(file, {*words, *map(str.lower, words)} - {""})
        if width != (ours := np.shape(leaves[table])[1]):
            bag = config.model.architecture == BAG
            raise UserError(
                f"{key} has vectors of {width} numbers, and the embeddings of this model have "
                f"{ours}: set config.model.{'bag_of_embeddings_width' if bag else 'd_model'}="
                f"{width}, or name a file of {ours}"
            )
        rows = [vectors.get(word, vectors.get(word.lower())) for word in words]
        ids = np.array([i for i, row in enumerate(rows) if row is not None], np.int64)
        if not len(ids):
            raise UserError(
                f"{key} has none of the {len(pieces):,} tokens as a word: name a file of the "
                "language, or a tokenizer.kind that has whole words"
            )
        yield Vectors(side, file, table, ids, np.array([rows[i] for i in ids]), len(pieces))


def check_vectors(run: Run, predictor: Predictor) -> None:
    """Checks the word vectors against the model before the run folder is created."""
    list(find_vectors(run, predictor, predictor.param_shapes()))


def start_with_vectors(run: Run, predictor: Predictor, fresh: Params) -> Params:
    """Returns the `fresh` parameters with the word vectors in the config, and records them.

    The vectors of a file are scaled by one factor to the root mean square of the initial table.
    """
    leaves, record = dict(named_leaves(jax.device_get(fresh))), {}
    for side, file, name, ids, vectors, tokens in find_vectors(run, predictor, fresh):
        table = np.array(leaves[name])
        table[ids] = vectors * np.sqrt(np.mean(table**2) / np.mean(vectors**2))
        leaves[name] = table
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        record[side] = {"file": str(file.absolute()), "sha256": digest, "tokens": len(ids)}
        count = f"{len(ids):,} of {tokens:,} tokens start with vectors of {file}"
        logger.info(f"{name}: {count} ({len(ids) / tokens:.0%})")
    if jax.process_index() == 0:
        json_files.record_run(run.folder, vectors=record)
    return jax.tree.unflatten(jax.tree.structure(fresh), list(map(jnp.asarray, leaves.values())))
