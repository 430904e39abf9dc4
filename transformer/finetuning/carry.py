"""The parameters of one model carried over into another: by name, rows of tables by piece."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.errors import UserError
from transformer.model.parameters import EVERYTHING, matching

Flat = Mapping[str, Any]  # arrays by the names of parameters
Rows = Mapping[str, Sequence[str]]  # the pieces of a table's first rows, by its name
MAX_LEFT_OUT = 8  # modules that a message's pattern leaves out


class Carried(NamedTuple):
    """Parameters that are in part another model's.

    Attributes:
      params: all of them, by name.
      loaded: how many numbers are the other model's.
      new: names of those that are as they were.
      tables: how many rows of each table are the other model's, and how many as they were.
    """

    params: dict[str, np.ndarray]
    loaded: int
    new: tuple[str, ...]
    tables: dict[str, tuple[int, int]]


def carry(fresh: Flat, source: Flat, fresh_rows: Rows, source_rows: Rows, pattern: str) -> Carried:
    """Returns `fresh` with the parameters of `source` whose names match a pattern.

    Args:
      fresh, source: parameters of the new model, and of the one that was trained.
      fresh_rows, source_rows: the pieces that the rows of their tables belong to.
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
    """Returns a table with the rows of another whose pieces it has, and how many these are.

    Rows behind those of the pieces, of hashed bigrams, belong to pairs of ids: they are carried if
    every old piece has kept its id.
    """
    place = {piece: i for i, piece in enumerate(source_pieces)}
    rows = np.array([place.get(piece, -1) for piece in fresh_pieces])
    known = np.flatnonzero(rows >= 0)
    table = np.array(fresh)
    table[known] = np.asarray(source)[rows[known]]
    further = len(table) - len(rows)
    if not further or list(fresh_pieces[: len(source_pieces)]) != list(source_pieces):
        return table, len(known)
    table[len(rows) :] = source[len(source_pieces) :]
    return table, len(known) + further


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
    left_out = dict.fromkeys(_module(name, fresh, source) for name, _, _ in wrong)
    fix = (
        f", or leave it out by config.train.init_pattern='{leave_out(pattern, left_out)}'"
        if len(left_out) <= MAX_LEFT_OUT
        else ""
    )
    raise UserError(
        f"the parameter {name} is {_shown(here)} here and {_shown(there)} in that run{more}: give "
        f"this run's model the keys of that one{fix}"
    )


def leave_out(pattern: str, modules: Iterable[str]) -> str:
    """Returns a pattern of the names that `pattern` matches, but those that begin with `modules`.

    Args:
      modules: patterns.
    """
    rest = "" if pattern == EVERYTHING else f".*?(?:{pattern})"
    return f"^(?!{'|'.join(modules)}){rest}"


def _module(name: str, fresh: Flat, source: Flat) -> str:
    """A pattern of the outermost module that only one of the models has, or of the parameter."""
    smaller = source if name in fresh else fresh
    parts = name.split("/")
    for depth in range(1, len(parts)):
        prefix = "/".join(parts[:depth]) + "/"
        if not any(other.startswith(prefix) for other in smaller):
            return re.escape(prefix)
    return re.escape(name) + "$"


def _shown(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "absent"
    return " × ".join(map(str, shape)) or "a number"
