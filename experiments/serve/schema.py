"""The requests and answers of the API as pydantic models, and what is wrong of a request."""

import base64
import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from transformer.data.pictures.files import MAX_PIXELS, count_pixels
from transformer.errors import UserError, shorten

BODY, TEXTS, CHARACTERS = 2**20, 64, 5_000  # bytes, texts of a request, characters of a text
BEST = "results of each text, best first; by default 1"
TYPE_PHRASES = {
    "string_type": "a text",
    "list_type": "a list of texts",
    "int_type": "a whole number",
}

Text = Annotated[str, Field(max_length=CHARACTERS)]


class Request(BaseModel):  # the fields of every request
    model_config = ConfigDict(extra="forbid", strict=True)
    run: str | None = Field(
        None, description="name of a run, see /api/runs; by default the first with the operation"
    )


class Tagged(Request):  # to a model that may be one of several corpora
    source_tag: str | None = Field(None, description="tag put before every text, such as <2de>")


class TranslateRequest(Tagged):
    texts: list[Text] = Field(max_length=TEXTS)
    num_best: int | None = Field(None, description=BEST)


class ScoreRequest(Tagged):
    texts: list[Text] = Field(max_length=TEXTS)
    # Translations, the server's own among them, may have as many characters as the body.
    targets: list[str] | None = Field(
        None, max_length=TEXTS, description="translations of the texts, for a translator"
    )


Picture = Annotated[str, Field(description="a data URL, such as data:image/png;base64,...")]


class AttentionRequest(Tagged):
    text: Text = Field("", description="text, or question about the picture")
    picture: Picture | None = None
    target: str | None = Field(None, description="translation of it; by default the model's own")


class WriteRequest(Request):
    texts: list[Text] = Field(max_length=TEXTS)
    num_best: int | None = Field(None, description=BEST)


class ClassifyRequest(Request):
    texts: list[Text] | None = Field(
        None, max_length=TEXTS, description="texts, or questions on pictures"
    )
    pictures: list[Picture] | None = Field(None, max_length=TEXTS)
    num_best: int | None = Field(None, description=BEST)


Unread = Annotated[int, Field(description="tokens at its end that the model does not read")]


class Answer(BaseModel):
    run: str


class TranslationFields(BaseModel):
    text: str
    score: float
    tokens: int
    degenerate: int


class TranslationsAnswer(Answer):
    translations: list[list[TranslationFields]]
    unread: list[Unread]


class Sides(BaseModel):
    source: Unread
    target: Unread


class ScoreFields(BaseModel):
    log_prob: float
    tokens: int


class ScoresAnswer(Answer):
    scores: list[ScoreFields]
    unread: list[Sides]


class Array(BaseModel):
    shape: list[int]
    float32: str = Field(description="base64, little-endian, in C order")


class Frame(BaseModel):
    """Weights [layers, heads, rows, columns] and norms of values [layers, heads, columns]."""

    label: str
    weights: dict[str, Array] = Field(description="of encoder_self, decoder_self, cross")
    norms: dict[str, Array]


class Heads(Answer):
    source: list[str]
    target: list[str]
    written: list[str]
    frames: list[Frame]
    unread: Sides
    omitted: Sides = Field(description="tokens that the arrays leave out, the unread among them")
    notes: list[str]


class ContinuationFields(BaseModel):
    text: str
    score: float | None


class ContinuationsAnswer(Answer):
    continuations: list[list[ContinuationFields]]


class Class(BaseModel):
    label: str
    probability: float


class Classes(Answer):
    classes: list[list[Class]]
    unread: list[Unread]


class Error(BaseModel):
    error: str = Field(description="one line with the value and the fix")


API: dict[str, tuple[str, type[Request], type[Answer]]] = {
    "translate": ("Translates texts", TranslateRequest, TranslationsAnswer),
    "score": ("Scores texts, or translations of texts", ScoreRequest, ScoresAnswer),
    "attention": ("Returns the attention of all heads over a text", AttentionRequest, Heads),
    "generate": ("Continues texts", WriteRequest, ContinuationsAnswer),
    "classify": ("Classifies texts or pictures", ClassifyRequest, Classes),
}


def decode_pictures(urls: list[str], names: list[str]) -> list[bytes]:
    """Returns the content of data URLs of pictures, which have few pixels in all."""
    contents, total = [], 0
    for url, name in zip(urls, names, strict=True):
        header, _, content = url.partition(",")
        try:
            if not (header.startswith("data:image/") and header.endswith(";base64")):
                raise ValueError
            contents.append(base64.b64decode(content, validate=True))
        except ValueError:
            raise UserError(f"{name} is not a data URL: send data:image/png;base64,...") from None
        if (total := total + count_pixels(contents[-1], name)) > MAX_PIXELS:
            raise UserError(f"pictures have over {MAX_PIXELS:,} pixels in all: send fewer at once")
    return contents


def quote(value: Any) -> str:
    """Returns a value of a client for a message, short and printable."""
    return shorten(json.dumps(value), 60)


def explain(error: Mapping[str, Any], fields: Collection[str]) -> str:
    """Returns an error of pydantic in one line, with the value and the fix."""
    _, *place = error["loc"]
    name = "".join(f"[{part}]" if isinstance(part, int) else part for part in place)
    name, value = shorten(name, 60) or "the body", error["input"]
    match error["type"]:
        case "json_invalid":
            return f"the body is not JSON ({error['ctx']['error']}): send an object"
        case "missing":
            return f"{name} is missing: give it, see /openapi.json"
        case "extra_forbidden":
            return f"{name} is unknown: use {', '.join(fields)}"
        case "string_too_long":
            return f"{name} has {len(value):,} characters, more than {CHARACTERS:,}: split it"
        case "too_long":
            return f"{name} has {len(value):,} texts, more than {TEXTS}: send several requests"
        case "string_unicode":
            return f"{name} has half of a character in {quote(value)}: leave it out"
    kind = TYPE_PHRASES.get(error["type"], f"an object with {', '.join(fields)}")
    return f"{name} is {quote(value)}: give {kind}"
