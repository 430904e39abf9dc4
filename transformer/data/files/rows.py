"""The rows of a file of many: the values of the fields that are read, or why there are none."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from transformer.errors import shorten


class BrokenError(Exception):
    """Why a row cannot be read; its place is its line, or its number."""

    place: int | str = 0


Rows = Iterator[tuple[int | str, tuple[Any, ...] | BrokenError]]


class RowTable(NamedTuple):
    """An open file of rows.

    Attributes:
      about: a phrase on its fields, for messages.
      names: of its fields, or numbers of its columns.
      rows: the place of each row, and the values of the fields that are read.
    """

    about: str
    names: list[str]
    rows: Rows


class Fields(NamedTuple):
    """The fields that are read of each row, by the keys of `config.data` that name them.

    They are names, or numbers of columns, from zero. If `exact`, all lines of a table must have as
    many columns as its first, and blank lines are not rows. Of a table, `separator` and `quote` are
    what its content shows if they are ''.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    exact: bool
    separator: str = ""
    quote: str = ""

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The numbers of the columns; None if a field has a name."""
        return tuple(map(int, self.names)) if all(map(str.isdecimal, self.names)) else None

    def __str__(self) -> str:
        """The flags that name them, as a message quotes them."""
        return " and ".join(f"config.data.{key}" for key in dict.fromkeys(self.keys))

    def values(self, record: Mapping[str, Any] | BrokenError) -> tuple[Any, ...] | BrokenError:
        """Returns the values of the fields in a record by their names; a broken one, as it is."""
        if isinstance(record, BrokenError):
            return record
        try:
            return tuple([record[name] for name in self.names])  # quick, for there are many
        except KeyError as error:
            return BrokenError(missing(error.args[0], record))


def missing(name: str, names: Iterable[str]) -> str:
    """Returns why a row without a field is broken, with the names of the fields that it has."""
    return f"no field {shorten(name)!r}; its fields are {listed(map(repr, names))}"


def listed(names: Iterable[str]) -> str:
    """Returns names as a message quotes them."""
    return shorten(", ".join(shorten(name, 40) for name in names) or "none")


def text_value(value: Any, name: str = "text") -> str:
    """Returns a value that is a text; raises BrokenError, with the name, of any other."""
    if not isinstance(value, str):
        raise BrokenError(f"the {name} is not a string but {json.dumps(value, default=str)[:40]}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BrokenError(f"the {name} has a lone surrogate, {ascii(value)[:40]}") from None
    return value
