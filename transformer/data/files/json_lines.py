"""Objects or lists of JSON: one on each line, or all in one list.

pyarrow's reader of JSON will not do: it refuses values of several types in a field, such as labels
`0` and `"pos"`, and with a broken line all of its block.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.data.files.rows import BrokenError, Fields, Table, listed
from transformer.data.files.text import read_lines

WHOLE = re.compile(r"\s*\[\s*($|[\[{])")  # begins a list of rows; a row holds no lists


def read_jsonl(path: Path, fields: Fields) -> Table:
    """Returns the rows of a file of JSON lines. Blank lines are not rows.

    A field is a key of an object, or of an object inside it after a dot (`translation.en`), or the
    number of an element of a list, from zero.
    """
    records = _records(path)
    first = next(records, (0, BrokenError()))
    names = [] if isinstance(first[1], BrokenError) else [*first[1]]
    records = itertools.chain([first] * (first[0] > 0), records)
    rows = ((number, fields.values(record)) for number, record in records)
    return Table(f"its fields are {listed(map(repr, names))}", names, rows)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | BrokenError]]:
    """Yields the number and the fields of each line; if all are one list, of its elements."""
    lines = ((number, line) for number, line in enumerate(read_lines(path), 1) if line.strip())
    for number, line in lines:
        is_whole = number == 1 and WHOLE.match(line)
        try:
            value = json.loads(
                "\n".join([line, *(line for _, line in lines)]) if is_whole else line
            )
        except (ValueError, RecursionError) as error:
            yield number, BrokenError(f"no JSON ({error})")
        else:
            yield from enumerate(map(_fields, value), 1) if is_whole else [(number, _fields(value))]


def _fields(value: Any) -> dict[str, Any] | BrokenError:
    """Returns the fields of an object or a list, those of an object inside it after a dot."""
    if isinstance(value, list):
        return dict(zip(map(str, itertools.count()), value, strict=False))
    if not isinstance(value, dict):
        return BrokenError(f"not a JSON object but {type(value).__name__}")
    fields = {}
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            fields |= {f"{name}.{key}": each for key, each in inner.items()}
        else:
            fields[name] = inner
    return fields
