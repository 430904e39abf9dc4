"""A row of a file of many, the fault of a broken one, and the fields that are read of it."""

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

from transformer.errors import UserError, shorten


class Row(NamedTuple):
    """The values of the fields that are read of a row, and its place: its line, or its number."""

    place: int
    values: tuple[Any, ...]


class Broken(NamedTuple):
    """A row that cannot be read: its place, and why."""

    place: int
    why: str


class BrokenError(Exception):
    """Why a row cannot be read."""


class Fields(NamedTuple):
    """The fields that are read of each row.

    Attributes:
      keys: of `config.data`, that name them.
      names: their names, or numbers of columns, from zero.
      exact: whether all lines of a table must have as many columns as its first, and blank lines
        are not rows; otherwise a line needs no more than the columns that are read.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    exact: bool

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The numbers of the columns; None if a field has a name."""
        if all(name.isdecimal() for name in self.names):
            return tuple(map(int, self.names))
        return None

    def check(self) -> None:
        """Raises UserError if a field has no name, or two have the same."""
        if "" in self.names or len(set(self.names)) < len(self.names):
            pairs = zip(self.keys, self.names, strict=True)
            named = " and ".join(f"config.data.{key}={shorten(name)!r}" for key, name in pairs)
            raise UserError(f"{named}: name different fields")

    def __str__(self) -> str:
        """The flags that name them, as a message quotes them."""
        return " and ".join(f"config.data.{key}" for key in self.keys)

    def missing(self, name: str, there: Iterable[str]) -> str:
        """Returns why a row without a field is broken, with the fields that there are."""
        there = list(there)
        near = difflib.get_close_matches(name, there, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        shown = listed(map(repr, there))
        return f"no field {shorten(name)!r}{hint}; its fields are {shown}"


def listed(names: Iterable[str]) -> str:
    """Returns names as a message quotes them."""
    return shorten(", ".join(shorten(name, 40) for name in names) or "none")
