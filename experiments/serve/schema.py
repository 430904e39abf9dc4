"""Pydantic models of the API's requests, and error messages for invalid requests."""

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from transformer.data.pictures.patches import MAX_PIXELS, count_pixels
from transformer.errors import UserError, shorten

BODY, TEXTS, CHARACTERS = 2**20, 64, 5_000  # maximum bytes, texts per request, characters per text
JSON, FORMS = "application/json", ("application/x-www-form-urlencoded", "multipart/form-data")

Text = Annotated[str, Field(max_length=CHARACTERS)]
Texts = Annotated[list[Text], Field(max_length=TEXTS)]
# No limit on characters, since translations by the server may be longer.
Targets = Annotated[list[str], Field(max_length=TEXTS)]
Picture = Annotated[str, Field(description="a data URL, such as data:image/png;base64,...")]
Pictures = Annotated[list[Picture], Field(max_length=TEXTS)]


class Request(BaseModel):  # the fields that all requests have
    model_config = ConfigDict(extra="forbid", strict=True)
    run: str | None = Field(
        None, description="name of a run, see /api/runs; by default the first with the operation"
    )


class Tagged(Request):  # requests to models trained on several corpora, selected by tag
    source_tag: str | None = Field(None, description="tag put before every text, such as <2de>")


class ScoreRequest(Tagged):
    texts: Texts
    targets: Targets | None = Field(None, description="translations of the texts, for a translator")


class AttentionRequest(Tagged):
    text: Text = Field("", description="text, or question about the picture")
    picture: Picture | None = None
    target: str | None = Field(None, description="translation of it; by default the model's own")


class BestRequest(Request):  # requests for the best results
    num_best: int | None = Field(None, description="results of each text, best first; by default 1")


class WriteRequest(BestRequest):
    texts: Texts


class TranslateRequest(WriteRequest, Tagged):
    prefixes: Texts | None = Field(None, description="how the translation of each text begins")
    glossary: dict[Text, Text] | None = Field(None, description="target terms by source term")
    confidence: bool | None = Field(
        None, description="adds to the best of each: confidence, words (pairs with probability)"
    )
    alignments: bool | None = Field(
        None, description="adds to the best of each: links (pairs of word numbers, from 0)"
    )


class Distribution(Tagged):  # requests for the most probable tokens
    num_best: int | None = Field(None, description="number of most probable tokens; by default 5")
    temperature: float | None = Field(None, description="divides the logits; by default 1")


class NextTokensRequest(Distribution):
    texts: Texts | None = None
    pictures: Pictures | None = None
    targets: Targets | None = Field(
        None, description="translations or captions, for models of these"
    )


class Inspected(Tagged):  # requests to look into one answer
    text: Text | None = None
    picture: Picture | None = None


class AlternativesRequest(Distribution, Inspected):
    target: str = Field(description="translation of the text, whose first tokens are kept")
    position: int = Field(description="index of a token of the target, from 0")


class BeamRequest(Inspected):
    prefix: Text | None = Field(None, description="how the translation begins")


class InterveneRequest(Tagged):
    text: Text
    changes: dict[str, Any] = Field(
        description="place -> what is done there, such as {'encoder.1.self.head.2.output': 0}"
    )


class LensRequest(Tagged):
    text: Text
    target: str | None = Field(None, description="translation of it; by default the model's own")
    num_best: int | None = Field(None, description="number of most probable tokens; by default 5")


class CaptionRequest(BestRequest):
    pictures: Pictures
    prefixes: Texts | None = Field(None, description="how the caption of each picture begins")


class ClassifyRequest(BestRequest):
    texts: Texts | None = Field(None, description="texts, or questions on pictures")
    pictures: Pictures | None = None


class LibreTranslateRequest(BaseModel):  # other fields, such as api_key, are ignored
    q: Texts = Field(description="text, or list of texts")
    source: str = Field(description="language code, or auto; see /languages")
    target: str = Field(description="language code")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="maximum number of other translations")


class Error(BaseModel):
    error: str = Field(description="one line with the value and the fix")


# Operation -> (summary with the response fields, request model).
API: dict[str, tuple[str, type[Request]]] = {
    "translate": ("Translates texts: translations, unread", TranslateRequest),
    "caption": ("Describes pictures: captions", CaptionRequest),
    "score": ("Scores texts, or translations of texts: scores, unread", ScoreRequest),
    "attention": ("Returns the weights of all heads over a text: frames, ...", AttentionRequest),
    "next_tokens": ("Probabilities of each token of texts: next_tokens", NextTokensRequest),
    "alternatives": ("Other tokens, and what would follow: alternatives", AlternativesRequest),
    "beam": ("The steps of the search for a translation: steps, beam_size", BeamRequest),
    "intervene": ("The best answer of a changed model: intervene", InterveneRequest),
    "lens": ("Most probable tokens after each layer of decoder, encoder: lens", LensRequest),
    "generate": ("Continues texts: continuations", WriteRequest),
    "classify": ("Classifies texts or pictures: classes, unread", ClassifyRequest),
}


def decode_pictures(urls: list[str], place: str) -> list[tuple[bytes, str]]:
    """Returns images from data URLs, with their names; checks their total number of pixels.

    `place` is a format string for the name of an image, given its index.
    """
    pictures, total = [], 0
    for number, url in enumerate(urls):
        name, (header, _, content) = place.format(number), url.partition(",")
        try:
            if not (header.startswith("data:image/") and header.endswith(";base64")):
                raise ValueError
            data = base64.b64decode(content, validate=True)
        except ValueError:
            raise UserError(f"{name} is not a data URL: send data:image/png;base64,...") from None
        if (total := total + count_pixels(data, name)) > MAX_PIXELS:
            raise UserError(f"pictures have over {MAX_PIXELS:,} pixels in all: send fewer at once")
        pictures.append((data, name))
    return pictures


def quote(value: Any) -> str:
    """Returns a client's value, shortened and printable, for use in an error message."""
    return shorten(json.dumps(value), 60)


def explain(error: Mapping[str, Any]) -> str:
    """Formats a pydantic error as one line with the field, its value and the fix."""
    if error["type"] == "json_invalid":
        return f"the body is not JSON ({error['ctx']['error']}): send an object"
    place = [part for part in error["loc"] if part != "body"]
    name = "".join(f"[{part}]" if isinstance(part, int) else part for part in place)
    name = shorten(name, 60) or "the body"
    return f"{name}: {error['msg']}, got {quote(error['input'])}; see /openapi.json"
