"""Reads JSON that may be damaged or untrusted, and checks its structure.

A shape describes a valid value: a type, where `float` allows any number and `int` no boolean; a
tuple of alternative shapes; `[shape]`, a list; `Each(shape)`, an object whose values all have that
shape; or {key: shape}, an object with these keys and perhaps others. A key that ends in "?" may be
missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transformer.errors import UserError

MAX_FILE = 2**28  # bytes
MAX_NUMBER = 2**63
KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


class Each(NamedTuple):
    """The shape of an object with any keys whose values all have one shape."""

    shape: Any


def read_json(path: Path, shape: Any, fix: str) -> Any:
    """Returns the content of a UTF-8 JSON file.

    Args:
      shape: the shape that its value must have, see this module.
      fix: the end of the error message, such as "restore the original".

    Raises:
      UserError: the file is missing or damaged, or has another shape.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise UserError(f"{path} {what}: {fix}")
    if (size := path.stat().st_size) > MAX_FILE:
        raise UserError(f"{path} cannot be read (it has {size:,} bytes): {fix}")
    value, wrong = _parse(path.read_bytes(), shape)
    if wrong:
        raise UserError(f"{path} cannot be read ({wrong}): {fix}")
    return value


def read_json_lines(path: Path, shape: Any, fix: str) -> Iterator[tuple[int, Any]]:
    """Yields the number, from one, and the value of each line of a UTF-8 file of JSON.

    Args:
      shape, fix: see `read_json`.

    Raises:
      UserError: the file is missing, or a line is damaged or has another shape; the error names the
        line.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise UserError(f"{path} {what}: {fix}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            value, wrong = _parse(line, shape)
            if wrong:
                raise UserError(f"{path}, line {number}, cannot be read ({wrong}): {fix}")
            yield number, value


def _parse(data: bytes, shape: Any) -> tuple[Any, str | None]:
    """The value of a JSON text, and the error if it is invalid."""
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, f"byte {error.start + 1} is not UTF-8"
    except RecursionError:
        return None, "it is nested too deep"
    except ValueError as error:
        return None, str(error)
    return value, mismatch(value, shape)


def mismatch(value: Any, shape: Any, place: str = "") -> str | None:
    """Returns a description of the first mismatch of a value and a shape, or None; see this module.

    Args:
      place: dotted keys that lead to the value.
    """
    if isinstance(shape, tuple) and not isinstance(shape, Each):
        found = [mismatch(value, own, place) for own in shape]
        return None if None in found else found[0]
    kind = {dict: dict, list: list, Each: dict}.get(type(shape), shape)
    if not _is_of(value, kind):
        return f"{place or 'the whole'} is {_shown(value)} instead of {KINDS[kind]}"
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(shape, dict):
        for name, own in shape.items():
            key = name.removesuffix("?")
            if key in value:
                inner.append((key, value[key], own))
            elif key == name:
                return f"{_joined(place, key)} is missing"
    elif isinstance(shape, Each):
        inner = [(_quoted(key), each, shape.shape) for key, each in value.items()]
    elif isinstance(shape, list):
        inner = [(str(i), each, shape[0]) for i, each in enumerate(value)]
    wrong = (mismatch(each, own, _joined(place, key)) for key, each, own in inner)
    return next(filter(None, wrong), None)


def _is_of(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return kind is str and not any("\ud800" <= each <= "\udfff" for each in value)
    if isinstance(value, int):
        return kind in (int, float) and abs(value) < MAX_NUMBER
    return isinstance(value, kind)


def _joined(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _quoted(key: str) -> str:
    return key if key.isidentifier() and len(key) < 30 else ascii(key[:30])


def _shown(value: Any) -> str:
    """A value for a message, short and without control characters."""
    if isinstance(value, dict | list):
        return KINDS[type(value)]
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
