"""LibreTranslate's HTTP API for translation runs. Source: https://docs.libretranslate.com."""

import asyncio
import html
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from iso639 import Lang, is_language
from pydantic_core import from_json

from transformer.data.cleaning import language_identifier
from transformer.data.corpora import corpora_of, languages_of
from transformer.errors import UserError
from .routes import Served
from .schema import JSON, LibreTranslateRequest, quote

logger = logging.getLogger(__name__)

PATHS = "/translate", "/detect", "/languages"  # open to forms, and to other sites if allowed
UNKNOWN = "und"  # ISO 639-2 code for an undetermined language
TAG = re.compile("(?:<2|>>)([a-z]{2,3})(?![a-z])")  # names the target: <2de>, or OPUS-MT's >>deu<<
COPIED = "|".join(rf"{tag}\b.*?</{tag}" for tag in ("script", "style", "pre", "code"))
MARKUP = re.compile(  # tags, comments, elements that are not translated, and spaces around them
    rf"(?is)((?:(?<!\s)(?:\s|&nbsp;)++)?+(?:<!--.*?-->|<(?:{COPIED})\s*>"
    r"""|<[a-z/!?](?:"[^"]*"|'[^']*'|[^'">])*+>)(?:\s|&nbsp;)*+)"""
)
HTML_SPACE = re.compile(r"[ \t\n\r\f]+")  # one space on a page; not the no-break space
BODY = {"requestBody": {"content": {JSON: {"schema": LibreTranslateRequest.model_json_schema()}}}}

Pairs = Mapping[tuple[str, str], tuple[Served, str | None]]  # languages -> run, source tag


def add_routes(app: FastAPI, pairs: Pairs, compute: Callable[..., Awaitable[dict]]) -> None:
    """Adds the routes; `compute(request, run, operation, fields)` returns the API's response."""
    names = {code: Lang(code).name.partition(" (")[0] for code in itertools.chain(*pairs)}
    languages = [
        {"code": code, "name": name, "targets": [to for source, to in pairs if source == code]}
        for code, name in names.items()
    ]
    sources = [source for source, _ in pairs]

    @app.get("/languages", summary="LibreTranslate: languages, and their target languages")
    async def list_languages() -> JSONResponse:
        return JSONResponse(languages)

    @app.post("/detect", summary="LibreTranslate: language of q")
    async def detect_language(request: Request) -> JSONResponse:
        fields, _ = await _read(request, source="auto", target="")
        return JSONResponse([await asyncio.to_thread(detect, fields.q, sources)])

    @app.post("/translate", summary="LibreTranslate: translatedText", openapi_extra=BODY)
    async def translate(request: Request) -> JSONResponse:
        fields, is_list = await _read(request)
        is_html, source, answers = fields.format == "html", fields.source, {}
        split = MARKUP.split if is_html else lambda text: [text]
        lines = await asyncio.to_thread(lambda: list(map(split, fields.q)))  # bad HTML takes long
        parts = list(dict.fromkeys(part for line in lines for part in line[::2] if part.strip()))
        texts = [HTML_SPACE.sub(" ", html.unescape(part)) for part in parts] if is_html else parts
        if source == "auto":
            detected = await asyncio.to_thread(detect, texts, sources)
            source, answers["detectedLanguage"] = detected["language"], [detected] * len(lines)
        results = [[{"text": text}] for text in texts]
        run, tag = choose(pairs, source, fields.target)
        if run:
            count = 1 if is_html else min(fields.alternatives + 1, run.routes["translate"].max_best)
            values = {"texts": texts, "num_best": count, "source_tag": tag}
            results = (await compute(request, run, "translate", values))["translations"]
        show = partial(html.escape, quote=False) if is_html else str
        rows = ([show(each["text"]) for each in row] for row in results)
        best = dict(zip(parts, rows, strict=True))
        answers["translatedText"] = ["".join(best.get(p, [p])[0] for p in line) for line in lines]
        if fields.alternatives:
            answers["alternatives"] = [best.get(line[0], [])[1:] for line in lines]
        return JSONResponse({key: each if is_list else each[0] for key, each in answers.items()})


async def _read(request: Request, **defaults: str) -> tuple[LibreTranslateRequest, bool]:
    """Returns the fields of a JSON object, a form or a query, and whether `q` is a list."""
    try:
        if JSON in request.headers.get("content-type", "").lower():
            values = dict(from_json(await request.body()))
        else:
            values = {**request.query_params, **await request.form(max_files=0)}
    except (TypeError, ValueError) as error:
        raise UserError(f"the body is not a JSON object ({error}): send an object") from None
    values = defaults | {name: value for name, value in values.items() if value}  # null: default
    is_list = isinstance(q := values.get("q"), list)
    values |= {"q": [q]} if q and not is_list else {}
    return LibreTranslateRequest.model_validate(values), is_list


def find_pairs(runs: Sequence[Served]) -> Pairs:
    """Returns the language pairs of the runs; if several runs have a pair, the first is used."""
    pairs: dict[tuple[str, str], tuple[Served, str | None]] = {}
    for run, data in ((run, run.run.config.data) for run in runs if "translate" in run.routes):
        corpora = [(corpus.data, corpus.tag, corpus.reverse) for corpus in corpora_of(data)]
        for settings, tag, reverse in corpora or [(data, "", False)]:
            sides = [_code(code, code in data.languages) for code in languages_of(settings)]
            source, target = sides[::-1] if reverse else sides
            if target == UNKNOWN and (match := TAG.match(tag)):
                target = _code(match[1])
            pairs.setdefault((source, target), (run, tag or None))
    for name in dict.fromkeys(run.name for codes, (run, _) in pairs.items() if UNKNOWN in codes):
        logger.info(f"{name}: without data.languages, /translate uses it for all other languages")
    return pairs


def choose(pairs: Pairs, source: str, target: str) -> tuple[Served | None, str | None]:
    """Returns the run and the tag for two languages; None if both are the same language."""
    pair = _code(source), _code(target)
    for codes in itertools.product((pair[0], UNKNOWN), (pair[1], UNKNOWN)):
        if codes in pairs:
            return pairs[codes]
    if len({*pair}) == 1 and pair[0] in itertools.chain(*pairs):
        return None, None
    choices = ", ".join(map(" to ".join, pairs))
    raise UserError(f"no run translates {quote([source, target])}: choose one of {choices}")


def detect(texts: Sequence[str], sources: Sequence[str]) -> dict:
    """Returns the most probable source language of the texts, and its confidence in percent."""
    ranked = language_identifier().rank("\n".join(texts))
    ranked = [each for each in ranked if each[0] in sources or UNKNOWN in sources]
    language, probability = ranked[0] if ranked else (sources[0], 0.0)
    total = sum(each for _, each in ranked) or 1.0  # 0 if the text is in another script
    return {"confidence": round(float(100 * probability / total), 1), "language": language}


def _code(code: str, is_certain: bool = True) -> str:
    """Returns the ISO 639-1 code, or else the ISO 639-3 code if certain, unlike in train.src."""
    code = re.split("[-_]", code.lower())[0]  # without a region, such as in en-US
    return (is_language(code) and (Lang(code).pt1 or is_certain * code)) or UNKNOWN
