"""LibreTranslate's HTTP API for translation runs. Source: https://docs.libretranslate.com."""

import asyncio
import itertools
import logging
import re
import secrets
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePath

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from iso639 import Lang, is_language
from pydantic_core import from_json
from starlette.datastructures import UploadFile

from transformer.data.cleaning import language_identifier
from transformer.data.corpora import corpora_of, languages_of
from transformer.data.formats.lines import DocumentLines
from transformer.data.formats.markup import read_html
from transformer.data.formats.registry import COLUMNS, FORMATS, read_document
from transformer.errors import UserError
from .routes import Served
from .schema import CHARACTERS, JSON, TEXTS, LibreTranslateRequest, quote

logger = logging.getLogger(__name__)

# Open to forms, and to other sites if allowed.
PATHS = "/translate", "/detect", "/languages", "/translate_file", "/frontend/settings"
UNKNOWN = "und"  # ISO 639-2 code for an undetermined language
TAG = re.compile("(?:<2|>>)([a-z]{2,3})(?![a-z])")  # names the target: <2de>, or OPUS-MT's >>deu<<
BODY = {"requestBody": {"content": {JSON: {"schema": LibreTranslateRequest.model_json_schema()}}}}

MAX_FILES = 16  # translated files that the server keeps

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

    async def answer(request: Request, source: str, target: str, texts: list[str], count: int = 1):
        """Returns lists of translations, and the detected language if the source is `auto`."""
        answers, best = {}, {}
        parts = [*dict.fromkeys(filter(str.strip, texts))]
        if source == "auto":
            answers["detectedLanguage"] = await asyncio.to_thread(detect, parts, sources)
            source = answers["detectedLanguage"]["language"]
        run, tag = choose(pairs, source, target)
        while run and (some := parts[:TEXTS]):
            fields = {"texts": some, "num_best": min(count, run.routes["translate"].max_best)}
            fields["source_tag"] = tag
            found = (await compute(request, run, "translate", fields))["translations"]
            best |= {
                part: [each["text"] for each in row] for part, row in zip(some, found, strict=True)
            }
            parts = parts[TEXTS:]
        return [best.get(text, [text]) for text in texts], answers

    @app.post("/translate", summary="LibreTranslate: translatedText", openapi_extra=BODY)
    async def translate(request: Request) -> JSONResponse:
        fields, is_list = await _read(request)
        languages = fields.source, fields.target
        if fields.format == "html":
            pages = [DocumentLines(read_html(text.encode(), "q")) for text in fields.q]
            lines = [line for page in pages for line in page.lines]
            best, answers = await answer(request, *languages, lines)
            texts = (row[0] for row in best)
            rows = [
                [page.write([*itertools.islice(texts, len(page.lines))]).decode()] for page in pages
            ]
        else:
            rows, answers = await answer(request, *languages, fields.q, fields.alternatives + 1)
        if "detectedLanguage" in answers:
            answers["detectedLanguage"] = [answers["detectedLanguage"]] * len(rows)
        answers["translatedText"] = [row[0] for row in rows]
        if fields.alternatives:
            answers["alternatives"] = [row[1:] for row in rows]
        return JSONResponse({key: each if is_list else each[0] for key, each in answers.items()})

    files: dict[str, bytes] = {}  # the newest translated files, by name

    @app.post("/translate_file", summary="LibreTranslate: translatedFileUrl")
    async def translate_file(request: Request) -> JSONResponse:
        form = await request.form(max_files=1)
        if not isinstance(file := form.get("file"), UploadFile) or not form.get("target"):
            raise UserError("file and target are needed: send a form with both")
        name, target = PurePath(file.filename or "").name, str(form["target"])
        pair = _code(source := str(form.get("source", "auto"))), _code(target)
        lines = DocumentLines(read_document(await file.read(), name, None, pair))
        best, _ = await answer(request, source, target, lines.lines)
        path = f"{secrets.token_hex(16)}.{PurePath(name).stem}.{pair[1]}{PurePath(name).suffix}"
        files[path] = lines.write([row[0] for row in best])
        for old in [*files][:-MAX_FILES]:
            del files[old]
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", path=path))})

    @app.get("/download_file/{path}", summary="LibreTranslate: a translated file")
    async def download_file(path: str) -> Response:
        if path not in files:
            raise HTTPException(404, f"{quote(path)} is not here: translate it again")
        name = urllib.parse.quote(path.partition(".")[2])
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(files[path], media_type="application/octet-stream", headers=headers)

    @app.get("/frontend/settings", summary="LibreTranslate: settings of clients")
    async def settings() -> JSONResponse:
        (source, target), *_ = pairs
        sides = {"source": source, "target": target}
        language = {side: {"code": code, "name": names[code]} for side, code in sides.items()}
        formats = [suffix for suffix in FORMATS if suffix not in COLUMNS]
        return JSONResponse(
            {
                "apiKeys": False,
                "charLimit": CHARACTERS,
                "filesTranslation": True,
                "keyRequired": False,
                "language": language,
                "suggestions": False,
                "supportedFilesFormat": formats,
            }
        )


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
