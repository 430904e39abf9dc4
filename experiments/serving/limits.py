"""The limits of requests, and the checks of their bodies."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request

from transformer.errors import UserError, one_line, shorten

SHOWN = 60  # characters of a value in a message
# Of a body that is too large, as many times more is read and dropped: a client that still sends
# when its connection is closed does not read why.
DRAINED = 128


class Limits(NamedTuple):
    """The limits of a request.

    Attributes:
      body: bytes.
      texts: of a request.
      characters: of a text, but for translations that are given.
      waiting: requests in the queue.
      seconds: until the answer.
      reading: seconds until a request, its headers or its body, has arrived.
    """

    body: int = 2**20
    texts: int = 64
    characters: int = 5_000
    waiting: int = 256
    seconds: float = 30.0
    reading: float = 10.0


class Field(NamedTuple):
    """A field of a request.

    Attributes:
      kind: texts, text, count or name.
      any_length: whether its texts may have as many characters as the body has room for, as the
        server's own translation of a text may.
    """

    kind: str
    help: str
    required: bool = False
    any_length: bool = False


RUN = Field("name", "name of the run, see /api/runs; by default the first that has the operation")
TEXTS = Field("texts", "list of texts", required=True)
NUM_BEST = Field("count", "how many results of each text, best first; by default 1")
TAG = Field("name", "tag put before every text, of a model of several corpora, such as <2de>")
FIELDS: dict[str, dict[str, Field]] = {
    "translate": {"texts": TEXTS, "num_best": NUM_BEST, "source_tag": TAG, "run": RUN},
    "score": {
        "texts": TEXTS,
        "targets": Field("texts", "translations of the texts, for a translator", any_length=True),
        "source_tag": TAG,
        "run": RUN,
    },
    "attention": {
        "text": Field("text", "the text that is read", required=True),
        "target": Field("text", "its translation; by default the model's own", any_length=True),
        "source_tag": TAG,
        "run": RUN,
    },
    "generate": {"texts": TEXTS, "num_best": NUM_BEST, "run": RUN},
    "classify": {"texts": TEXTS, "num_best": NUM_BEST, "run": RUN},
}


async def read_fields(request: Request, fields: Mapping[str, Field], limits: Limits) -> dict:
    """Returns the checked fields of a request's body.

    Raises:
      HTTPException: it is too large, too slow, or not JSON.
      UserError: a field is missing, unknown or has a wrong value.
    """
    try:
        async with asyncio.timeout(limits.reading):
            body = await _read(request, limits.body)
    except TimeoutError:
        raise HTTPException(
            408, f"the body did not arrive in {limits.reading:g} seconds: send it faster"
        ) from None
    try:
        found = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = shorten(one_line(str(error)), SHOWN)
        raise HTTPException(400, f"the body is not JSON ({reason}): send an object") from None
    if not isinstance(found, dict):
        raise UserError(f"the body is {_kind(found)}: send an object with {_listed(fields)}")
    for name in found:
        if name not in fields:
            raise UserError(f"{shorten(name, SHOWN)!r} is unknown: use {_listed(fields)}")
    for name, field in fields.items():
        if field.required and found.get(name) is None:
            raise UserError(f"{name!r} is missing: give the {field.help}")
        if found.get(name) is None:
            found.pop(name, None)
        else:
            _check(name, field, found[name], limits)
    return found


async def _read(request: Request, most: int) -> bytes:
    too_large = HTTPException(
        413,
        f"the body has more than {most:,} bytes: send fewer texts at once",
        {"Connection": "close"},
    )
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            parts.append(part)
        elif size > DRAINED * most:
            break
    if size > most:
        raise too_large
    return b"".join(parts)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _check(name: str, field: Field, value: Any, limits: Limits) -> None:
    characters = limits.body if field.any_length else limits.characters
    if field.kind == "count":
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{name} is {_kind(value)}: give a whole number")
    elif field.kind == "texts":
        if not isinstance(value, list):
            raise UserError(f"{name} is {_kind(value)}: give a list of texts")
        if len(value) > limits.texts:
            raise UserError(
                f"{name} has {len(value):,} texts, more than {limits.texts}: send them in several "
                "requests"
            )
        for number, text in enumerate(value):
            _check_text(f"{name}[{number}]", text, characters)
    else:
        _check_text(name, value, characters)


def _check_text(name: str, text: Any, most: int) -> None:
    if not isinstance(text, str):
        raise UserError(f"{name} is {_kind(text)}: give a text")
    if len(text) > most:
        raise UserError(f"{name} has {len(text):,} characters, more than {most:,}: split it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise UserError(f"{name} has {half}, half of a character: leave it out") from None


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value)) or f"{shorten(repr(value), SHOWN)}"


def _listed(fields: Mapping[str, Field]) -> str:
    return ", ".join(fields)
