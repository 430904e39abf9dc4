"""Rows of a data file: the values of the requested fields, or the reason why a row is broken."""

import json
from collections.abc import Iterable, Iterator
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

    def __str__(self) -> str:
        """The flags that set the fields, as messages quote them."""
        return " and ".join(f"config.data.{key}" for key in dict.fromkeys(self.keys))

    def values(self, record: Any) -> tuple[Any, ...] | BrokenError:
        """Returns the values of the fields in a dict or list; a BrokenError is passed on."""
        if isinstance(record, BrokenError):
            return record
        values = []
        for name in self.names:
            try:
                values.append(_value(record, name))
            except (LookupError, TypeError, ValueError):
                return BrokenError(missing(name, names_of(record)))
        return tuple(values)


def _value(record: Any, name: str) -> Any:
    """Returns a field of a dict or list; a dot precedes the key or index of a field within it."""
    if isinstance(record, dict) and name in record:
        return record[name]
    first, _, rest = name.partition(".")
    value = record[int(first) if isinstance(record, list) else first]
    return _value(value, rest) if rest else value


def names_of(record: Any) -> list[str]:
    """Returns the names of the fields in a dict or list; those within a dict follow a dot."""
    if isinstance(record, list):
        return [*map(str, range(len(record)))]
    inner = ((key, value if isinstance(value, dict) else ("",)) for key, value in record.items())
    return [f"{key}.{name}" if name else key for key, names in inner for name in names]


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
