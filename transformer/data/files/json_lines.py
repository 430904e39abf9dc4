"""Objects or lists of JSON: one on each line, or all in one list."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.data.files.rows import Broken, BrokenError, Fields, Row, listed
from transformer.data.files.text import read_lines

WHOLE = re.compile(r"\s*\[\s*($|[\[{])")  # begins a list of rows; a row holds no lists


def read_jsonl(path: Path, fields: Fields) -> Iterator[Row | Broken]:
    """Yields the rows of a file of JSON lines. Blank lines are not rows.

    A field is a key of an object, or of an object inside it after a dot (`translation.en`), or the
    number of an element of a list, from zero.

    Raises:
      UserError: the file cannot be read.
    """
    for number, line in _records(path):
        try:
            yield Row(number, tuple(_values(line, fields)))
        except BrokenError as error:
            yield Broken(number, str(error))


def describe_jsonl(path: Path, _: Fields) -> tuple[str, list[str]]:
    """Returns a phrase on the fields of the first line, for messages, and their names."""
    for _number, line in _records(path):
        with contextlib.suppress(ValueError):
            if isinstance(record := json.loads(line), dict):
                return f"its fields are {listed(map(repr, names_of(record)))}", [*names_of(record)]
        return "its first line is not an object", []
    return "it has no lines", []


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """Yields number and JSON of each line; if all are one list, of its elements."""
    lines = ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())
    for number, line in lines:
        if number == 1 and WHOLE.match(line):
            whole = "\n".join([line, *(line for _, line in lines)])
            try:
                yield from enumerate(map(json.dumps, json.loads(whole)), 1)
            except (ValueError, RecursionError):
                yield number, whole  # which cannot be read as a row either
        else:
            yield number, line


def names_of(record: dict[str, Any]) -> Iterator[str]:
    """Yields the names of the fields of an object, those of an object inside it after a dot."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def _values(line: str, fields: Fields) -> Iterator[Any]:
    """Yields the values of the fields of a line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenError(f"no JSON ({error})") from None
    if isinstance(record, list) and (numbers := fields.numbers) is not None:
        if max(numbers) >= len(record):
            raise BrokenError(f"a list of {len(record)}, too few for column {max(numbers)} from 0")
        yield from (record[number] for number in numbers)
        return
    if not isinstance(record, dict):
        raise BrokenError(f"not a JSON object but {type(record).__name__}")
    for name in fields.names:
        group, dot, inner = name.partition(".")
        if name in record:
            yield record[name]
        elif dot and isinstance(record.get(group), dict) and inner in record[group]:
            yield record[group][inner]
        else:
            raise BrokenError(fields.missing(name, names_of(record)))
