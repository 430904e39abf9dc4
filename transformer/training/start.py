"""The run that another run starts from: it is opened and checked, and its weights are loaded."""

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import flatten, value_of
from transformer.config.keys import having
from transformer.errors import UserError
from transformer.inference.base import Params, Predictor
from transformer.optim.parameters import (
    ParameterRules,
    matching,
    named_leaves,
    rules_of,
)
from transformer.runs import json_files
from transformer.runs.run import Run
from transformer.tasks import REGISTRY
from transformer.tasks.base import PAIRS, initial_folder

KEY = "config.train.init_from"
HEAD = "output/"  # the module of a classifier with a column for each class
Flat = Mapping[str, Any]  # arrays by parameter name
Rows = Mapping[str, Sequence[str]]  # tokens of a table's first rows, by table name

logger = logging.getLogger(__name__)


# -- parameters by name, rows of tables by token


class Carried(NamedTuple):
    """Parameters, some of which come from another model.

    Attributes:
      params: all parameters, by name.
      loaded: number of values from the other model.
      new: names of the parameters that kept their initial values.
      tables: for each table, the number of rows from the other model, and of initial rows.
    """

    params: dict[str, np.ndarray]
    loaded: int
    new: tuple[str, ...]
    tables: dict[str, tuple[int, int]]


def carry(fresh: Flat, source: Flat, fresh_rows: Rows, source_rows: Rows, pattern: str) -> Carried:
    """Returns the `fresh` parameters of a new model, replaced by matching ones of `source`.

    `fresh_rows` and `source_rows` are the tokens that the rows of their tables belong to.
    """
    chosen = check_shapes(fresh, source, fresh_rows, source_rows, pattern)
    params, loaded, tables = dict(fresh), 0, {}
    for name in chosen:
        if name in fresh_rows:
            pieces = fresh_rows[name], source_rows[name]
            params[name], rows = carry_rows(fresh[name], source[name], *pieces)
            tables[name] = rows, len(fresh[name]) - rows
            loaded += rows * (fresh[name].size // len(fresh[name]))
        else:
            params[name] = np.asarray(source[name])
            loaded += params[name].size
    new = tuple(name for name in fresh if name not in set(chosen))
    return Carried(params, loaded, new, tables)


def carry_rows(
    fresh: Any, source: Any, fresh_pieces: Sequence[str], source_pieces: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Returns a table with another table's rows for shared tokens, and the number of these.

    Further rows, for hashed bigrams, belong to pairs of ids: they are carried over if every old
    token has kept its id.
    """
    place = {piece: i for i, piece in enumerate(source_pieces)}
    rows = np.array([place.get(piece, -1) for piece in fresh_pieces])
    shared = np.flatnonzero(rows >= 0)
    table = np.array(fresh)
    table[shared] = np.asarray(source)[rows[shared]]
    further = len(table) - len(rows)
    if not further or list(fresh_pieces[: len(source_pieces)]) != list(source_pieces):
        return table, len(shared)
    table[len(rows) :] = source[len(source_pieces) :]
    return table, len(shared) + further


def check_shapes(
    fresh: Flat, source: Flat, fresh_rows: Rows, source_rows: Rows, pattern: str
) -> list[str]:
    """Returns the names that `carry` carries over; only the shapes of the arrays are read."""
    chosen = matching("train.init_pattern", pattern, dict.fromkeys([*fresh, *source]))
    wrong = []
    for name in chosen:
        here, there = (np.shape(each[name]) if name in each else None for each in (fresh, source))
        if here and there and name in fresh_rows:
            further = [x[0] - len(r[name]) for x, r in ((here, fresh_rows), (there, source_rows))]
            fits = here[1:] == there[1:] and further[0] == further[1]
        else:
            fits = here == there
        if not fits:
            wrong.append((name, here, there))
    if not wrong:
        return chosen
    name, here, there = wrong[0]
    more = f" ({len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
    raise UserError(
        f"the parameter {name} is {_shape(here)} here and {_shape(there)} in that run{more}: give "
        "this run's model the keys of that one, or leave it out, as "
        f"config.train.init_pattern='^(?!{name.partition('/')[0]}/)' does"
    )


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "absent"
    return " × ".join(map(str, shape)) or "a number"


# -- the run that another run starts from


def check_source(run: Run) -> None:
    """Checks the run that this run starts from, unless it has started."""
    name = run.config.train.init_from
    if not name:
        return
    if Path(name).expanduser().resolve() == run.folder.resolve():
        raise UserError(
            f"{KEY}={name} is the folder of this run itself: give the new run a folder of its own, "
            "or leave the key out to go on with the run"
        )
    if not run.step:
        _open_source(run)


def check_fit(run: Run, predictor: Predictor) -> None:
    """Checks the shapes of the initial parameters before the run folder is created."""
    if not run.config.train.init_from:
        return
    source, pattern = _open_source(run), run.config.train.init_pattern
    with _naming_source(run, source):
        other = REGISTRY[source.config.task].without_text(source.config).load(source.folder)
        _check_classes(pattern, predictor, other)
        here, there = predictor.param_shapes(), other.param_shapes()
        check_shapes(
            named_leaves(here),
            named_leaves(there),
            table_rows(predictor, here),
            table_rows(other, there),
            pattern,
        )


def start_from(run: Run, predictor: Predictor, fresh: Params) -> Params:
    """Returns parameters taken from the source as configured; records what was loaded.

    Args:
      predictor: the model to train; `fresh` are its initial parameters.
    """
    source, pattern = _open_source(run), run.config.train.init_pattern
    with _naming_source(run, source):
        trained = source.load_trained()
        _check_classes(pattern, predictor, trained.predictor)
        params = trained.variables["params"]
        carried = carry(
            named_leaves(jax.device_get(fresh)),
            named_leaves(jax.device_get(params)),
            table_rows(predictor, fresh),
            table_rows(trained.predictor, params),
            pattern,
        )
    if differing := _differing_keys(run, source):
        logger.warning("warning: %s was trained with %s", source.folder, differing)
    start = _describe_start(carried, fresh, rules_of(run.config.train)) | {
        "folder": str(source.folder.absolute()),
        "steps": list(map(int, trained.steps)),
    }
    before = json_files.read_run(run.folder).get("init_from", {})
    if before | start == before:  # possibly with the scores of these weights
        start = before
    if jax.process_index() == 0:
        json_files.record_run(run.folder, init_from=start)
    logger.info("%s", json_files.start_line(start))
    leaves = [jnp.asarray(carried.params[name]) for name in named_leaves(fresh)]
    return jax.tree.unflatten(jax.tree.structure(fresh), leaves)


@contextlib.contextmanager
def _naming_source(run: Run, source: Run) -> Iterator[None]:
    """Adds the source and its differing keys to an error."""
    try:
        yield
    except UserError as error:
        differing = _differing_keys(run, source)
        keys = f"; that run has {differing}" if differing else ""
        raise UserError(f"{KEY}={run.config.train.init_from}: {error}{keys}") from None


def _describe_start(carried: Carried, fresh: Params, rules: ParameterRules) -> dict[str, Any]:
    """Returns the record of the start without the source, see `json_files.read_run`."""
    sizes = {name: int(np.size(x)) for name, x in named_leaves(fresh).items()}
    return {
        "parameters": sum(sizes.values()),
        "loaded": carried.loaded,
        "frozen": sum(size for name, size in sizes.items() if rules.is_frozen(name)),
        "new": list(carried.new),
        "tables": {
            name: {"carried": rows, "new": new} for name, (rows, new) in carried.tables.items()
        },
    }


def _open_source(run: Run) -> Run:
    """Returns the source run, after a check of its config against the run that starts from it."""
    config = run.config
    folder = Path(config.train.init_from).expanduser()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{KEY}={config.train.init_from} {what}: name the folder of a run")
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


def table_rows(predictor: Predictor, params: Params) -> dict[str, list[str]]:
    """Returns the tokens of the rows of each table of embeddings, by the parameter's name."""
    return {name: pieces for name, (_, pieces) in named_tables(predictor, params).items()}


def named_tables(predictor: Predictor, params: Params) -> dict[str, tuple[str, list[str]]]:
    """Returns each table's use, see `Predictor.token_tables`, and tokens, by the parameter."""
    names = list(named_leaves(params))
    # Each parameter is replaced by its index in the tree, so that a table shows its parameter.
    places = [np.full((1, 1), i, np.float32) for i in range(len(names))]
    numbered = jax.tree.unflatten(jax.tree.structure(params), places)
    return {
        names[int(vectors[0, 0])]: (use, tokenizer.pieces(range(tokenizer.vocab_size)))
        for use, (vectors, tokenizer) in predictor.token_tables({"params": numbered}).items()
    }


def _check_classes(pattern: str, predictor: Predictor, other: Predictor) -> None:
    """Raises UserError if an output layer for other classes would be carried over."""
    here, there = (getattr(each, "labels", ()) for each in (predictor, other))
    if here != there and re.search(pattern, f"{HEAD}kernel"):
        raise UserError(
            f"its classes are {', '.join(there)}, not {', '.join(here)}: leave their layer out by "
            f"config.train.init_pattern='^(?!{HEAD})'"
        )


def _differing_keys(run: Run, source: Run) -> str:
    """Returns the model keys that change the meaning of parameters, with the source's values."""
    ours, theirs = flatten(run.config.model), flatten(source.config.model)
    return ", ".join(
        f"model.{key}={theirs[key]} (here {ours[key]})"
        for key in ours
        if ours[key] != theirs[key] and f"model.{key}" not in having("start")
    )
