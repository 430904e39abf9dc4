"""Initial parameters from another run, and initial embeddings from word vector files."""

import itertools
import logging
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jaxtyping import Float

from transformer.config import flatten, value_of
from transformer.config.keys import having
from transformer.data.files.text import read_lines
from transformer.errors import UserError
from transformer.files import hash_file
from transformer.inference.base import Params, Predictor
from transformer.model.classifier import BAG
from transformer.optim.parameters import matching, named_leaves, rules_of
from transformer.runs.run import Run, start_line
from transformer.tasks import REGISTRY
from transformer.tasks.base import DOCUMENTS, PAIRS, initial_folder

KEY = "config.train.init_from"
FREQUENT = 1000  # in a file of subwords, some of this many first lines start with `▁`
Flat = Mapping[str, Any]  # arrays, keyed by parameter name
Rows = Mapping[str, Sequence[str]]  # for each embedding table, the tokens of its first rows

logger = logging.getLogger(__name__)


# -- another run


def check_source(run: Run) -> None:
    """Checks the source run of `train.init_from`, unless this run has already started."""
    if run.config.train.init_from and not run.step:
        _open_source(run)


def start_from(run: Run, predictor: Predictor, fresh: Params) -> tuple[Params, dict[str, Any]]:
    """Returns parameters initialised from another run, and the record that `read_run` returns.

    Args:
      predictor, fresh: the model to train, and its newly initialised parameters.
    """
    config, source = run.config, _open_source(run)
    here, there = flatten(config.model), flatten(source.config.model)
    differing = ", ".join(  # model keys that change the meaning of the parameters
        f"model.{key}={there[key]} (here {here[key]})"
        for key in here
        if here[key] != there[key] and f"model.{key}" not in having("start")
    )
    try:
        trained = source.load_trained()
        models = (predictor, fresh), (trained.predictor, trained.variables["params"])
        ours, theirs = (named_leaves(jax.device_get(params)) for _, params in models)
        rows, their_rows = (
            {name: tokens for name, (_, tokens) in named_tables(*model).items()} for model in models
        )
        params, record = carry(ours, theirs, rows, their_rows, config.train.init_pattern)
    except UserError as error:
        keys = f"; that run has {differing}" if differing else ""
        raise UserError(f"{KEY}={config.train.init_from}: {error}{keys}") from None
    if differing:
        logger.warning("warning: %s was trained with %s", source.folder, differing)
    rules, sizes = rules_of(config.train), {name: int(np.size(x)) for name, x in params.items()}
    record |= {
        "folder": str(source.folder.absolute()),
        "steps": list(map(int, trained.steps)),
        "parameters": sum(sizes.values()),
        "frozen": sum(size for name, size in sizes.items() if rules.is_frozen(name)),
    }
    logger.info("%s", start_line(record))
    return jax.tree.map(jnp.asarray, unflatten_dict(params, sep="/")), {"init_from": record}


def carry(
    fresh: Flat, source: Flat, fresh_rows: Rows, source_rows: Rows, pattern: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the `fresh` parameters, with the matches of `pattern` replaced from `source`.

    `fresh_rows` and `source_rows` hold the tokens of each row of the embedding tables. If a table
    has different tokens in the two runs, its rows are matched by token. The second result contains
    the entries `loaded`, `new` and `tables` of the record; see `read_run`.
    """
    names = matching("train.init_pattern", pattern, dict.fromkeys([*fresh, *source]))
    by_token = {x for x in names if x in fresh_rows and fresh_rows[x] != source_rows.get(x)}
    _check_shapes(names, by_token, fresh, source)
    params, loaded, tables = dict(fresh), 0, {}
    for name in names:
        if name in by_token:
            place = {token: i for i, token in enumerate(source_rows[name])}
            rows = np.array([place.get(token, -1) for token in fresh_rows[name]])
            shared = np.flatnonzero(rows >= 0)
            params[name] = table = np.array(fresh[name])
            table[shared] = np.asarray(source[name])[rows[shared]]
            tables[name] = {"carried": len(shared), "new": len(table) - len(shared)}
            loaded += len(shared) * (table.size // len(table))
        else:
            params[name] = np.asarray(source[name])
            loaded += params[name].size
    new = [name for name in fresh if name not in set(names)]
    return params, {"loaded": loaded, "new": new, "tables": tables}


def _check_shapes(names: Sequence[str], by_token: Set[str], fresh: Flat, source: Flat) -> None:
    """Raises UserError if a parameter has different shapes in the two runs, or if one lacks it."""
    unlike = []
    for name in names:
        here, there = (np.shape(x[name]) if name in x else "absent" for x in (fresh, source))
        follows = name in by_token and "absent" not in (here, there) and here[1:] == there[1:]
        if here != there and not follows:
            unlike.append((name, here, there))
    if unlike:
        name, here, there = unlike[0]
        more = f" ({len(unlike) - 1} more differ)" if len(unlike) > 1 else ""
        raise UserError(
            f"the parameter {name} is {here} here and {there} in that run{more}: give this run's "
            "model the keys of that one, or leave it out, as "
            f"config.train.init_pattern='^(?!{name.partition('/')[0]}/)' does"
        )


def _open_source(run: Run) -> Run:
    """Returns the source run of `train.init_from`, after checking that its config is compatible."""
    config = run.config
    folder = Path(config.train.init_from).expanduser()
    if not folder.is_dir():
        raise UserError(f"{KEY}={config.train.init_from} does not exist: name the folder of a run")
    source = Run(folder)
    for key in ("task", "model.architecture"):
        if (here := value_of(config, key)) != (there := value_of(source.config, key)):
            raise UserError(
                f"{KEY}={config.train.init_from} is a run of config.{key}={there}, not {here}: "
                f"name a run of the same, or set config.{key}={there}"
            )
    here, there = config.tokenizer.joint, source.config.tokenizer.joint
    if REGISTRY[config.task].reads == PAIRS and initial_folder(config) and here != there:
        raise UserError(
            f"config.tokenizer.joint={here}, and {KEY}={config.train.init_from} has {there}: set "
            f"config.tokenizer.joint={there}, or config.tokenizer.initial=new"
        )
    return source


def named_tables(predictor: Predictor, params: Params) -> dict[str, tuple[str, list[str]]]:
    """Returns (key in `Predictor.token_tables`, tokens) for each table, keyed by parameter name."""
    names = list(named_leaves(params))
    # Each parameter is replaced by its index in the tree, which identifies it in a token table.
    places = {name: np.full((1, 1), i, np.float32) for i, name in enumerate(names)}
    numbered = unflatten_dict(places, sep="/")
    return {
        names[int(vectors[0, 0])]: (use, tokenizer.pieces(range(tokenizer.vocab_size)))
        for use, (vectors, tokenizer) in predictor.token_tables({"params": numbered}).items()
    }


# -- word vectors, in the format of GloVe or word2vec


def start_with_vectors(
    run: Run, predictor: Predictor, fresh: Params
) -> tuple[Params, dict[str, Any]]:
    """Returns the `fresh` parameters with word vectors inserted, and a record for `read_run`.

    All vectors of a file are scaled by one factor, so that their root mean square equals that of
    the newly initialised embedding table.
    """
    config, leaves = run.config, dict(named_leaves(jax.device_get(fresh)))
    tables = named_tables(predictor, fresh)
    only = "target" if REGISTRY[config.task].reads == DOCUMENTS else "source"  # the "input" side
    uses = {table: use.replace("input", only).split("_") for table, (use, _) in tables.items()}
    record = {}
    for side in ("source", "target"):
        if not (value := config.train[f"{side}_vectors"]):
            continue
        key, file = f"config.train.{side}_vectors={value}", Path(value).expanduser()
        name = next((table for table, use in uses.items() if side in use), None)
        if name is None:
            raise UserError(f"{key}: the model has no {side} embeddings: leave the key out")
        table, tokens = np.array(leaves[name]), tables[name][1]
        rows = _vectors_of(tokens, file, table.shape[1], key, config.model.architecture)
        vectors = np.array(list(rows.values()))
        table[list(rows)] = vectors * np.sqrt(np.mean(table**2) / np.mean(vectors**2))
        leaves[name] = table
        about = {"file": str(file.absolute()), "sha256": hash_file(file), "tokens": len(rows)}
        record[side] = about
        count = f"{len(rows):,} of {len(tokens):,} tokens start with vectors of {file}"
        logger.info(f"{name}: {count} ({len(rows) / len(tokens):.0%})")
    return jax.tree.map(jnp.asarray, unflatten_dict(leaves, sep="/")), {"vectors": record}


def _vectors_of(
    tokens: Sequence[str], file: Path, width: int, key: str, architecture: str
) -> dict[int, Float[np.ndarray, "D"]]:
    """Returns the vectors of all tokens that occur as words in a file, keyed by token id.

    A token gets the vector of its word, or else of the lowercase word. Punctuation is always looked
    up, and any other token only if it starts a word. In a file of subwords, such as
    BPEmb's, in which `▁` also marks the start of a word, tokens are looked up unchanged.

    Args:
      width: the embedding dimension of the model.
      key: the config key and its value, for error messages.
    """
    words = [t.removeprefix("▁") if t[0] == "▁" or not re.search(r"\w", t) else "" for t in tokens]
    if any(line.startswith("▁") for line in itertools.islice(read_lines(file), FREQUENT)):
        words = tokens
    vectors, there = read_vectors(file, {*words, *map(str.lower, words)} - {""})
    if there != width:
        resize = "bag_of_embeddings_width" if architecture == BAG else "d_model"
        raise UserError(
            f"{key} has vectors of {there} numbers, and the embeddings of this model have {width}: "
            f"set config.model.{resize}={there}, or name a file of {width}"
        )
    each = (vectors.get(word, vectors.get(word.lower())) for word in words)
    rows = {i: row for i, row in enumerate(each) if row is not None}
    if not rows:
        raise UserError(
            f"{key} has none of the {len(tokens):,} tokens as a word: name a file of the language, "
            "or a tokenizer.kind that has whole words"
        )
    return rows


def read_vectors(path: Path, words: Set[str]) -> tuple[dict[str, Float[np.ndarray, "D"]], int]:
    """Returns the vectors of the given words in a file, and the dimension of its vectors.

    Each line contains a word and its vector, separated by single spaces. word2vec files start with
    the number of vectors and their dimension. Words may contain spaces, but tokens do not.
    """
    vectors, width, count, number = {}, 0, None, 0
    for number, line in enumerate(read_lines(path), 1):
        if number == 1:
            width = line.count(" ")
            if re.fullmatch(r"\d+ \d+ ?", line):
                count, width = map(int, line.split())
                continue
        word, *numbers = line.rstrip(" ").rsplit(" ", width)  # fastText ends lines with a space
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
