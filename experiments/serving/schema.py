"""The description of the API as OpenAPI, see https://spec.openapis.org/oas/v3.1.0."""

from typing import Any

from experiments.serving.limits import FIELDS, Field

ABOUT = {
    "translate": "Translates texts",
    "score": "Scores texts, or translations of texts",
    "attention": "Returns the attention of all heads over a text",
    "generate": "Continues texts",
    "classify": "Classifies texts",
}
TYPES: dict[str, dict[str, Any]] = {
    "texts": {"type": "array", "items": {"type": "string"}},
    "text": {"type": "string"},
    "name": {"type": "string"},
    "count": {"type": "integer", "minimum": 1},
}
NUMBER, COUNT, TEXT = {"type": "number"}, {"type": "integer"}, {"type": "string"}


def _list(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": values}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


ARRAY = _object(
    shape=_list(COUNT), float32={**TEXT, "description": "base64, little-endian, in C order"}
)
FRAME = _object(
    label=TEXT,
    weights={
        "type": "object",
        "description": "by kind, [layers, heads, rows, columns]: encoder_self, decoder_self, cross",
        "additionalProperties": ARRAY,
    },
    norms={
        "type": "object",
        "description": "norms of the values, by kind, [layers, heads, columns]",
        "additionalProperties": ARRAY,
    },
)
UNREAD = "tokens that the model does not read, because it has more than it can"
OMITTED = "tokens that the arrays leave out, those that are not read among them"
SIDES = _object(source=COUNT, target=COUNT)
UNREAD_TEXTS = {**_list(COUNT), "description": f"of each text, the {UNREAD}"}
ANSWERS: dict[str, dict[str, Any]] = {
    "translate": {
        "translations": _list(
            _list(_object(text=TEXT, score=NUMBER, tokens=COUNT, degenerate=COUNT))
        ),
        "unread": UNREAD_TEXTS,
    },
    "score": {
        "scores": _list(_object(log_prob=NUMBER, tokens=COUNT)),
        "unread": {**_list(SIDES), "description": f"of each pair or text, the {UNREAD}"},
    },
    "attention": {
        "source": _list(TEXT),
        "target": _list(TEXT),
        "written": _list(TEXT),
        "frames": _list(FRAME),
        "unread": {**SIDES, "description": UNREAD},
        "omitted": {**SIDES, "description": OMITTED},
        "notes": _list(TEXT),
    },
    "generate": {
        "continuations": _list(_list(_object(text=TEXT, score={"type": ["number", "null"]})))
    },
    "classify": {
        "classes": _list(_list(_object(label=TEXT, probability=NUMBER))),
        "unread": UNREAD_TEXTS,
    },
}
ERRORS = {
    400: "a field is missing, unknown or has a wrong value, or the body is not JSON",
    403: "the request is from another site's page",
    404: "there is no such run",
    405: "the method is not POST",
    408: "the body arrives too slowly",
    413: "the body is too large",
    415: "the body is not application/json",
    421: "Host is not a name of this server",
    500: "an error of the server, whose log has the traceback",
    503: "too many requests wait: try again after Retry-After seconds",
    504: "the answer takes too long",
}


def schema() -> dict[str, Any]:
    """Returns the document."""
    posts = {f"/api/{name}": {"post": _post(name, fields)} for name, fields in FIELDS.items()}
    gets = {
        "/api/runs": "The runs, with their operations, the limits, and whether the server is ready",
        "/health": "200 if the common programs are compiled, else 503",
        "/metrics": "Numbers in the text format of Prometheus",
    }
    found = {path: {"get": _get(summary)} for path, summary in gets.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "transformer-jax", "version": "1"},
        "paths": posts | found,
    }


def _get(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": summary}}}


def _post(name: str, fields: dict[str, Field]) -> dict[str, Any]:
    properties = {
        key: TYPES[field.kind] | {"description": field.help} for key, field in fields.items()
    }
    required = [key for key, field in fields.items() if field.required]
    body = {"type": "object", "additionalProperties": False, "required": required}
    answer = _object(run=TEXT, **ANSWERS[name])
    return {
        "summary": ABOUT[name],
        "requestBody": {"required": True, "content": _json(body | {"properties": properties})},
        "responses": {"200": {"description": "the answer", "content": _json(answer)}}
        | {
            str(code): {"description": reason, "content": _json(_object(error=TEXT))}
            for code, reason in ERRORS.items()
        },
    }


def _json(values: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": values}}
