"""LibreTranslate's HTTP API for translation runs. Source: https://docs.libretranslate.com."""

import asyncio
import itertools
import logging
import re
import secrets
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from iso639 import Lang, is_language
from pydantic_core import from_json
from starlette.datastructures import UploadFile

from transformer.data.cleaning import language_identifier
from transformer.data.corpora import corpora_of, languages_of
from transformer.data.formats.lines import DocumentLines
from transformer.data.formats.registry import COLUMNS, FORMATS, read_document
from transformer.data.formats.tags import Aligned
from transformer.errors import UserError
from .routes import ALIGN, Served
from .schema import CHARACTERS, JSON, TEXTS, LibreTranslateRequest, quote

logger = logging.getLogger(__name__)

# Beginnings of paths that are open to forms, and to other sites if allowed.
PATHS = "/translate", "/detect", "/languages", "/download_file/", "/frontend/settings"
UNKNOWN = "und"  # ISO 639-2 code for an undetermined language
TAG = re.compile("(?:<2|>>)([a-z]{2,3})(?![a-z])")  # names the target: <2de>, or OPUS-MT's >>deu<<
BODY = {"requestBody": {"content": {JSON: {"schema": LibreTranslateRequest.model_json_schema()}}}}

MAX_FILES = 16  # translated files that the server keeps
SETTINGS = {
    "apiKeys": False,
    "charLimit": CHARACTERS,
    "filesTranslation": True,
    "keyRequired": False,
    "suggestions": False,
    "supportedFilesFormat": [end for end in FORMATS if end not in COLUMNS],
}

Pairs = Mapping[tuple[str, str], tuple[Served, str | None]]  # languages -> run, source tag


class LibreTranslate:
    """The handlers of the routes.

    Args:
      compute: takes (request, run, operation, fields), and returns the API's response.
    """

    def __init__(self, pairs: Pairs, compute: Callable[..., Awaitable[dict]]):
        self._pairs, self._compute = pairs, compute
        self._sources = [source for source, _ in pairs]
        self._files: dict[str, bytes] = {}  # the newest translated files by name

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes to an application."""
        names = {c: Lang(c).name.partition(" (")[0] for c in itertools.chain(*self._pairs)}
        targets = {code: [to for source, to in self._pairs if source == code] for code in names}
        languages = [
            {"code": code, "name": name, "targets": targets[code]} for code, name in names.items()
        ]
        first = zip(("source", "target"), next(iter(self._pairs)), strict=True)
        language = {side: {"code": code, "name": names[code]} for side, code in first}

        @app.get("/languages", summary="LibreTranslate: languages, and their target languages")
        async def list_languages() -> JSONResponse:
            return JSONResponse(languages)

        @app.get("/frontend/settings", summary="LibreTranslate: settings of clients")
        async def settings() -> JSONResponse:
            return JSONResponse(SETTINGS | {"language": language})

        @app.post("/detect", summary="LibreTranslate: language of q")
        async def detect_language(request: Request) -> JSONResponse:
            fields, _ = await _read(request, source="auto", target="")
            return JSONResponse([await asyncio.to_thread(detect, fields.q, self._sources)])

        post, summary = app.post, "LibreTranslate: translatedText"
        post("/translate", summary=summary, openapi_extra=BODY)(self.translate)
        post("/translate_file", summary="LibreTranslate: translatedFileUrl")(self.translate_file)
        summary = "LibreTranslate: a translated file"
        app.get("/download_file/{path}", summary=summary, name="download_file")(self.download_file)

    async def translate(self, request: Request) -> JSONResponse:
        """Translates texts, or the texts in pieces of HTML."""
        fields, is_list = await _read(request)
        options = request, fields.source, fields.target
        if fields.format == "html":
            pages = [await _read_lines(text.encode(), "q.html") for text in fields.q]
            lines = [line for page in pages for line in page.lines]
            aligned, facts = await self._answer(*options, lines, 1, ALIGN)
            best = (row[0] for row in aligned)
            texts = [page.write([next(best) for _ in page.lines]).decode() for page in pages]
            rows = [[Aligned(text)] for text in texts]
        else:
            rows, facts = await self._answer(*options, fields.q, fields.alternatives + 1)
        answer = {name: [fact] * len(rows) for name, fact in facts.items()}
        answer["translatedText"] = [row[0].text for row in rows]
        if fields.alternatives:
            answer["alternatives"] = [[each.text for each in row[1:]] for row in rows]
        return JSONResponse({key: each if is_list else each[0] for key, each in answer.items()})

    async def translate_file(self, request: Request) -> JSONResponse:
        """Translates a document, and returns its address."""
        async with request.form(max_files=1) as form:
            if not isinstance(file := form.get("file"), UploadFile) or not form.get("target"):
                raise UserError("file and target are needed: send a form with both")
            name, data = file.filename or "", await file.read()
        source, target = str(form.get("source") or "auto"), str(form["target"])
        lines = await _read_lines(data, name, pair := (_code(source), _code(target)))
        name_of_route = ALIGN if lines.tagged else "translate"
        rows, _ = await self._answer(request, source, target, lines.lines, 1, name_of_route)
        path = PurePath(name.replace("\\", "/"))
        name = f"{secrets.token_hex(16)}.{path.stem}.{pair[1]}{path.suffix}"
        self._files[name] = lines.write([row[0] for row in rows])
        for old in [*self._files][:-MAX_FILES]:
            del self._files[old]
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", path=name))})

    async def download_file(self, path: str) -> Response:
        """Returns a translated document."""
        if path not in self._files:
            raise HTTPException(404, f"{quote(path)} is not here: translate it again")
        name = urllib.parse.quote(path.partition(".")[2])
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(self._files[path], headers=headers, media_type="application/octet-stream")

    async def _answer(
        self,
        request: Request,
        source: str,
        target: str,
        texts: Sequence[str],
        count: int = 1,
        route: str = "translate",
    ) -> tuple[list[list[Aligned]], dict[str, Any]]:
        """Returns the best translations of each text, and the language if it is detected."""
        facts, best = {}, {}
        parts = [*dict.fromkeys(filter(str.strip, texts))]
        if source == "auto":
            facts["detectedLanguage"] = await asyncio.to_thread(detect, parts, self._sources)
            source = facts["detectedLanguage"]["language"]
        run, tag = choose(self._pairs, source, target)
        if not run:
            return [[_same(text)] for text in texts], facts
        count = min(count, run.routes["translate"].max_best)
        for start in range(0, len(parts), TEXTS):
            some = parts[start : start + TEXTS]
            fields = {"texts": some, "num_best": count, "source_tag": tag}
            rows = (await self._compute(request, run, route, fields))["translations"]
            aligned = ([Aligned(x["text"], x.get("links", ())) for x in row] for row in rows)
            best |= zip(some, aligned, strict=True)
        return [best.get(text, [_same(text)]) for text in texts], facts


def _same(text: str) -> Aligned:
    """Returns a text as its own translation."""
    return Aligned(text, [(i, i) for i in range(len(text.split()))])


async def _read_lines(
    data: bytes, name: str, languages: tuple[str, str] = ("", "")
) -> DocumentLines:
    """Reads a document in a thread, since a hostile one takes a second."""
    read = lambda: DocumentLines(read_document(data, name, None, languages))  # noqa: E731
    return await asyncio.to_thread(read)


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
