"""Rows of a data file: the values of the requested fields, or the reason why a row is broken."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from transformer.errors import shorten


class BrokenError(Exception):
    """The reason why a row cannot be read; its place is its line or row number."""

    place: int | str = 0


Rows = Iterator[tuple[int | str, tuple[Any, ...] | BrokenError]]


class RowTable(NamedTuple):
    """An open data file with rows.

    Attributes:
      about: a phrase about its fields, for messages.
      names: names of its fields, or numbers of its columns.
      rows: pairs of a row's place and the values of the requested fields.
    """

    about: str
    names: list[str]
    rows: Rows


class Fields(NamedTuple):
    """The fields to read from each row, by the keys of `config.data` that name them.

    A field is a name, or a column number, from zero. If `exact`, all lines of a table must have as
    many columns as the first line, and blank lines are not rows. If `separator` or `quote` of a
    table is '', it is guessed from the content.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    exact: bool
    separator: str = ""
    quote: str = ""

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The column numbers; None if any field is a name."""
        return tuple(map(int, self.names)) if all(map(str.isdecimal, self.names)) else None

    def __str__(self) -> str:
        """The flags that set the fields, as messages quote them."""
        return " and ".join(f"config.data.{key}" for key in dict.fromkeys(self.keys))

    def values(self, record: Mapping[str, Any] | BrokenError) -> tuple[Any, ...] | BrokenError:
        """Returns the values of the fields in a record; a BrokenError is passed on."""
        if isinstance(record, BrokenError):
            return record
        try:
            return tuple([record[name] for name in self.names])  # the fast path
        except KeyError as error:
            return BrokenError(missing(error.args[0], record))


def missing(name: str, names: Iterable[str]) -> str:
    """Returns why a row without a field is broken, with the names of the fields that it has."""
    return f"no field {shorten(name)!r}; its fields are {listed(map(repr, names))}"


def listed(names: Iterable[str]) -> str:
    """Returns names as a message quotes them."""
    return shorten(", ".join(shorten(name, 40) for name in names) or "none")


def text_value(value: Any, name: str = "text") -> str:
    """Returns a value if it is a text; otherwise raises BrokenError with the field's name."""
    if not isinstance(value, str):
        raise BrokenError(f"the {name} is not a string but {json.dumps(value, default=str)[:40]}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BrokenError(f"the {name} has a lone surrogate, {ascii(value)[:40]}") from None
    return value
