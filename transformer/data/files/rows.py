"""Rows of a data file: the values of the requested fields, or the error of a malformed row."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from transformer.errors import shorten


class BrokenError(Exception):
    """Raised if a row cannot be read; `place` is its line number, row number or file name."""

    place: int | str = 0


Rows = Iterator[tuple[int | str, tuple[Any, ...] | BrokenError]]


class RowTable(NamedTuple):
    """An open data file with rows.

    Attributes:
      about: description of the fields, for messages.
      names: field names, or column numbers.
      rows: (place, values of the requested fields or BrokenError) for each row.
    """

    about: str
    names: list[str]
    rows: Rows


class Fields(NamedTuple):
    """The fields to read from each row, and the keys of `config.data` that name them.

    A field is a name or a zero-based column index. If `exact` is true, all lines of a table must
    have as many columns as the first line, and blank lines are skipped. If `separator` or `quote`
    is '', it is inferred from the content.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    exact: bool
    separator: str = ""
    quote: str = ""

    def __str__(self) -> str:
        """The config keys that set the fields, formatted for messages."""
        return " and ".join(f"config.data.{key}" for key in dict.fromkeys(self.keys))

    def values(self, record: Any) -> tuple[Any, ...] | BrokenError:
        """Returns the field values of a dict or list; a BrokenError is returned unchanged."""
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
    """Returns a field of a dict or list; `name` may be a dotted path of keys and indices."""
    if isinstance(record, dict) and name in record:
        return record[name]
    first, _, rest = name.partition(".")
    value = record[int(first) if isinstance(record, list) else first]
    return _value(value, rest) if rest else value


def names_of(record: Any) -> list[str]:
    """Returns the keys of a dict, with dotted paths for nested dicts, or the indices of a list."""
    if isinstance(record, list):
        return [*map(str, range(len(record)))]
    inner = ((key, value if isinstance(value, dict) else ("",)) for key, value in record.items())
    return [f"{key}.{name}" if name else key for key, names in inner for name in names]


def missing(name: str, names: Iterable[str]) -> str:
    """Returns the error text for a missing field, with the names of the fields that exist."""
    return f"no field {shorten(name)!r}; its fields are {listed(map(repr, names))}"


def listed(names: Iterable[str]) -> str:
    """Joins names for a message, and shortens long names and lists."""
    return shorten(", ".join(shorten(name, 40) for name in names) or "none")


def text_value(value: Any, name: str = "text") -> str:
    """Returns a value if it is a valid string; otherwise raises BrokenError."""
    if not isinstance(value, str):
        raise BrokenError(f"the {name} is not a string but {json.dumps(value, default=str)[:40]}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BrokenError(f"the {name} has a lone surrogate, {ascii(value)[:40]}") from None
    return value
